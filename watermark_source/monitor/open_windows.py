"""Why a window is still open: which partitions, sources or batches it waits for, and the line to write.

``open_window`` decides it from the facts of ``window_facts``. Spark emits a window in the first batch whose watermark
has reached its end; a source's watermark is applied to the batch after the one that carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from watermark_source.durations import count_text, format_duration
from watermark_source.monitor.source_status import Status
from watermark_source.monitor.status_table import text_table
from watermark_source.monitor.watermark_warnings import future_text, option_line
from watermark_source.monitor.window_facts import (
    QUIET,
    Hold,
    QueryAt,
    SourceAt,
    SplitAt,
    Unfollowed,
    behind_text,
    have_text,
    hold_of,
    moves_without_quiet,
    names_text,
    reached,
    subject_text,
    time_text,
    writer_advice,
    writer_clauses,
    writer_hold,
)
from watermark_source.planning.watermark import MIN, is_moment, watermark_text

IDLE_TIMEOUT = '.option("idleTimeout", "30 seconds")'
_LINES: Final = 100
"""Rows of the printed table."""


class WindowVerdict(Enum):
    """What a window waits for."""

    CLOSED = "closed"
    """Nothing: a committed batch has emitted it."""
    BATCH = "batch"
    """The sources' watermark has passed its end; a batch has to apply it."""
    SOURCES = "sources"
    """The watermark of a source."""
    UNFOLLOWED = "unfollowed"
    """Spark's watermark does not follow the sources': the window is open, or closed before theirs passed it."""
    UNKNOWN = "unknown"
    """The query has not planned a batch yet, or reads no source of this project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRow:
    """One row of the table: a split, or a writer that announces watermarks."""

    source: str
    name: str
    hold: Hold
    watermark: int | None
    status: str
    position: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWindow:
    """Why a window is open: ``str`` returns the sentence, remarks, and the table."""

    end: int | None
    """The end of the window, milliseconds since 1970-01-01 UTC; ``None``: any window that is open."""
    verdict: WindowVerdict
    sentence: str
    remarks: tuple[str, ...]
    rows: tuple[SplitRow, ...]
    """What holds the window first."""
    more_rows: int = 0
    """Splits that the status does not name."""

    def __str__(self) -> str:
        parts = [self.sentence, *self.remarks]
        if self.rows:
            parts += ["", *_table(self.rows, self.more_rows)]
        return "\n".join(parts)


# The decision.


def open_window(of: QueryAt, end: int | None) -> OpenWindow:
    """Return why a window is open, or any window that is. Pure."""
    target = (MIN if of.sent is None else of.sent) + 1 if end is None else end
    rows = tuple(sorted(_rows(of.sources, target, end), key=_row_order))
    window = "any window" if end is None else f"the window that ends at {time_text(end)}"
    verdict, sentence = _decide(of, end, target, window)
    remarks = [*(_advice(of, target, end) if verdict is WindowVerdict.SOURCES else ()), *_missing_rows(of), *of.remarks]
    if of.unfollowed is not None and verdict is not WindowVerdict.UNFOLLOWED:
        remarks.insert(0, _unfollowed_text(of, of.unfollowed))
    if of.foreign:
        remarks.append(
            f"the query also reads {', '.join(of.foreign)}: Spark's watermark is the "
            f"{'highest' if of.takes_highest else 'lowest'} of all, and theirs is not known here"
        )
    for source in of.sources:
        remarks += [f"source {source.name}: {text}" for text in (source.trouble,) if text]
        remarks += [text for text in source.silent if text not in remarks]
    return OpenWindow(
        end=end,
        verdict=verdict,
        sentence=sentence,
        remarks=tuple(remarks),
        rows=rows,
        more_rows=sum(source.more_splits for source in of.sources),
    )


_AT_REST = {Hold.NEVER, Hold.NO_WATERMARK, Hold.NO_ANSWER, Hold.SILENT, Hold.OPEN}
"""What no rows that are being read end."""


def standing(source: SourceAt, target: int = MIN + 1) -> str | None:
    """Return what holds a source's watermark below a time, by default below any, and the line to write.

    ``None`` if nothing does, or only rows that are being read or an alignment group.
    """
    if source.on_clock or reached(source.watermark, target):
        return None
    waits_first = source.snapshots or source.first_reading is not None or source.writers is not None
    if waits_first or {hold_of(split, source, target) for split in source.splits} & _AT_REST:
        return "; ".join([*_clauses(source, target, None), *writer_advice(source, target)])
    return None


def _decide(of: QueryAt, end: int | None, target: int, window: str) -> tuple[WindowVerdict, str]:
    if of.batch is None and not of.sources:
        return WindowVerdict.UNKNOWN, f"{window} waits for the first batch: none has been planned yet"
    if not of.sources:
        return WindowVerdict.UNKNOWN, f"why {window} is open is not known: the query reads no source of this project"
    if end is not None and reached(of.applied, end):
        return _closed(of, end, window)
    if of.unfollowed is not None:
        early = f"{window} closes before the sources' watermark has passed it, because"
        verb = f"{window} is open because" if of.unfollowed.spark is None else early
        return WindowVerdict.UNFOLLOWED, f"{verb} {_unfollowed_text(of, of.unfollowed)}"
    if end is not None and (waits := _batch_wait(of, end)) is not None:
        return WindowVerdict.BATCH, f"{window} {waits}"
    return WindowVerdict.SOURCES, _source_sentence(of, end, target, window)


def _closed(of: QueryAt, end: int, window: str) -> tuple[WindowVerdict, str]:
    emitted = f"batch {of.batch} and earlier ones emitted all windows that end by {time_text(of.applied)}"
    if of.unfollowed is not None and not reached(of.sent, end):
        return WindowVerdict.UNFOLLOWED, (
            f"{window} closed before the sources' watermark passed it, and rows that come for it now are dropped: "
            f"{emitted}, because {_unfollowed_text(of, of.unfollowed)}"
        )
    return WindowVerdict.CLOSED, f"{window} is closed: {emitted}; rows that come for it now are late and are dropped"


def _unfollowed_text(of: QueryAt, found: Unfollowed) -> str:
    """Return what Spark's watermark is, which rows are lost by it, and the line to write."""
    spark = found.spark
    if spark is None:
        return (
            f"Spark has no watermark, although the sources have sent {time_text(found.sources)}: the query does not "
            "follow them, so that no window ever closes: put follow_watermark(stream) in front of the aggregation"
        )
    theirs = "which have none yet" if found.sources is None else time_text(found.sources)
    behind = [
        split
        for source in of.sources
        for split in source.splits
        if source.writers is None and split.status is not Status.IDLE and not reached(split.watermark, spark)
    ]
    whose = f" of {subject_text(behind)}" if behind else ""
    return (
        f"Spark's own watermark, {time_text(spark)}, is ahead of that of the sources, {theirs}, and rows{whose} behind "
        "it are dropped as late, without an error: the query takes its watermark from a withWatermark, or began with a "
        "checkpoint of Spark's own source; use follow_watermark(stream) instead of withWatermark"
    )


