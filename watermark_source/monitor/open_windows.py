"""Why a window is still open: which partitions, sources or batches it waits for, and the line to write.

``open_window`` decides it from the facts of ``window_facts``. Spark emits a window in the first batch whose watermark
has reached its end; a source's watermark is applied to the batch after the one that carries it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from watermark_source.durations import count_text, format_duration
from watermark_source.monitor.missing_rows import Missing, missing_rows
from watermark_source.monitor.status_table import text_table
from watermark_source.monitor.window_clauses import clauses
from watermark_source.monitor.window_facts import (
    QueryAt,
    Unfollowed,
    holds_at,
    kind_at,
    names_text,
    reached,
    time_text,
    writer_at,
)
from watermark_source.planning.announcement import gone_line, on_writers
from watermark_source.planning.group_limit import TO_COME
from watermark_source.planning.hold_kinds import HoldKind, Motion
from watermark_source.planning.holds import HeldBy, Hold
from watermark_source.planning.watermark import MIN, watermark_text
from watermark_source.status_model.hold_texts import IDLE_TIMEOUT, Waiting, advice, advice_of, ends_by_itself
from watermark_source.status_model.source_status import SourceStatus, silence_text
from watermark_source.status_model.watermark_warnings import followed_in_sql

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
    hold: HoldKind | None
    """Why it has not passed the window's end; ``None`` if it has."""
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
    to_do: tuple[str, ...]
    """What would close it, and the lines to write."""
    missing: tuple[Missing, ...]
    """Rows that the result does not have."""
    notes: tuple[str, ...]
    """What else is to be known."""
    rows: tuple[SplitRow, ...]
    """What holds the window first."""
    more_rows: int = 0
    """Splits that the status does not name."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What would close it, which rows are missing, and what else is to be known."""
        return (*self.to_do, *map(str, self.missing), *self.notes)

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
    notes = list(of.remarks)
    if of.unfollowed is not None and verdict is not WindowVerdict.UNFOLLOWED:
        notes.insert(0, unfollowed_text(of.sources, of.unfollowed))
    if of.foreign:
        notes.append(
            f"the query also reads {', '.join(of.foreign)}: Spark's watermark is the "
            f"{'highest' if of.takes_highest else 'lowest'} of all, and theirs is not known here"
        )
    for source in of.sources:
        group = source.group
        if group is not None:
            notes += [f"source {source.source_name}: {text}" for text in (group.trouble,) if text]
            notes += [text for peer in group.silent if (text := silence_text(peer, group)) not in notes]
    return OpenWindow(
        end=end,
        verdict=verdict,
        sentence=sentence,
        to_do=tuple(_advice(of, target, end)) if verdict is WindowVerdict.SOURCES else (),
        missing=tuple(missing_rows(of.sources)),
        notes=tuple(notes),
        rows=rows,
        more_rows=sum(source.splits_total - len(source.splits) for source in of.sources),
    )


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
        return WindowVerdict.UNFOLLOWED, f"{verb} {unfollowed_text(of.sources, of.unfollowed)}"
    if end is not None and (waits := _batch_wait(of, end)) is not None:
        return WindowVerdict.BATCH, f"{window} {waits}"
    return WindowVerdict.SOURCES, _source_sentence(of, end, target, window)


def _closed(of: QueryAt, end: int, window: str) -> tuple[WindowVerdict, str]:
    emitted = f"batch {of.batch} and earlier ones emitted all windows that end by {time_text(of.applied)}"
    if of.unfollowed is not None and not reached(of.sent, end):
        return WindowVerdict.UNFOLLOWED, (
            f"{window} closed before the sources' watermark passed it, and rows that come for it now are dropped: "
            f"{emitted}, because {unfollowed_text(of.sources, of.unfollowed)}"
        )
    return WindowVerdict.CLOSED, f"{window} is closed: {emitted}; rows that come for it now are late and are dropped"


