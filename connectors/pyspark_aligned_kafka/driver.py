"""The driver side of a query: look-ups that share one connection to the cluster."""

from __future__ import annotations

from pyspark_aligned_kafka.admin import KafkaAdmin
from pyspark_aligned_kafka.bounds import KafkaLogBounds
from pyspark_aligned_kafka.consumer_group import ConsumerGroup
from pyspark_aligned_kafka.discovery import KafkaDiscovery
from pyspark_aligned_kafka.group_progress import GroupProgress
from pyspark_aligned_kafka.options import KafkaOptions
from pyspark_aligned_kafka.start_positions import KafkaStartPositions
from pyspark_aligned_kafka.time_index import KafkaTimeIndex
from watermark_source.spark.connector import Connector


def open_connector(options: KafkaOptions) -> Connector:
    """Return what the engine asks; it connects on first use."""
    admin = KafkaAdmin(options.client)
    return Connector(
        discovery=KafkaDiscovery(admin, options.subscription, max_age_ms=options.client.millis("metadata.max.age.ms")),
        starts=KafkaStartPositions(admin, options.start),
        bounds=KafkaLogBounds(admin),
        time_index=KafkaTimeIndex(admin),
        progress=_progress(options),
    )


def _progress(options: KafkaOptions) -> GroupProgress | None:
    if options.commit_group is None:
        return None
    return GroupProgress(ConsumerGroup(options.client, options.commit_group, note=options.engine.source_name))