def _batch_wait(of: QueryAt, end: int) -> str | None:
    """Return which batch emits a window that the sources' watermark has passed; ``None`` if it has not."""
    again = "; start the query again, if it does not run" if of.has_ended else ""
    rows = ""
    if of.running is not None:
        rows = f", and the batch under way has been running for {format_duration(of.running)}"
    elif of.waits_for_trigger:
        rows = ", and the next one begins at the interval of the trigger"
    if of.waits_for_rows:
        rows = ", and there is none without rows: spark.sql.streaming.noDataMicroBatches.enabled is false"
    if reached(of.planned, end):
        return (
            f"closes with batch {of.batch}, which has the watermark {time_text(of.planned)} and is planned, but not "
            f"committed{again}"
        )
    if reached(of.committed, end):
        return (
            f"closes with the next batch, for which Spark has committed the watermark {time_text(of.committed)}{again}"
        )
    if not of.foreign and reached(of.sent, end):
        return (
            f"closes with the batch after the one that carries the sources' watermark, {time_text(of.sent)}: Spark "
            f"applies a watermark one batch later{rows}{again}"
        )
    return None


def _source_sentence(of: QueryAt, end: int | None, target: int, window: str) -> str:
    several = len(of.sources) > 1
    some = "one of" if of.takes_highest else "each of"
    condition = "every active partition has passed that time"
    if all(source.writers is not None for source in of.sources):
        condition = "every writer of the topic has announced that time"
    if all(source.on_clock for source in of.sources):
        condition = "the clock has passed that time"
    where = f" in {some} {len(of.sources)} sources" if several else ""
    if end is None:
        when = (
            "no window has closed yet, because there is no watermark"
            if of.sent is None
            else f"windows that end by {time_text(of.sent)} close, later ones are open"
        )
    else:
        when = f"{window} closes when {condition}{where}"
    parts = [
        f"{f'of source {source.name}, ' if several else ''}{'; '.join(_clauses(source, target, end))}"
        for source in of.sources
        if end is not None or not reached(source.watermark, target)
    ]
    return f"{when}: {'; '.join(parts)}"


