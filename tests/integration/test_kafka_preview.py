"""The watermark of a batch's own rows goes out with the batch, where a real broker shows it before they are read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from pyspark_aligned_kafka import DefaultSource
from services.kafka import Kafka
from services.kafka_topics import add_partitions, delete_records
from tests.integration.kafka_streams import KafkaStreams, wait_for
from watermark_source import follow_watermark
from watermark_source.planning.range_report import Coverage
from watermark_source.planning.split import Split
from watermark_source.spark.driver.task_reports import ReadingAgain
from watermark_source.spark.read_tasks import ReadTask
from watermark_source.spark.stream_reader import AlignedStreamReader

pytestmark = [pytest.mark.service]

BOUND = 1_000
KEEP = {"retention.ms": "-1"}


@contextlib.contextmanager
def reader_of(kafka: Kafka, topic: str, **options: str) -> Iterator[AlignedStreamReader]:
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest",
        "maxOutOfOrderness": f"{BOUND} ms", **options,
    }  # fmt: skip
    made = DefaultSource(given).streamReader(DefaultSource(given).schema())
    assert isinstance(made, AlignedStreamReader)
    try:
        yield made
    finally:
        made.stop()


def produce(kafka: Kafka, topic: str, times: Mapping[int, list[int]], *, commit: bool | None = None) -> None:
    """Send a record a batch; in one transaction if it is to be committed, or not."""
    more = {} if commit is None else {"transactional_id": f"{topic}-{time.monotonic_ns()}"}
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka.bootstrap, **more)) as producer:
        if commit is not None:
            producer.init_transactions()
            producer.begin_transaction()
        for partition, stamps in times.items():
            for stamp in stamps:
                producer.send(topic, b"x", partition=partition, timestamp_ms=stamp).get(30)
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)()


def batches(reader: AlignedStreamReader, start: Any = None) -> Iterator[Mapping[str, Any]]:
    """Plan and read batch after batch until half a second, and ten plans, have had none."""
    offset = reader.initialOffset() if start is None else start
    until, without = time.monotonic() + 0.5, 0
    while time.monotonic() < until or without < 10:
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        if end == offset:
            without += 1
            continue
        yield end
        for pack in reader.partitions(dict(offset), dict(end)):
            list(reader.read(pack))
        # Not from the plan on: anyone who consumes this may have taken longer than that.
        offset, until, without = end, time.monotonic() + 0.5, 0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine answers later than a query waits for what it can do without."""
    monkeypatch.setattr("watermark_source.spark.driver.logs._WAIT_FOR_PREVIEW", 60.0)
    monkeypatch.setattr("pyspark_aligned_kafka.cluster.admin._GLANCE_MS", 60_000)
    monkeypatch.setattr("pyspark_aligned_kafka.lookup.discovery._REST", 0)


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(2, config=KEEP)


def test_the_first_batch_carries_the_watermark_of_its_rows_and_none_follows_for_it(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, {0: [50_000, 90_000, 60_000], 1: [70_000, 20_000]})
    with reader_of(kafka, topic) as reader:
        (only,) = batches(reader)
        assert only["wm"] == 70_000 - BOUND - 1
        # The newest of partition 0 was read before: what came since moves nothing.
        produce(kafka, topic, {0: [80_000], 1: [85_000]})
        (second,) = batches(reader, only)
        assert second["wm"] == 85_000 - BOUND - 1
        # As the next process will find it.
        with reader_of(kafka, topic) as another:
            assert next(batches(another, second))["wm"] == second["wm"]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_is_no_row_and_one_that_was_aborted_moves_nothing(
    kafka: Kafka, topic: str, isolation: str, commit: bool
) -> None:
    produce(kafka, topic, {0: [50_000], 1: [50_000]})
    produce(kafka, topic, {0: [70_000], 1: [60_000]}, commit=commit)
    with reader_of(kafka, topic, **{"kafka.isolation.level": isolation}) as reader:
        found = [each.get("wm") for each in batches(reader)]
    delivered = commit or isolation == "read_uncommitted"
    assert found[-1] == (60_000 if delivered else 50_000) - BOUND - 1
    # Time of the transaction's end is that of the broker's clock.
    assert all(wm is None or wm <= found[-1] for wm in found)


def test_a_row_that_retention_takes_before_it_is_read_has_reported_its_time_all_the_same(
    kafka: Kafka, topic: str
) -> None:
    produce(kafka, topic, {0: [50_000, 90_000], 1: [70_000]})
    with reader_of(kafka, topic, failOnDataLoss="false") as reader:
        planned = batches(reader)
        first = next(planned)
        assert first["wm"] == 70_000 - BOUND - 1
        delete_records(kafka.bootstrap, topic, {0: 2, 1: 1})
        produce(kafka, topic, {0: [91_000], 1: [71_000]})
        later = [each["wm"] for each in planned]
        assert later[-1] == 71_000 - BOUND - 1
        assert [first["wm"], *later] == sorted([first["wm"], *later])


