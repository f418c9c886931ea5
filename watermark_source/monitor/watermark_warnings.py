"""Warnings of a watermark that closes no window: when one is due, its cause, and the line to write. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from watermark_source.durations import count_text, format_duration
from watermark_source.errors import listed
from watermark_source.monitor.source_status import RowTotals
from watermark_source.planning.announcement import gone_line, writers_line
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import CLOCKS_DIFFER, WatermarkStrategy
from watermark_source.planning.watermark import is_moment, watermark_text

_SLEWED = 1_000
_NAMED = 3
"""Splits of many that a warning gives the reason of."""
_FIRST_REPEAT = 10
"""So many times the patience passes before a warning comes again; then twice as long each time."""
_LONGEST_REPEAT = 86_400_000
"""Milliseconds; a warning comes at least once a day."""
_CALM = 5
"""So many times the patience passes without a stand of the watermark before it counts as moving again."""
_MOST_PROPOSED = 86_400_000
"""Milliseconds: no warning proposes a longer bound or time-out. Rows that are late by more have another cause."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A watermark, and for how long it has been the same. Times are milliseconds of a clock that never goes back."""

    watermark: int | None
    since: int
    rows: int
    """Rows that were read before."""
    begun_with: int | None
    """The watermark that the process began with."""
    late: int = 0
    """Rows that were late before."""

    def at(self, watermark: int | None, rows: int, now: int, late: int = 0) -> Standing:
        """Return it as of the next plan, which has a watermark and counts all rows read, and late, so far."""
        if watermark == self.watermark:
            return self
        return replace(self, watermark=watermark, since=now, rows=rows, late=late)

    def is_due(self, rows: int, now: int, patience: int) -> bool:
        """Return whether to warn: for ``patience`` milliseconds no watermark, or one that stands although rows come."""
        read = self.watermark is None or rows > self.rows
        return read and now - self.since >= patience

    def is_due_at_end(self, rows: int) -> bool:
        """Return whether to warn as a run with an end is over: rows were read, and its watermark is where it was.

        ``rows``: of this run; without a watermark, of the run before too.
        """
        return rows > 0 and self.watermark == self.begun_with


class HoldingSplit(NamedTuple):
    """A split that holds the watermark back."""

    split: Split
    why: str
    """Its reason, as the status gives it."""
    lag: int | None
    """Rows still to be read; ``None``: not known."""
    rows: RowTotals
    idle_timeout: int | None
    by_marks: bool = False
    """Only watermarks that records carry move it (``watermarkStrategy`` ``punctuated``)."""
    is_paused: bool = False
    """Its alignment group lets it not read."""
    has_open_transaction: bool = False
    is_read: bool = False
    """Its rows are being read, or were until not long ago: it is not silent."""


class Stand(NamedTuple):
    """What a warning is about."""

    watermark: int | None
    since: int
    """When it began to stand: milliseconds since 1970-01-01 UTC."""
    lasted: int
    rows: int
    """Rows read in that time."""
    holders: Sequence[HoldingSplit]
    """Worst first."""
    snapshots: Sequence[str] = ()
    """Tables whose snapshot is not complete: before, there is no watermark."""
    read_first: Sequence[Split] = ()
    """Splits that are not yet read to the end that they had at the start (``readToEndFirst``): as with snapshots."""
    elsewhere: str | None = None
    """The source of the alignment group that all splits here wait for."""
    late: int = 0
    """How many of ``rows`` are late."""
    ahead: int = 0
    """By how much the watermark is ahead of the clock; milliseconds."""
    writers: Sequence[str] | None = None
    """Why the writers that announce watermarks hold it, as sentences; ``None`` where none announces."""
    is_last: bool = False
    """No split is ahead of the holders: the watermark would not advance without them either."""
    began_behind: bool = False
    """No record has come in this run, and there were records before where it began to read."""
    bound: int = 0
    """Milliseconds of ``maxOutOfOrderness``."""


class Cause(Enum):
    """Why a watermark stands."""

    SNAPSHOT = auto()
    READ_FIRST = auto()
    AHEAD = auto()
    """Rows come, and lie behind it."""
    WRITERS = auto()
    """Writers announce the watermark, and it stands where they left it."""
    GROUP = auto()
    PAUSED = auto()
    """Its alignment group lets no split read."""
    NO_ROWS = auto()
    UNDATED = auto()
    FUTURE = auto()
    NO_MARKS = auto()
    NO_ANSWER = auto()
    OPEN = auto()
    """The next records are in an open transaction."""
    BACKLOG = auto()
    SILENT = auto()


