"""The auditor: compares a topic's rows with the watermarks that its writers announced, and the commands for both.

It reads nothing but the two topics, so it judges every program that announces in the same way.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_aligned_kafka.announcing.announcer import AnnouncementTopic
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.options.kafka_option_table import COMMAND_OPTIONS
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions
from pyspark_aligned_kafka.source import KafkaBatch, range_reader
from watermark_source.arrow_columns import integers
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.durations import count_text, format_seconds
from watermark_source.errors import UsageError, listed, shortened
from watermark_source.planning.announced import LoggedStatement
from watermark_source.planning.announcement import Announcement, Removal, is_name
from watermark_source.planning.split import SplitRange
from watermark_source.planning.watermark import MAX, MIN, Millis, watermark_text

OPTIONS = COMMAND_OPTIONS
_HEADER: Final = "header:"
_RECORD, _KEY = "record", "key"
_MOST_LISTED: Final = 10_000
_MOST_SHOWN: Final = 20
_LIVING_MS: Final = 60_000
"""Milliseconds since an announcement after which a writer that is removed may well be running still."""


class BrokenPromise(NamedTuple):
    """A row at or behind a cut, with an event time at or before the watermark of the cut."""

    partition: int
    offset: int
    event_time: Millis
    writer: str | None
    """``None``: of several writers, and behind a cut of each of them."""
    watermark: Millis
    """Which rows at this position must be after; ``MAX``: there must be none."""


@dataclass(frozen=True, slots=True)
class AuditedWriter:
    """A writer, and what it announced last."""

    name: str
    queries: int
    """How many checkpoints, or runs of a producer, announced under the name."""
    announcements: int
    last: Announcement | None
    """``None``: it was removed."""
    last_at: Millis | None
    """Timestamp of its last record."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found. It is true if all promises were kept."""

    topic: str
    rows: int
    writers: tuple[AuditedWriter, ...]
    broken: tuple[BrokenPromise, ...]
    """The first of them."""
    broken_count: int
    copies: int
    """Rows behind a cut that are copies of a row before it."""
    unknown: int
    """Rows behind a cut that may be copies of rows that the topic no longer has: then they are not ``broken``."""
    faults: tuple[str, ...]
    """Announcements that are none, or that contradict earlier ones."""

    def __bool__(self) -> bool:
        return not self.broken_count and not self.faults


def audit(
    topic: str,
    kafka: Mapping[str, str],
    event_time: str | None = None,
    *,
    writer_column: str | None = None,
    copies_by: str = _RECORD,
) -> Audit:
    """Read a topic and its announcements whole, and list the rows that break a promise.

    A row breaks a promise if it lies at or behind the cut of an announcement, has an event time at or before its
    watermark, and is no copy: a retried batch writes its rows again.

    Args:
        topic: the data topic.
        kafka: options of the source: ``kafka.*``, and those that say how event times are read.
        event_time: where the event time is, as in ``eventTimeColumn``; ``None``: it is the record's timestamp.
        writer_column: which writer a row is of: ``key``, or ``header:NAME``. Without it a row is of the only writer;
            with several writers it is compared with the lowest of their watermarks, which finds fewer.
        copies_by: what a row has in common with its copies: ``record`` (key, value and event time) or ``key``.

    Raises:
        UsageError, OptionError: an argument is not accepted.
        SourceError: the topics cannot be read.
    """
    _check(writer_column, copies_by)
    with closing(AnnouncementTopic(kafka, topic)) as announced:
        # Before the rows: what is announced later is about later rows.
        topic_id, records = announced.checked_records()
        loses_rows = announced.compacts_rows()
    faults = [f"record {r.position}: {r.fault}" for r in records if r.statement is None]
    promises = Promises(records, topic_id, faults)
    given = {**kafka, "subscribe": topic} | ({} if event_time is None else {"eventTimeColumn": event_time})
    options = kafka_options.parse(given)
    rows, behind, ranges = 0, list[pa.Table](), _ranges(options)
    # An original may have been deleted since: then a copy looks like a row that breaks a promise.
    loses_rows |= any(each.start > 0 for each in ranges)
    for batch in _rows(options, writer_column, ranges):
        rows += batch.rows
        found = _behind(batch, promises, writer_column)
        if found is not None:
            behind.append(found)
    late = pa.concat_tables(behind) if behind else None
    others = [] if late is None else _without_copies(late, options, promises, writer_column, copies_by)
    broken = [] if loses_rows else others
    return Audit(
        topic=topic,
        rows=rows,
        writers=promises.writers(records),
        broken=tuple(sorted(broken)[:_MOST_LISTED]),
        broken_count=len(broken),
        copies=0 if late is None else late.num_rows - len(others),
        unknown=len(others) - len(broken),
        faults=tuple(faults),
    )


