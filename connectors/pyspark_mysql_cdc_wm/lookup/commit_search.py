"""The first transaction that was committed after a moment, found by reading the binlog's GTID events."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import SECONDS, TYPE, EventType, begins_transaction
from pyspark_mysql_cdc_wm.binlog.gtid import commit_times
from pyspark_mysql_cdc_wm.client.dump import BinlogDump, FilePosition
from pyspark_mysql_cdc_wm.client.dump_range import dumped
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.transaction_starts import TransactionStarts
from watermark_source.errors import CorruptDataError


class Committed(NamedTuple):
    """A transaction: the places before and after it, and when it was committed."""

    start: int
    end: int
    micros: int


class FileBegin(NamedTuple):
    """What a file's beginning says of when it was begun."""

    seconds: int
    """Since 1970, when the statement began that began the file: long before, perhaps, or at a time that it set."""
    first: int | None
    """Microseconds since 1970, when the first transaction from there on was committed; ``None`` if there is none."""


def first_committed_after(settings: ClientSettings, base: str, start: int, end: int, micros: int) -> Committed | None:
    """Return the first transaction between two places that was committed later; ``None`` if there is none.

    Raises as ``dumped``.
    """
    starts, found = TransactionStarts(start), None
    for block in dumped(settings, base, start, end, check=False):
        begins, places = starts.of(block)
        if found is None:
            times = commit_times(block.memory, block.events[begins], block.file)
            later = np.flatnonzero(times > micros)
            if not later.size:
                continue
            first = int(later[0])
            found = int(places[first]), int(times[first])
            places = places[first + 1 :]
        if len(places):
            return Committed(found[0], int(places[0]), found[1])
    return None if found is None else Committed(found[0], end, found[1])


def begun(settings: ClientSettings, file: str) -> FileBegin:
    """Return when a file was begun; raises as ``dumped``."""
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
        raise CorruptDataError(f"{settings.where}: binlog {file} does not begin with the description of its format")
    return FileBegin(seconds, None)