_LINES: Mapping[Cause, str] = {
    Cause.FUTURE: "Check the producer's clock, and the unit of the event time (eventTimeFormat); see maxFutureSkew",
    Cause.NO_ANSWER: "Its log does not answer: see the lines above",
    Cause.OPEN: "Let the producer commit or abort it: no idleTimeout leaves such a partition out. A transaction whose "
    "producer has died ends after its transaction.timeout.ms",
    Cause.PAUSED: 'Start the other sources of the group, or write their number into .option("alignmentMembers", …)',
    Cause.BACKLOG: "It is being read; maxOffsetsPerTrigger limits how much a batch takes",
}
Reason: TypeAlias = tuple[Cause, Split | None]
"""A cause, and the split that holds the watermark back by it."""


def reason_of(stand: Stand) -> Reason:
    """Return why a watermark stands: of one reason a warning comes once, then ever less often."""
    if stand.snapshots:
        return Cause.SNAPSHOT, None
    if stand.read_first:
        return Cause.READ_FIRST, None
    if stand.writers is not None:
        return Cause.WRITERS, None
    if stand.watermark is not None and 2 * stand.late > stand.rows:
        return Cause.AHEAD, None
    if not stand.holders:
        return (Cause.GROUP if stand.elsewhere else Cause.NO_ROWS), None
    first = stand.holders[0]
    return _cause_of(first), first.split


def _cause_of(holder: HoldingSplit) -> Cause:  # noqa: PLR0911  one line a case
    rows = holder.rows
    if not holder.by_marks and rows.read and rows.undated == rows.read:
        return Cause.UNDATED
    if rows.read and rows.future and rows.undated + rows.future == rows.read:
        return Cause.FUTURE
    if holder.lag is None:
        return Cause.NO_ANSWER
    if holder.is_paused:
        return Cause.PAUSED
    if holder.has_open_transaction:
        return Cause.OPEN
    if holder.lag or (holder.is_read and not (holder.by_marks and rows.read)):
        return Cause.BACKLOG
    return Cause.NO_MARKS if holder.by_marks and rows.read else Cause.SILENT


# When a warning comes: once for each reason, then at growing intervals, until the watermark moves again.


class Reminder(NamedTuple):
    """When a warning of one reason comes next, and how long it waits after that."""

    next_at: int
    interval: int


@dataclass(frozen=True, slots=True)
class Episode:
    """Stands of a watermark that follow each other; between them it moved, and soon stood again.

    Times are those of ``Standing``.
    """

    since: int
    """When the first stand began."""
    stands: int
    watermark: int | None
    """The watermark at the last stand."""
    seen_at: int
    """When the last stand was seen last."""
    reminders: Mapping[Reason, Reminder] = field(default_factory=dict)

    def is_seen(self, standing: Standing, now: int, patience: int) -> bool:
        """Return whether a stand is in here already, as of a moment not long ago: its reason takes time to find."""
        return standing.watermark == self.watermark and now - self.seen_at < patience

    def is_over(self, standing: Standing, now: int, patience: int) -> bool:
        """Return whether the watermark has moved since, and not stood again for a while."""
        return standing.watermark != self.watermark and now - self.seen_at >= _CALM * patience


def noted(episode: Episode | None, standing: Standing, reason: Reason, now: int, patience: int) -> tuple[Episode, bool]:
    """Return the episode with a stand that is due, and whether to warn of it now."""
    if episode is None:
        episode = Episode(standing.since, 0, None, now)
    is_new = episode.stands == 0 or standing.watermark != episode.watermark
    reminder = episode.reminders.get(reason)
    warns = reminder is None or now >= reminder.next_at
    reminders = episode.reminders
    if warns:
        interval = _FIRST_REPEAT * patience if reminder is None else 2 * reminder.interval
        interval = max(patience, min(interval, _LONGEST_REPEAT))
        reminders = {**reminders, reason: Reminder(now + interval, interval)}
    return Episode(episode.since, episode.stands + is_new, standing.watermark, now, reminders), warns


def moving_text(watermark: int | None, stands: int, since: int) -> str:
    """Return the line that ends an episode; ``since``: milliseconds since 1970-01-01 UTC."""
    at = "" if watermark is None else f", and is at {_shown(watermark)}"
    times = "" if stands == 1 else f" {count_text(stands)} times"
    return f"the watermark moves again{at}: it had stood{times} since {watermark_text(since)} UTC"


# The texts of the warnings.


