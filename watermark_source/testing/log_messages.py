"""What is logged while a check runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


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
