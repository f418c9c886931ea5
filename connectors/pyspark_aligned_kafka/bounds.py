"""First and last offset of partitions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from typing import Protocol

from pyspark_aligned_kafka import stale_ends
from pyspark_aligned_kafka.list_offsets import EARLIEST, LATEST, Found
from pyspark_aligned_kafka.stale_ends import StaleEnds
from watermark_source.planning.split import Split


class OffsetQueries(Protocol):
    """What look-ups of offsets need of ``KafkaAdmin``."""

    def list_offsets(self, wanted: Mapping[Split, int]) -> Mapping[Split, Found]:
        """Look up one offset for each split."""
        ...


class KafkaLogBounds:
    """``LogBounds`` of connector.py. Every call asks the brokers: how often is for the caller to say."""

    def __init__(self, admin: OffsetQueries, stale: StaleEnds = stale_ends.ACCEPTED) -> None:
        self._admin = admin
        self._stale = stale
        self._ends: Mapping[Split, int] = {}

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end: the high watermark, or the last stable offset with read_committed.

        An end before the one seen last is asked for again, as the policy says; after that it is what it is.
        """
        ends = self._look_up(splits, LATEST)
        for _ in range(self._stale.retries):
            if all(end >= self._ends.get(split, 0) for split, end in ends.items()):
                break
            time.sleep(self._stale.interval_ms / 1_000)
            ends = self._look_up(splits, LATEST)
        self._ends = ends
        return ends

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's log start offset."""
        return self._look_up(splits, EARLIEST)

    def _look_up(self, splits: Set[Split], spec: int) -> Mapping[Split, int]:
        found = self._admin.list_offsets(dict.fromkeys(splits, spec))
        return {split: answer.offset for split, answer in found.items() if answer.offset is not None}