def standing_text(stand: Stand, max_future_skew: int | None) -> str:
    """Return the warning of a watermark that stands while a query runs."""
    since = f"since {watermark_text(stand.since)} UTC ({format_duration(stand.lasted)})"
    what = "there is no watermark" if stand.watermark is None else f"the watermark stands at {_shown(stand.watermark)}"
    rows = f", with {count_text(stand.rows, 'row')} read since" if stand.rows else ""
    why = _cause(stand, max_future_skew, at_end=False)
    return f"{what} {since}{rows}: no window closes, and no row leaves a join. {why}"


def end_text(stand: Stand, max_future_skew: int | None) -> str:
    """Return the warning of a run with an end whose source's watermark closed no window.

    Spark's own may have: the source does not see a ``withWatermark``.
    """
    what = (
        "there is no watermark yet" if stand.watermark is None else f"the watermark is still {_shown(stand.watermark)}"
    )
    why = _cause(stand, max_future_skew, at_end=True)
    read = count_text(stand.rows, "row")
    return f"the run is over, and the source's watermark closed no window: {read} read, and {what}. {why}"


def _shown(watermark: int) -> str:
    return f"{watermark_text(watermark)} UTC"


def _cause(stand: Stand, max_future_skew: int | None, *, at_end: bool) -> str:
    cause, _ = reason_of(stand)
    if cause is Cause.SNAPSHOT:
        return (
            f"The snapshot of {listed(stand.snapshots)} is read first, and rows of a snapshot have no watermark: it "
            "begins with the changes behind it"
        )
    if cause is Cause.READ_FIRST:
        return (
            f"The logs are read to their ends first (readToEndFirst), and {listed(stand.read_first)} have not "
            "been: see their lag in the status. With read_committed a transaction that was open then has to end first: "
            "docs/watermarks.md, Transactions. A topic that was truncated or created again after the query began "
            "has no such end any more: begin with a new checkpoint location"
        )
    if cause is Cause.AHEAD:
        late = f"{count_text(stand.late)} of these rows {'is' if stand.late == 1 else 'are'} late"
        if stand.ahead > 0:
            return f"{late}. {future_text(stand.ahead, max_future_skew)}"
        return (
            f"{late}: a row with a later event time moved the watermark ahead of them. {_wrong_time(max_future_skew)}"
        )
    if cause in (Cause.WRITERS, Cause.GROUP, Cause.NO_ROWS):
        return _elsewhere(stand)
    named = "; ".join(f"{holder.split}: {holder.why}" for holder in stand.holders[:_NAMED])
    more = len(stand.holders) - _NAMED
    others = f"; and {count_text(more)} more" if more > 0 else ""
    line = _line(cause, stand.holders[0], at_end=at_end)
    if cause is Cause.SILENT and stand.began_behind:
        line = BEGAN_BEHIND
    elif cause is Cause.SILENT and stand.is_last:
        line = f"No other split has a later event time. {last_window_text(stand.bound)}"
    return f"It is held back by {named}{others}. {line}"


BEGAN_BEHIND: Final = (
    "No record has come since the query was started, and a new query begins at the ends of the logs: "
    '.option("startingOffsets", "earliest") with a new checkpoint location reads what was there before'
)


def last_window_text(bound: int) -> str:
    """Return what closes the last windows when no partition has a later event time; ``bound``: maxOutOfOrderness."""
    late = f" (by maxOutOfOrderness, {format_duration(bound)}, more)" if bound else ""
    return (
        f"That is normal after the last records. A record with a later event time{late} moves it; "
        '.option("finalWatermark", "true") closes all windows at the end of a last run with availableNow'
    )


def _elsewhere(stand: Stand) -> str:
    """Return what holds the watermark where no split does: writers, the alignment group, or nothing."""
    if stand.writers is None:
        if stand.elsewhere is None:
            return f"No split holds it back: no rows moved it. {last_window_text(stand.bound)}"
        return f"It waits for {stand.elsewhere} of the alignment group"
    writers = stand.writers
    named = "; ".join(writers[:_NAMED]) or "no writer has announced a watermark"
    more = f"; and {count_text(len(writers) - _NAMED)} more" if len(writers) > _NAMED else ""
    return f"The writers of the topic announce it: {named}{more}. " + (
        f"Start a writer that has stopped; {gone_line([])}" if writers else f"To do: {writers_line([])}"
    )


