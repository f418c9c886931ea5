"""Why a window is still open: which partitions, sources or batches it waits for, and the line to write.

The facts are those of a running query's status, or those of a checkpoint's files, which know less: ``QueryAt`` has
either, and ``open_window`` decides. Spark emits a window in the first batch whose watermark has reached its end; a
source's watermark is applied to the batch after the one that carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from watermark_source.durations import count_text, format_duration
from watermark_source.monitor.source_status import Status, WriterView
from watermark_source.monitor.status_table import text_table
from watermark_source.planning.watermark import MAX, MIN, is_moment, watermark_text

IDLE_TIMEOUT = '.option("idleTimeout", "30 seconds")'
_NAMED = 3
"""Splits of many that a sentence names."""
_LINES: Final = 100
"""Rows of the printed table."""
_END = 2**62 // 1_000
"""Half of Spark's range of times, in milliseconds: a watermark beyond it is the end of time."""


class Hold(Enum):
    """What a split does for a window. The order is that of the sentence and of the table."""

    NEVER = auto()
    """It has never had a record."""
    NO_WATERMARK = auto()
    """None of its records had a usable event time."""
    NO_ANSWER = auto()
    PAUSED = auto()
    SILENT = auto()
    """It is behind, and has nothing to read."""
    BACKLOG = auto()
    """It is behind, and is being read."""
    PENDING = auto()
    """Its last records are in a batch whose event times a checkpoint does not hold."""
    PASSED = auto()
    LEFT_OUT = auto()
    """It is idle: the watermark does not wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAt:
    """One split."""

    name: str
    watermark: int | None
    status: Status
    position: int
    lag: int | None
    """Records to read; ``None`` if that is not known."""
    never: bool
    """Whether it has never had a record."""
    why: str
    pending: int = 0
    """Positions in the last batch, which are not in ``watermark``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAt:
    """One source of this project. Times are milliseconds since 1970-01-01 UTC."""

    name: str
    format_name: str
    watermark: int | None
    """The combined watermark that it has sent."""
    splits: tuple[SplitAt, ...]
    more_splits: int = 0
    """Splits beside those."""
    on_clock: bool = False
    snapshots: tuple[str, ...] = ()
    """Tables whose snapshot is not complete."""
    writers: tuple[WriterView, ...] | None = None
    """Those that announce its watermark; ``None`` if none does."""
    unannounced: str | None = None
    first_reading: str | None = None
    idle_timeout: int | None = None
    out_of_orderness: int | None = None
    knows_options: bool = True
    """Whether an absent ``idle_timeout`` is an absent option. An offset does not hold the options."""
    held_by: str | None = None
    """The other source of the alignment group that its splits wait for."""
    is_held: bool = False
    """Whether its alignment group lets no source read yet."""
    trouble: str | None = None
    """Why what is known of the group may be old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAt:
    """A query at one moment."""

    sources: tuple[SourceAt, ...]
    foreign: tuple[str, ...] = ()
    """Sources of other projects, whose watermark is not known."""
    batch: int | None
    """The last batch that was committed or planned; ``None`` before the first."""
    applied: int | None
    """The watermark up to which operators have emitted windows in committed batches."""
    committed: int | None = None
    """The watermark that Spark has committed for its next batch."""
    planned: int | None = None
    """The watermark of a batch that is planned and not committed; ``None`` without one, or if it has none."""
    takes_highest: bool = False
    """Whether Spark takes the highest watermark of several sources instead of the lowest."""
    unfollowed: str | None = None
    """That Spark's watermark is not that of the sources, as a sentence; ``None`` if it is."""
    waits_for_rows: bool = False
    """Whether Spark makes no batch without rows (``noDataMicroBatches``)."""
    has_ended: bool = False
    """Whether the query does not run any more, or its run reads no more rows."""
    remarks: tuple[str, ...] = ()

    @property
    def sent(self) -> int | None:
        """The watermark of the sources of this project together; ``None`` while one that counts has none."""
        known = [source.watermark for source in self.sources]
        if self.takes_highest:
            return max((mark for mark in known if mark is not None), default=None)
        return None if not known or None in known else min(mark for mark in known if mark is not None)


class Verdict(Enum):
    """What a window waits for."""

    CLOSED = "closed"
    """Nothing: a committed batch has emitted it."""
    BATCH = "batch"
    """The sources' watermark has passed its end; a batch has to apply it."""
    SOURCES = "sources"
    """The watermark of a source."""
    UNFOLLOWED = "unfollowed"
    """Spark's watermark does not follow the sources'."""
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
    verdict: Verdict
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