def unfollowed_text(sources: Iterable[SourceStatus], found: Unfollowed) -> str:
    """Return what Spark's watermark is, which rows are lost by it, and the line to write."""
    spark = found.spark
    if spark is None:
        return (
            f"Spark has no watermark, although the sources have sent {time_text(found.sources)}: the query does not "
            "follow them, so that no window ever closes: put follow_watermark(stream) in front of the aggregation"
        )
    theirs = "which have none yet" if found.sources is None else time_text(found.sources)
    behind = [
        str(split.split)
        for source in sources
        for split in source.splits
        if not source.is_announced and split.kind is not HoldKind.LEFT_OUT and not reached(split.watermark, spark)
    ]
    whose = f" of {names_text(behind)}" if behind else ""
    return (
        f"Spark's own watermark, {time_text(spark)}, is ahead of that of the sources, {theirs}, and rows{whose} behind "
        "it are dropped as late, without an error: the query takes its watermark from a withWatermark, or WATERMARK in "
        "SQL, or began with a checkpoint of Spark's own source; use follow_watermark(stream) instead of withWatermark; "
        f"{followed_in_sql()}"
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
    nouns = {source.words.split for source in of.sources}
    condition = f"every active {nouns.pop() if len(nouns) == 1 else 'split'} has passed that time"
    if all(source.is_announced for source in of.sources):
        condition = "every writer of the topic has announced that time"
    if all(source.processing_time for source in of.sources):
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
        f"{f'of source {source.source_name}, ' if several else ''}{'; '.join(clauses(source, target, end))}"
        for source in of.sources
        if end is not None or not reached(source.watermark, target)
    ]
    return f"{when}: {'; '.join(parts)}"


_AGAIN: Final = "start the query again: what holds the watermark ends while it runs"


def _advice(of: QueryAt, target: int, end: int | None) -> Iterator[str]:
    """Yield the lines to write, and what would close the window."""
    for source in of.sources:
        if reached(source.watermark, target) or source.processing_time:
            continue
        name = f" of source {source.source_name}" if len(of.sources) > 1 else ""
        for text in dict.fromkeys(_to_do(source, of, target, end)):
            if text:
                yield f"to do{name}: {text}"


def _to_do(source: SourceStatus, of: QueryAt, target: int, end: int | None) -> Iterator[str]:
    """Yield what ends each hold of a source; of any window that is open, what holds the watermark now."""
    if source.first_reading is not None or any(not snapshot.done for snapshot in source.snapshots):
        return
    if end is None and source.holds:
        yield _AGAIN if of.has_ended and ends_by_itself(source.holds[0]) else advice_of(source)
        return
    if source.group is not None and source.group.hold:
        paused = Hold(by=HeldBy.SOURCE, name=source.group.slowest or str(TO_COME), kind=HoldKind.PAUSED)
        yield advice(paused, source.words)
    for hold in holds_at(source, target, end):
        if of.has_ended and ends_by_itself(hold):
            yield _AGAIN
        elif hold.kind.motion is not Motion.COMES or hold.by is not HeldBy.SPLIT:
            text = advice(hold, source.words, Waiting(source.out_of_orderness or 0, end))
            yield text if of.knows_options else _without_options(hold, text)


def _without_options(hold: Hold, text: str) -> str:
    """Return an advice of a checkpoint, which does not hold the options."""
    if hold.by is HeldBy.WRITER:
        return f"what each writer announced last: {on_writers('list')}; {gone_line([hold.name])}"
    can_be_left_out = hold.kind.is_silence and not hold.is_last
    return f"write {IDLE_TIMEOUT}, if the query does not have it" if can_be_left_out else text


# Rows of the table.


def _rows(sources: Iterable[SourceStatus], target: int, end: int | None) -> Iterator[SplitRow]:
    for source in sources:
        for split in source.splits:
            yield SplitRow(
                source=source.source_name,
                name=str(split.split),
                hold=kind_at(split, source, target, end),
                watermark=split.watermark,
                status=split.status.name,
                position=split.backlog.position,
                why=split.why,
            )
        for writer in source.writers:
            yield SplitRow(
                source=source.source_name,
                name=f"writer {writer.name}",
                hold=writer_at(writer, source, target),
                watermark=writer.watermark,
                status=writer.status.upper(),
                position=None,
                why=writer.why,
            )


def _row_order(row: SplitRow) -> tuple[bool, int, str, str]:
    done = row.hold in (None, HoldKind.LEFT_OUT)
    return done, MIN if row.watermark is None else row.watermark, row.source, row.name


_HOLD_TEXTS = {None: "no", HoldKind.LEFT_OUT: "no, left out"}


_TITLES: Final = ("source", "partition", "holds", "watermark", "status", "position", "why")


def _cells(of: SplitRow) -> tuple[str, ...]:
    """Return the texts of a row, by the titles of the table."""
    holds, position = _HOLD_TEXTS.get(of.hold, "yes"), "" if of.position is None else count_text(of.position)
    return of.source, of.name, holds, watermark_text(of.watermark), of.status, position, of.why


def _table(rows: Sequence[SplitRow], more: int) -> Iterator[str]:
    # Of a query with one source each row would name it.
    first = 0 if len({row.source for row in rows}) > 1 else 1
    yield from text_table(_TITLES[first:], [_cells(row)[first:] for row in rows[:_LINES]], numbers={"position"})
    hidden = max(0, len(rows) - _LINES) + more
    if hidden:
        yield f"and {count_text(hidden)} more"
