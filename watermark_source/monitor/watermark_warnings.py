"""PURE. Warnings of a watermark that closes no window: when one is due, its cause, and the line to write."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from watermark_source.durations import count_text, format_duration
from watermark_source.errors import listed
from watermark_source.monitor.source_status import RowTotals
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import is_moment, watermark_text

_SLEWED = 1_000
_NAMED = 3
"""Splits of many that a warning gives the reason of."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A watermark, and for how long it has been the same. Times are milliseconds of a clock that never goes back."""

    watermark: int | None
    since: int
    rows: int
    """Rows that were read before."""
    begun_with: int | None
    """The watermark that the process began with."""
    warned: bool = False

    def at(self, watermark: int | None, rows: int, now: int) -> Standing:
        """Return it as of the next plan, which has a watermark and counts all rows read so far."""
        if watermark == self.watermark:
            return self
        return replace(self, watermark=watermark, since=now, rows=rows, warned=False)

    def is_due(self, rows: int, now: int, patience: int) -> bool:
        """Return whether to warn now: no watermark for so long, or one that stands although rows are read."""
        read = self.watermark is None or rows > self.rows
        return read and not self.warned and now - self.since >= patience

    def warn(self) -> Standing:
        """Return it as of after the warning, which comes once."""
        return replace(self, warned=True)

    def is_due_at_end(self, rows: int) -> bool:
        """Return whether to warn as a run with an end is over: it read rows, and its watermark is where it was."""
        return rows > 0 and self.watermark == self.begun_with


class Holder(NamedTuple):
    """A split that holds the watermark back."""

    split: Split
    why: str
    """Its reason, as the status gives it."""
    lag: int | None
    """Rows still to be read; ``None``: not known."""
    rows: RowTotals
    idle_timeout: int | None


class Stand(NamedTuple):
    """What a warning is about."""

    watermark: int | None
    since: int
    """When it began to stand: milliseconds since 1970-01-01 UTC."""
    lasted: int
    rows: int
    """Rows read in that time."""
    holders: Sequence[Holder]
    """Worst first."""
    snapshots: Sequence[str] = ()
    """Tables whose snapshot is not complete: before, there is no watermark."""
    elsewhere: str | None = None
    """The source of the alignment group that all splits here wait for."""


def standing_text(stand: Stand) -> str:
    """Return the warning of a watermark that stands while a query runs."""
    since = f"since {watermark_text(stand.since)} UTC ({format_duration(stand.lasted)})"
    what = "there is no watermark" if stand.watermark is None else f"the watermark stands at {_shown(stand.watermark)}"
    rows = f", with {_rows(stand.rows)} read since" if stand.rows else ""
    return f"{what} {since}{rows}: no window closes, and no row leaves a join. {_cause(stand, at_end=False)}"


def end_text(stand: Stand) -> str:
    """Return the warning of a run with an end that closed no window."""
    what = (
        "there is no watermark yet" if stand.watermark is None else f"the watermark is still {_shown(stand.watermark)}"
    )
    return f"the run is over, and closed no window: {_rows(stand.rows)} read, and {what}. {_cause(stand, at_end=True)}"


def _shown(watermark: int) -> str:
    return f"{watermark_text(watermark)} UTC"


def _cause(stand: Stand, *, at_end: bool) -> str:
    if stand.snapshots:
        return (
            f"The snapshot of {listed(stand.snapshots)} is read first, and rows of a snapshot have no watermark: it "
            "begins with the changes behind it"
        )
    if not stand.holders:
        waits = stand.elsewhere
        return f"It waits for {waits} of the alignment group" if waits else "No split holds it back: no rows moved it"
    named = "; ".join(f"{holder.split}: {holder.why}" for holder in stand.holders[:_NAMED])
    more = len(stand.holders) - _NAMED
    others = f"; and {count_text(more)} more" if more > 0 else ""
    return f"It is held back by {named}{others}. {_line(stand.holders[0], at_end=at_end)}"


