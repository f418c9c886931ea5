"""Things as they are behind Spark's pickle."""

from __future__ import annotations

from typing import TypeVar

from pyspark import cloudpickle

_T = TypeVar("_T")


def pickled(thing: object) -> bytes:
    """Return the bytes that Spark would send."""
    found: bytes = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    return found


def behind_pickle(thing: _T) -> _T:
    """Return what arrives where a thing is sent to."""
    again: _T = cloudpickle.loads(pickled(thing))
    return again