def unfollowed_text(spark: int | None, lowest: int, highest: int) -> str | None:
    """Return that Spark's watermark is not that of the sources; ``None`` if it is.

    Args:
        spark: the watermark that Spark has for a batch; ``None``: none.
        lowest: the watermark that the sources sent with the batch before.
        highest: the highest watermark of a single source.
    """
    if not is_moment(lowest) or lowest <= 0:
        return None
    if spark is None:
        return (
            f"Spark has no watermark, although the sources have sent {time_text(lowest)}: the query does not follow "
            "them, so that no window ever closes: put follow_watermark(stream) in front of the aggregation"
        )
    if is_moment(highest) and spark > highest:
        return (
            f"Spark's watermark, {time_text(spark)}, is ahead of that of the sources, {time_text(highest)}: the query "
            "takes its watermark from a withWatermark, or began with a checkpoint of Spark's own source; use "
            "follow_watermark(stream) instead of withWatermark"
        )
    return None


# The decision.


def open_window(of: QueryAt, end: int | None) -> OpenWindow:
    """Return why a window is open, or any window that is. Pure."""
    target = (MIN if of.sent is None else of.sent) + 1 if end is None else end
    rows = tuple(sorted(_rows(of.sources, target, end), key=_row_order))
    window = "any window" if end is None else f"the window that ends at {time_text(end)}"
    verdict, sentence = _decide(of, end, target, window)
    remarks = [*of.remarks]
    if verdict is Verdict.SOURCES:
        remarks = [*_advice(of, target, end), *remarks]
    if of.foreign:
        remarks.append(
            f"the query also reads {', '.join(of.foreign)}: Spark's watermark is the "
            f"{'highest' if of.takes_highest else 'lowest'} of all, and theirs is not known here"
        )
    remarks += [f"source {source.name}: {source.trouble}" for source in of.sources if source.trouble]
    return OpenWindow(
        end=end,
        verdict=verdict,
        sentence=sentence,
        remarks=tuple(remarks),
        rows=rows,
        more_rows=sum(source.more_splits for source in of.sources),
    )


def _decide(of: QueryAt, end: int | None, target: int, window: str) -> tuple[Verdict, str]:
    if of.batch is None and not of.sources:
        return Verdict.UNKNOWN, f"{window} waits for the first batch: none has been planned yet"
    if not of.sources:
        return Verdict.UNKNOWN, f"why {window} is open is not known: the query reads no source of this project"
    if end is not None and _reached(of.applied, end):
        return Verdict.CLOSED, (
            f"{window} is closed: batch {of.batch} and earlier ones emitted all windows that end by "
            f"{time_text(of.applied)}; rows that come for it now are late and are dropped"
        )
    if of.unfollowed is not None:
        return Verdict.UNFOLLOWED, f"{window} is open because {of.unfollowed}"
    if end is not None and (waits := _batch_wait(of, end)) is not None:
        return Verdict.BATCH, f"{window} {waits}"
    return Verdict.SOURCES, _source_sentence(of, end, target, window)


def _batch_wait(of: QueryAt, end: int) -> str | None:
    """Return which batch emits a window that the sources' watermark has passed; ``None`` if it has not."""
    again = "; start the query again, if it does not run" if of.has_ended else ""
    rows = ""
    if of.waits_for_rows:
        rows = ", and there is none without rows: spark.sql.streaming.noDataMicroBatches.enabled is false"
    if _reached(of.planned, end):
        return (
            f"closes with batch {of.batch}, which has the watermark {time_text(of.planned)} and is planned, but not "
            f"committed{again}"
        )
    if _reached(of.committed, end):
        return (
            f"closes with the next batch, for which Spark has committed the watermark {time_text(of.committed)}{again}"
        )
    if not of.foreign and _reached(of.sent, end):
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
        if end is not None or not _reached(source.watermark, target)
    ]
    return f"{when}: {'; '.join(parts)}"


def _reached(watermark: int | None, end: int) -> bool:
    return watermark is not None and watermark >= end


