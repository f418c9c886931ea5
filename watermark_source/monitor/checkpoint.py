"""What the files of a query's checkpoint state: of a query that has ended, or that runs in another process.

Spark writes three logs (``org.apache.spark.sql.execution.streaming``): ``metadata`` with the query's id, ``offsets``
with what each batch reads, before it runs, and ``commits`` with the watermark of the next batch, after it has run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Any, NamedTuple

from watermark_source.durations import count_text
from watermark_source.errors import UsageError, listed, shortened
from watermark_source.local_path import local_path
from watermark_source.monitor.window_facts import QueryAt, Unfollowed, time_text, unfollowed
from watermark_source.planning.announcement import NO_WRITER
from watermark_source.planning.hold_kinds import HoldKind, SplitFacts, split_kind
from watermark_source.planning.offset import OffsetCodec, own_offset
from watermark_source.planning.range_report import NO_ROWS, RowTotals
from watermark_source.planning.snapshot_ranges import snapshot_split, unfinished
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.planning.watermark import MIN
from watermark_source.status_model.source_status import (
    STATUS_OF,
    GroupStatus,
    SnapshotProgress,
    SourceStatus,
    SplitBacklog,
    SplitView,
    WriterView,
)

_WHAT_IT_IS = (
    "expected what the query has as checkpointLocation: a folder with the file metadata and the folders offsets and "
    "commits"
)
_NOT_KNOWN = (
    "a checkpoint does not hold options such as idleTimeout and maxOutOfOrderness, the ends of the logs, the alignment "
    "group's other sources, nor what happened after this batch"
)
WATERMARK_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


class _Source(NamedTuple):
    """One source in the offset log."""

    name: str
    """Its ``sourceName``; for another project's source its place in the log."""
    format_name: str
    state: SourceState | None
    """The state at the end of the batch; ``None`` for another project's source, and before its first batch."""


class _Batch(NamedTuple):
    """A batch in the offset log. Times are milliseconds since 1970-01-01 UTC."""

    planned_at: int | None
    watermark: int | None
    """The one that Spark's operators have in it; ``None``: none yet."""
    takes_highest: bool
    """Whether Spark takes the highest watermark of several sources (``multipleWatermarkPolicy``), not the lowest."""
    sources: tuple[_Source, ...]

    def unfollowed(self, spark: int | None) -> Unfollowed | None:
        """Return that Spark's watermark for the batch behind this one is not that of the sources."""
        sent = [source.state.watermark for source in self.sources if source.state is not None]
        return unfollowed(spark, sent, takes_highest=self.takes_highest) if len(sent) == len(self.sources) else None


_NO_BATCH = _Batch(None, None, takes_highest=False, sources=())


def query_of_checkpoint(location: str | Path) -> QueryAt:
    """Return a query as the last batch of its checkpoint has it.

    Args:
        location: a local folder, or its ``file:`` URI.

    Raises:
        UsageError: it is no local folder, or no checkpoint, or of a layout that this release does not read.
        OffsetError: an offset of this project cannot be read.
    """
    folder = _local(location)
    # In this order: a batch that is committed meanwhile counts as committed.
    batches, commits = _numbers(folder, "offsets", "commits")
    _json(folder / "metadata", _text(folder / "metadata"))
    if not batches:
        remarks = (f"checkpoint {folder}: its offset log is empty",)
        return QueryAt(sources=(), batch=None, applied=None, remarks=remarks)
    number, is_committed = batches[-1], batches[-1] in commits
    batch = _batch(folder / "offsets" / str(number))
    before = _batch(folder / "offsets" / str(batches[-2])) if len(batches) > 1 else _NO_BATCH
    following = _following(folder / "commits" / str(number)) if is_committed else None
    foreign = tuple(f"source {source.name} of another project" for source in batch.sources if source.state is None)
    at = "" if batch.planned_at is None else f", planned at {time_text(batch.planned_at)}"
    committed = "committed" if is_committed else "not committed"
    strange = batch.unfollowed(following) if is_committed else before.unfollowed(batch.watermark)
    return QueryAt(
        sources=tuple(
            _status(source, state, batch.planned_at) for source in batch.sources if (state := source.state) is not None
        ),
        foreign=foreign,
        batch=number,
        applied=batch.watermark if is_committed else before.watermark,
        committed=following,
        planned=None if is_committed else batch.watermark,
        takes_highest=batch.takes_highest,
        unfollowed=None if foreign else strange,
        has_ended=True,
        knows_options=False,
        remarks=(f"as of batch {number} ({committed}{at}) of checkpoint {folder}; {_NOT_KNOWN}",),
    )


