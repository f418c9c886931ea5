"""A query of Spark's own Kafka source goes on with this one, in its own checkpoint: nothing lost, nothing doubled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from services.topics import add_partitions
from tests.integration.kafka_streams import KafkaStreams
from watermark_source import data_rows

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]


def plain(rows: DataFrame) -> DataFrame:
    return data_rows(rows).drop("event_time")


@pytest.mark.parametrize("last_batch", ["committed", "logged only"])
def test_a_checkpoint_of_the_built_in_source_is_continued(
    streams: KafkaStreams, built_in_kafka: str, new_topic: NewTopic, last_batch: str
) -> None:
    topic = new_topic(3)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 40}
    streams.write(topic, {0: range(70), 1: range(30)})
    streams.run(streams.source(built_in_kafka, **options), "query")
    batches = len(streams.offsets("query"))
    assert batches >= 3
    if last_batch == "logged only":
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

    # And the next run goes on from there.
    streams.write(topic, {2: range(7, 9)})
    streams.run(plain(streams.source(**options)), "query")
    assert len(streams.data("query")) == sum(sizes.values()) + 2