def hold_of(split: SplitAt, source: SourceAt, target: int) -> Hold:  # noqa: PLR0911  one line a case
    """Return what a split does for a window that ends at ``target``."""
    if split.status is Status.IDLE:
        return Hold.LEFT_OUT
    # A batch may carry the watermark of its own rows, which those of the splits do not include yet.
    if _reached(split.watermark, target) or _reached(source.watermark, target):
        return Hold.PASSED
    if split.status is Status.PAUSED:
        return Hold.PAUSED
    if split.status is Status.UNKNOWN:
        return Hold.NO_ANSWER
    if split.pending:
        return Hold.PENDING
    if split.never:
        return Hold.NEVER
    if split.watermark is None:
        return Hold.BACKLOG if split.lag else Hold.NO_WATERMARK
    return Hold.SILENT if split.lag == 0 else Hold.BACKLOG


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
        snapshot = f"the snapshot of {_names(source.snapshots)} is read first, and rows of a snapshot have no watermark"
        yield source.first_reading or snapshot
        return
    if source.is_held:
        slowest = "" if source.held_by is None else f": the slowest source is {source.held_by}"
        yield f"its alignment group lets no source read yet{slowest}"
    if source.writers is not None:
        yield from _writer_clauses(source, target)
        return
    if not source.splits:
        yield "it has no partition yet"
    held: dict[Hold, list[SplitAt]] = {}
    for split in source.splits:
        held.setdefault(hold_of(split, source, target), []).append(split)
    highest = max((s.watermark for s in source.splits if s.watermark is not None), default=None)
    window = _Window(source, highest if end is None else end, _moves(source, target))
    for hold in (Hold.PASSED, *_HELD, Hold.LEFT_OUT):
        splits = held.get(hold)
        if splits and not (end is None and hold is Hold.PASSED):
            yield _CLAUSES[hold](splits, window)
    if Hold.PASSED in held and not set(held) & set(_HELD) and not _reached(source.watermark, target):
        yield f"its watermark, {time_text(source.watermark)}, follows with the next batch"
    if source.more_splits:
        yield f"{count_text(source.more_splits)} more partitions are not in the status"


_HELD = (
    Hold.BACKLOG, Hold.PENDING, Hold.PAUSED, Hold.SILENT, Hold.NO_WATERMARK, Hold.NEVER, Hold.NO_ANSWER,
)  # fmt: skip


def _passed(splits: Sequence[SplitAt], _: _Window) -> str:
    return f"{_names([s.name for s in splits], most=2)} {'has' if len(splits) == 1 else 'have'}"


def _backlog(splits: Sequence[SplitAt], at: _Window) -> str:
    lags = [s.lag for s in splits if s.lag is not None]
    records = f", with {records_text(sum(lags))} to read" if lags else ", with records to read"
    return f"{_subject(splits)} {_behind(splits, at.base)}{records}"


def _pending(splits: Sequence[SplitAt], at: _Window) -> str:
    records = records_text(sum(s.pending for s in splits))
    if all(s.watermark is None for s in splits):
        return f"{_subject(splits)} {_has(splits)} {records} in the last batch, and had no watermark before it"
    return f"{_subject(splits)} {_behind(splits, at.base)} without the {records} of the last batch"


def _paused(splits: Sequence[SplitAt], at: _Window) -> str:
    elsewhere = "" if at.source.held_by is None else f"; the slowest other source is {at.source.held_by}"
    return (
        f"{_subject(splits)} {_behind(splits, at.base)} and paused by the alignment group: {splits[0].why}{elsewhere}"
    )


def _silent(splits: Sequence[SplitAt], at: _Window) -> str:
    read = "read to the end of this run" if splits[0].status is Status.FINISHED else None
    nothing = f" and {read}" if read else ", with nothing to read"
    return f"{_subject(splits)} {_behind(splits, at.base)}{nothing}{_timeout(splits, at)}"


def _without(splits: Sequence[SplitAt], at: _Window) -> str:
    return f"{_subject(splits)} {_has(splits)} no watermark: {splits[0].why}"


def _never(splits: Sequence[SplitAt], at: _Window) -> str:
    return f"{_subject(splits)} {_has(splits)} never had a record{_timeout(splits, at)}"


def _no_answer(splits: Sequence[SplitAt], at: _Window) -> str:
    whose = "its log does" if len(splits) == 1 else "their logs do"
    return f"{_subject(splits)} {_behind(splits, at.base)}, and {whose} not answer"


def _left_out(splits: Sequence[SplitAt], _: _Window) -> str:
    return f"{_subject(splits)} {'is' if len(splits) == 1 else 'are'} idle and left out"


