"""What the driver of a query asks a cluster, for a topic of six partitions without records."""

from __future__ import annotations

import time

from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.source import KafkaSource
from services.kafka_local import LocalKafka
from watermark_source.contract.stream import Connector, LogBounds
from watermark_source.planning.split import Split


def splits_of(topic: str) -> set[Split]:
    return {Split(topic, number) for number in range(6)}


SPLITS = splits_of("t")
ENDS = dict.fromkeys(SPLITS, 0)


def connect(cluster: LocalKafka, topic: str = "t", **limits: str) -> Connector:
    """Return what the driver asks, having asked all of it once."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}
    connector = KafkaSource(
        kafka_options.parse({**given, **{f"kafka.{name.replace('_', '.')}": v for name, v in limits.items()}})
    ).open()
    splits = splits_of(topic)
    assert connector.discovery.discover() == splits
    assert connector.bounds.end_positions(splits) == dict.fromkeys(splits, 0)
    return connector


def ask_again_and_again(bounds: LogBounds, *, seconds: float) -> None:
    """Ask for ends of topic ``t`` that are not all known, until that is an error."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert bounds.current_ends(SPLITS).unknown
        time.sleep(0.1)
