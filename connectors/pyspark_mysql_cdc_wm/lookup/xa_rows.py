"""Rows of XA transactions that were prepared and may be committed soon: kept, so that the log is not read again."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import TYPE, EventType
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, in_own_memory

KEPT_BYTES: Final = 8 * 1024 * 1024
"""Of all that are kept together."""
_OF_ROWS = (
    EventType.QUERY,
    EventType.TABLE_MAP,
    EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_V1,
    EventType.WRITE_ROWS,
    EventType.UPDATE_ROWS,
    EventType.DELETE_ROWS,
    EventType.PARTIAL_UPDATE_ROWS,
    EventType.TRANSACTION_PAYLOAD,
)


class Stretch(NamedTuple):
    """Where a transaction lies in the binlog, whole."""

    start: int
    end: int


class PreparedRows:
    """Of transactions that lie in one block each; the oldest go first when there are too many."""

    def __init__(self) -> None:
        self._kept: dict[Stretch, PlacedBlock] = {}
        self._bytes = 0

    def keep(self, stretch: Stretch, transaction: PlacedBlock) -> None:
        """Keep the rows of a transaction, as far as there is room."""
        found = rows_of(transaction)
        if found is None or stretch in self._kept or found.memory_bytes > KEPT_BYTES:
            return
        own = in_own_memory(found)
        self._kept[stretch] = own
        self._bytes += own.memory_bytes
        while self._bytes > KEPT_BYTES:
            self.take(next(iter(self._kept)))

    def take(self, stretch: Stretch) -> PlacedBlock | None:
        """Return what is kept of a transaction, and keep it no longer."""
        found = self._kept.pop(stretch, None)
        if found is not None:
            self._bytes -= found.memory_bytes
        return found


def rows_of(block: PlacedBlock) -> PlacedBlock | None:
    """Return the events of rows of a block, ``None`` if it has none."""
    kept = np.isin(block.events[:, TYPE], _OF_ROWS)
    if not kept.any():
        return None
    return block._replace(events=np.ascontiguousarray(block.events[kept]), places=block.places[kept])
