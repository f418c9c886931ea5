"""The GTIDs of the transactions in a range of the binlog, read from the events that begin them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from uuid import UUID

import numpy as np

from pyspark_mysql_cdc_wm.binlog.byte_reader import Scan
from pyspark_mysql_cdc_wm.binlog.corrupt_binlog import Fault, fault_error
from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet, Range, Source
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from pyspark_mysql_cdc_wm.client.dump_range import dumped
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings

_PLAIN_BYTES = 16 + 8
_TAGGED_UUID, _TAGGED_NUMBER, _TAGGED_TAG = 1, 2, 3


def transactions_between(settings: ClientSettings, base: str, start: int, end: int) -> GtidSet:
    """Return the transactions between two positions; raises as ``dumped``."""
    blocks = dumped(settings, base, start, end, check=False)
    return functools.reduce(
        operator.or_, (gtids_of(block.memory, block.events, block.file) for block in blocks), GtidSet()
    )


def first_transaction(settings: ClientSettings, base: str, start: int, end: int) -> GtidSet:
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
