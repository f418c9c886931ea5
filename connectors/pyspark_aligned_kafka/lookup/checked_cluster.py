"""What checks of a cluster look at: asked for when a check first needs it, once."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cached_property

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.replicas import Replicas
from pyspark_aligned_kafka.cluster.topic_settings import LOG_APPEND_TIME, TIMESTAMP_TYPE
from pyspark_aligned_kafka.lookup.discovery import select
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions
from watermark_source.errors import UnknownSplitError, listed
from watermark_source.planning.split import Split

SETTINGS = (
    TIMESTAMP_TYPE,
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "unclean.leader.election.enable",
    "min.insync.replicas",
)


class CheckedCluster:
    """Of one user's options. Errors are raised again by each check that needs the answer."""

    def __init__(self, options: KafkaOptions, probe_topic: str | None) -> None:
        self.options = options
        self.probe_topic = probe_topic
        self.admin = KafkaAdmin(options.client)

    def close(self) -> None:
        """Close the connections."""
        self.admin.close()

    @cached_property
    def splits(self) -> Set[Split]:
        """The partitions that are chosen.

        Raises:
            UnknownSplitError: what is named does not exist, or nothing is chosen.
        """
        splits, missing = select(self.options.subscription, self.admin)
        if missing:
            raise UnknownSplitError(
                f"{listed(missing)} does not exist, or may not be described; check the spelling, and the user's right "
                "DESCRIBE on it"
            )
        if not splits:
            raise UnknownSplitError(
                "no topic matches, of those that the user may describe; check the pattern, and the ACLs for DESCRIBE"
            )
        return splits

    @cached_property
    def topics(self) -> Set[str]:
        """The topics of these partitions; raises as ``splits``."""
        return {split.log for split in self.splits}

    @cached_property
    def replicas(self) -> Mapping[Split, Replicas]:
        """The chosen partitions' copies."""
        found = self.admin.replicas(self.topics)
        return {split: found[split] for split in self.splits if split in found}

    @cached_property
    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """Settings of the topics whose settings may be read."""
        return self.admin.topic_settings(self.topics, SETTINGS)

    @property
    def dated_by_brokers(self) -> Set[str]:
        """The topics whose records have the brokers' time."""
        return {name for name, each in self.settings.items() if each.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME}
