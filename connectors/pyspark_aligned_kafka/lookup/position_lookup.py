"""Look-ups of offsets in the cluster, for resolving positions."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark_aligned_kafka.lookup.log_bounds import KafkaLogBounds, OffsetQueries
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.split import Split


class KafkaPositionLookup:
    """``PositionLookup`` of ``resolved_positions.py``. Every call asks the brokers: "latest" may differ."""

    def __init__(self, admin: OffsetQueries) -> None:
        self._admin = admin
        self._bounds = KafkaLogBounds(admin)

    def earliest(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's first retained offset."""
        return self._bounds.earliest_positions(splits)

    def latest(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end offset."""
        return self._bounds.end_positions(splits)

    def at_time(self, wanted: Mapping[Split, Millis]) -> Mapping[Split, int | None]:
        """Return the first offset with a timestamp at or after the one wanted, or ``None``."""
        return {split: answer.offset for split, answer in self._admin.list_offsets(wanted).items()}
