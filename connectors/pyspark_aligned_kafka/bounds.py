"""First and last offset of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Protocol

from pyspark_aligned_kafka.list_offsets import EARLIEST, LATEST, Found
from watermark_source.planning.split import Split


class OffsetQueries(Protocol):
    """What look-ups of offsets need of ``KafkaAdmin``."""

    def list_offsets(self, wanted: Mapping[Split, int]) -> Mapping[Split, Found]:
        """Look up one offset for each split."""
        ...


class KafkaLogBounds:
    """``LogBounds`` of connector.py. Every call asks the brokers: how often is for the caller to say."""

    def __init__(self, admin: OffsetQueries) -> None:
        self._admin = admin

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end: the high watermark, or the last stable offset with read_committed."""
        return self._look_up(splits, LATEST)

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's log start offset."""
        return self._look_up(splits, EARLIEST)

    def _look_up(self, splits: Set[Split], spec: int) -> Mapping[Split, int]:
        found = self._admin.list_offsets(dict.fromkeys(splits, spec))
        return {split: answer.offset for split, answer in found.items() if answer.offset is not None}
