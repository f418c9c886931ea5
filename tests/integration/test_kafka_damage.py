"""A broker whose disk is damaged, and one that restarts under a running query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from services.kafka import kafka_cluster
from services.kafka_local import FAST_START, LocalKafka
from services.kafka_topics import create_topic, wait_for_leaders
from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams, wait_for
from watermark_source.errors import CorruptDataError

pytestmark = [pytest.mark.service, pytest.mark.spark]


@pytest.fixture(scope="module")
def own_broker() -> Iterator[LocalKafka]:
    """A local process, whose files and life are the tests' own."""
    with kafka_cluster(1, jvm=FAST_START) as broker:
        yield broker


@pytest.fixture
def own_streams(spark: SparkSession, own_broker: LocalKafka, tmp_path: Path) -> Iterator[KafkaStreams]:
    made = KafkaStreams(spark, tmp_path, bootstrap=own_broker.bootstrap)
    yield made
    made.stop()


def segment(broker: LocalKafka, topic: str, partition: int) -> Path:
    (found,) = (broker._folder(1) / "data" / f"{topic}-{partition}").glob("*.log")
    return found


def test_a_byte_flipped_on_the_brokers_disk_is_an_error_that_names_the_place(
    own_broker: LocalKafka, direct: DirectKafka
) -> None:
    direct.bootstrap = own_broker.bootstrap
    create_topic(own_broker.bootstrap, "damaged", 2)
    direct.write("damaged", {0: range(100), 1: range(100)}, batch_records=20)
    # In order: a log that was not closed well is looked through, and cut at the damage, when the broker starts.
    own_broker.stop()
    log = segment(own_broker, "damaged", 1)
    content = bytearray(log.read_bytes())
    number = (45).to_bytes(8, "big")  # how its value begins; in the third batch, records 40 to 59
    content[content.index(number) + len(number)] ^= 0x01
    log.write_bytes(content)
    own_broker.start()

    with pytest.raises(CorruptDataError, match=r"damaged.*\b1\b.*\b40\b"):
        direct.run(direct.source(subscribe="damaged"), "q")

    # What is sound before the damage can still be read, and nothing of the damaged batch comes out.
    early = '{"damaged":{"0":0,"1":60}}'
    direct.run(direct.source(subscribe="damaged", startingOffsets=early), "after")
    assert len(direct.data("after")) == 140


@pytest.mark.long("test_a_broker_restart_in_the_middle_of_a_read_loses_and_doubles_nothing")
def test_a_broker_restart_under_a_running_query_loses_and_doubles_nothing(
    own_broker: LocalKafka, own_streams: KafkaStreams
) -> None:
    streams = own_streams
    create_topic(own_broker.bootstrap, "restarted", 2)
    streams.write("restarted", {0: range(400), 1: range(200)})
    query = streams.start_file(streams.source(subscribe="restarted", maxOffsetsPerTrigger=60), "q")
    wait_for(lambda: (streams.checkpoint("q") / "commits" / "1").exists(), query)
    own_broker.restart()
    assert query.isActive
    wait_for_leaders(own_broker.bootstrap, ["restarted"], 2)
    streams.write("restarted", {0: range(400, 410), 1: range(200, 210)})
    wait_for(lambda: read_all(streams), query, seconds=120)
    query.stop()
    expected = [("restarted", 0, n) for n in range(410)] + [("restarted", 1, n) for n in range(210)]
    assert [tuple(row) for row in streams.data("q")] == expected
    watermarks = [offset["wm"] for offset in streams.offsets("q") if "wm" in offset]
    assert watermarks == sorted(watermarks)


def read_all(streams: KafkaStreams) -> bool:
    """Whether the last committed batch ends at the end of the log."""
    position = {int(n): fields[0] for n, fields in streams.offsets("q")[-1]["splits"]["restarted"].items()}
    return position == {0: 410, 1: 210} and len(streams.data("q")) >= 620
