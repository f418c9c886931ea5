"""Connections that a connector makes, seen by the interpreter's audit events."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from watermark_source.testing.check import NonConformanceError

_refused_in: set[int] = set()
"""Threads that may not connect now."""
_installed: list[bool] = []


def _audit(event: str, _: object) -> None:
    if event == "socket.connect" and get_ident() in _refused_in:
        raise NonConformanceError("a connection was made where none is allowed")


@contextmanager
def no_connections() -> Iterator[None]:
    """Raise ``NonConformanceError`` where this thread connects a socket within."""
    if not _installed:
        # It cannot be taken away again.
        sys.addaudithook(_audit)
        _installed.append(True)
    _refused_in.add(get_ident())
    try:
        yield
    finally:
        _refused_in.discard(get_ident())
