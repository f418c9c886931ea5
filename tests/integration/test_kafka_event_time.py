"""Event time in the payload on a real broker: whatever the records' own timestamps are, windows follow it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from kafka import KafkaProducer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import StreamingQuery

from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams
from tests.spark.queries import START
from watermark_source import data_rows, follow_watermark
from watermark_source.errors import SourceError

pytestmark = pytest.mark.service
_log = logging.getLogger(__name__)

NewTopic = Callable[..., str]
HALF_AN_HOUR = 1_800
BOUND = 30
IN_JSON: dict[str, Any] = {"eventTimeColumn": "value:$.order.at", "maxOutOfOrderness": f"{BOUND} seconds"}


def produce(kafka: Kafka, topic: str, values: Mapping[int, Sequence[bytes | None]], **more: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=20)
    for partition, written in values.items():
        for value in written:
            producer.send(topic, value, partition=partition, **more)
    producer.flush(60)
    producer.close()


def document(seconds: float) -> bytes:
    return json.dumps({"id": "}{", "order": {"n": [1, {"at": 0}], "at": START + round(seconds * 1_000)}}).encode()


def documents(seconds: np.ndarray) -> np.ndarray:
    """Return JSON documents of one length, as rows of bytes."""
    moments = START + np.round(seconds * 1_000).astype(np.int64)
    texts = np.char.mod('{"order":{"at":%d}}', moments).astype("S")
    return texts.view(np.uint8).reshape(len(texts), -1)


def shuffled(chance: np.random.Generator, begin: float, rows: int) -> list[float]:
    """One row a tenth of a second, each up to the bound too early."""
    return [round(begin + n / 10 - chance.uniform(0, BOUND), 3) for n in range(rows)]


@pytest.mark.long("test_a_fast_a_slow_and_a_silent_partition_lose_nothing_and_plain_spark_loses_rows")
def test_partitions_hours_apart_lose_no_row_across_restarts(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic
) -> None:
    """A later process has no reports of the last batch: it reads that again, and finds the same event times."""
    topic, chance = new_topic(3), np.random.default_rng(3)
    rows = follow_watermark(streams.source(subscribe=topic, maxOffsetsPerTrigger=1_500, **IN_JSON))
    counts = rows.groupBy(F.window("event_time", "1 minute").alias("w")).count()
    frame = counts.select(((F.unix_millis("w.start") - START) / 60_000).cast("int"), "count")
    written: list[float] = []
    for run in range(2):
        begins = {0: 0, 1: 2 * HALF_AN_HOUR, 2: -HALF_AN_HOUR}
        made = {p: shuffled(chance, begin + run * 100, 1_000) for p, begin in begins.items()}
        produce(kafka, topic, {p: [document(at) for at in times] for p, times in made.items()})
        written += [at for times in made.values() for at in times]
        query = streams.run(frame, "q")
        assert all(o.numRowsDroppedByWatermark == 0 for p in query.recentProgress for o in p.stateOperators)
    # The slowest partition has come to this; what is later is still open.
    slowest = -HALF_AN_HOUR + 200 - BOUND
    expected = Counter(int(at // 60) for at in written)
    found = {row[0]: row[1] for row in streams.result("q").collect()}
    assert found == {minute: n for minute, n in expected.items() if minute in found}
    assert {minute for minute in expected if (minute + 1) * 60 <= slowest - BOUND} <= found.keys()


@pytest.mark.parametrize(
    "each",
    [
        10_000,
        pytest.param(1_000_000, marks=pytest.mark.timeout(1_200)),
    ],
)
@pytest.mark.long("test_a_watermark_per_partition_counts_the_orders_that_one_on_the_parsed_column_loses")
def test_windows_are_those_of_a_batch_query_where_a_watermark_on_the_parsed_column_loses_rows(
    streams: KafkaStreams, kafka: Kafka, new_topic: NewTopic, each: int
) -> None:
    """Payloads shuffled within the bound; a partition is an hour ahead, another half an hour behind."""
    apart, chance = [0, 2 * HALF_AN_HOUR, -HALF_AN_HOUR, 0], np.random.default_rng(20)
    topic, apace = new_topic(len(apart), config={"retention.ms": "-1"}), np.arange(each) * 7_200 / each
    # Written together: the records' own timestamps say nothing of how far apart the payloads are.
    written = {
        p: PartitionRecords(
            START + (apace * 1_000).astype(np.int64), documents(apace + by - chance.random(each) * BOUND)
        )
        for p, by in enumerate(apart)
    }
    bulk_produce_partitions(kafka.bootstrap, topic, written)

    def counted(rows: DataFrame, event_time: Column) -> DataFrame:
        windows = rows.groupBy(F.window(event_time, "1 minute").alias("w")).count()
        return windows.select(F.unix_millis("w.start").alias("start"), "count")

    parsed = F.timestamp_millis(F.from_json(F.col("value").cast("string"), "order STRUCT<at: LONG>")["order"]["at"])
    batch = streams.spark.read.format("aligned-kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
    expected = {
        row["start"]: row["count"] for row in counted(batch.option("subscribe", topic).load(), parsed).collect()
    }
    limit: dict[str, Any] = {"subscribe": topic, "maxOffsetsPerTrigger": len(apart) * each // 8}
    followed = follow_watermark(streams.source(**limit, **IN_JSON))
    ours = streams.run(counted(followed, F.col("event_time")), "ours")
    column = data_rows(streams.source(**limit)).select(parsed.alias("at")).withWatermark("at", f"{BOUND} seconds")
    theirs = streams.run(counted(column, F.col("at")), "theirs")

    def closed(name: str) -> dict[int, int]:
        return {row["start"]: row["count"] for row in streams.result(name).collect()}

    def lost(query: StreamingQuery, found: dict[int, int]) -> int:
        # The last windows stay open; a row that is late is of one that was closed.
        due = {start: rows for start, rows in expected.items() if start <= max(found)}
        assert len(due) > len(expected) / 2
        missing = sum(due.values()) - sum(found.values())
        _log.info(
            "%d of %d windows closed, %d groups late, %d rows missing", len(found), len(expected), late(query), missing
        )
        return missing

    def late(query: StreamingQuery) -> int:
        return sum(o.numRowsDroppedByWatermark for p in query.recentProgress for o in p.stateOperators)

    assert closed("ours").items() <= expected.items()
    assert (lost(ours, closed("ours")), late(ours)) == (0, 0)
    assert lost(theirs, closed("theirs")) > each / 10


@pytest.mark.parametrize("errors", ["timestamp", "null"])
def test_broken_records_are_delivered_and_counted(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic, errors: str
) -> None:
    topic = new_topic(1)
    broken: list[bytes | None] = [None, b"{", b'{"order":{}}', b'{"order":{"at":"soon"}}']
    produce(kafka, topic, {0: [*map(document, range(50)), *broken]}, timestamp_ms=START + 7, key=b"k")
    status = direct.run(direct.source(subscribe=topic, eventTimeErrors=errors, **IN_JSON), "q").status
    found = [at and round(at.timestamp() * 1_000) for (at,) in direct.data("q", ["event_time"])]
    assert found == [START + n * 1_000 for n in range(50)] + [None if errors == "null" else START + 7] * 4
    assert (status.rows.read, status.rows.undated, status.watermark) == (54, 4, START + 49_000 - BOUND * 1_000 - 1)


def test_by_default_the_first_broken_record_ends_the_query_and_is_named(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    produce(kafka, topic, {0: [document(1), b'{"order":{"at":"soon"}}']})
    with pytest.raises(SourceError, match=f"topic {topic} partition 0 offset 1: no event time .* 'soon'"):
        direct.run(direct.source(subscribe=topic, **IN_JSON), "q")


def test_a_query_goes_on_when_the_path_was_renamed(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """What was read last is looked at again by a new process, and has nothing at the new path."""
    topic = new_topic(2)
    produce(kafka, topic, {0: [document(1), document(2)]})
    direct.run(direct.source(subscribe=topic, **IN_JSON), "q")
    produce(kafka, topic, {0: [b'{"at":%d}' % (START + 3_000)]})
    direct.run(direct.source(subscribe=topic, eventTimeColumn="value:$.at"), "q")
    found = [round(at.timestamp() * 1_000) - START for (at,) in direct.data("q", ["event_time"])]
    assert found == [1_000, 2_000, 3_000]
    assert "cannot be looked at again, its watermark stays" in caplog.text
    assert "offset 0: no event time" in caplog.text


def test_a_header_or_a_function_tells_the_time_in_streams_and_in_batches(
    streams: KafkaStreams, direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    produce(kafka, topic, {0: [b"a,100", b"b,200"]}, headers=[("at", b"2023-11-14T22:13:20Z")])
    function = "tests.integration.event_time_functions:after_the_comma"
    expected = {"header:at": [1_700_000_000] * 2, function: [100, 200]}
    for chosen, times in expected.items():
        read = streams.spark.read.format("aligned-kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
        batch = read.option("subscribe", topic).option("eventTimeColumn", chosen).load()
        assert [row[0] for row in batch.select(F.unix_seconds("event_time")).collect()] == times
        direct.run(direct.source(subscribe=topic, eventTimeColumn=chosen), chosen)
        assert [at.timestamp() for (at,) in direct.data(chosen, ["event_time"])] == times


def test_aligned_by_the_payload_a_partition_is_ahead_by_the_drift_and_a_range_at_most(
    direct: DirectKafka, kafka: Kafka, new_topic: NewTopic
) -> None:
    """Nothing shows where in the log a time in the payload passes the limit.

    The first range is planned by a look at some rows, and each of the others by what was read.
    """
    topic, rows, drift = new_topic(2), 100_000, 800
    apart = (0.05, 0.1)
    times = [np.arange(rows) * each for each in apart]
    written = {p: PartitionRecords(np.full(rows, START), values=documents(seconds)) for p, seconds in enumerate(times)}
    bulk_produce_partitions(kafka.bootstrap, topic, written)
    aligned = {"alignmentGroup": topic, "alignmentMaxDrift": f"{drift} seconds"}
    place = {"eventTimeColumn": "value:$.order.at", "columns": "topic,partition,offset"}
    direct.run(direct.source(subscribe=topic, maxOffsetsPerTrigger=30_000, **place, **aligned), "q")
    read = direct.table("q", ["partition", "offset"])
    assert read.group_by(["partition", "offset"]).aggregate([]).num_rows == len(read) == 2 * rows
    reached, ahead, spans = [-1.0, -1.0], [], []
    for ranges in direct.batches("q"):
        for (_, partition), (begin, end) in ranges.items():
            span = times[partition][end - 1] - times[partition][begin]
            reached[partition] = times[partition][end - 1]
            # Who is far behind goes further at once.
            if reached[0] < times[0][-1]:
                spans.append((span, reached[partition] - min(reached)))
        if min(reached) >= 0 and reached[0] < times[0][-1]:
            ahead.append(reached[1] - reached[0])
    assert spans
    assert all(span <= drift / 2 * 1.01 or by <= drift / 2 * 1.01 for span, by in spans)
    assert max(ahead) <= drift * 1.5