_CLAUSES: Mapping[Hold, Callable[[Sequence[SplitAt], _Window], str]] = {
    Hold.NEVER: _never,
    Hold.NO_WATERMARK: _without,
    Hold.NO_ANSWER: _no_answer,
    Hold.PAUSED: _paused,
    Hold.SILENT: _silent,
    Hold.BACKLOG: _backlog,
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


def _writer_clauses(source: SourceAt, target: int) -> Iterator[str]:
    if source.unannounced is not None:
        yield source.unannounced
    for writer in source.writers or ():
        if _writer_hold(writer, source, target) is Hold.PASSED:
            yield f"writer {writer.name} has"
        elif _writer_hold(writer, source, target) is not Hold.LEFT_OUT:
            at = "" if writer.watermark is None else f" is at {time_text(writer.watermark)}:"
            yield f"writer {writer.name}{at or ':'} {writer.why}"
    if not source.writers and source.unannounced is None:
        yield "no writer has announced a watermark"


def _writer_hold(writer: WriterView, source: SourceAt, target: int) -> Hold:
    if writer.status in ("idle", "silent", "ended"):
        return Hold.LEFT_OUT
    return Hold.PASSED if _reached(writer.watermark, target) or _reached(source.watermark, target) else Hold.BACKLOG


def _advice(of: QueryAt, target: int, end: int | None) -> Iterator[str]:
    """Yield the lines to write, and what would close the window."""
    for source in of.sources:
        if _reached(source.watermark, target) or source.on_clock:
            continue
        name = f" of source {source.name}" if len(of.sources) > 1 else ""
        if source.writers is not None:
            yield (
                f"to do{name}: start the writer that has stopped; if it is gone for good, python -m watermark_source "
                "watermarks --kafka … --topic TOPIC drop WRITER, or set writerTimeToLive"
            )
            continue
        yield from _split_advice(source, target, end, name)


_QUIET = {Hold.NEVER, Hold.NO_WATERMARK, Hold.SILENT}
_MOVING = {Hold.PASSED, Hold.BACKLOG, Hold.PENDING, Hold.PAUSED, Hold.NO_ANSWER}


def _moves(source: SourceAt, target: int) -> bool:
    """Return whether the watermark passes a time once the splits with nothing to read are left out."""
    holds = {hold_of(split, source, target) for split in source.splits}
    left_out = (s for s in source.splits if s.status is Status.IDLE)
    return bool(holds & _MOVING) or any(_reached(s.watermark, target) for s in left_out)


def _split_advice(source: SourceAt, target: int, end: int | None, name: str) -> Iterator[str]:
    held = {hold_of(split, source, target) for split in source.splits} & set(_HELD)
    if Hold.NO_WATERMARK in held and any("event time" in split.why for split in source.splits):
        yield f"to check{name}: eventTimeColumn and eventTimeFormat, with python -m watermark_source profile …"
    if _moves(source, target):
        if held & _QUIET and not source.knows_options:
            yield f"to write{name}, if the query does not have it: {IDLE_TIMEOUT}"
    elif source.splits and not source.snapshots and source.first_reading is None:
        late = "" if end is None else f" later than {time_text(end + (source.out_of_orderness or 0))}"
        bound = f" (maxOutOfOrderness {format_duration(source.out_of_orderness)})" if source.out_of_orderness else ""
        unknown = "" if source.knows_options or end is None else " plus maxOutOfOrderness"
        # A system that dates its rows itself needs no such strategy, and refuses it.
        is_kafka = source.format_name == "aligned-kafka"
        clock = ', .option("watermarkStrategy", "ingestion") lets the clock close it' if is_kafka else ""
        yield (
            f"no partition{name} has come so far: a record with an event time{late}{unknown}{bound} advances the "
            f'watermark{clock}, and .option("finalWatermark", "true") closes all windows at the end of a last run '
            "with availableNow"
        )


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
                hold=_writer_hold(writer, source, target),
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


# Words.


def time_text(watermark: int | None) -> str:
    """Return a time as UTC, without milliseconds that are zero."""
    if watermark is None or not is_moment(watermark) or watermark > _END:
        return watermark_text(MAX if watermark is not None and watermark > _END else watermark)
    return f"{watermark_text(watermark).removesuffix('.000')} UTC"


def _names(names: Sequence[str], most: int = _NAMED) -> str:
    if len(names) > most:
        return f"{', '.join(names[:most])} and {count_text(len(names) - most)} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _subject(splits: Sequence[SplitAt]) -> str:
    worst = sorted(splits, key=lambda s: MIN if s.watermark is None else s.watermark)
    return _names([split.name for split in worst])


def _has(splits: Sequence[SplitAt]) -> str:
    return "has" if len(splits) == 1 else "have"


def _behind(splits: Sequence[SplitAt], base: int | None) -> str:
    marks = [s.watermark for s in splits if s.watermark is not None]
    verb = "is" if len(splits) == 1 else "are"
    if not marks:
        return f"{_has(splits)} no watermark yet"
    if base is None or min(marks) >= base:
        return f"{verb} at {time_text(min(marks))}"
    up_to = "up to " if len(splits) > 1 else ""
    return f"{verb} {up_to}{format_duration(base - min(marks))} behind"


def records_text(n: int) -> str:
    """Return a number of records."""
    return "1 record" if n == 1 else f"{count_text(n)} records"
