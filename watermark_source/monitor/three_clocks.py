"""The three clocks of a query: event time in, event time out, and processing time; which of them is behind. Pure.

*Streaming Systems* (chapter 3) defines them. The **input watermark** is the lowest of what the sources have sent, the
**output watermark** what Spark's operators have passed on. The **processing-time watermark** is when the oldest row
arrived that is in a log and not in a committed batch. By event time alone a query that processes data of an hour ago
without delay looks like one that is an hour behind live data: the three together distinguish them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Final

from watermark_source.durations import count_text, format_duration
from watermark_source.monitor.open_windows import unfollowed_text
from watermark_source.monitor.window_facts import Unfollowed
from watermark_source.planning.hold_kinds import SHORTEST_SILENCE, Motion
from watermark_source.planning.holds import NOTABLE, HeldBy, Hold
from watermark_source.planning.strategy import CLOCKS_DIFFER
from watermark_source.planning.watermark import MIN, is_moment
from watermark_source.spark.operator_watermarks import (
    BatchWatermarks,
    NoWatermark,
    OperatorWatermark,
    executed_batch,
    output_of,
)
from watermark_source.spark.query_windows import Windows
from watermark_source.status_model.hold_texts import advice_of, held_text, holder_name, moment_text
from watermark_source.status_model.source_status import SourceStatus, SplitView, Status, Unprocessed
from watermark_source.status_model.watermark_warnings import zone_text
from watermark_source.words import NO_WORDS

TOLERANCE: Final = 10_000
"""Milliseconds: by default no cause is named for a delay up to this."""
_HOLDS_NO_ROWS = frozenset({"dedupe", "dedupeWithinWatermark"})
"""Stateful operators that have emitted the rows of which they keep the keys."""
_PHASES = 2
"""Phases of the last batch that a sentence names, the longest first."""


@dataclass(frozen=True, slots=True)
class ExecutedBatch:
    """The last batch that was committed, and the one under way."""

    number: int
    phases: Mapping[str, int]
    """Milliseconds by phase (``durationMs``); ``triggerExecution`` is the whole batch."""
    running: int | None = None
    """For how many milliseconds the batch after it has been running; ``None`` if none is, or it is unknown."""

    @property
    def lasted(self) -> int | None:
        """Milliseconds that the batch took."""
        return self.phases.get("triggerExecution")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryClocks:
    """The three clocks of a query at one moment. Times are milliseconds since 1970-01-01 UTC; ``None`` if unknown."""

    at: int
    """The present."""
    sources: tuple[SourceStatus, ...]
    input_watermark: int | None
    """The lowest combined watermark of the query's sources of this project."""
    applied_watermark: int | None
    """Spark's own (``eventTime.watermark``): operators have emitted what ends at or before it."""
    output_watermark: int | None = None
    """No row that the query writes from now on has an event time at or before it; see ``no_output`` where unknown."""
    no_output: str | None = None
    """Why the output watermark is unknown."""
    operators: tuple[OperatorWatermark, ...] = ()
    """Stateful operators, from the sink to the sources; empty where they cannot be asked (Spark Connect)."""
    unprocessed: Unprocessed | None = None
    """See ``processing_time_watermark``."""
    newest: int | None = None
    """Highest event time of all rows read, at most the present; ``None`` where event time is the clock."""
    rows_at: int | None = None
    """When rows last arrived, as far as that is known: between the two requests for the ends of the logs that bound it,
    not before the newest event time."""
    state_rows: int = 0
    """Rows in the state of operators, except deduplication, which has emitted the rows whose keys it keeps."""
    batch: ExecutedBatch | None = None
    has_windows: bool = True
    """Whether it has operators that hold rows; taken to have before the first batch."""
    windows: Windows | None = None
    """Those that it aggregates by, as far as its plan shows them."""
    waits_for_trigger: bool = False
    """Whether the next batch begins at the interval of the trigger."""
    unfollowed: Unfollowed | None = None
    """Both watermarks if Spark's is not that of the sources; ``None`` if it is."""
    first_batch: int | None = None
    """For how many milliseconds the first batch of this run has been running; ``None`` if it is not running."""

    @property
    def held(self) -> tuple[SourceStatus, Hold] | None:
        """What holds the query's watermark, with its source; ``None`` if nothing does.

        Of several sources the slowest one holds the others, although no split of it may hold the rest of them. What the
        first batch reads holds nothing back yet.
        """
        ordered = sorted((source for source in self.sources if source.slowest), key=_mark)
        found = next(((source, source.holds[0]) for source in ordered if source.holds), None)
        for slowest in ordered[:1]:
            others = [_mark(source) for source in self.sources if source is not slowest]
            if others and min(others) - _mark(slowest) > NOTABLE:
                found = slowest, slowest.slowest[0]
        is_read_first = self.first_batch is not None and found is not None and found[1].kind.motion is Motion.COMES
        return None if is_read_first else found

    @property
    def processing_time_watermark(self) -> int | None:
        """When the oldest row that is in a log and not in a committed batch arrived at the earliest.

        Without such a row: when the logs' ends were last requested. A row that was there before the query was started
        counts from the start (``unprocessed.is_older``).
        """
        return None if self.unprocessed is None else self.unprocessed.arrived

    @property
    def processing_time_latency(self) -> int | None:
        """For how many milliseconds a row that is not processed has waited at most."""
        return None if self.unprocessed is None else max(0, self.at - self.unprocessed.arrived)

    @property
    def nothing_came(self) -> bool:
        """Whether all rows are processed, and all of them were there before the query was started."""
        caught_up = self.unprocessed is not None and self.unprocessed.split is None
        return caught_up and self.rows_at is None and self.newest is not None

    @property
    def event_time_lag(self) -> int | None:
        """How many milliseconds the output watermark is behind the clock."""
        return behind_clock(self.at, self.output_watermark)

    @property
    def input_event_time_lag(self) -> int | None:
        """How many milliseconds the input watermark is behind the clock."""
        return behind_clock(self.at, self.input_watermark)

    @property
    def event_time_latency(self) -> int | None:
        """How many milliseconds the query itself adds: the input watermark less the output watermark (*Streaming
        Systems*, chapter 3). ``None`` while one is unknown, or at the ends of time."""
        if self.input_watermark is None or not is_moment(self.input_watermark):
            return None
        return behind_clock(self.input_watermark, self.output_watermark)


