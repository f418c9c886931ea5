"""Warnings of a watermark that closes no window: when one is due, its cause, and the line to write. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from watermark_source.durations import count_text, format_duration
from watermark_source.errors import listed
from watermark_source.planning.hold_kinds import HoldKind, Motion
from watermark_source.planning.holds import HeldBy
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import CLOCKS_DIFFER, WatermarkStrategy
from watermark_source.planning.watermark import is_moment, watermark_text
from watermark_source.status_model.hold_texts import (
    Waiting,
    advice_of,
    as_sentence,
    held_text,
    moment_text,
    no_later_record,
    wrong_time,
)
from watermark_source.status_model.source_status import SourceStatus
from watermark_source.words import NO_WORDS, Words

_SLEWED = 1_000
_FIRST_REPEAT = 10
"""So many times the patience passes before a warning comes again; then twice as long each time."""
_LONGEST_REPEAT = 86_400_000
"""Milliseconds; a warning comes at least once a day."""
_CALM = 5
"""So many times the patience passes without a stand of the watermark before it counts as moving again."""
_MOST_PROPOSED = 86_400_000
"""Milliseconds: no warning proposes a longer bound or time-out. Rows that are late by more have another cause."""


def followed_in_sql(column: str = "") -> str:
    """Return the line by which SQL follows a source's watermark; ``column``: the argument that names another one."""
    return (
        f'for SQL follow_watermark(spark.readStream.table(…){column}).createOrReplaceTempView("followed"), and FROM '
        "followed without WATERMARK"
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """What a warning is about."""

    source: SourceStatus
    """The status, with what holds the watermark."""
    watermark: int | None
    since: int
    """When it began to stand: milliseconds since 1970-01-01 UTC."""
    lasted: int
    rows: int
    """Rows read in that time."""
    late: int = 0
    """How many of ``rows`` are late."""
    ahead: int = 0
    """By how much the watermark is ahead of the clock; milliseconds."""

    @property
    def is_passed(self) -> bool:
        """Whether rows come, and lie behind the watermark."""
        first = self.source.holds[0].by if self.source.holds else None
        return first in (None, HeldBy.SPLIT) and self.watermark is not None and 2 * self.late > self.rows


Reason: TypeAlias = tuple[HoldKind | None, str]
"""Why a watermark stands, and what holds it; ``None``: nothing does, or rows lie behind it."""


def reason_of(stand: Stand) -> Reason:
    """Return why a watermark stands: of one reason a warning comes once, then ever less often."""
    if stand.is_passed:
        return None, "late rows"
    held = next(iter(stand.source.holds), None)
    if held is None:
        return None, ""
    # While rows come, which of these kinds it is changes from plan to plan.
    return (HoldKind.READ if held.kind.motion is Motion.COMES else held.kind), held.name


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
    at = "" if watermark is None else f", and is at {moment_text(watermark)}"
    times = "" if stands == 1 else f" {count_text(stands)} times"
    return f"the watermark moves again{at}: it had stood{times} since {watermark_text(since)} UTC"


# The texts of the warnings.


def standing_text(stand: Stand, max_future_skew: int | None) -> str:
    """Return the warning of a watermark that stands while a query runs."""
    since = f"since {watermark_text(stand.since)} UTC ({format_duration(stand.lasted)})"
    what = "there is no watermark"
    if stand.watermark is not None:
        what = f"the watermark stands at {moment_text(stand.watermark)}"
    rows = f", with {count_text(stand.rows, 'row')} read since" if stand.rows else ""
    why = _cause(stand, max_future_skew)
    return f"{what} {since}{rows}: no window closes, and no row leaves a join. {why}"


def end_text(stand: Stand, max_future_skew: int | None) -> str:
    """Return the warning of a run with an end whose source's watermark closed no window.

    Spark's own may have: the source does not see a ``withWatermark``.
    """
    what = "there is no watermark yet"
    if stand.watermark is not None:
        what = f"the watermark is still {moment_text(stand.watermark)}"
    runs = ""
    if any(hold.kind in (HoldKind.NEVER, HoldKind.SILENT) and not hold.is_last for hold in stand.source.holds[:1]):
        runs = "; its silence counts from one run to the next"
    why = _cause(stand, max_future_skew)
    read = count_text(stand.rows, "row")
    return f"the run is over, and the source's watermark closed no window: {read} read, and {what}. {why}{runs}"


def _cause(stand: Stand, max_future_skew: int | None) -> str:
    source = stand.source
    if stand.is_passed:
        late = f"{count_text(stand.late)} of these rows {'is' if stand.late == 1 else 'are'} late"
        if stand.ahead > 0:
            far = future_text(stand.ahead, max_future_skew, source.words, is_announced=source.is_announced)
            return f"{late}. {far}"
        return (
            f"{late}: a row with a later event time moved the watermark ahead of them. "
            f"{_wrong_time(source.words, max_future_skew)}"
        )
    if not source.holds:
        return f"Nothing holds it: {no_later_record(source.words, Waiting(source.out_of_orderness or 0))}"
    to_do = advice_of(source)
    return f"It is held back by {held_text(source)}" + (f". {as_sentence(to_do)}" if to_do else "")


# Rows of the future, and other rows whose event time is wrong, that moved the watermark.


def future_text(ahead: int, max_future_skew: int | None, words: Words, *, is_announced: bool) -> str:
    """Return the cause and the way out where the watermark is so many milliseconds ahead of the clock."""
    if is_announced:
        return (
            f"The watermark is {format_duration(ahead)} in the future: a writer of the topic announced it. Check its "
            "clock and its event times, and set maxFutureSkew, with which an announcement of the future waits. A "
            "watermark never goes back: begin with a new checkpoint location"
        )
    zone = zone_text(ahead, words, delay=_READ_WITHIN)
    return (
        f"The watermark is {format_duration(ahead)} in the future: a row with a wrong event time moved it. "
        f"{f'{zone}. ' if zone else ''}{_way_out(max_future_skew)}"
    )


_HALF_HOUR, _HOUR, _MINUTE = 1_800_000, 3_600_000, 60_000
_FARTHEST_ZONE = 14 * _HOUR
_READ_WITHIN = 10 * _MINUTE
"""Milliseconds by which rows that are read late, or ``maxOutOfOrderness``, make a zone's difference look smaller."""


def zone_text(millis: int, words: Words, *, delay: int = _MINUTE) -> str:
    """Return that a difference between event time and clock may be that of a time zone; empty if it is not near one.

    It may be a minute more than the zone's, and ``delay`` less.
    """
    zone = -((_MINUTE - abs(millis)) // _HALF_HOUR) * _HALF_HOUR
    if not _HOUR <= zone <= _FARTHEST_ZONE or zone - abs(millis) > delay:
        return ""
    return (
        f"{format_duration(zone)} may be the difference of a time zone: a time without a zone is read as UTC, so write "
        f"it with its own, as in 2026-11-27T12:00:00+02:00{'' if words.zone is None else f'; {words.zone}'}"
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
    if ahead <= 0 or not zone_text(ahead, NO_WORDS, delay=_READ_WITHIN):
        return None
    if before is None:
        return Lead(now, watermark)
    lasted = now - before.since
    return Lead(now, watermark) if lasted >= patience and 2 * (watermark - before.watermark) < lasted else before


def lead_text(ahead: int, lasted: int, words: Words) -> str:
    """Return the warning of event times that are ahead, for so many milliseconds, by what may be a time zone."""
    since = f", and have been for {format_duration(lasted)}" if lasted else ""
    return (
        f"event times are {format_duration(ahead)} ahead of the clock{since}. "
        f"{zone_text(ahead, words, delay=_READ_WITHIN)}. Rows whose times are right are late beside them. A watermark "
        "never goes back: once the times are right, begin with a new checkpoint location"
    )


def _wrong_time(words: Words, max_future_skew: int | None) -> str:
    return f"{as_sentence(wrong_time(words))}. {_way_out(max_future_skew)}"


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
    splits: Iterable[LateSplit],
    strategy: WatermarkStrategy,
    words: Words,
    max_future_skew: int | None = None,
    ahead: int = 0,
) -> str:
    """Return the warning of the first late rows of some splits, all of one cause.

    ``words``: of the connector; ``ahead``: by how many milliseconds the watermark is ahead of the clock.
    """
    found = sorted(splits)
    rows, longest = sum(each.late.rows for each in found), max(each.late.longest for each in found)
    what = (
        f"{count_text(rows, 'row')} of {listed(each.split for each in found)} came up to "
        f"{format_duration(longest)} late: windows, joins and deduplication drop such rows. "
    )
    if 2 * ahead > longest:
        return what + future_text(ahead, max_future_skew, words, is_announced=strategy.announced_by is not None)
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
            + (f"To wait for {it}, write a longer one: {option}" if option else _no_bound(words, max_future_skew))
        )
    return what + _disorder(longest, strategy, words, max_future_skew)


def _disorder(longest: int, strategy: WatermarkStrategy, words: Words, max_future_skew: int | None) -> str:
    cause = strategy.cause_of_late_rows(longest)
    no_bound = f". {_no_bound(words, max_future_skew)}"
    if cause.option is not None:
        option = option_line(cause.option, cause.millis)
        return cause.text + (f": write {option}" if option else no_bound)
    if cause.hint:
        return cause.text + (no_bound if longest > _MOST_PROPOSED else f". {cause.hint}")
    return cause.text


def option_line(name: str, millis: int) -> str:
    """Return the line to write; empty for more than ``_MOST_PROPOSED``."""
    return "" if millis > _MOST_PROPOSED else f'.option("{name}", "{_seconds(millis)}")'


def _no_bound(words: Words, max_future_skew: int | None) -> str:
    return (
        "To wait that long would keep every window open: rather a row with a wrong event time moved the watermark. "
        f"{_wrong_time(words, max_future_skew)}"
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
        f"Until it has passed {moment_text(watermark)}, the watermark stands, and rows have event times just after it"
    )


def _seconds(millis: int) -> str:
    return f"{math.ceil(millis / 1_000)} seconds"
