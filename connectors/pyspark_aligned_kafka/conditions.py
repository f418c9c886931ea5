"""The error conditions of Spark's own Kafka source, where ours means the same: what looks for them finds them here too.

A message begins with its condition in brackets, as Spark's messages do.
"""

from __future__ import annotations

from typing import Final

START_DOES_NOT_MATCH: Final = "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"
TIMESTAMPS_DO_NOT_MATCH: Final = "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
DIFFERENT_PARTITIONS: Final = "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET"
START_GIVEN_AFTER_END: Final = "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"
START_FOUND_AFTER_END: Final = "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"