def _mark(of: SourceStatus) -> int:
    return MIN if of.watermark is None else of.watermark


def behind_clock(now: int, watermark: int | None) -> int | None:
    """Return how many milliseconds a watermark is behind the clock; ``None`` without one, and at the ends of time."""
    return now - watermark if watermark is not None and is_moment(watermark) else None


# The clocks from what Spark and the sources report.


def query_clocks(
    progress: Mapping[str, Any],
    sources: Sequence[SourceStatus],
    now: int,
    *,
    in_batch: bool = False,
    running: int | None = None,
    idle_at: int | None = None,
    operators: BatchWatermarks | NoWatermark | None = None,
    waits_for_trigger: bool = False,
    unfollowed: Unfollowed | None = None,
) -> QueryClocks:
    """Return the clocks of a query.

    Args:
        progress: the last progress event of Spark, as parsed JSON; empty before the first.
        sources: the status of its sources, at least as new as the event.
        now: the wall clock.
        in_batch: whether the statuses are of a batch that is not committed yet.
        running: for how many milliseconds that batch has been running, if known.
        idle_at: when Spark last reported that the query had nothing to do.
        operators: what its stateful operators state; ``None`` where they cannot be asked.
        waits_for_trigger: whether it waits for the interval of its trigger.
        unfollowed: both watermarks if Spark's is not that of the sources.
    """
    stateful = progress.get("stateOperators", ())
    known = [source.watermark for source in sources]
    sent = None if not known or None in known else min(mark for mark in known if mark is not None)
    output: int | NoWatermark | None = None
    if operators is not None:
        output = output_of(operators, progress or None)
    elif not stateful:
        output = sent
    waiting = [source.unprocessed if in_batch else _read_up_to(source.unread, idle_at) for source in sources]
    on_time = [source for source in sources if not source.processing_time]
    newest = [min(source.newest, now) for source in on_time if source.newest is not None]
    rows_at = [at for source in sources if (at := _last_arrival(source)) is not None]
    number = executed_batch(progress)
    batch = None if number is None else ExecutedBatch(number, progress.get("durationMs", {}), running)
    holding = [operator for operator in stateful if operator.get("operatorName") not in _HOLDS_NO_ROWS]
    return QueryClocks(
        at=now,
        sources=tuple(sources),
        input_watermark=sent,
        applied_watermark=moment_of(progress.get("eventTime", {}).get("watermark")),
        output_watermark=None if isinstance(output, NoWatermark) else output,
        no_output=str(output) if isinstance(output, NoWatermark) else None,
        operators=operators.operators if isinstance(operators, BatchWatermarks) else (),
        unprocessed=min(filter(None, waiting), key=attrgetter("arrived"), default=None),
        newest=max(newest, default=None),
        rows_at=max(rows_at, default=None),
        state_rows=sum(operator.get("numRowsTotal", 0) for operator in holding),
        has_windows=batch is None or bool(holding),
        windows=operators.windows if isinstance(operators, BatchWatermarks) else None,
        batch=batch,
        waits_for_trigger=waits_for_trigger,
        unfollowed=unfollowed,
        first_batch=(running or 0) if in_batch and batch is None else None,
    )