def test_with_a_limit_the_watermark_is_that_of_the_rows_that_were_read(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, {0: [50_000, 60_000, 70_000, 80_000], 1: [50_000, 60_000, 70_000, 80_000]})
    with reader_of(kafka, topic, maxOffsetsPerTrigger="2") as reader:
        for end in batches(reader):
            read = {int(n): fields[0] for n, fields in end["splits"][topic].items()}
            lowest = min(40_000 + 10_000 * n for n in read.values())
            assert end.get("wm") is None or end["wm"] <= lowest - BOUND - 1
        assert end["wm"] == 80_000 - BOUND - 1


def test_event_times_beyond_the_cap_are_not_gone_by(kafka: Kafka, topic: str) -> None:
    now = int(time.time() * 1_000)
    produce(kafka, topic, {0: [now, now + 3_600_000], 1: [now]})
    with reader_of(kafka, topic, maxFutureSkew="1 minute") as reader:
        assert [each["wm"] for each in batches(reader) if "wm" in each] == [now - BOUND - 1]


def test_a_partition_that_is_not_known_yet_holds_the_watermark(kafka: Kafka, topic: str) -> None:
    """Its rows were there before the look: without the wait for one they would be late."""
    produce(kafka, topic, {0: [50_000], 1: [50_000]})
    with reader_of(kafka, topic) as reader:
        (first,) = batches(reader)
        add_partitions(kafka.bootstrap, topic, 3)
        produce(kafka, topic, {2: [60_000]})
        produce(kafka, topic, {0: [99_000], 1: [99_000]})
        ends = list(batches(reader, first))
    reached = {n: (fields[0], end["wm"]) for end in ends for n, fields in end["splits"][topic].items()}
    assert reached["2"] == (1, 60_000 - BOUND - 1)
    assert max(end["wm"] for end in ends) == 60_000 - BOUND - 1


@pytest.mark.spark
@pytest.mark.long("test_the_first_batch_carries_the_watermark_of_its_rows_and_none_follows_for_it")
def test_a_window_comes_with_the_batch_after_the_row_that_closes_it(
    streams: KafkaStreams, kafka: Kafka, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1, config=KEEP)
    rows = follow_watermark(streams.source(subscribe=topic, maxOutOfOrderness="0 seconds"))
    counts = rows.groupBy(F.window("event_time", "1 second").alias("w")).count().select("count")
    running = streams.start(counts)

    def with_rows() -> list[int]:
        return [n for n, p in enumerate(running.progress) if p["numInputRows"] >= 3]

    # A batch of rows and, for its windows, Spark's own without rows: no third one for the watermark alone. On a busy
    # machine the broker's answers come too late now and then.
    end, second = time.monotonic() + 120, 0
    while 2 not in (b - a for a, b in pairwise(with_rows())):
        assert time.monotonic() < end
        streams.write(topic, {0: [second + 0.5, second + 0.6, second + 0.7]})
        wait_for(lambda: (len(running.rows()), len(with_rows())) == (second, second + 1), running.query)  # noqa: B023
        second += 1
    assert running.dropped == 0


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_new_process_reads_the_last_batch_again_only_where_rows_came_since(
    kafka: Kafka, topic: str, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty partition no batch follows that one, and each start read it whole."""
    looked: list[Split] = []
    real = ReadingAgain.cover

    def spied(look: ReadingAgain, again: ReadTask, *args: Any, **options: Any) -> Coverage:
        looked.extend(each.split for each in again.ranges)
        return real(look, again, *args, **options)

    monkeypatch.setattr(ReadingAgain, "cover", spied)
    options = {"kafka.isolation.level": isolation, "includeMarkers": "false"}
    produce(kafka, topic, {0: [50_000, 90_000, 60_000], 1: [70_000]})
    with reader_of(kafka, topic, **options) as reader:
        (last,) = batches(reader)
    for _ in range(2):
        with reader_of(kafka, topic, **options) as another:
            assert list(batches(another, last)) == []
            report = another.reportLatestOffset()
            assert report is not None
            assert {n: s["watermark"] for n, s in report["splits"][topic].items()} == {
                "0": 90_000 - BOUND - 1, "1": 70_000 - BOUND - 1
            }  # fmt: skip
    assert looked == []
    produce(kafka, topic, {0: [95_000]})
    with reader_of(kafka, topic, **options) as another:
        list(batches(another, last))
    assert looked == [Split(topic, 0)]
