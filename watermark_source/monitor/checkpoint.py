"""What the files of a query's checkpoint state: of a query that has ended, or that runs in another process.

Spark writes three logs (``org.apache.spark.sql.execution.streaming``): ``metadata`` with the query's id, ``offsets``
with what each batch reads, before it runs, and ``commits`` with the watermark of the next batch, after it has run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from watermark_source.durations import count_text
from watermark_source.errors import UsageError, listed, shortened
from watermark_source.monitor.window_facts import QueryAt, Unfollowed, time_text, unfollowed
from watermark_source.planning.announcement import NO_WRITER
from watermark_source.planning.holds import HoldKind
from watermark_source.planning.offset import OffsetCodec, own_offset
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


@dataclass(frozen=True, slots=True)
class LoggedSource:
    """One source in the offset log."""

    name: str
    """Its ``sourceName``; for another project's source its place in the log."""
    format_name: str | None
    """``None`` for another project's source."""
    state: SourceState | None
    """The state at the end of the batch; ``None`` for another project's source, and before its first batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The last batch in a query's checkpoint. Times are milliseconds since 1970-01-01 UTC."""

    folder: str
    query: str | None
    """The query's id."""
    batch: int | None
    """The last batch in the offset log; ``None`` before the first."""
    planned_at: int | None = None
    is_committed: bool = False
    """Whether the commit log has it."""
    applied: int | None = None
    """The watermark that Spark's operators had in that batch; ``None``: none yet."""
    applied_before: int | None = None
    """The watermark that they had in the batch before."""
    next_applied: int | None = None
    """The watermark of the batch after it; ``None`` if it is not committed, or there is none yet."""
    takes_highest: bool = False
    """Whether Spark takes the highest watermark of several sources (``multipleWatermarkPolicy``), not the lowest."""
    sources: tuple[LoggedSource, ...] = ()
    before: tuple[LoggedSource, ...] = ()
    """The sources at the end of the batch before; empty without one."""


def read_checkpoint(location: str | Path) -> Checkpoint:
    """Return the last batch of a checkpoint.

    Args:
        location: a local folder, or its ``file:`` URI.

    Raises:
        UsageError: it is no local folder, or no checkpoint, or of a layout that this release does not read.
        OffsetError: an offset of this project cannot be read.
    """
    folder = _local(location)
    try:
        _check(folder)
        # In this order: a batch that is committed meanwhile counts as committed.
        batches, commits = _numbers(folder / "offsets"), _numbers(folder / "commits")
    except OSError as error:
        raise UsageError(f"the checkpoint {folder} cannot be read: {error}") from None
    query = _json(folder / "metadata", _text(folder / "metadata")).get("id")
    if not batches:
        return Checkpoint(folder=str(folder), query=query, batch=None)
    batch = batches[-1]
    file, commit = folder / "offsets" / str(batch), folder / "commits" / str(batch)
    planned, sources = _planned(file)
    earlier = folder / "offsets" / str(batches[-2]) if len(batches) > 1 else None
    before, sources_before = ({}, ()) if earlier is None else _planned(earlier)
    committed = _committed(commit) if batch in commits else {}
    conf = planned.get("conf")
    return Checkpoint(
        folder=str(folder),
        query=query,
        batch=batch,
        planned_at=_moment(file, planned, "batchTimestampMs"),
        is_committed=batch in commits,
        applied=_moment(file, planned, "batchWatermarkMs"),
        applied_before=None if earlier is None else _moment(earlier, before, "batchWatermarkMs"),
        next_applied=_moment(commit, committed, "nextBatchWatermarkMs"),
        takes_highest=isinstance(conf, Mapping) and conf.get(WATERMARK_POLICY) == "max",
        sources=sources,
        before=sources_before,
    )


def _planned(file: Path) -> tuple[Mapping[str, Any], tuple[LoggedSource, ...]]:
    """Return a batch in the offset log: what Spark notes of it, and its sources."""
    lines = _text(file).splitlines()
    if lines[:1] not in (["v1"], ["v2"]):
        seen = shortened(lines[0]) if lines else ""
        raise UsageError(f"{file}: version {seen!r} of Spark's offset log; this release reads v1 and v2")
    return _json(file, lines[1] if len(lines) > 1 else ""), tuple(_sources(file, lines[0], lines[2:]))


def _local(location: str | Path) -> Path:
    text = str(location)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
    if scheme is None:
        return Path(text).expanduser()
    if scheme[1].lower() != "file":
        raise UsageError(
            f"a checkpoint at {shortened(text)}: only local folders and file: can be read here. Copy the file metadata "
            "and the folders offsets and commits to this machine, and name that folder; for example: hadoop fs -get "
            f"{text.rstrip('/')} checkpoint"
        )
    path = re.sub(r"^//(?:localhost(?=/))?", "", text[len(scheme[0]) :])
    return Path(unquote(path))


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


