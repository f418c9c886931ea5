"""The end of a batch with a limit of rows: the binlog is read ahead and its rows are counted, not decoded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import START, STOP
from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet
from pyspark_mysql_cdc_wm.binlog.wire import Longs
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, TransactionStarts, dumped
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.binlog_gtids import gtids_of
from pyspark_mysql_cdc_wm.lookup.xa_transactions import with_prepared
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from watermark_source.planning.split import SplitRange

_MOST_BYTES = 256 * 1024 * 1024
"""Limit for reading ahead: a batch also ends after these bytes when few rows in them are of tables that are read."""


class BatchEnd(NamedTuple):
    """A position between two transactions, and the transactions from the range's start to it."""

    end: int
    transactions: GtidSet
    """GTIDs of MySQL's form."""


def batch_end(settings: ClientSettings, base: str, wanted: SplitRange, rows: int, tables: Selection) -> BatchEnd:
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
