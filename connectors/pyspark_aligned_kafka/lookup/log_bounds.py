"""First and last offset of partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from typing import Protocol

from pyspark_aligned_kafka.cluster.list_offsets import EARLIEST, LATEST, Found
from pyspark_aligned_kafka.cluster.offset_lookup import InTime
from pyspark_aligned_kafka.options import offset_retries
from pyspark_aligned_kafka.options.offset_retries import OffsetRetries
from watermark_source.planning.split import Split
from watermark_source.spark.connector.stream import Ends


class OffsetQueries(Protocol):
    """What look-ups of offsets need of ``KafkaAdmin``."""

    def list_offsets(self, wanted: Mapping[Split, int]) -> Mapping[Split, Found]:
        """Look up one offset for each split."""
        ...

    def list_offsets_in_time(self, wanted: Mapping[Split, int]) -> InTime:
        """Look up one offset for each split whose broker answers soon."""
        ...


class KafkaLogBounds:
    """``LogBounds`` of ``spark.connector``. Every call asks the brokers: how often is for the caller to say."""

    def __init__(self, admin: OffsetQueries, stale: OffsetRetries = offset_retries.ACCEPTED) -> None:
        self._admin = admin
        self._stale = stale
        self._ends: Mapping[Split, int] = {}

    def end_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end: the high watermark, or the last stable offset with read_committed.

        An end before the one seen last is asked for again, as the policy says; after that it is what it is.
        """
        return self._settled(lambda: Ends(self._look_up(splits, LATEST))).positions

    def current_ends(self, splits: Set[Split]) -> Ends:
        """Return the ends that brokers tell within a few seconds; the others are asked on."""
        return self._settled(lambda: self._in_time(splits))

    def _settled(self, look: Callable[[], Ends]) -> Ends:
        ends = look()
        for _ in range(self._stale.retries):
            if all(end >= self._ends.get(split, 0) for split, end in ends.positions.items()):
                break
            time.sleep(self._stale.interval_ms / 1_000)
            ends = look()
        self._ends = {**self._ends, **ends.positions}
        return ends

    def _in_time(self, splits: Set[Split]) -> Ends:
        answers = self._admin.list_offsets_in_time(dict.fromkeys(splits, LATEST))
        late = {split: None if answer is None else answer.offset for split, answer in answers.unknown.items()}
        return Ends(_offsets(answers.found), late)

    def earliest_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's log start offset."""
        return self._look_up(splits, EARLIEST)

    def _look_up(self, splits: Set[Split], spec: int) -> Mapping[Split, int]:
        return _offsets(self._admin.list_offsets(dict.fromkeys(splits, spec)))


def _offsets(found: Mapping[Split, Found]) -> Mapping[Split, int]:
    return {split: answer.offset for split, answer in found.items() if answer.offset is not None}
