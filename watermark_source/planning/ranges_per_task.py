"""How the ranges of a batch are cut and put together, a Spark task each.

A split is the unit of decisions, a task the unit of work. A Spark task costs about 25 ms however little it reads, and
40 ms more where Spark talks to its Python processes over TCP, so small ranges share one; a big range is a task of its
own, or several.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from watermark_source.planning.split import SplitRange

SMALL = 100_000
"""Ranges are put together up to so many positions."""
BIG = 2_000_000
"""A range of more positions than this is cut, so that one long log still uses every core."""
SHARE = 4
"""A range of more than this part of a batch is cut too, unless it is small."""
SLACK = SMALL // 10
"""Fewer positions than this are no piece of their own where a range would be cut for a small batch's sake."""


def into_tasks(
    ranges: Sequence[SplitRange], *, at_least: int | None = None, at_most: int | None = None, multiple_of: int = 1
) -> list[tuple[SplitRange, ...]]:
    """Lay ranges into tasks, keeping their order.

    Args:
        ranges: what the batch reads.
        at_least: make so many tasks if there are enough positions.
        at_most: put no more positions than this into one.
        multiple_of: cut ranges only behind a multiple of so many positions.
    """
    total = sum(r.size for r in ranges)
    if at_least is None and at_most is None and total <= SHARE * (SMALL + SLACK):
        return _as_few_as_hold(ranges, total, multiple_of)
    big, small = max(SMALL, min(BIG, -(-total // SHARE))), SMALL
    if at_least is not None:
        # Rounded down: tasks no bigger than this are never fewer than asked for.
        fair = max(1, total // at_least)
        big, small = min(big, fair), min(small, fair)
    if at_most is not None:
        big, small = min(big, at_most), min(small, at_most)
    tasks: list[tuple[SplitRange, ...]] = []
    open_task: list[SplitRange] = []
    filled = 0
    for piece in (piece for r in ranges for piece in _cut(r, big, multiple_of)):
        size = piece.end - piece.start
        if open_task and filled + size > small:
            tasks.append(tuple(open_task))
            open_task, filled = [], 0
        open_task.append(piece)
        filled += size
    if open_task:
        tasks.append(tuple(open_task))
    return tasks


def _as_few_as_hold(ranges: Sequence[SplitRange], total: int, unit: int) -> list[tuple[SplitRange, ...]]:
    """Lay a small batch into equal tasks: of few rows a task costs more than reading them."""
    if not ranges:
        return []
    size = -(-total // max(1, -(-total // (SMALL + SLACK))))
    size = -(-size // unit) * unit
    tasks: list[list[SplitRange]] = [[]]
    room = size
    for whole in ranges:
        rest = whole
        while rest.size > room + SLACK:
            if room > SLACK and (cut := room // unit * unit):
                tasks[-1].append(rest._replace(end=rest.start + cut))
                rest = rest._replace(start=rest.start + cut)
            tasks.append([])
            room = size
        tasks[-1].append(rest)
        room -= rest.size
    return [tuple(task) for task in tasks]


def _cut(whole: SplitRange, big: int, unit: int) -> list[SplitRange]:
    # An empty range is one piece: a log without rows may have some when it is read.
    pieces = max(1, -(-whole.size // max(big // unit * unit, unit)))
    if pieces == 1:
        return [whole]
    units = -(-whole.size // unit)
    edges = [min(whole.start + units * i // pieces * unit, whole.end) for i in range(pieces + 1)]
    return [SplitRange(whole.split, a, b) for a, b in pairwise(edges)]