def _check(writer_column: str | None, copies_by: str) -> None:
    is_header = writer_column is not None and writer_column.startswith(_HEADER) and len(writer_column) > len(_HEADER)
    if writer_column not in (None, _KEY) and not is_header:
        raise UsageError(f"writerColumn = {writer_column!r}: expected key, or header:NAME, for example header:writer")
    if copies_by not in (_RECORD, _KEY):
        raise UsageError(f"copiesBy = {copies_by!r}: expected record (key, value and event time), or key")


# What was promised.


class Promises:
    """What the writers of a topic promised, by writer and partition."""

    def __init__(self, records: Sequence[LoggedStatement], topic: str, faults: list[str]) -> None:
        """Take in the announcements about the topic with this id, and list those that contradict earlier ones."""
        self._runs: defaultdict[str, list[list[Announcement]]] = defaultdict(list)
        """By writer, what each query under its name announced; without those that announced nothing."""
        self._removed_at: dict[str, int] = {}
        """By writer, how many runs there were when it was removed last: readers forget these then."""
        for record in records:
            statement = record.statement
            if isinstance(statement, Announcement) and statement.topic == topic:
                self._take(statement, record.position, faults)
            elif isinstance(statement, Removal):
                self._removed_at[statement.writer] = len(self._runs.get(statement.writer, ()))
        self._steps = cache(self._steps_of)
        self.names = tuple(self._runs)
        """The writers."""

    def _take(self, of: Announcement, offset: int, faults: list[str]) -> None:
        runs = self._runs[of.writer]
        known = runs[self._removed_at.get(of.writer, 0) :]
        if known and (last := known[-1][-1]).query == of.query:
            if reason := _contradiction(last, of):
                faults.append(f"record {offset}, of {of.writer}: {reason}")
            known[-1].append(of)
        elif any(run[0].query == of.query for run in known):
            faults.append(
                f"record {offset}: the earlier run {of.query} of {of.writer} announced again after "
                f"{known[-1][0].query} began: readers ignore it"
            )
        else:
            runs.append([of])

    def at(self, writer: str, partition: int, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return which watermark rows of a writer at offsets must be after; ``MIN`` where nothing was promised."""
        ends, watermarks = self._steps(writer, str(partition))
        return watermarks[np.searchsorted(ends, offsets, side="right")]

    def _steps_of(self, writer: str, part: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return, of a writer in a partition, the ends of cuts, and the watermarks: before the first, and from each."""
        ends: list[int] = []
        watermarks: list[int] = [MIN]
        for run in self._runs[writer]:
            # Another query under the name begins again: its rows may be of any time.
            begin = run[0].ends.get(part, 0)
            ends.append(max([begin, *ends[-1:]]))
            watermarks.append(MIN)
            for each in run:
                ends.append(max(each.ends.get(part, 0), ends[-1]))
                watermarks.append(max(MIN if each.watermark is None else each.watermark, watermarks[-1]))
        return np.array(ends, dtype=np.int64), np.array(watermarks, dtype=np.int64)

    def writers(self, records: Sequence[LoggedStatement]) -> tuple[AuditedWriter, ...]:
        """Return the writers in the order of their names."""
        last: dict[str, LoggedStatement] = {r.statement.writer: r for r in records if r.statement is not None}
        return tuple(
            AuditedWriter(
                name=name,
                queries=len({run[0].query for run in self._runs[name]}),
                announcements=sum(map(len, self._runs[name])),
                last=None if isinstance(record.statement, Removal) else record.statement,
                last_at=record.written_at,
            )
            for name, record in sorted(last.items())
            if name in self._runs
        )


def _contradiction(last: Announcement, of: Announcement) -> str | None:
    if of.batch < last.batch:
        return f"batch {of.batch} after batch {last.batch}"
    if of.watermark is not None and last.watermark is not None and of.watermark < last.watermark:
        return f"{watermark_text(of.watermark)} after {watermark_text(last.watermark)}"
    if lower := [part for part, end in last.ends.items() if of.ends.get(part, 0) < end]:
        return f"its cut of partition {listed(lower)} is before the last one"
    return None


# The rows.


def _ranges(options: KafkaOptions) -> Sequence[SplitRange]:
    return [late.range for late in KafkaBatch.of(options).late_ranges()]


def _rows(options: KafkaOptions, writer_column: str | None, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
    columns = ("key", "value", "offset", *(["headers"] if writer_column not in (None, _KEY) else []))
    return range_reader(options, columns).read([r for r in ranges if r.end > r.start])


def _behind(batch: ReadBatch, promises: Promises, writer_column: str | None) -> pa.Table | None:
    """Return the rows of a batch that are behind a cut, copies included."""
    offsets = integers(batch.columns[2])
    millis = integers(batch.event_time) // 1_000
    after, names = _watermarks(batch, promises, writer_column, offsets)
    late = millis <= after
    if not late.any():
        return None
    at = pa.array(np.flatnonzero(late))
    return pa.table(
        {
            "partition": pa.array(np.full(len(at), batch.split.number, dtype=np.int32)),
            "offset": pa.array(offsets[late]),
            "event_time": pa.array(millis[late]),
            "watermark": pa.array(after[late]),
            "writer": names.take(at),
            "key": batch.columns[0].take(at),
            "value": batch.columns[1].take(at),
        }
    )


def _watermarks(
    batch: ReadBatch, promises: Promises, writer_column: str | None, offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], pa.Array]:
    number = batch.split.number
    if writer_column is not None:
        names = _writers(batch, writer_column)
        after, which = np.full(len(offsets), MIN, dtype=np.int64), np.zeros(len(offsets), dtype=np.int64)
        for at, name in enumerate(promises.names, start=1):
            own = pc.fill_null(pc.equal(names, name.encode()), False).to_numpy(zero_copy_only=False)
            after[own], which[own] = promises.at(name, number, offsets[own]), at
        return after, pa.array([None, *promises.names], pa.string()).take(pa.array(which))
    after = np.full(len(offsets), MAX if promises.names else MIN, dtype=np.int64)
    for name in promises.names:
        after = np.minimum(after, promises.at(name, number, offsets))
    only = promises.names[0] if len(promises.names) == 1 else None
    return after, pa.array([only], pa.string()).take(pa.array(np.zeros(len(offsets), dtype=np.int64)))


def _writers(batch: ReadBatch, writer_column: str) -> pa.Array:
    """Return the name of each row's writer, as bytes; null where it has none."""
    if writer_column == _KEY:
        return batch.columns[0]
    headers = batch.columns[3]
    entries, rows = pc.list_flatten(headers), pc.list_parent_indices(headers)
    wanted = pc.equal(pc.struct_field(entries, 0), writer_column.removeprefix(_HEADER))
    rows, values = pc.filter(rows, wanted), pc.filter(pc.struct_field(entries, 1), wanted)
    at = np.full(len(headers), -1, dtype=np.int64)
    at[rows.to_numpy()] = np.arange(len(rows))
    return values.take(pa.array(at, mask=at < 0))


def _without_copies(
    late: pa.Table, options: KafkaOptions, promises: Promises, writer_column: str | None, copies_by: str
) -> list[BrokenPromise]:
    """Leave out rows of which another one keeps the promises; the topic is read again."""
    compared = "value" if copies_by == _RECORD else "key"
    candidates = late[compared].combine_chunks()
    originals: set[tuple[Any, ...]] = set()
    for batch in _rows(options, writer_column, _ranges(options)):
        column = batch.columns[1 if copies_by == _RECORD else 0]
        equal = pc.is_in(column, value_set=candidates)
        if not pc.any(equal).as_py():
            continue
        after, _ = _watermarks(batch, promises, writer_column, integers(batch.columns[2]))
        millis = integers(batch.event_time) // 1_000
        rows_there = pa.table({"key": batch.columns[0], "value": batch.columns[1], "event_time": millis})
        originals.update(_identities(rows_there.filter(pc.and_(equal, pa.array(millis > after))), copies_by))
    identities = _identities(late, copies_by)
    rows = zip(*(late[name].to_pylist() for name in BrokenPromise._fields), strict=True)
    # Rows without a key are not copies of one another by it.
    originals -= {(None,)}
    return [BrokenPromise(*row) for row, one in zip(rows, identities, strict=True) if one not in originals]


def _identities(rows: pa.Table, copies_by: str) -> list[tuple[Any, ...]]:
    """Return what rows have in common with their copies: of equal values a later one is of another event time."""
    compared = ("key",) if copies_by == _KEY else ("key", "value", "event_time")
    return list(zip(*(rows[name].to_pylist() for name in compared), strict=True))


# The commands.


def watermarks(given: Mapping[str, str], action: str, writer: str | None, out: TextIO) -> bool:
    """Run ``list``, ``audit`` or ``drop`` of ``python -m watermark_source watermarks --kafka``.

    Beside the options ``kafka.*`` it accepts ``topic``, and for ``audit`` ``eventTimeColumn`` and others that say how
    event times are read, ``writerColumn`` and ``copiesBy``.

    Returns:
        Whether all promises were kept.

    Raises:
        UsageError, OptionError, SourceError: nothing was done.
    """
    own = {"topic": None, "writercolumn": None, "copiesby": _RECORD} | {
        name.lower(): value for name, value in given.items() if name.lower() in ("topic", "writercolumn", "copiesby")
    }
    rest = {name: value for name, value in given.items() if name.lower() not in own}
    topic = own["topic"]
    if topic is None:
        raise UsageError("watermarks: --topic is missing; write the data topic, for example --topic sessions")
    if action == "audit":
        return report(audit(topic, rest, writer_column=own["writercolumn"], copies_by=str(own["copiesby"])), out)
    with closing(AnnouncementTopic(rest, topic)) as announced:
        topic_id, records = announced.checked_records()
        found = Promises(records, topic_id, []).writers(records)
        if action == "drop":
            _drop(announced, found, str(writer), out)
        else:
            _list(found, announced.name, out)
    return True


def _drop(announced: AnnouncementTopic, writers: Sequence[AuditedWriter], name: str, out: TextIO) -> None:
    if not is_name(name):
        raise UsageError(f"drop {shortened(ascii(name))}: expected the name of a writer, as list shows it")
    if name not in {each.name for each in writers}:
        # Its announcements may have expired, while the checkpoints of readers name it.
        names = listed(each.name for each in writers) or "none"
        out.write(f"{announced.name} holds no announcement of {shortened(name)}; it has writers: {names}\n")
    announced.send(Removal(name))
    ages = [time.time() * 1_000 - each.last_at for each in writers if each.name == name and each.last and each.last_at]
    if ages and ages[0] < _LIVING_MS:
        out.write(
            f"{shortened(name)} announced {format_seconds(round(ages[0]))} ago: if it runs, readers do not wait for it "
            "until its next announcement, and rows that it writes until then may be late\n"
        )
    out.write(
        f"{shortened(name)} is removed: readers of {announced.topic} no longer wait for it, unless it announces again "
        "or their announcedBy names it\n"
    )


def _list(writers: Sequence[AuditedWriter], topic: str, out: TextIO) -> None:
    if not writers:
        out.write(f"no writer has announced a watermark in {topic}\n")
        return
    now = round(time.time() * 1_000)
    rows = [("writer", "status", "watermark", "batch", "announced", "rows before its cut")]
    for each in writers:
        age = "" if each.last_at is None else f"{format_seconds(now - each.last_at)} ago"
        if each.last is None:
            rows.append((each.name, "removed", "", "", age, ""))
            continue
        status = "ended" if each.last.watermark == MAX else "idle" if each.last.idle else "active"
        rows.append(
            (
                each.name, status, watermark_text(each.last.watermark), str(each.last.batch), age,
                str(sum(each.last.ends.values())),
            )
        )  # fmt: skip
    _table(rows, out)


def report(found: Audit, out: TextIO) -> bool:
    """Write what an audit found; return whether all promises were kept."""
    for fault in found.faults:
        out.write(f"{fault}\n")
    if found.broken:
        rows = [("partition", "offset", "event time", "must be after", "writer")]
        rows += [
            (
                str(b.partition),
                str(b.offset),
                watermark_text(b.event_time),
                watermark_text(b.watermark),
                b.writer or "any",
            )
            for b in found.broken[:_MOST_SHOWN]
        ]
        _table(rows, out)
        if (more := found.broken_count - _MOST_SHOWN) > 0:
            out.write(f"and {more} more\n")
    if found.unknown:
        out.write(
            f"{count_text(found.unknown, 'row')} behind a promise may be copies of rows that retention or compaction "
            "has deleted: whether they break it is not known\n"
        )
    announcements = sum(each.announcements for each in found.writers)
    out.write(
        f"{found.rows} rows, {announcements} announcements of {len(found.writers)} writers: {found.broken_count} rows "
        f"break a promise, {found.copies} copies, {len(found.faults)} faulty announcements\n"
    )
    return bool(found)


def _table(rows: Sequence[Sequence[str]], out: TextIO) -> None:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        out.write("  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip() + "\n")