class _Window(NamedTuple):
    """A window and a source that it waits for."""

    source: SourceAt
    base: int | None
    """The time that splits are behind of: the window's end, or the highest watermark of the source."""
    moves: bool
    """Whether the watermark would pass the end without the splits that have nothing to read."""


def _clauses(source: SourceAt, target: int, end: int | None) -> Iterator[str]:
    """Yield what holds a source, and what does not."""
    if source.on_clock:
        yield f"event time is the clock, and its watermark is {time_text(source.watermark)}"
        return
    if source.snapshots or source.first_reading is not None:
        snapshot = (
            f"the snapshot of {names_text(source.snapshots)} is read first, and rows of a snapshot have no watermark"
        )
        yield source.first_reading or snapshot
        return
    if source.is_held:
        slowest = "" if source.held_by is None else f": the slowest source is {source.held_by}"
        yield f"its alignment group lets no source read yet{slowest}"
    if source.writers is not None:
        yield from writer_clauses(source, target)
        return
    if not source.splits:
        yield "it has no partition yet"
    held: dict[Hold, list[SplitAt]] = {}
    for split in source.splits:
        held.setdefault(hold_of(split, source, target), []).append(split)
    highest = max((s.watermark for s in source.splits if s.watermark is not None), default=None)
    window = _Window(source, highest if end is None else end, moves_without_quiet(source, target))
    for hold in (Hold.PASSED, *_HELD, Hold.LEFT_OUT):
        splits = held.get(hold)
        if splits and not (end is None and hold is Hold.PASSED):
            yield _CLAUSES[hold](splits, window)
    if Hold.PASSED in held and not set(held) & set(_HELD) and not reached(source.watermark, target):
        yield f"its watermark, {time_text(source.watermark)}, follows with the next batch"
    if source.more_splits:
        yield f"{count_text(source.more_splits)} more partitions are not in the status"


_HELD = (
    Hold.BACKLOG, Hold.READ, Hold.PENDING, Hold.PAUSED, Hold.OPEN, Hold.SILENT, Hold.BOUND, Hold.NO_WATERMARK,
    Hold.NEVER, Hold.NO_ANSWER,
)  # fmt: skip


def _passed(splits: Sequence[SplitAt], _: _Window) -> str:
    return f"{names_text([s.name for s in splits], most=2)} {have_text(splits)}"


def _backlog(splits: Sequence[SplitAt], at: _Window) -> str:
    lags = [s.lag for s in splits if s.lag is not None]
    records = f", with {count_text(sum(lags), 'record')} to read" if lags else ", with records to read"
    return f"{subject_text(splits)} {behind_text(splits, at.base)}{records}"


def _read(splits: Sequence[SplitAt], at: _Window) -> str:
    was = "was" if len(splits) == 1 else "were"
    return f"{subject_text(splits)} {behind_text(splits, at.base)}, and {was} read to the end just now"


