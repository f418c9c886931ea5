"""The first transaction that was committed after a moment, found by reading the binlog's GTID events."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.commit_times import commit_times
from pyspark_mysql_cdc_wm.binlog.events import SECONDS, TYPE, EventType
from pyspark_mysql_cdc_wm.client.dump import BinlogDump, FilePosition
from pyspark_mysql_cdc_wm.client.log_dump import dumped
from pyspark_mysql_cdc_wm.client.settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.transaction_starts import TransactionStarts
from watermark_source.errors import CorruptDataError


class Committed(NamedTuple):
    """A transaction: the places before and after it, and when it was committed."""

    start: int
    end: int
    micros: int


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


def created(settings: ClientSettings, file: str) -> int:
    """Return when a file was begun, in whole seconds since 1970 by the server's clock; raises as ``dumped``."""
    with closing(BinlogDump(settings, FilePosition(file))) as dump:
        for block in dump.blocks():
            heads = block.events[block.events[:, TYPE] == EventType.FORMAT_DESCRIPTION]
            if len(heads):
                return int(heads[0, SECONDS])
    raise CorruptDataError(f"{settings.where}: binlog {file} does not begin with the description of its format")