def _line(holder: Holder, *, at_end: bool) -> str:
    """Return what to write, or that nothing has to be."""
    rows, split = holder.rows, holder.split
    if rows.read and rows.undated == rows.read:
        return (
            "Check eventTimeColumn and eventTimeFormat with: python -m watermark_source profile …; if such records are "
            f"meant to be there, {_leave_out(holder)}"
        )
    if rows.read and rows.undated + rows.future == rows.read:
        return "Check the producer's clock, and the unit of the event time (eventTimeFormat); see maxFutureSkew"
    if holder.lag is None:
        return "Its log does not answer: see the lines above"
    if holder.lag:
        return "It is being read; maxOffsetsPerTrigger limits how much a batch takes"
    if holder.idle_timeout is not None:
        runs = ", also from one run to the next" if at_end else ""
        timeout = format_duration(holder.idle_timeout)
        return f"Once it has been silent for idleTimeout ({timeout}), {split} is left out{runs}"
    runs = "; its silence counts from one run to the next" if at_end else ""
    return f"To continue without a silent partition, {_leave_out(holder)}{runs}"


def _leave_out(holder: Holder) -> str:
    if holder.idle_timeout is None:
        return 'write .option("idleTimeout", "30 seconds")'
    return f"idleTimeout ({format_duration(holder.idle_timeout)}) leaves them out"


class LateSplit(NamedTuple):
    """A split that had its first late rows."""

    split: Split
    late: LateRows
    was_idle: bool = False
    """The watermark went on without it."""
    was_added: bool = False
    """It was found while the query ran, behind the watermark."""


def late_text(splits: Iterable[LateSplit], strategy: WatermarkStrategy, idle_timeout: int | None) -> str:
    """Return the warning of the first late rows of some splits, all of one cause."""
    found = sorted(splits)
    rows, longest = sum(each.late.rows for each in found), max(each.late.longest for each in found)
    what = (
        f"{_rows(rows)} of {listed(each.split for each in found)} came up to "
        f"{format_duration(longest)} late: windows, joins and deduplication drop such rows. "
    )
    if found[0].was_added:
        return f"{what}The split was found while the query ran, and its rows lie behind the watermark"
    if found[0].was_idle:
        timeout = "" if idle_timeout is None else f" ({format_duration(idle_timeout)})"
        return (
            f"{what}The split was idle, and the watermark went on without it: its pauses, or a batch, are longer than "
            f'idleTimeout{timeout}. To wait for it, write a longer one: .option("idleTimeout", '
            f'"{_seconds((idle_timeout or 0) + longest)}")'
        )
    return what + _disorder(longest, strategy)


def _disorder(longest: int, strategy: WatermarkStrategy) -> str:
    if strategy.percentile is not None:
        return "More disorder than watermarkStrategy percentile allows for: see watermarkPercentile, or use bounded"
    if strategy.punctuated:
        return "They come behind a watermark that a record carries (watermarkColumn): the producer writes it too early"
    if strategy.watermark_lag is not None:
        return (
            f"They were written longer after their event time than maxEventTimeLag "
            f'({format_duration(strategy.watermark_lag)}): write .option("maxEventTimeLag", '
            f'"{_seconds(strategy.watermark_lag + longest + 1)}")'
        )
    if strategy.looks_ahead:
        return "They came behind what was looked at ahead: see lookaheadRows and lookaheadTime"
    bound = strategy.out_of_orderness
    return (
        f"Within the split they come that far out of order, and maxOutOfOrderness is {format_duration(bound)}: write "
        f'.option("maxOutOfOrderness", "{_seconds(bound + longest + 1)}")'
    )


def clocks_behind(reached: Mapping[Split, int], watermark: int | None) -> Mapping[Split, int]:
    """Return the splits whose system's clock, which dates their rows, is behind the watermark that it led to.

    Both are milliseconds since 1970; a clock that is slewed by less than a second is no reason to warn.
    """
    if watermark is None or not is_moment(watermark):
        return {}
    return {split: now for split, now in reached.items() if now < watermark - _SLEWED}


def clock_text(behind: Mapping[Split, int], watermark: int) -> str:
    """Return the warning of such clocks."""
    by = format_duration(watermark - min(behind.values()))
    return (
        f"{listed(behind)}: the server's clock, which dates the rows, is {by} behind the watermark: it was set back. "
        f"Until it has passed {_shown(watermark)}, the watermark stands, and rows have event times just after it"
    )


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{count_text(n)} rows"


def _seconds(millis: int) -> str:
    return f"{math.ceil(millis / 1_000)} seconds"