def _last_arrival(source: SourceStatus) -> int | None:
    if source.rows_at is None or source.rows_after is None or source.newest is None:
        return source.rows_at
    # The two are as far apart as a batch is long.
    return min(max(source.newest, source.rows_after), source.rows_at)


def _read_up_to(unread: Unprocessed | None, idle_at: int | None) -> Unprocessed | None:
    """Return it as of the last time that the query was idle: then there was still nothing to read."""
    if unread is None or unread.split is not None or idle_at is None:
        return unread
    return replace(unread, arrived=max(unread.arrived, idle_at))


def moment_of(text: str | None) -> int | None:
    """Return a time of a progress event in milliseconds; ``None`` without one, and for 1970, Spark's "none yet"."""
    if text is None:
        return None
    try:
        at = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        # The end of time has a year of six digits.
        return None
    return round(at.timestamp() * 1_000) or None


# Which of the three is behind.


class DelayVerdict(Enum):
    """Why the results of a query are as far behind the clock as they are. The value is the word in the metric."""

    FRESH = "fresh"
    TRIGGER = "trigger"
    DATA_OLD = "data_old"
    ROWS_WAIT = "rows_wait"
    BATCH_SLOW = "batch_slow"
    QUIET = "quiet"
    UNFOLLOWED = "unfollowed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict and its sentence, which ``str`` returns."""

    verdict: DelayVerdict
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class Delays:
    """The parts of the time between the output watermark and the present, in milliseconds."""

    processing: int
    """From the arrival of the oldest row that is not in a committed batch until now."""
    quiet: int
    """Since rows last arrived, if all are processed."""
    age: int
    """How old the newest row was when it arrived."""
    held: int
    """From the output watermark to the newest event time that was read, while operators hold rows."""


def delays(of: QueryClocks) -> Delays:
    """Return the parts of a query's delay. They add up to ``event_time_lag``, if operators hold rows."""
    arrived = of.at if of.processing_time_latency is None else of.at - of.processing_time_latency
    caught_up = of.unprocessed is not None and of.unprocessed.split is None
    quiet = max(0, arrived - of.rows_at) if caught_up and of.rows_at is not None else 0
    # When rows arrived that were there before the query was started is not known.
    no_age = of.newest is None or of.nothing_came
    age = 0 if no_age or of.newest is None else max(0, arrived - quiet - of.newest)
    held, passed = 0, passed_by_operators(of)
    if of.state_rows and of.newest is not None and passed is not None and is_moment(passed):
        held = max(0, of.newest - passed)
    return Delays(of.at - arrived, quiet, age, held)