def _numbers(folder: Path) -> list[int]:
    # Not by glob, which finds nothing in a folder that may not be read.
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal()) if folder.exists() else []


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


def _committed(file: Path) -> Mapping[str, Any]:
    # Spark 2.0 and earlier wrote no more than the version.
    lines = _text(file).splitlines()
    return _json(file, lines[1]) if len(lines) > 1 else {}


def _moment(file: Path, fields: Mapping[str, Any], key: str) -> int | None:
    """Return a time of Spark's logs; ``None`` without one, and for 1970, Spark's "none yet"."""
    value = fields.get(key)
    if value is not None and type(value) is not int:
        raise UsageError(f"{file} is damaged: {key} is {shortened(value)!r}, where Spark writes a whole number")
    return value or None


def _sources(file: Path, version: str, lines: list[str]) -> Iterator[LoggedSource]:
    for number, line in enumerate(line for line in lines if line):
        # Version 2 has the name of each source before its offset.
        key, separator, text = (str(number), ":", line) if version == "v1" else line.partition(":")
        if not separator:
            raise UsageError(f"{file} is damaged: {shortened(line)!r}, where Spark writes a source and its offset")
        yield _source(key, text)


def _source(key: str, text: str) -> LoggedSource:
    # A source without an offset has "-" there.
    if (offset := own_offset(text)) is None:
        return LoggedSource(key, None, None)
    name, format_name = str(offset["name"]), str(offset["source"])
    return LoggedSource(name, format_name, OffsetCodec(format_name, name).decode(offset))


# What follows for the windows of the query: see ``open_windows``.


def query_of_checkpoint(of: Checkpoint) -> QueryAt:
    """Return a query as its checkpoint has it."""
    ours = [(source, source.state) for source in of.sources]
    foreign = tuple(source.name for source, state in ours if state is None)
    known = tuple(_source_of_offset(source, state, of.planned_at) for source, state in ours if state is not None)
    if of.batch is None:
        return QueryAt(
            sources=(), batch=None, applied=None, remarks=(f"checkpoint {of.folder}: its offset log is empty",)
        )
    at = "" if of.planned_at is None else f", planned at {time_text(of.planned_at)}"
    committed = "committed" if of.is_committed else "not committed"
    return QueryAt(
        sources=known,
        foreign=tuple(f"source {name} of another project" for name in foreign),
        batch=of.batch,
        applied=of.applied if of.is_committed else of.applied_before,
        committed=of.next_applied if of.is_committed else None,
        planned=None if of.is_committed else of.applied,
        takes_highest=of.takes_highest,
        unfollowed=None if foreign else _unfollowed(of),
        has_ended=True,
        knows_options=False,
        remarks=(f"as of batch {of.batch} ({committed}{at}) of checkpoint {of.folder}; {_NOT_KNOWN}",),
    )


def _source_of_offset(source: LoggedSource, state: SourceState, at: int | None) -> SourceStatus:
    views = tuple(_view_of_offset(split, each, _unit(split, state)) for split, each in sorted(state.splits.items()))
    is_held = state.group.limit is not None and state.group.limit < MIN // 2
    tables = sorted(unfinished(state.snapshots))
    return SourceStatus(
        source_name=source.name,
        format_name=source.format_name or "",
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
        kind=_kind_of_offset(at, pending, is_read=end is not None),
        unobserved=pending,
    )


def _kind_of_offset(at: SplitState, pending: int, *, is_read: bool) -> HoldKind:
    """Return why a split was not further, as far as an offset shows it: of its rows it has no numbers."""
    if at.status is not SplitStatus.ACTIVE:
        return HoldKind.LEFT_OUT if at.status is SplitStatus.IDLE else HoldKind.PAUSED
    if pending:
        return HoldKind.PENDING
    if not is_read:
        return HoldKind.BACKLOG
    if at.watermark is None:
        return HoldKind.UNDATED if at.position else HoldKind.NEVER
    return HoldKind.SILENT


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


def _unfollowed(of: Checkpoint) -> Unfollowed | None:
    """Return that Spark's watermark is not that of the sources, after the last batch that is committed."""
    sources, spark = (of.sources, of.next_applied) if of.is_committed else (of.before, of.applied)
    states = [source.state for source in sources if source.state is not None]
    if len(states) < len(sources):
        return None
    return unfollowed(spark, [state.watermark for state in states], takes_highest=of.takes_highest)
