"""How errors and logs name a place in Kafka, and the error conditions of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from watermark_source.planning.policy import LossKind
from watermark_source.planning.split import Split


def place(split: Split, offset: int | None = None) -> str:
    """Return a place as text, such as ``topic orders partition 3 offset 17``; the offset is optional."""
    where = f"topic {split.log} partition {split.number}"
    return where if offset is None else f"{where} offset {offset}"


# Error conditions of Spark's own Kafka source. A message of the same meaning begins with its condition in brackets, as
# Spark's messages do.


START_DOES_NOT_MATCH: Final = "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"
TIMESTAMPS_DO_NOT_MATCH: Final = "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
DIFFERENT_PARTITIONS: Final = "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET"
START_GIVEN_AFTER_END: Final = "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"
START_FOUND_AFTER_END: Final = "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"
COULD_NOT_READ: Final = "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"
PARTITIONS_DELETED: Final = "KAFKA_DATA_LOSS.PARTITIONS_DELETED"
NEW_PARTITION_EXPIRED: Final = "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"
OFFSET_CHANGED: Final = "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"

LOSSES: Mapping[LossKind, str] = {
    LossKind.SPLIT_GONE: PARTITIONS_DELETED,
    LossKind.LOG_SHORTER: OFFSET_CHANGED,
    LossKind.LOG_REPLACED: OFFSET_CHANGED,
    LossKind.ROWS_EXPIRED: COULD_NOT_READ,
    LossKind.NEW_SPLIT_EXPIRED: NEW_PARTITION_EXPIRED,
}
"""The conditions of losses that the planner finds."""