def passed_by_operators(of: QueryClocks) -> int | None:
    """Return up to where operators have emitted their rows."""
    return of.applied_watermark if of.output_watermark is None else of.output_watermark


def diagnose(of: QueryClocks, tolerance: int = TOLERANCE) -> Diagnosis:
    """Return why the results of a query are behind the clock: which part of the delay is the largest.

    Up to ``tolerance`` milliseconds, all parts together are no delay.
    """
    if of.unprocessed is None:
        if of.batch is None:
            return Diagnosis(DelayVerdict.UNKNOWN, "the query is starting: its first batch is not planned yet")
        return Diagnosis(DelayVerdict.UNKNOWN, "no source of this project has reported a batch of this query")
    parts = delays(of)
    if of.first_batch is not None:
        found = DelayVerdict.BATCH_SLOW if parts.processing > tolerance else DelayVerdict.UNKNOWN
        return Diagnosis(found, _first_batch(of.first_batch))
    if of.unfollowed is not None:
        text = unfollowed_text(of.sources, of.unfollowed)
        return Diagnosis(DelayVerdict.UNFOLLOWED, f"the query does not follow its sources: {text}")
    no_watermark = bool(of.state_rows) and passed_by_operators(of) is None
    waits = parts.held + (parts.quiet if of.state_rows else 0)
    paused = _paused(of)
    unread = DelayVerdict.ROWS_WAIT if paused else DelayVerdict.BATCH_SLOW
    lengths = ((unread, parts.processing), (DelayVerdict.DATA_OLD, parts.age), (DelayVerdict.ROWS_WAIT, waits))
    found, _ = max(lengths, key=itemgetter(1))
    if parts.processing + parts.age + waits <= tolerance:
        is_quiet = parts.quiet > tolerance or of.nothing_came
        found = DelayVerdict.QUIET if is_quiet else DelayVerdict.FRESH
        if no_watermark:
            found = DelayVerdict.ROWS_WAIT
    elif found is DelayVerdict.BATCH_SLOW and of.waits_for_trigger:
        found = DelayVerdict.TRIGGER
    elif found is DelayVerdict.ROWS_WAIT and paused and parts.processing >= waits:
        return Diagnosis(found, _waits_for_group(of, paused, parts))
    sentences: Mapping[DelayVerdict, Callable[[QueryClocks, Delays], str]] = {
        DelayVerdict.FRESH: partial(_fresh, tolerance=tolerance),
        DelayVerdict.DATA_OLD: _data_old,
        DelayVerdict.ROWS_WAIT: _rows_wait,
        DelayVerdict.BATCH_SLOW: _batch_slow,
        DelayVerdict.QUIET: _quiet,
        DelayVerdict.TRIGGER: _trigger,
    }
    return _held(of, parts, Diagnosis(found, f"{sentences[found](of, parts)}{_ahead(of)}"), tolerance)


def _ahead(of: QueryClocks) -> str:
    """Return which split has a row far ahead of the clock, where the others hold the watermark nearer to it."""
    highest = [
        (view.watermark + source.out_of_orderness + 1, source, view)
        for source in of.sources
        if source.out_of_orderness is not None and not source.processing_time
        for view in source.splits
        if view.watermark is not None and is_moment(view.watermark) and (source.watermark or MIN) <= of.at
    ]
    at, _, view = max(highest, key=lambda each: each[0], default=(0, None, None))
    if view is None or at <= of.at + CLOCKS_DIFFER:
        return ""
    return (
        f"; {view.split} has a record {format_duration(at - of.at)} ahead of the clock: check its producer's clock; "
        "maxFutureSkew keeps such records from moving the watermark"
    )


