"""The row budget: planned ends cut to so many positions, the oldest event time first."""

from __future__ import annotations

from collections.abc import Mapping

from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.planning.ends import Backlog, event_time_of, watermark_of
from watermark_source.planning.split import Split

_GOOD_SHARE = 0.8
"""A batch that uses this share of its budget is good enough: the search may stop."""


def budgeted_ends(backlog: Backlog, allowed: Mapping[Split, int], budget: int | None) -> dict[Split, int]:
    """Cut the planned ends to ``budget`` positions in all.

    With a time index all splits end at one event time, the latest one that fits; rows of one millisecond that do not
    fit go to the lowest watermarks first. Without one, the budget is shared in proportion to backlog.
    """
    if budget is None or _total(backlog, allowed) <= budget:
        return dict(allowed)
    if backlog.index is None:
        return _shared(backlog, allowed, budget)
    low, high = _bounds(backlog)
    best, over = {s: t.position for s, t in backlog.splits.items()}, dict(allowed)
    least, most = 0, _total(backlog, allowed)
    halve = False
    while high - low > 1:
        middle = (low + high) // 2
        if not halve:
            # Rows are often spread evenly in event time, so look first where the budget would then be used up.
            aim = low + int((high - low) * ((1 + _GOOD_SHARE) / 2 * budget - least) / (most - least))
            middle = min(max(aim, low + 1), high - 1)
        halve = not halve
        tried = backlog.up_to(watermark_of(Millis(middle), backlog.policy)).ends
        size = _total(backlog, tried)
        if size > budget:
            high, over, most = middle, tried, size
        elif size >= _GOOD_SHARE * budget:
            return tried
        else:
            low, best, least = middle, tried, size
    return _oldest_first(backlog, best, over, budget)


def _bounds(backlog: Backlog) -> tuple[int, int]:
    """Return an event time up to which hardly anything is unread, and one up to which everything may be."""
    known = [event_time_of(t.watermark, backlog.policy) for t in backlog.splits.values() if t.watermark is not None]
    unknown = [s for s, t in backlog.splits.items() if t.watermark is None]
    firsts = backlog.index.first_after(dict.fromkeys(unknown, MIN)) if unknown and backlog.index is not None else {}
    low = min([*known, *(entry.event_time for entry in firsts.values() if entry is not None)], default=MIN)
    cap = MAX if backlog.future_cap is None else backlog.future_cap
    high = max((backlog.newest.get(s, cap) for s in backlog.ends), default=cap)
    return low - 1, max(low, high)


def _oldest_first(
    backlog: Backlog, best: Mapping[Split, int], over: Mapping[Split, int], budget: int
) -> dict[Split, int]:
    """Add to ``best`` what fits of ``over``: the lowest watermark's first, what is left of the budget to the next."""
    ends = dict(best)
    left = budget - _total(backlog, best)
    for split in sorted(ends, key=lambda s: (_order(backlog, s), s)):
        size = min(over[split] - ends[split], left)
        ends[split] += size
        left -= size
    return ends


def _shared(backlog: Backlog, allowed: Mapping[Split, int], budget: int) -> dict[Split, int]:
    """Share the budget in proportion to backlog, at least one position each while it lasts (Spark's own rule)."""
    total, left = _total(backlog, allowed), budget
    ends: dict[Split, int] = {}
    for split in sorted(allowed, key=lambda s: (_order(backlog, s), s)):
        rows = allowed[split] - backlog.splits[split].position
        size = min(rows, left, max(1, rows * budget // total))
        ends[split] = backlog.splits[split].position + size
        left -= size
    return ends


def _order(backlog: Backlog, split: Split) -> int:
    watermark = backlog.splits[split].watermark
    return MIN if watermark is None else watermark


def _total(backlog: Backlog, ends: Mapping[Split, int]) -> int:
    return sum(end - backlog.splits[s].position for s, end in ends.items())
