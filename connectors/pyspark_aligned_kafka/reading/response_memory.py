"""Memory that responses are received into, again and again: one for all connections of a session."""

from __future__ import annotations

import numpy as np

from pyspark_aligned_kafka.records.record_batches import Bytes

_FIRST_SIZE = 1 << 20
_LARGEST_KEPT = 16 << 20


class ResponseMemory:
    """Holds one response at a time, that of the connection which received last."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: Bytes = np.empty(_FIRST_SIZE, np.uint8)

    def grow(self, wanted: int, have: int) -> None:
        """Make room for so many bytes, and keep those that are there."""
        if self.data.size < wanted:
            larger = np.empty(1 << (wanted - 1).bit_length(), np.uint8)
            larger[:have] = self.data[:have]
            self.data = larger

    def trim(self) -> None:
        """Give back memory that only an unusually large response needed; what was received is not valid any more."""
        if self.data.size > _LARGEST_KEPT:
            self.data = np.empty(_FIRST_SIZE, np.uint8)