def _pending(splits: Sequence[SplitAt], at: _Window) -> str:
    count = sum(s.pending for s in splits)
    records = count_text(count, "record") if all(s.is_counted for s in splits) else "records"
    if all(s.watermark is None for s in splits):
        return f"{subject_text(splits)} {have_text(splits)} {records} in the last batch, and had no watermark before it"
    return f"{subject_text(splits)} {behind_text(splits, at.base)} without the {records} of the last batch"


def _paused(splits: Sequence[SplitAt], at: _Window) -> str:
    elsewhere = "" if at.source.held_by is None else f"; the slowest other source is {at.source.held_by}"
    if all(s.watermark is None for s in splits):
        where = f"{have_text(splits)} no watermark yet, and {'is' if len(splits) == 1 else 'are'}"
    else:
        where = f"{behind_text(splits, at.base)} and"
    return f"{subject_text(splits)} {where} paused by the alignment group: {splits[0].why}{elsewhere}"


def _open(splits: Sequence[SplitAt], at: _Window) -> str:
    its = "its" if len(splits) == 1 else "their"
    return (
        f"{subject_text(splits)} {behind_text(splits, at.base)}, and {its} next records are in a transaction that is "
        "open: no idleTimeout leaves them out"
    )


def _bound(splits: Sequence[SplitAt], at: _Window) -> str:
    """Of a window without an end there is no such split: its watermark has not come to its own next millisecond."""
    its = "its watermark is" if len(splits) == 1 else "their watermarks are"
    bound = format_duration(at.source.out_of_orderness or 0)
    seen = f"{subject_text(splits)} {have_text(splits)} records that late"
    return f"{seen}, and {its} maxOutOfOrderness ({bound}) behind them"


def _silent(splits: Sequence[SplitAt], at: _Window) -> str:
    read = "read to the end of this run" if splits[0].status is Status.FINISHED else None
    nothing = f" and {read}" if read else ", with nothing to read"
    return f"{subject_text(splits)} {behind_text(splits, at.base)}{nothing}{_timeout(splits, at)}"


def _without(splits: Sequence[SplitAt], at: _Window) -> str:
    return f"{subject_text(splits)} {have_text(splits)} no watermark: {splits[0].why}"


def _never(splits: Sequence[SplitAt], at: _Window) -> str:
    return f"{subject_text(splits)} {have_text(splits)} never had a record{_timeout(splits, at)}"


def _no_answer(splits: Sequence[SplitAt], at: _Window) -> str:
    whose = "its log does" if len(splits) == 1 else "their logs do"
    return f"{subject_text(splits)} {behind_text(splits, at.base)}, and {whose} not answer"


def _left_out(splits: Sequence[SplitAt], _: _Window) -> str:
    return f"{subject_text(splits)} {'is' if len(splits) == 1 else 'are'} idle and left out"


_CLAUSES: Mapping[Hold, Callable[[Sequence[SplitAt], _Window], str]] = {
    Hold.NEVER: _never,
    Hold.NO_WATERMARK: _without,
    Hold.NO_ANSWER: _no_answer,
    Hold.PAUSED: _paused,
    Hold.OPEN: _open,
    Hold.BOUND: _bound,
    Hold.SILENT: _silent,
    Hold.BACKLOG: _backlog,
    Hold.READ: _read,
    Hold.PENDING: _pending,
    Hold.PASSED: _passed,
    Hold.LEFT_OUT: _left_out,
}


def _timeout(splits: Sequence[SplitAt], at: _Window) -> str:
    timeout = at.source.idle_timeout
    if timeout is not None:
        them = "it is" if len(splits) == 1 else "they are"
        return f", and {them} left out once silent for idleTimeout ({format_duration(timeout)})"
    line = f": {IDLE_TIMEOUT}" if at.moves else ""
    return f", and no idleTimeout is set{line}" if at.source.knows_options else ""


