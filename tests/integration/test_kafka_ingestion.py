"""Ingestion watermarks on a real broker: a topic that falls silent closes its last window, and no row is late."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from statistics import median

import pytest
from kafka import KafkaProducer
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.source import KafkaSource
from services.kafka import Kafka, kafka_service
from services.kafka_local import FAST_START, LocalKafka
from services.kafka_topics import create_topic
from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams, wait_for
from watermark_source import follow_watermark

pytestmark = pytest.mark.service

_logger = logging.getLogger(__name__)
LAG, INTERVAL = 3.0, 1.0
INGESTION = {"watermarkStrategy": "ingestion", "maxWatermarkLag": f"{LAG} seconds"}
SLOWEST_BATCH = 90.0
"""Seconds; on a machine that does much else."""
WRONG_CLOCK = 3.0
"""Seconds by which the clock of a producer is wrong at most."""


def produce(kafka: Kafka, topic: str, partition: int, rows: int) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    for _ in range(rows):
        producer.send(topic, b"x", partition=partition).get(30)
    producer.close()


@pytest.mark.long("test_producers_that_pause_and_resume_with_clocks_that_differ_lose_no_row")
def test_a_silent_topic_closes_its_last_window_though_a_partition_never_had_a_row(
    streams: KafkaStreams, kafka: Kafka, new_topic: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    topic = new_topic(4, config={"message.timestamp.type": "LogAppendTime"})
    rows = follow_watermark(streams.source(subscribe=topic, **INGESTION))
    counts = rows.groupBy(F.window("event_time", "1 second").alias("w")).count().select("count")
    running = streams.start(counts, processingTime="500 milliseconds")
    silences, written, waited = request.config.getoption("--silences"), 0, []
    for _ in range(silences):
        for _ in range(3):
            for partition in range(3):
                produce(kafka, topic, partition, 5)
            time.sleep(0.4)
        silent_since = time.monotonic()
        written += 45
        wait_for(lambda: sum(n for (n,) in running.rows()) == written, running.query)  # noqa: B023 - called at once
        waited.append(time.monotonic() - silent_since)
    # The window that was open, the lag, an interval to come to rest and one more; a batch, and Spark's for the window.
    assert max(waited) < 1 + LAG + 2 * INTERVAL + SLOWEST_BATCH
    _logger.info("silence to last window: median %.2f s, longest %.2f s of %d", median(waited), max(waited), silences)
    # It speaks again: the watermark has gone on meanwhile, and no row is behind it.
    for partition in (3, 0):
        produce(kafka, topic, partition, 5)
    wait_for(lambda: sum(n for (n,) in running.rows()) == written + 10, running.query)
    assert running.dropped == 0


def test_producers_that_pause_and_resume_with_clocks_that_differ_lose_no_row(
    direct: DirectKafka, kafka: Kafka, new_topic: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    """Each dates its records by a clock wrong by a fifth of the lag at most, and is silent long enough to be passed."""
    topic, resumes = new_topic(3), request.config.getoption("--resumes")
    chance = random.Random(request.config.getoption("--kills-seed"))
    # One partition has records of several clocks.
    apart = f"{5 * WRONG_CLOCK} seconds"
    ingestion = {"watermarkStrategy": "ingestion", "maxWatermarkLag": apart, "maxOutOfOrderness": apart}
    query = direct.start(direct.source(subscribe=topic, includeLate="true", **ingestion), "q")
    written: Counter[int] = Counter()
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    for resume in range(resumes):
        query.run_for(chance.uniform(0, 3 * INTERVAL))
        at = round((time.time() + chance.uniform(-WRONG_CLOCK, WRONG_CLOCK)) * 1_000)
        for _ in range(chance.randint(1, 20)):
            producer.send(topic, b"x", partition=resume % 3, timestamp_ms=at).get(30)
            written[at // 1_000] += 1
    producer.close()
    query.run_until(lambda: len(direct.data("q")) == written.total())
    rows = direct.data("q", ["event_time", "late"])
    assert Counter(int(at.timestamp()) for at, _ in rows) == written
    assert not any(late for _, late in rows)
    # Its windows close, though nothing more comes.
    query.run_until(lambda: direct.offsets("q")[-1]["wm"] >= (max(written) + 1) * 1_000)


def test_while_the_broker_does_not_answer_time_stands_still(
    direct: DirectKafka, request: pytest.FixtureRequest
) -> None:
    with kafka_service(jvm=FAST_START) as broker:
        assert isinstance(broker, LocalKafka)
        create_topic(broker.bootstrap, "frozen", 1, config={"message.timestamp.type": "LogAppendTime"})
        produce(broker, "frozen", 0, 1)
        direct.bootstrap = broker.bootstrap
        query = direct.start(direct.source(subscribe="frozen", **INGESTION), "q")
        query.run_until(lambda: len(direct.offsets("q")) > 2)
        broker.pause()
        try:
            query.run_for(2.5 * INTERVAL)
            before = direct.offsets("q")[-1]
            query.run_for(request.config.getoption("--broker-frozen"))
            assert direct.offsets("q")[-1] == before
        finally:
            broker.resume()
        query.run_until(lambda: direct.offsets("q")[-1]["wm"] > before["wm"])


@pytest.mark.parametrize(("kind", "warned"), [("CreateTime", True), ("LogAppendTime", False)])
def test_a_topic_that_its_producers_date_is_warned_of_at_the_start(
    kafka: Kafka, new_topic: Callable[..., str], caplog: pytest.LogCaptureFixture, kind: str, warned: bool
) -> None:
    topic = new_topic(1, config={"message.timestamp.type": kind})
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, **INGESTION}
    KafkaSource(kafka_options.parse(given)).open().discovery.discover()
    assert (f"{topic}: producers date the records" in caplog.text) is warned
    assert ("more than 3 s after its own timestamp" in caplog.text) is warned
