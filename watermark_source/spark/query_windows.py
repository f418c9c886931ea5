"""The windows that a query aggregates by: how long they are, and how far apart, from the text of its plan. Pure.

Spark's analysis replaces ``window(column, size, slide, start)`` by arithmetic on microseconds, in which the three
remain as numbers. A plan without them, as of ``session_window``, has no windows that are known before their rows.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_WINDOW = re.compile(
    r"named_struct\(start, [^\n]*? - (?P<start>-?\d+)\) % (?P<slide>\d+)\)"
    r"[^\n]*?, end, [^\n]*? \+ (?P<size>\d+)\), LongType"
)
_MICROS = 1_000


class Windows(NamedTuple):
    """Windows of one length at one distance, in milliseconds."""

    size: int
    slide: int
    start: int = 0
    """When one of them begins, since 1970-01-01 UTC."""

    def next_end(self, watermark: int) -> int:
        """Return the end of the first window that a watermark has not passed."""
        first = self.start + self.size
        return first + ((watermark - first) // self.slide + 1) * self.slide


def windows_in(plan: str) -> Windows | None:
    """Return the windows of an analysed plan, as Spark prints it; of several those nearest to the sink."""
    found = _WINDOW.search(plan)
    if found is None:
        return None
    size, slide, start = (int(found[name]) // _MICROS for name in ("size", "slide", "start"))
    return Windows(size, slide, start) if size and slide else None
