"""What is found by reading a binlog ahead: the end of a batch with a limit of rows, commit times, and GTIDs.

Rows are counted, not decoded.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple
from uuid import UUID

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import (
    HEADER_SIZE,
    POSITION,
    SECONDS,
    START,
    STOP,
    TYPE,
    EventType,
    begins_transaction,
)
from pyspark_mysql_cdc_wm.binlog.gtid import commit_times
from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet, Range, Source
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Fault, Longs, Scan, fault_error
from pyspark_mysql_cdc_wm.client.dump import BinlogDump, FilePosition
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, TransactionStarts, dumped
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from pyspark_mysql_cdc_wm.lookup.xa_transactions import with_prepared
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from watermark_source.errors import CorruptDataError
from watermark_source.planning.split import SplitRange

# The first transaction that was committed after a given time, searched in the binlog's GTID events.


class Committed(NamedTuple):
    """A transaction in the binlog with its commit time."""

    start: int
    """Position before it."""
    end: int
    """Position after it."""
    micros: int
    """Commit time in microseconds since 1970."""


class FileBegin(NamedTuple):
    """The times at a file's beginning."""

    seconds: int
    """Start time, in seconds since 1970, of the statement that began the file. The session may have set that time."""
    first: int | None
    """Commit time, in microseconds since 1970, of the first transaction from the file's beginning on, if any."""


def first_committed_after(settings: LoginSettings, base: str, start: int, end: int, micros: int) -> Committed | None:
    """Return the first transaction between two positions that was committed after ``micros``, ``None`` without one.

    Raises as ``dumped``.
    """
    starts, first = TransactionStarts(start), None
    for block in dumped(settings, base, start, end, check=False):
        begins, places = starts.of(block)
        if first is None:
            times = commit_times(block.memory, block.events[begins], block.file)
            later = np.flatnonzero(times > micros)
            if not later.size:
                continue
            index = int(later[0])
            first = int(places[index]), int(times[index])
            places = places[index + 1 :]
        if len(places):
            return Committed(first[0], int(places[0]), first[1])
    return None if first is None else Committed(first[0], end, first[1])


def file_begin(settings: LoginSettings, file: str) -> FileBegin:
    """Return the times at a file's beginning; raises as ``dumped``."""
    seconds: int | None = None
    with closing(BinlogDump(settings, FilePosition(file))) as dump:
        for block in dump.blocks():
            heads = block.events[block.events[:, TYPE] == EventType.FORMAT_DESCRIPTION]
            if seconds is None and len(heads):
                seconds = int(heads[0, SECONDS])
            begins = block.events[begins_transaction(block.events)][:1]
            if seconds is not None and len(begins):
                return FileBegin(seconds, int(commit_times(block.memory, begins, block.file)[0]))
    if seconds is None:
        raise CorruptDataError(f"{settings.where}: binlog {file} does not begin with a FORMAT_DESCRIPTION event")
    return FileBegin(seconds, None)


# The GTIDs of the transactions in a range of the binlog, read from the events that begin them.


_PLAIN_BYTES = 16 + 8
_TAGGED_UUID, _TAGGED_NUMBER, _TAGGED_TAG = 1, 2, 3


def transactions_between(settings: LoginSettings, base: str, start: int, end: int) -> GtidSet:
    """Return the transactions between two positions; raises as ``dumped``."""
    blocks = dumped(settings, base, start, end, check=False)
    return functools.reduce(
        operator.or_, (gtids_of(block.memory, block.events, block.file) for block in blocks), GtidSet()
    )


def first_transaction(settings: LoginSettings, base: str, start: int, end: int) -> GtidSet:
    """Return the first transaction between two positions, an empty set without one; raises as ``dumped``."""
    for block in dumped(settings, base, start, end):
        for number in range(len(block.events)):
            if first := gtids_of(block.memory, block.events[number : number + 1], block.file):
                return first
    return GtidSet()


def gtids_of(memory: Bytes, events: Longs, file: str) -> GtidSet:
    """Return the transactions that begin in a block of events.

    Raises:
        CorruptDataError: a GTID cannot be read.
    """
    begins = events[events[:, TYPE] == EventType.GTID]
    plain = begins[:, START] + HEADER_SIZE + 1
    if (plain + _PLAIN_BYTES > begins[:, STOP]).any():
        raise fault_error(Fault.GTID, f"binlog {file}")
    heads = memory[plain[:, None] + np.arange(_PLAIN_BYTES)]
    uuids, which = np.unique(heads[:, :16], axis=0, return_inverse=True)
    numbers = np.ascontiguousarray(heads[:, 16:]).view("<i8").ravel()
    ranges = {
        Source(str(UUID(bytes=uuid.tobytes()))): list(_ranges(numbers[which.ravel() == i]))
        for i, uuid in enumerate(uuids)
    }
    for event in events[events[:, TYPE] == EventType.GTID_TAGGED].tolist():
        try:
            source, number = _tagged(memory[event[START] + HEADER_SIZE : event[STOP]].tobytes())
        except (IndexError, ValueError):
            raise fault_error(Fault.GTID, f"binlog {file} position {event[POSITION]}") from None
        ranges.setdefault(source, []).append((number, number))
    return GtidSet.of(ranges)


