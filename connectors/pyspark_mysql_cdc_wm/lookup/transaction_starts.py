"""Where transactions begin, found while the binlog is read: places between them, at which a range may end."""

from __future__ import annotations

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import begins_transaction
from pyspark_mysql_cdc_wm.binlog.wire import Longs
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock


class TransactionStarts:
    """Goes from block to block of a dump that began between two transactions."""

    __slots__ = ("_after",)

    def __init__(self, start: int) -> None:
        """Begin at a place."""
        self._after = start

    def of(self, block: PlacedBlock) -> tuple[Longs, Longs]:
        """Return which events of a block begin a transaction, and the place before each of these."""
        begins = np.flatnonzero(begins_transaction(block.events))
        before = np.concatenate((np.array([self._after], np.int64), block.places[:-1]))
        if len(block.places):
            self._after = int(block.places[-1])
        return begins, before[begins]
