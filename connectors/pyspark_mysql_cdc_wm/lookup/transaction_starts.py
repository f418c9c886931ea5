"""The positions before transactions, at which a range may end, collected while the binlog is read."""

from __future__ import annotations

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import begins_transaction
from pyspark_mysql_cdc_wm.binlog.wire import Longs
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock


class TransactionStarts:
    """Reads the blocks of a dump in order; the dump began between two transactions."""

    __slots__ = ("_after",)

    def __init__(self, start: int) -> None:
        """Begin at the dump's first position."""
        self._after = start

    def of(self, block: PlacedBlock) -> tuple[Longs, Longs]:
        """Return the indices of events of a block that begin a transaction, and the position before each of these."""
        begins = np.flatnonzero(begins_transaction(block.events))
        before = np.concatenate((np.array([self._after], np.int64), block.places[:-1]))
        if len(block.places):
            self._after = int(block.places[-1])
        return begins, before[begins]
