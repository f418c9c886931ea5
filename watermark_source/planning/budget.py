"""The row budget: planned ends cut to so many positions, the oldest event time first."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

from watermark_source.planning.backlog import Backlog, Reach
from watermark_source.planning.split import SAMPLE, Split, sample
from watermark_source.planning.watermark import MAX, MIN, Millis

_GOOD_SHARE = 0.8
"""A batch that uses this share of its budget is good enough: the search may stop."""


class Budgeted(NamedTuple):
    """How far each split is read within a budget."""

    ends: dict[Split, int]
    reached: Mapping[Split, Millis] = {}
    """The event time that each split has reached there, of those for which a time index shows it; empty where the
    budget cuts nothing, or not by event time."""


def budgeted_ends(
    backlog: Backlog, allowed: Mapping[Split, int], budget: int | None, apart: Set[Split] = frozenset()
) -> Budgeted:
    """Cut the planned ends to ``budget`` positions in all.

    Splits ``apart`` are behind and not waited for: half of the budget is for the others, or more if these have fewer
    rows, and they have what is left.

    With a time index all splits end at one event time, the latest one that fits; rows of one millisecond that do not
    fit go to the lowest watermarks first. One that would so read nothing, and be the only one to hold the watermark,
    reads its next row; of several, half of the budget at most. Without a time index the budget is shared in proportion
    to backlog. Where positions are not rows there is one log, and the budget is its own.
    """
    if budget is None or _total(backlog, allowed) <= budget:
        return Budgeted(dict(allowed))
    behind = {split: end for split, end in allowed.items() if split in apart}
    if behind:
        others = {split: end for split, end in allowed.items() if split not in apart}
        share = max(budget - _total(backlog, behind), budget - budget // 2)
        first = budgeted_ends(backlog.only(others.keys()), others, share).ends
        left = budget - _total(backlog, first)
        then = budgeted_ends(backlog.only(behind.keys()), behind, left).ends
        return Budgeted({split: {**first, **then}.get(split, backlog.splits[split].position) for split in allowed})
    if backlog.rows is not None:
        return Budgeted({split: backlog.within(split, end, budget) for split, end in allowed.items()})
    if backlog.index is None:
        return Budgeted(_shared(backlog, allowed, budget))
    found = _up_to_one_time(backlog, allowed, budget)
    holding = _holding(backlog, allowed, found.ends)[: max(1, budget // 2)]
    one_more = {s: backlog.splits[s].position + 1 for s in holding}
    left = budget - len(one_more)
    if one_more and _total(backlog, found.ends) > left:
        others = {split: end for split, end in allowed.items() if split not in one_more}
        found = _up_to_one_time(backlog.only(others.keys()), others, left)
    return found if not one_more else Budgeted({**found.ends, **one_more})


def surely_within(budget: int, splits: int) -> int:
    """Return of how many positions a batch reads all, the oldest first, whatever else there is to read.

    Each of so many splits may read a row beyond a gap, too, in the place of an older one of another.
    """
    return max(0, int(_GOOD_SHARE * budget) - splits)


def _up_to_one_time(backlog: Backlog, allowed: Mapping[Split, int], budget: int) -> Budgeted:
    aim = None
    if len(backlog.ends) >= 2 * SAMPLE:
        # A sample shows about how much fits: of thousands of splits each look-up costs, and the search needs many.
        some = backlog.only(sample(backlog.ends.keys(), SAMPLE))
        rows = _total(some, some.ends)
        aim = _search(some, some.ends, budget * rows // _total(backlog, backlog.ends)).event_time
    found = _search(backlog, allowed, budget, aim)
    shown = found.ends.keys() - found.blind
    if found.over is None:
        return Budgeted(found.ends, dict.fromkeys(shown, Millis(found.event_time)))
    ends, over = _oldest_first(backlog, found.ends, found.over, found.ahead, budget), found.over
    # Of the next millisecond some rows may fit, or there are none.
    waiting = {s for s, end in found.ends.items() if ends[s] == end < over[s]}
    return Budgeted(ends, {s: Millis(found.event_time + (s not in waiting)) for s in shown})


def _holding(backlog: Backlog, allowed: Mapping[Split, int], ends: Mapping[Split, int]) -> list[Split]:
    """Return the splits that would read nothing and are behind all that do, the lowest watermark first.

    Their next row is dated ahead. They would keep the watermark where it is until the others have come to that time,
    whatever lies behind that row. With alignment the gap rule sees to it.
    """
    if backlog.max_drift is not None:
        return []
    at = {s: t.position for s, t in backlog.splits.items()}
    lowest = min((_order(backlog, s) for s, end in ends.items() if end > at[s]), default=MIN)
    waiting = (s for s, end in ends.items() if end == at[s] < allowed[s] and _order(backlog, s) < lowest)
    return sorted(waiting, key=lambda s: (_order(backlog, s), s))


class _Found(NamedTuple):
    """What a search came to: how far each split is read if it goes up to an event time."""

    event_time: int
    ends: dict[Split, int]
    blind: Set[Split]
    """Splits of which the time index does not show that they are: of a row that was passed it is known that it is later
    than an earlier time, and perhaps not that it is later than the last one. And those of ``_unseen``."""
    over: Mapping[Split, int] | None = None
    """How far with the next millisecond, which does not fit; ``None`` if ``ends`` are good enough."""
    ahead: Set[Split] = frozenset()
    """Splits whose ``ends`` lie beyond a gap: behind a row of the next millisecond, or of a later one."""


def _search(backlog: Backlog, allowed: Mapping[Split, int], budget: int, aim: int | None = None) -> _Found:
    """Look for the latest event time up to which all rows fit; first at ``aim``."""
    low, high, likely = _bounds(backlog)
    start, halve = low, False
    # The furthest that fits, and the nearest that was tried and does not.
    within = Reach(
        {s: t.position for s, t in backlog.splits.items()},
        frozenset(s for s, t in backlog.splits.items() if t.watermark is None),
        {},
    )
    beyond = Reach(dict(allowed), frozenset(), {})
    over = beyond.ends
    least, most = 0, _total(backlog, allowed)
    while high - low > 1:
        if low >= likely:
            # A guess that was wrong: three times as far, until it is too far.
            aim = likely = min(high, low + 2 * (low - start) + 1)
        if aim is None:
            # Rows are often spread evenly in event time, so look first where the budget would then be used up.
            share = 0.5 if halve else ((1 + _GOOD_SHARE) / 2 * budget - least) / (most - least)
            aim = low + int((likely - low) * share)
            halve = not halve
        aim = min(max(aim, low + 1), high - 1)
        tried = backlog.up_to(backlog.strategy.watermark_of(Millis(aim)))
        # The index may show at the limit what it does not show this early.
        tried = tried._replace(ends={s: min(end, allowed[s]) for s, end in tried.ends.items()})
        size = _total(backlog, tried.ends)
        if size > budget:
            high, beyond, over, most = aim, tried, tried.ends, size
            likely = high
            # What comes next is known only once something that fits has been tried.
            aim = low if low == start else None
            continue
        if size >= _GOOD_SHARE * budget:
            return _Found(max(aim, _quiet_until(backlog, tried, aim)), tried.ends, _unseen(backlog, tried))
        low, within, least = max(aim, _quiet_until(backlog, tried, aim)), tried, size
        aim = None
        # When the next row of each split that has one comes, in order.
        cut = tried.cut.items()
        next_rows = sorted((e.event_time, s) for s, e in cut if tried.ends[s] == e.position < allowed[s])
        too_late = next_rows[budget - size][0] if len(next_rows) > budget - size else high
        if too_late < high:
            high = likely = too_late
            most = budget + 1
            over = {**tried.ends, **{s: tried.cut[s].position + 1 for at, s in next_rows if at <= too_late}}
    return _Found(
        low,
        within.ends,
        _unseen(backlog, within) | _unseen(backlog, beyond),
        {s: max(end, within.ends[s]) for s, end in over.items()},
        {s for s, entry in within.cut.items() if within.ends[s] > entry.position},
    )


def _unseen(backlog: Backlog, tried: Reach) -> Set[Split]:
    """Return the splits of which the time index does not show up to which event time they are read.

    Those whose next row is beyond the future cap are among them: it moves no watermark, and earlier rows may follow.
    """
    return tried.blind | {s for s, entry in tried.cut.items() if backlog.is_of_future(entry.event_time)}


def _quiet_until(backlog: Backlog, tried: Reach, event_time: int) -> int:
    """Return up to which event time the ends would be the same as those that were found for ``event_time``."""
    rows = [entry.event_time for entry in tried.cut.values()]
    known = [backlog.strategy.event_time_of(t.watermark) for t in backlog.splits.values() if t.watermark is not None]
    return min([*rows, *(at for at in known if at > event_time)], default=event_time + 1) - 1


def _bounds(backlog: Backlog) -> tuple[int, int, int]:
    """Return an event time up to which hardly anything is unread, one up to which everything is, and a likely one."""
    known = [backlog.strategy.event_time_of(t.watermark) for t in backlog.splits.values() if t.watermark is not None]
    unknown = [s for s, t in backlog.splits.items() if t.watermark is None]
    firsts = backlog.index.first_after(dict.fromkeys(unknown, MIN)) if unknown and backlog.index is not None else {}
    low = min([*known, *(entry.event_time for entry in firsts.values() if entry is not None)], default=MIN)
    cap = MAX if backlog.future_cap is None else backlog.future_cap
    high = max((backlog.newest.get(s, cap) for s in backlog.ends), default=cap)
    return low - 1, max(low, high), max(backlog.newest.values(), default=high)


def _oldest_first(
    backlog: Backlog, best: Mapping[Split, int], over: Mapping[Split, int], ahead: Set[Split], budget: int
) -> dict[Split, int]:
    """Add to ``best`` the rows of ``over`` that fit: the lowest watermark's split first, then the next.

    With alignment each split's first row comes before any split's second: all these rows are of one millisecond, and a
    split that reads several while others read none would be ahead of them by more than a row.
    """
    ends = dict(best)
    left = budget - _total(backlog, best)
    in_order = sorted(ends, key=lambda s: (_order(backlog, s), s))
    first_rows = [] if backlog.max_drift is None else [(s, 1) for s in in_order if s not in ahead]
    for split, most in [*first_rows, *((s, budget) for s in in_order)]:
        size = min(over[split] - ends[split], left, most)
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