def _line(cause: Cause, holder: HoldingSplit, *, at_end: bool) -> str:
    """Return what to write, or that nothing has to be."""
    if cause is Cause.UNDATED:
        return (
            "Check eventTimeColumn and eventTimeFormat with: python -m watermark_source profile …; if such records are "
            f"meant to be there, {_leave_out(holder)}"
        )
    if cause in _LINES:
        return _LINES[cause]
    if cause is Cause.NO_MARKS:
        timeout = holder.idle_timeout
        leaves = (
            '.option("idleTimeout", "30 seconds") leaves out'
            if timeout is None
            else f"idleTimeout ({format_duration(timeout)}) leaves out"
        )
        return (
            f"Only a watermark in a record of {holder.split} moves it (watermarkColumn): the producer has to write "
            f"watermarks into every partition. {leaves} a partition without any records, and not one whose records "
            "carry no watermark"
        )
    if holder.idle_timeout is not None:
        runs = ", also from one run to the next" if at_end else ""
        timeout_text = format_duration(holder.idle_timeout)
        return f"Once it has been silent for idleTimeout ({timeout_text}), {holder.split} is left out{runs}"
    runs = "; its silence counts from one run to the next" if at_end else ""
    return f"To continue without a silent partition, {_leave_out(holder)}{runs}"


def _leave_out(holder: HoldingSplit) -> str:
    if holder.idle_timeout is None:
        return 'write .option("idleTimeout", "30 seconds")'
    return f"idleTimeout ({format_duration(holder.idle_timeout)}) leaves them out"


# Rows of the future, and other rows whose event time is wrong, that moved the watermark.


def future_text(ahead: int, max_future_skew: int | None) -> str:
    """Return the cause and the way out where the watermark is so many milliseconds ahead of the clock."""
    zone = zone_text(ahead, delay=_READ_WITHIN)
    return (
        f"The watermark is {format_duration(ahead)} in the future: a row with a wrong event time moved it. "
        f"{f'{zone}{_OF_DATETIME}. ' if zone else ''}{_way_out(max_future_skew)}"
    )


_HALF_HOUR, _HOUR, _MINUTE = 1_800_000, 3_600_000, 60_000
_FARTHEST_ZONE = 14 * _HOUR
_READ_WITHIN = 10 * _MINUTE
"""Milliseconds by which rows that are read late, or ``maxOutOfOrderness``, make a zone's difference look smaller."""


_OF_DATETIME = "; of a DATETIME of MySQL, set serverTimeZone"