def _held(of: QueryClocks, parts: Delays, found: Diagnosis, tolerance: int) -> Diagnosis:
    """Return that no window can close, where something at rest holds the watermark; else what was found."""
    if found.verdict in (DelayVerdict.BATCH_SLOW, DelayVerdict.TRIGGER):
        return found
    held = [source for source in of.sources if source.watermark is None and _is_at_rest(source)]
    which = "no window"
    if not held and found.verdict is DelayVerdict.DATA_OLD and parts.held > tolerance:
        held = [source for source in of.sources if _stands_behind(source, tolerance)]
        which = "no later window"
    if not held:
        return found
    several = len(of.sources) > 1
    names = (f"source {each.source_name}: " if several else "" for each in held)
    whys = ("; ".join(filter(None, (held_text(each), advice_of(each)))) for each in held)
    why = "; ".join(f"{name}{text}" for name, text in zip(names, whys, strict=True))
    if not of.has_windows:
        return Diagnosis(found.verdict, f"{found}; there is no watermark: {why}")
    more = f"; besides, {found}" if found.verdict is DelayVerdict.DATA_OLD else ""
    return Diagnosis(DelayVerdict.ROWS_WAIT, f"{which} can close: {why}{more}")


def _is_at_rest(source: SourceStatus) -> bool:
    """Return whether what holds the watermark is not ended by rows that are being read."""
    return any(hold.kind.is_at_rest or hold.by in (HeldBy.READING, HeldBy.WRITER) for hold in source.holds)


def _stands_behind(source: SourceStatus, tolerance: int) -> bool:
    """Return whether a watermark is held further behind than the tolerance, for as long as no row comes."""
    then = source.without_holder
    if source.watermark is None or then is None or source.idle_timeout is not None or _comes_rarely(source):
        return False
    return _is_at_rest(source) and then - source.watermark > tolerance


_AT_REST = 30_000
"""Milliseconds of silence from which a split is at rest: as long as the ``idleTimeout`` that is proposed for it."""


def _comes_rarely(source: SourceStatus) -> bool:
    """Return whether what holds the watermark had a row not long ago: between rows it is behind, too."""
    quiet = (hold.quiet for hold in source.holds if hold.kind.motion is not Motion.STUCK)
    return any(silent is not None and silent < _AT_REST for silent in quiet)


def _first_batch(running: int) -> str:
    return (
        f"the first batch is running: it began {format_duration(running)} ago, and its first task may compile the "
        "decoder once"
    )


def _trigger(of: QueryClocks, parts: Delays) -> str:
    return (
        f"rows wait for the trigger: no batch is running, and the logs were last read {_since(of, parts)}; the next "
        "batch begins at its interval"
    )


def _fresh(of: QueryClocks, parts: Delays, tolerance: int) -> str:
    lag = of.event_time_lag
    is_behind = lag is not None and lag > tolerance
    shown = "" if lag is None else f", and the output watermark is {from_clock(lag)}"
    processed = f"rows are processed {_within(parts.processing)} after they arrive{shown}"
    return f"{processed}{_held_by(of)}" if is_behind else f"the data are fresh: {processed}"


def _data_old(of: QueryClocks, parts: Delays) -> str:
    before = ""
    if of.unprocessed is not None and of.unprocessed.is_older:
        before = ". The rows were there before the query was started, for how long is unknown"
    elif zone := zone_text(parts.age, NO_WORDS):
        before = f". {zone}"
    return (
        f"the data are old: the newest event time read, {moment_text(of.newest)}, is {format_duration(parts.age)} "
        f"older than its row's arrival; rows are processed {_within(parts.processing)} after they arrive{before}"
    )


def _within(millis: int) -> str:
    return "at once" if not millis else f"within {format_duration(millis)}"


