"""The driver side of a query: look-ups that share one connection to the cluster."""

from __future__ import annotations

from pyspark_aligned_kafka.admin import KafkaAdmin
from pyspark_aligned_kafka.bounds import KafkaLogBounds
from pyspark_aligned_kafka.discovery import KafkaDiscovery
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
        bounds=KafkaLogBounds(admin, options.stale_ends),
        time_index=KafkaTimeIndex(admin),
    )
