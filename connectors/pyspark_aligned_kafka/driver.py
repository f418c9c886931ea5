"""The driver side of a query: look-ups that share their connections, but for those that nobody waits for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.consumer_group import ConsumerGroup
from pyspark_aligned_kafka.cluster.group_commits import GroupCommits
from pyspark_aligned_kafka.cluster.leaders import Leaders
from pyspark_aligned_kafka.lookup.batch_bounds import BatchBounds
from pyspark_aligned_kafka.lookup.bounds import KafkaLogBounds
from pyspark_aligned_kafka.lookup.discovery import KafkaDiscovery
from pyspark_aligned_kafka.lookup.offset_lookup import KafkaOffsetLookup
from pyspark_aligned_kafka.lookup.preview import KafkaPreview
from pyspark_aligned_kafka.lookup.start import start_of_stream
from pyspark_aligned_kafka.lookup.start_positions import KafkaStartPositions
from pyspark_aligned_kafka.lookup.time_index import KafkaTimeIndex
from pyspark_aligned_kafka.lookup.transactions import KafkaTransactions
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions
from watermark_source.planning.late_binding import LateRange
from watermark_source.spark.connector import Connector


def open_connector(options: KafkaOptions) -> Connector:
    """Return what the engine asks; it connects on first use, and once more to look for new partitions."""
    cluster, leaders = Cluster(options.client), Leaders()
    admin = KafkaAdmin(options.client, cluster, leaders)
    return Connector(
        discovery=_discovery(admin, KafkaAdmin(options.client, leaders=leaders), options),
        starts=KafkaStartPositions(admin, start_of_stream(options.start, options.end)),
        bounds=KafkaLogBounds(admin, options.stale_ends),
        time_index=KafkaTimeIndex(admin),
        progress=_progress(options),
        preview=KafkaPreview(admin, read_committed=options.client.read_committed),
        transactions=_transactions(cluster, leaders, options),
    )


def look_up_batch(options: KafkaOptions, bounds: BatchBounds) -> Sequence[LateRange]:
    """Return what a batch reads, as of now; the connection is closed again.

    Raises:
        OptionError: the bounds do not fit what is there.
        UnknownSplitError: a subscribed topic, or every assigned partition, does not exist.
    """
    with closing(KafkaAdmin(options.client)) as admin:
        return bounds.late_ranges(_discovery(admin, admin, options).discover(), KafkaOffsetLookup(admin))


def _discovery(admin: KafkaAdmin, beside: KafkaAdmin, options: KafkaOptions) -> KafkaDiscovery:
    return KafkaDiscovery(admin, beside, options.subscription, max_age_ms=options.client.millis("metadata.max.age.ms"))


def _transactions(cluster: Cluster, leaders: Leaders, options: KafkaOptions) -> KafkaTransactions | None:
    if not options.client.read_committed:
        return None
    return KafkaTransactions(KafkaAdmin(options.client, cluster, leaders, read_committed=False))


def _progress(options: KafkaOptions) -> GroupCommits | None:
    if options.commit_group is None:
        return None
    return GroupCommits(ConsumerGroup(options.client, options.commit_group, note=options.engine.source_name))
