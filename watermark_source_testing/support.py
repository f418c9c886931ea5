"""What checks observe: connections (by the interpreter's audit events), log lines, pickles."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import NamedTuple, TypeVar

from pyspark import cloudpickle

from watermark_source_testing.harness import NonConformanceError

_refused_in: set[int] = set()
"""Threads that may not connect now."""
_installed: list[bool] = []


def _audit(event: str, _: object) -> None:
    if event == "socket.connect" and get_ident() in _refused_in:
        raise NonConformanceError("a connection was made where none is allowed")


@contextmanager
def no_connections() -> Iterator[None]:
    """Raise ``NonConformanceError`` if this thread connects a socket inside the block."""
    if not _installed:
        # An audit hook cannot be removed.
        sys.addaudithook(_audit)
        _installed.append(True)
    _refused_in.add(get_ident())
    try:
        yield
    finally:
        _refused_in.discard(get_ident())


# Log lines of a check.


class Line(NamedTuple):
    """One line, with its level as a number of ``logging``."""

    level: int
    text: str


class _Collect(logging.Handler):
    def __init__(self, lines: list[Line]) -> None:
        super().__init__(logging.DEBUG)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self._lines.append(Line(record.levelno, self.format(record)))


@contextmanager
def logged() -> Iterator[list[Line]]:
    """Collect all lines of all loggers."""
    lines: list[Line] = []
    collect, root = _Collect(lines), logging.getLogger()
    root.addHandler(collect)
    try:
        yield lines
    finally:
        root.removeHandler(collect)


# Objects after Spark's pickle.


_T = TypeVar("_T")


def pickled(thing: object) -> bytes:
    """Return the bytes that Spark would send."""
    found: bytes = cloudpickle.dumps(thing)
    return found


def behind_pickle(thing: _T) -> _T:
    """Return an object as it arrives in another process."""
    again: _T = cloudpickle.loads(pickled(thing))
    return again