def _rows_wait(of: QueryClocks, parts: Delays) -> str:
    rows = f"operators hold {count_text(of.state_rows, 'row')}"
    passed = passed_by_operators(of)
    if passed is None:
        return f"rows wait for time: {rows}, and there is no watermark yet{_held_by(of)}"
    own = ""
    if of.input_watermark is not None and of.input_watermark - passed > parts.held // 2:
        own = f"; operators hold it {format_duration(of.input_watermark - passed)} behind the input watermark"
    # One form for both parts: where rows come rarely, which is longer changes with each row.
    at = f"{format_duration(parts.held)} behind" if parts.held else "at"
    quiet = f", and no row has arrived for {format_duration(parts.quiet)}" if parts.quiet >= SHORTEST_SILENCE else ""
    return (
        f"rows wait for time: {rows}, and the output watermark, {moment_text(passed)}, is {at} the newest event time "
        f"read{quiet}{own or _held_by(of)}"
    )


def _held_by(of: QueryClocks) -> str:
    if of.held is None:
        return ""
    source, hold = of.held
    name = holder_name(hold) + (f" of source {source.source_name}" if len(of.sources) > 1 else "")
    return "; ".join(filter(None, (f"; it is held by {name}: {hold.why}", advice_of(source))))


def _paused(of: QueryClocks) -> SplitView | None:
    """Return the split of the oldest row if its alignment group lets it not be read."""
    if of.unprocessed is None or of.unprocessed.split is None:
        return None
    views = (view for source in of.sources for view in source.splits)
    return next((v for v in views if str(v.split) == of.unprocessed.split and v.status is Status.PAUSED), None)


def _waits_for_group(of: QueryClocks, paused: SplitView, parts: Delays) -> str:
    return f"rows wait for time: {paused.split} is paused, with rows that arrived {_since(of, parts)}: {paused.why}"


def _since(of: QueryClocks, parts: Delays) -> str:
    if of.unprocessed is not None and of.unprocessed.is_older:
        return f"before the query was started {format_duration(parts.processing)} ago"
    return f"{format_duration(parts.processing)} ago"


def _batch_slow(of: QueryClocks, parts: Delays) -> str:
    if of.unprocessed is None or of.unprocessed.split is None:
        oldest = f"no row was unread when the logs were last read, {format_duration(parts.processing)} ago"
    else:
        oldest = f"the oldest row of {of.unprocessed.split} that is not processed arrived {_since(of, parts)}"
    return f"the batch is slow: {oldest}{_progress(of)}{_unread(of)}"


def _progress(of: QueryClocks) -> str:
    if of.batch is None:
        return "; the first batch is not done"
    now = ""
    if of.batch.running is not None:
        now = f"; batch {of.batch.number + 1} has been running for {format_duration(of.batch.running)}"
    if of.batch.lasted is None:
        return now
    phases = sorted(((p, ms) for p, ms in of.batch.phases.items() if p != "triggerExecution"), key=lambda p: -p[1])
    longest = ", ".join(f"{phase} {format_duration(ms)}" for phase, ms in phases[:_PHASES])
    return f"{now}; batch {of.batch.number} took {format_duration(of.batch.lasted)} ({longest})"


def _unread(of: QueryClocks) -> str:
    lags = [source.lag for source in of.sources]
    left = sum(lag for lag in lags if lag is not None)
    return f"; {count_text(left, 'row')} behind it {'is' if left == 1 else 'are'} unread" if left else ""


def _quiet(of: QueryClocks, parts: Delays) -> str:
    if of.nothing_came:
        return "no rows arrive: all are processed, and they were there before the query was started"
    return f"no rows arrive: all are processed, and the last came {format_duration(parts.quiet)} ago"


def from_clock(lag: int, text: Callable[[int], str] = format_duration) -> str:
    """Return how many milliseconds a watermark is behind the clock, or ahead of it, as text."""
    return f"{text(abs(lag))} {'behind' if lag >= 0 else 'ahead of'} the clock"
