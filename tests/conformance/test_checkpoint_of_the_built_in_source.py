"""A query of Spark's own Kafka source continues with this one, in its own checkpoint: nothing lost, nothing doubled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame

from services.kafka_topics import add_partitions
from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams
from watermark_source import data_rows

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]


def plain(rows: DataFrame) -> DataFrame:
    return data_rows(rows).drop("event_time")


def test_a_checkpoint_of_the_built_in_source_is_continued(
    streams: KafkaStreams, direct: DirectKafka, built_in_kafka: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    options: dict[str, Any] = {"subscribe": topic, "maxOffsetsPerTrigger": 40}
    streams.write(topic, {0: range(70), 1: range(30)})
    streams.run(streams.source(built_in_kafka, **options), "query")
    committed = streams.offsets("query")[-1]
    batches = len(streams.offsets("query"))
    assert batches >= 3
    # The last batch is logged, and not committed.
    streams.die_in("query", batches - 1)
    assert len(streams.data("query")) < 100
    streams.write(topic, {0: range(70, 100), 1: range(30, 35), 2: range(7)})
    add_partitions(streams.bootstrap, topic, 4)
    streams.write(topic, {3: range(5)})

    streams.run(plain(streams.source(**options)), "query")
    sizes = {0: 100, 1: 35, 2: 7, 3: 5}
    assert streams.data("query") == [(topic, p, n) for p, size in sizes.items() for n in range(size)]
    own = streams.offsets("query")[batches:]
    assert {offset["source"] for offset in own} == {"aligned-kafka"}

    # And the next run continues from there.
    streams.write(topic, {2: range(7, 9)})
    streams.run(plain(streams.source(**options)), "query")
    assert len(streams.data("query")) == sum(sizes.values()) + 2

    # A last batch that was committed is not read again.
    direct.continue_from(committed, "committed")
    direct.run(direct.source(**options), "committed")
    assert committed == {topic: {"0": 70, "1": 30, "2": 0}}
    begins, ends = {0: 70, 1: 30}, {**sizes, 2: 9}
    assert direct.data("committed") == [(topic, p, n) for p, end in ends.items() for n in range(begins.get(p, 0), end)]