def _advice(of: QueryAt, target: int, end: int | None) -> Iterator[str]:
    """Yield the lines to write, and what would close the window."""
    for source in of.sources:
        if reached(source.watermark, target) or source.on_clock:
            continue
        name = f" of source {source.name}" if len(of.sources) > 1 else ""
        if source.writers is not None:
            yield from (f"to do{name}: {text}" for text in writer_advice(source, target))
            continue
        yield from _split_advice(source, target, end, name)


def _split_advice(source: SourceAt, target: int, end: int | None, name: str) -> Iterator[str]:
    held = {hold_of(split, source, target) for split in source.splits} & set(_HELD)
    first = source.snapshots or source.first_reading is not None
    if not first and Hold.NO_WATERMARK in held and any("event time" in split.why for split in source.splits):
        yield f"to check{name}: eventTimeColumn and eventTimeFormat, with python -m watermark_source profile …"
    if not first and not source.knows_options and Hold.NO_WATERMARK in held:
        yield f"a query{name} that began at the ends of its logs (startingOffsets) reads none of the records before"
    if Hold.OPEN in held:
        yield (
            f"to do{name}: let the producer commit or abort its transaction; one that has died ends after its "
            "transaction.timeout.ms"
        )
    if source.is_held:
        yield (
            f"to do{name}: start the other sources of the alignment group, or write as many as there are into "
            '.option("alignmentMembers", …)'
        )
    if source.read_nothing:
        yield (
            f"no record{name} has come since the query was started, and a new query begins at the ends of the logs: "
            '.option("startingOffsets", "earliest") with a new checkpoint location reads what was there before'
        )
    if Hold.BOUND in held:
        yield f"to write{name}, if rows come less late: a shorter maxOutOfOrderness"
    are_new = held == {Hold.PENDING} and all(split.watermark is None for split in source.splits)
    if are_new and not first and not source.knows_options:
        yield (
            f"the next batch{name} has the event times of these records; if there is no watermark after it either, "
            "check eventTimeColumn and eventTimeFormat with python -m watermark_source profile …"
        )
    if moves_without_quiet(source, target):
        if held & QUIET and not source.knows_options:
            yield f"to write{name}, if the query does not have it: {IDLE_TIMEOUT}"
    elif source.splits and not first and not source.read_nothing:
        yield _record_advice(source, end, name, is_normal=not source.is_held and Hold.NO_WATERMARK not in held)


def _record_advice(source: SourceAt, end: int | None, name: str, *, is_normal: bool) -> str:
    """Return which record closes a window that no partition has passed."""
    it = "the next window" if end is None else "it"
    normal = ", as is normal for a window whose rows are still coming" if is_normal else ""
    late = source.out_of_orderness or 0
    after = "after its end" if end is None else f"later than {time_text(end + late)}"
    bound = f" (maxOutOfOrderness {format_duration(late)})" if late else ""
    bound = bound if source.knows_options else " plus maxOutOfOrderness"
    # A system that dates its rows itself needs no such strategy, and refuses it.
    is_kafka = source.format_name == "aligned-kafka"
    clock = '.option("watermarkStrategy", "ingestion") lets the clock close it, and ' if is_kafka else ""
    return (
        f"no partition{name} has had a record that closes {it} yet{normal}: {it} closes once each that is not idle has "
        f"had one with an event time {after}{bound}. If no more records come: {clock}"
        '.option("finalWatermark", "true") closes all windows at the end of a last run with availableNow'
    )


# Rows that are missing in the result, and why.


_AHEAD = 3_000_000
"""Milliseconds from which a watermark ahead of the clock is a wrong event time: the nearest zone's, less a delay."""


