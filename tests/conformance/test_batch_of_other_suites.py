"""What Spark's other Kafka suites say of a batch: losses that are let pass, names in any case, times of two kinds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from services.kafka_topics import delete_records
from tests.conformance.batch_reads import BatchReads, numbered
from tests.spark.queries import START

pytestmark = [pytest.mark.service, pytest.mark.spark]

DONT_FAIL = "KafkaDontFailOnDataLossSuite"

NewTopic = Callable[..., str]


@pytest.fixture
def shortened(reads: BatchReads, new_topic: NewTopic) -> str:
    """Fifty numbers, of which retention has taken the first seventeen."""
    name = new_topic(1)
    reads.send(name, range(50), 0)
    delete_records(reads.bootstrap, name, {0: 17})
    return name


@pytest.mark.spark_case(DONT_FAIL, "failOnDataLoss=false should not return duplicated records: batch")
def test_fail_on_data_loss_false_should_not_return_duplicated_records_batch(reads: BatchReads, shortened: str) -> None:
    pair = reads.pair(
        subscribe=shortened,
        startingOffsets=numbered(shortened, {0: 0}),
        failOnDataLoss="false",
        **{"kafkaConsumer.pollTimeoutMs": 1_000, "kafka.metadata.max.age.ms": 1},
    )
    assert pair.answer() == [*range(17, 50)]


def test_a_given_start_that_is_gone_is_a_loss(reads: BatchReads, shortened: str) -> None:
    pair = reads.pair(subscribe=shortened, startingOffsets=numbered(shortened, {0: 5}))
    with pytest.raises(PySparkException, match=f"topic {shortened} partition 0: offsets 5 to 17 .*failOnDataLoss"):
        pair.ours.collect()
    with pytest.raises((PySparkException, Py4JJavaError), match="Some data may have been lost"):
        pair.theirs.collect()


def test_an_empty_partition_may_begin_after_the_time_at_which_all_end(reads: BatchReads, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    reads.send(topic, range(10), 0, timestamp_ms=START)
    pair = reads.pair(
        subscribe=topic,
        startingOffsetsByTimestamp=numbered(topic, {0: START, 1: START + 10_000}),
        startingOffsetsByTimestampStrategy="latest",
        endingTimestamp=START + 5_000,
    )
    assert pair.answer() == [*range(10)]


@pytest.mark.spark_case("KafkaSourceProviderSuite", "batch mode - options should be handled as case-insensitive")
def test_batch_mode_options_should_be_handled_as_case_insensitive(reads: BatchReads, shortened: str) -> None:
    spellings: list[Callable[[str], str]] = [str.lower, str.upper]
    for spelt in spellings:
        options = {
            "subscribe": shortened,
            "startingOffsets": numbered(shortened, {0: 20}),
            "endingOffsets": numbered(shortened, {0: 30}),
            "includeHeaders": "true",
            "minPartitions": "2",
            "kafkaConsumer.pollTimeoutMs": "5000",
        }
        rows = reads.pair(**{spelt(name): text for name, text in options.items()}).rows()
        assert [row.offset for row in rows] == [*range(20, 30)]
        assert "headers" in rows[0]
