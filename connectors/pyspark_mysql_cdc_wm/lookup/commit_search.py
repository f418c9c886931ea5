"""The first transaction that was committed after a given time, searched in the binlog's GTID events."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import SECONDS, TYPE, EventType, begins_transaction
from pyspark_mysql_cdc_wm.binlog.gtid import commit_times
from pyspark_mysql_cdc_wm.client.dump import BinlogDump, FilePosition
from pyspark_mysql_cdc_wm.client.dump_range import TransactionStarts, dumped
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from watermark_source.errors import CorruptDataError


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


def first_committed_after(settings: ClientSettings, base: str, start: int, end: int, micros: int) -> Committed | None:
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


def file_begin(settings: ClientSettings, file: str) -> FileBegin:
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