def _missing_rows(of: QueryAt) -> Iterator[str]:
    """Yield which rows of this run windows have dropped, or have not counted, and the line to write."""
    for source in of.sources:
        name = f"source {source.name}: " if len(of.sources) > 1 else ""
        ahead = 0
        if source.at is not None and source.watermark is not None and is_moment(source.watermark):
            ahead = source.watermark - source.at
        if ahead > _AHEAD and not source.on_clock:
            yield f"{name}rows of now are late: {future_text(ahead, None)}"
        if source.rows.late.rows:
            yield f"{name}{_late_rows(source, is_ahead=ahead > _AHEAD)}"
        if source.rows.future:
            yield (
                f"{name}{_rows_text(source.rows.future)} too far in the future (maxFutureSkew), and moved no "
                f"watermark: check the producer's clock, and eventTimeFormat{_profile(source)}"
            )
        if source.rows.undated:
            yield (
                f"{name}{_rows_text(source.rows.undated)} without an event time, in no window: check eventTimeColumn "
                f"and eventTimeFormat{_profile(source)}"
            )
        if source.rows.malformed:
            rows = _rows_text(source.rows.malformed)
            yield f"{name}{rows} not as valueSchema or keySchema has it (see valueMode, keyMode)"


def _profile(source: SourceAt) -> str:
    return ", with python -m watermark_source profile …" if source.format_name == "aligned-kafka" else ""


def _rows_text(n: int) -> str:
    return f"{count_text(n, 'row')} of this run {'is' if n == 1 else 'are'}"


def _late_rows(source: SourceAt, *, is_ahead: bool) -> str:
    late = sorted((split for split in source.splits if split.late), key=lambda s: -s.late)
    longest = source.rows.late.longest
    of = f" of {names_text([split.name for split in late])}" if late else ""
    rows = count_text(source.rows.late.rows, "row")
    what = (
        f"{rows}{of} came up to {format_duration(longest)} late in this run: windows, joins and deduplication drop "
        'such rows, and .option("includeLate", "true") keeps them'
    )
    if is_ahead:
        return what
    if any(split.was_idle for split in late) and source.idle_timeout is not None:
        option = option_line("idleTimeout", source.idle_timeout + longest)
        return f"{what}. Partitions were idle in this run, and the watermark advanced without them{_or_profile(option)}"
    if source.out_of_orderness is None:
        return f"{what}; the log has the cause"
    option = option_line("maxOutOfOrderness", source.out_of_orderness + longest)
    return f"{what}. They are out of order by more than maxOutOfOrderness{_or_profile(option)}"


def _or_profile(option: str) -> str:
    return f": {option}" if option else "; for so long a time rather check the event times"


# Rows of the table.


def _rows(sources: Iterable[SourceAt], target: int, end: int | None) -> Iterator[SplitRow]:
    for source in sources:
        for split in source.splits:
            hold = hold_of(split, source, target) if source.writers is None and not source.on_clock else Hold.PASSED
            yield SplitRow(
                source=source.name,
                name=split.name,
                hold=hold,
                watermark=split.watermark,
                status=split.status.name,
                position=split.position,
                why=split.why,
            )
        for writer in source.writers or ():
            yield SplitRow(
                source=source.name,
                name=f"writer {writer.name}",
                hold=writer_hold(writer, source, target),
                watermark=writer.watermark,
                status=writer.status.upper(),
                position=None,
                why=writer.why,
            )


def _row_order(row: SplitRow) -> tuple[bool, int, str, str]:
    done = row.hold in (Hold.PASSED, Hold.LEFT_OUT)
    return done, MIN if row.watermark is None else row.watermark, row.source, row.name


_HOLD_TEXTS = {Hold.PASSED: "no", Hold.LEFT_OUT: "no, idle"}


def _table(rows: Sequence[SplitRow], more: int) -> Iterator[str]:
    several = len({row.source for row in rows}) > 1
    titles = ["partition", "holds", "watermark", "status", "position", "why"]
    cells = [
        [
            row.name,
            _HOLD_TEXTS.get(row.hold, "yes"),
            watermark_text(row.watermark),
            row.status,
            "" if row.position is None else count_text(row.position),
            row.why,
        ]
        for row in rows[:_LINES]
    ]
    if several:
        titles = ["source", *titles]
        cells = [[row.source, *cell] for row, cell in zip(rows, cells, strict=False)]
    yield from text_table(titles, cells, numbers={"position"})
    hidden = max(0, len(rows) - _LINES) + more
    if hidden:
        yield f"and {count_text(hidden)} more"