def committed_state(location: str | Path, format_name: str) -> tuple[int, SourceState]:
    """Return the last batch that was committed, and the state at its end of a query's one source of a format.

    Raises:
        UsageError: it is no local folder, or no checkpoint; no batch was committed, or not one source is of the format.
        OffsetError: an offset of this project cannot be read.
    """
    return _last_state(_local(location), "commits", format_name)


def planned_state(location: str | Path, format_name: str) -> SourceState:
    """Return the state at the end of the last batch that was begun; raises as ``committed_state``."""
    return _last_state(_local(location), "offsets", format_name)[1]


def _last_state(folder: Path, log: str, format_name: str) -> tuple[int, SourceState]:
    (batches,) = _numbers(folder, log)
    if not batches:
        raise UsageError(f"checkpoint {folder}: no batch was committed yet")
    sources = _batch(folder / "offsets" / str(batches[-1])).sources
    states = [each.state for each in sources if each.format_name == format_name and each.state is not None]
    if len(states) != 1:
        raise UsageError(f"checkpoint {folder}: expected a query with one source {format_name}, it has {len(states)}")
    return batches[-1], states[0]


def _batch(file: Path) -> _Batch:
    lines = _text(file).splitlines()
    if lines[:1] not in (["v1"], ["v2"]):
        seen = shortened(lines[0]) if lines else ""
        raise UsageError(f"{file}: version {seen!r} of Spark's offset log; this release reads v1 and v2")
    planned = _json(file, lines[1] if len(lines) > 1 else "")
    conf = planned.get("conf")
    return _Batch(
        planned_at=_moment(file, planned, "batchTimestampMs"),
        watermark=_moment(file, planned, "batchWatermarkMs"),
        takes_highest=isinstance(conf, Mapping) and conf.get(WATERMARK_POLICY) == "max",
        sources=tuple(_sources(file, lines[0], lines[2:])),
    )


def _local(location: str | Path) -> Path:
    if (path := local_path(location)) is not None:
        return path
    text = str(location)
    raise UsageError(
        f"a checkpoint at {shortened(text)}: only local folders and file: can be read here. Copy the file metadata "
        "and the folders offsets and commits to this machine, and name that folder; for example: hadoop fs -get "
        f"{text.rstrip('/')} checkpoint"
    )


def _check(folder: Path) -> None:
    if not folder.exists():
        raise UsageError(f"there is no folder {folder}; {_WHAT_IT_IS}")
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; {_WHAT_IT_IS}")
    if (folder / "offsets").is_dir() and (folder / "metadata").is_file():
        return
    if folder.name in ("offsets", "commits", "state", "sources") and (folder.parent / "metadata").is_file():
        raise UsageError(f"{folder} is a part of a checkpoint; {_WHAT_IT_IS}: write {folder.parent}")
    within = sorted(str(found.parent) for found in folder.glob("*/metadata") if (found.parent / "offsets").is_dir())
    seen = listed(entry.name for entry in folder.iterdir() if not entry.name.startswith(".")) or "nothing"
    hint = f": write {' or '.join(within[:3])}" if within else ""
    raise UsageError(f"{folder} is not a checkpoint, it contains {seen}; {_WHAT_IT_IS}{hint}")


def _numbers(folder: Path, *logs: str) -> list[list[int]]:
    """Return the numbers of the batches in each log of a checkpoint, which are read in this order."""
    try:
        _check(folder)
        # Not by glob, which finds nothing in a folder that may not be read.
        files = [list((folder / log).iterdir()) if (folder / log).exists() else [] for log in logs]
    except OSError as error:
        raise UsageError(f"the checkpoint {folder} cannot be read: {error}") from None
    return [sorted(int(file.name) for file in each if file.name.isdecimal()) for each in files]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None