def zone_text(millis: int, *, delay: int = _MINUTE) -> str:
    """Return that a difference between event time and clock may be that of a time zone; empty if it is not near one.

    It may be a minute more than the zone's, and ``delay`` less.
    """
    zone = -((_MINUTE - abs(millis)) // _HALF_HOUR) * _HALF_HOUR
    if not _HOUR <= zone <= _FARTHEST_ZONE or zone - abs(millis) > delay:
        return ""
    return (
        f"{format_duration(zone)} may be the difference of a time zone: a time without a zone is read as UTC, so write "
        "it with its own, as in 2026-11-27T12:00:00+02:00"
    )


@dataclass(frozen=True, slots=True)
class Lead:
    """Event times ahead of the clock by what may be the difference of a time zone."""

    since: int
    """Milliseconds of a clock that never goes back."""
    watermark: int
    """As of then."""

    def is_due(self, now: int, patience: int) -> bool:
        """Return whether there is reason to warn."""
        return now - self.since >= patience


def lead(before: Lead | None, watermark: int, ahead: int, now: int, patience: int) -> Lead | None:
    """Return the lead as of a plan; ``None`` where event times are not ahead by a zone.

    It begins again where the watermark does not keep up with the clock: after a single wrong row.

    Args:
        before: as of the plan before.
        watermark: at the plan.
        ahead: by how many milliseconds the highest event times of all splits that count are ahead of the wall clock.
        now: of the clock of ``Lead.since``.
        patience: how long it lasts before it is warned of.
    """
    if ahead <= 0 or not zone_text(ahead, delay=_READ_WITHIN):
        return None
    if before is None:
        return Lead(now, watermark)
    lasted = now - before.since
    return Lead(now, watermark) if lasted >= patience and 2 * (watermark - before.watermark) < lasted else before


def lead_text(ahead: int, lasted: int) -> str:
    """Return the warning of event times that are ahead, for so many milliseconds, by what may be a time zone."""
    since = f", and have been for {format_duration(lasted)}" if lasted else ""
    return (
        f"event times are {format_duration(ahead)} ahead of the clock{since}. {zone_text(ahead, delay=_READ_WITHIN)}"
        f"{_OF_DATETIME}. Rows whose times are right are late beside them. A watermark never goes back: once the times "
        "are right, begin with a new checkpoint location"
    )


def _wrong_time(max_future_skew: int | None) -> str:
    return f"Check the event times with: python -m watermark_source profile …. {_way_out(max_future_skew)}"


def _way_out(max_future_skew: int | None) -> str:
    if max_future_skew is None:
        option = (
            'write .option("maxFutureSkew", "1 hour"), with which no row further in the future moves the watermark; '
            "where all are, correct the event times first: with it alone the watermark would stand"
        )
    else:
        option = f"maxFutureSkew ({format_duration(max_future_skew)}) limits how far a row can move it"
    return f"A watermark never goes back, and the checkpoint keeps it: begin with a new checkpoint location; {option}"


# Late rows.


_ONE, _SEVERAL = ("split", "was", "its", "it"), ("splits", "were", "their", "them")


class LateSplit(NamedTuple):
    """A split that had its first late rows."""

    split: Split
    late: LateRows
    was_idle: bool = False
    """The watermark advanced without it."""
    was_added: bool = False
    """It was found while the query ran, behind the watermark."""
    idle_timeout: int | None = None
    """For how many milliseconds it must be silent to be idle: as learned, where that is learned."""


def late_text(
    splits: Iterable[LateSplit], strategy: WatermarkStrategy, max_future_skew: int | None = None, ahead: int = 0
) -> str:
    """Return the warning of the first late rows of some splits, all of one cause.

    ``ahead``: by how many milliseconds the watermark is ahead of the clock.
    """
    found = sorted(splits)
    rows, longest = sum(each.late.rows for each in found), max(each.late.longest for each in found)
    what = (
        f"{count_text(rows, 'row')} of {listed(each.split for each in found)} came up to "
        f"{format_duration(longest)} late: windows, joins and deduplication drop such rows. "
    )
    if 2 * ahead > longest:
        return what + future_text(ahead, max_future_skew)
    split, was, its, it = _ONE if len(found) == 1 else _SEVERAL
    if found[0].was_added:
        return f"{what}The {split} {was} found while the query ran, and {its} rows lie behind the watermark"
    if found[0].was_idle:
        timeout = max(each.idle_timeout or 0 for each in found)
        shown = f" ({format_duration(timeout)})" if timeout else ""
        option = option_line("idleTimeout", timeout + longest)
        return (
            f"{what}The {split} {was} idle, and the watermark advanced without {it}: {its} pauses, or a batch, are "
            f"longer than idleTimeout{shown}. "
            + (f"To wait for {it}, write a longer one: {option}" if option else _no_bound(max_future_skew))
        )
    return what + _disorder(longest, strategy, max_future_skew)


def _disorder(longest: int, strategy: WatermarkStrategy, max_future_skew: int | None) -> str:
    cause = strategy.cause_of_late_rows(longest)
    no_bound = f". {_no_bound(max_future_skew)}"
    if cause.option is not None:
        option = option_line(*cause.option)
        return cause.text + (f": write {option}" if option else no_bound)
    if cause.hint:
        return cause.text + (no_bound if longest > _MOST_PROPOSED else f". {cause.hint}")
    return cause.text


def option_line(name: str, millis: int) -> str:
    """Return the line to write; empty for more than ``_MOST_PROPOSED``."""
    return "" if millis > _MOST_PROPOSED else f'.option("{name}", "{_seconds(millis)}")'


def _no_bound(max_future_skew: int | None) -> str:
    return (
        "To wait that long would keep every window open: rather a row with a wrong event time moved the watermark. "
        f"{_wrong_time(max_future_skew)}"
    )


def clocks_behind(
    reached: Mapping[Split, int], watermark: int | None, *, follows_group: bool = False
) -> Mapping[Split, int]:
    """Return the splits whose system's clock, which dates their rows, is behind the watermark.

    Both are milliseconds since 1970. A clock that is slewed by less than a second is no reason to warn; nor, where
    other sources may lead the watermark (``idleFollows``), is one that differs from theirs by less than a minute.
    """
    if watermark is None or not is_moment(watermark):
        return {}
    most = CLOCKS_DIFFER if follows_group else _SLEWED
    return {split: now for split, now in reached.items() if now < watermark - most}


def clock_text(behind: Mapping[Split, int], watermark: int, *, follows_group: bool = False) -> str:
    """Return the warning of such clocks."""
    by = format_duration(watermark - min(behind.values()))
    why = (
        "another source of the alignment group moved it (idleFollows=group), or the clock was set back. Check the "
        "event times of the others; with maxFutureSkew a row of the future moves none of them"
        if follows_group
        else "it was set back"
    )
    return (
        f"{listed(behind)}: the server's clock, which dates the rows, is {by} behind the watermark: {why}. "
        f"Until it has passed {_shown(watermark)}, the watermark stands, and rows have event times just after it"
    )


def _seconds(millis: int) -> str:
    return f"{math.ceil(millis / 1_000)} seconds"
