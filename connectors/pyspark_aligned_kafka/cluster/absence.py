"""Absence: since when all answers have lacked something, and after how long it counts as gone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

GONE_AFTER_S: Final = 5.0
"""What was there before is gone after this time only: gone by mistake, it would be read from its beginning again.

A broker that just started may not know of it yet.
"""
_Named = TypeVar("_Named")


def gone_after(limit_s: float) -> float:
    """Return after how many seconds something is gone, which are at most half of a time limit."""
    return min(GONE_AFTER_S, limit_s / 2)


def absent_since(before: Mapping[_Named, float], absent: Iterable[_Named]) -> dict[_Named, float]:
    """Return since when, by ``time.monotonic()``, all answers in a row have lacked what the one of now lacks.

    ``before`` is the same as of the answer before. Time without an answer tells nothing.
    """
    now = time.monotonic()
    return {each: before.get(each, now) for each in absent}
