"""How many rows a stretch of the binlog holds: it is read ahead and rows are counted; no value of theirs is decoded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import START, STOP
from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet
from pyspark_mysql_cdc_wm.binlog.wire import Longs
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, dumped
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.binlog_gtids import begun
from pyspark_mysql_cdc_wm.lookup.transaction_starts import TransactionStarts
from pyspark_mysql_cdc_wm.lookup.xa_transactions import with_prepared
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from watermark_source.planning.split import SplitRange

_MOST_BYTES = 256 * 1024 * 1024
"""Read ahead at most: a batch also ends where little of so much is of tables that are read."""


class Stretch(NamedTuple):
    """A stretch of the binlog that ends between two transactions."""

    end: int
    transactions: GtidSet
    """Those that are in it, of MySQL's form."""


def stretch_of(settings: ClientSettings, base: str, wanted: SplitRange, rows: int, tables: Selection) -> Stretch:
    """Return as much of a range as has at most so many rows of some tables, or its first transaction.

    Rows are as they are delivered: an update has two.

    Raises:
        DataLossError: the server no longer has it.
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
        # Not before the first of all, where only a file's own events are left behind.
        is_end = np.arange(len(begins)) > 0 if is_first else np.ones(len(begins), np.bool_)
        is_first = is_first and not len(begins)
        fitting = np.flatnonzero(is_end & (before <= rows))
        if fitting.size == 0 and best is None:
            # More rows than that in the first transaction, if it ends here.
            fitting = np.flatnonzero(is_end)[:1]
        at = 0
        if fitting.size:
            at, best = int(begins[fitting[-1]]), int(places[fitting[-1]])
            until_best |= after_best | begun(block.memory, block.events[:at], block.file)
            after_best = GtidSet()
        after_best |= begun(block.memory, block.events[at:], block.file)
        if best is not None and (counted > rows or size > _MOST_BYTES):
            return Stretch(best, until_best)
    return Stretch(end, until_best | after_best)


def _rows_between(decoder: ChangeDecoder, block: PlacedBlock, begins: Longs) -> Longs:
    """Return how many rows of a block are before the first transaction that begins in it, and in each of these."""
    versions = block.places[begins]
    counts = np.zeros(len(begins) + 1, np.int64)
    for changes in decoder.decode(block.memory, block.events, block.file, block.places, prepared=block.prepared):
        transactions = np.searchsorted(versions, changes.versions, side="right")
        counts += np.bincount(transactions, minlength=len(counts))
    return counts
