"""Where partitions begin, looked up in the cluster: a new query's as the user says, those found later at earliest."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark_aligned_kafka.lookup.log_bounds import OffsetQueries
from pyspark_aligned_kafka.lookup.position_lookup import KafkaPositionLookup
from pyspark_aligned_kafka.lookup.stream_start import resolve
from pyspark_aligned_kafka.options.positions import PositionPolicy
from watermark_source.planning.split import Split


class KafkaStartPositions:
    """``StartPositions`` of ``spark.connector``."""

    def __init__(self, admin: OffsetQueries, policy: PositionPolicy) -> None:
        self._policy = policy
        self._lookup = KafkaPositionLookup(admin)

    def initial_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Resolve the starting options; asks the brokers each time."""
        return resolve(self._policy, splits, self._lookup)

    def added_positions(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return the earliest offsets, whatever the starting options are, as Spark does."""
        return self._lookup.earliest(splits)