def _json(file: Path, text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise UsageError(f"{file} is damaged: {shortened(text)!r}, where Spark writes a JSON object")
    return found


def _following(file: Path) -> int | None:
    """Return the watermark of the batch after a committed one; ``None``: none yet."""
    # Spark 2.0 and earlier wrote no more than the version.
    lines = _text(file).splitlines()
    return _moment(file, _json(file, lines[1]), "nextBatchWatermarkMs") if len(lines) > 1 else None


def _moment(file: Path, fields: Mapping[str, Any], key: str) -> int | None:
    """Return a time of Spark's logs; ``None`` without one, and for 1970, Spark's "none yet"."""
    value = fields.get(key)
    if value is not None and type(value) is not int:
        raise UsageError(f"{file} is damaged: {key} is {shortened(value)!r}, where Spark writes a whole number")
    return value or None


def _sources(file: Path, version: str, lines: list[str]) -> Iterator[_Source]:
    for number, line in enumerate(line for line in lines if line):
        # Version 2 has the name of each source before its offset.
        key, separator, text = (str(number), ":", line) if version == "v1" else line.partition(":")
        if not separator:
            raise UsageError(f"{file} is damaged: {shortened(line)!r}, where Spark writes a source and its offset")
        # A source without an offset has "-" there.
        if (offset := own_offset(text)) is None:
            yield _Source(key, "", None)
        else:
            name, format_name = str(offset["name"]), str(offset["source"])
            yield _Source(name, format_name, OffsetCodec(format_name, name).decode(offset))


# What the offset of a source states of it.


def _status(source: _Source, state: SourceState, at: int | None) -> SourceStatus:
    views = tuple(_view_of_offset(split, each, _unit(split, state)) for split, each in sorted(state.splits.items()))
    is_held = state.group.limit is not None and state.group.limit < MIN // 2
    tables = sorted(unfinished(state.snapshots))
    return SourceStatus(
        source_name=source.name,
        format_name=source.format_name,
        at=(state.watermark or 0) if at is None else at,
        watermark=state.watermark,
        processing_time=state.use_processing_time,
        group=GroupStatus(state.group.member or "", None, None, len(views), hold=True) if is_held else None,
        splits=views,
        counts=Counter(view.status for view in views),
        lag=None,
        snapshots=tuple(map(_snapshot_of_offset, tables)),
        writers=() if state.announced is None else tuple(map(_writer_of_offset, state.announced.writers)),
        unannounced=NO_WRITER if state.announced is not None and not state.announced.writers else None,
    )


def _snapshot_of_offset(log: str) -> SnapshotProgress:
    return SnapshotProgress(log=log, rows=0, chunks=0, expected=None, rate=None, done=False)


def _writer_of_offset(name: str) -> WriterView:
    why = "what it has announced is in the topic of announcements, not in a checkpoint"
    return WriterView(name=name, status="active", why=why, kind=HoldKind.SILENT, holds_back=True)


class _Unit(Enum):
    """What the positions of a split count."""

    RECORDS = auto()
    CHUNKS = auto()
    """Of the snapshot of a table."""
    NOTHING = auto()
    """They are places in a log, such as numbers of bytes."""


def _unit(split: Split, state: SourceState) -> _Unit:
    if state.snapshots.complete is None:
        return _Unit.RECORDS
    is_copied = split.log in state.snapshots.frontiers or split.log in state.snapshots.complete
    return _Unit.CHUNKS if is_copied and split == snapshot_split(split.log) else _Unit.NOTHING


def _view_of_offset(split: Split, at: SplitState, unit: _Unit) -> SplitView:
    rests = at.status is SplitStatus.IDLE or (at.status is SplitStatus.ACTIVE and at.since is not None)
    pending = at.position - at.observed
    end = at.position if rests and not pending else None
    return SplitView(
        split=split,
        backlog=SplitBacklog(at.position, end, uncounted=unit is not _Unit.RECORDS),
        watermark=at.watermark,
        status=STATUS_OF[at.status],
        since=at.since,
        why=_why_of_offset(at, pending, unit),
        kind=split_kind(_facts_of_offset(at, pending, is_read=end is not None)),
        unobserved=pending,
    )


def _facts_of_offset(at: SplitState, pending: int, *, is_read: bool) -> SplitFacts:
    """Return what an offset shows of a split: it has no numbers of its rows, and ends with the run."""
    has_dated = at.watermark is not None or not is_read
    rows = NO_ROWS if has_dated else RowTotals(read=at.position, undated=at.position)
    return SplitFacts(at=at, lag=0 if is_read or pending else 1, rows=rows, is_final=True)


def _why_of_offset(at: SplitState, pending: int, unit: _Unit) -> str:
    since = "" if at.since is None else f" since {time_text(at.since)}"
    if at.status is SplitStatus.IDLE:
        return f"idle{since}"
    if at.status is SplitStatus.PAUSED:
        return f"ahead of its alignment group{since}"
    if pending:
        return f"{_pending_text(at, pending, unit)}, not yet in its watermark"
    if unit is _Unit.RECORDS and at.watermark is None and at.position:
        return f"none of the records before position {count_text(at.position)} was read and had an event time"
    return f"nothing to read{since}" if since else "had more to read, or its log did not answer"


def _pending_text(at: SplitState, pending: int, unit: _Unit) -> str:
    if unit is _Unit.NOTHING:
        places = f"from position {count_text(at.observed)} to {count_text(at.position)}"
        return f"its log {places}, how many records is not counted, in the last batch"
    return f"{count_text(pending, 'record' if unit is _Unit.RECORDS else 'chunk')} in the last batch"
