"""Start positions by the user's policy, with look-ups in the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark_aligned_kafka import start
from pyspark_aligned_kafka.bounds import KafkaLogBounds, OffsetQueries
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.split import Split


class KafkaStartPositions:
    """``StartPositions`` of connector.py, and the look-ups that the policy needs."""

    def __init__(self, admin: OffsetQueries, policy: start.StartPolicy) -> None:
        self._admin = admin
        self._policy = policy
        self._bounds = KafkaLogBounds(admin)

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Resolve the starting options; asks the brokers each time, so "latest" may be another the next time."""
        return start.resolve(self._policy, splits, self)

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the earliest offsets, whatever the starting options are, as Spark does."""
        return self.earliest(splits)

    def earliest(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's first retained offset."""
        return self._bounds.earliest_positions(splits)

    def latest(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end offset."""
        return self._bounds.end_positions(splits)

    def at_time(self, wanted: Mapping[Split, Millis]) -> Mapping[Split, int | None]:
        """Return the first offset with a timestamp at or after the one wanted, or ``None``."""
        return {split: answer.offset for split, answer in self._admin.list_offsets(wanted).items()}