def _ranges(numbers: Longs) -> Iterator[Range]:
    """Yield the ranges of consecutive numbers, both ends included."""
    ordered = np.unique(numbers)
    ends = np.flatnonzero(np.diff(ordered, append=ordered[-1] + 2) != 1)
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    yield from zip(ordered[begins].tolist(), ordered[ends].tolist(), strict=True)


def _tagged(body: bytes) -> tuple[Source, int]:
    """Read a tagged GTID event; ``gtid.py`` describes its layout."""
    scan = Scan(body)
    for _ in range(3):
        _varint(scan)
    uuid, number = b"", 0
    while (name := _varint(scan)) != _TAGGED_TAG:
        if name == _TAGGED_UUID:
            uuid = bytes(_varint(scan) for _ in range(16))
        elif name == _TAGGED_NUMBER:
            number = _varint(scan) >> 1
        else:
            _varint(scan)
    return Source(str(UUID(bytes=uuid)), scan.take(_varint(scan)).decode()), number


def _varint(scan: Scan) -> int:
    first = scan.byte()
    ones = 0
    while ones < 8 and first >> ones & 1:
        ones += 1
    if ones == 8:
        return scan.uint(8)
    return int.from_bytes(bytes([first]) + scan.take(ones), "little") >> ones + 1


_MOST_BYTES = 256 * 1024 * 1024
"""Limit for reading ahead: a batch also ends after these bytes when few rows in them are of tables that are read."""


class BatchEnd(NamedTuple):
    """A position between two transactions, and the transactions from the range's start to it."""

    end: int
    transactions: GtidSet
    """GTIDs of MySQL's form."""


def batch_end(settings: LoginSettings, base: str, wanted: SplitRange, rows: int, tables: Selection) -> BatchEnd:
    """Return the last position up to which a range has at most ``rows`` rows of ``tables``.

    It is never before the end of the range's first transaction. Rows are counted as they are delivered, so an update
    has two.

    Raises:
        DataLossError: the server no longer has the range.
        SourceError: what ``dumped`` and ``ChangeDecoder`` raise.
    """
    decoder = ChangeDecoder({}, lambda table: (), reads=lambda *name: tables.matches(TableName(*name)))
    start, end = wanted.start, wanted.end
    starts = TransactionStarts(start)
    best: int | None = None
    until_best = after_best = GtidSet()
    counted = size = 0
    is_first = True
    blocks = dumped(settings, base, start, end, check=False)
    for block in with_prepared(blocks, settings, base, start=start, fail_on_data_loss=False):
        begins, places = starts.of(block)
        counts = counted + np.cumsum(_rows_between(decoder, block, begins))
        counted, before = int(counts[-1]), counts[:-1]
        size += int((block.events[:, STOP] - block.events[:, START]).sum())
        # The batch does not end before the first transaction, since only events of the file itself precede it.
        is_end = np.arange(len(begins)) > 0 if is_first else np.ones(len(begins), np.bool_)
        is_first = is_first and not len(begins)
        fitting = np.flatnonzero(is_end & (before <= rows))
        if fitting.size == 0 and best is None:
            # The first transaction alone has more rows; the batch ends after it, if that is in this block.
            fitting = np.flatnonzero(is_end)[:1]
        first = 0
        if fitting.size:
            first, best = int(begins[fitting[-1]]), int(places[fitting[-1]])
            until_best |= after_best | gtids_of(block.memory, block.events[:first], block.file)
            after_best = GtidSet()
        after_best |= gtids_of(block.memory, block.events[first:], block.file)
        if best is not None and (counted > rows or size > _MOST_BYTES):
            return BatchEnd(best, until_best)
    return BatchEnd(end, until_best | after_best)


def _rows_between(decoder: ChangeDecoder, block: PlacedBlock, begins: Longs) -> Longs:
    """Return the number of rows before the first transaction that begins in a block, and of each such transaction."""
    versions = block.places[begins]
    counts = np.zeros(len(begins) + 1, np.int64)
    for changes in decoder.decode(block.memory, block.events, block.file, block.places, prepared=block.prepared):
        transactions = np.searchsorted(versions, changes.versions, side="right")
        counts += np.bincount(transactions, minlength=len(counts))
    return counts
