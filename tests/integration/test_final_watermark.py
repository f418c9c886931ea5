"""``finalWatermark`` on real servers: a snapshot and a closed topic leave nothing behind, and have ended then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812

from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import MySqlStreams
from tests.spark.queries import START
from watermark_source import follow_watermark, order_by_event_time
from watermark_source.errors import StreamEndedError

pytestmark = [pytest.mark.service, pytest.mark.spark, pytest.mark.usefixtures("rocksdb")]

_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, at DATETIME(3))"
_DAY = 86_400
KEYS = 8


def fill(streams: MySqlStreams, rows: int) -> None:
    """Insert rows whose times are all over a day; one of them is of the last moment that a DATETIME can be."""
    streams.run_sql(_TABLE, "INSERT INTO t VALUES (0, '9999-12-31 23:59:59.999')")
    there = 1
    while there < rows:
        more = min(there, rows - there)
        at = f"'2024-05-07' + INTERVAL ((id + {there}) * 7919 % {_DAY}) SECOND"
        streams.run_sql(f"INSERT INTO t SELECT id + {there}, {at} FROM t WHERE id < {more}")
        there += more


class Summed:
    """What a query's batches hold: rows, different ones, late ones, and those behind a later one of their key."""

    def __init__(self) -> None:
        self.batches: list[Row] = []

    def __call__(self, batch: DataFrame, _: int) -> None:
        numbered = batch.withColumn("n", F.monotonically_increasing_id())
        before = F.lag("event_time").over(Window.partitionBy("key").orderBy("n"))
        flagged = numbered.withColumn("behind", F.coalesce(before > F.col("event_time"), F.lit(False)))
        found = flagged.agg(F.count("*"), F.countDistinct("id"), F.count_if("late"), F.count_if("behind")).first()
        if found is not None and found[0]:
            self.batches.append(found)

    def run(self, streams: MySqlStreams, frame: DataFrame) -> None:
        writer = frame.writeStream.foreachBatch(self).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(streams.checkpoint("q"))).start()
        streams.started.append(query)
        query.awaitTermination()


@pytest.mark.parametrize("rows", [20_000, pytest.param(3_000_000, marks=pytest.mark.long("20 000 of them"))])
def test_all_rows_of_a_snapshot_leave_in_order_and_once_in_one_run(mysql_streams: MySqlStreams, rows: int) -> None:
    fill(mysql_streams, rows)

    def ordered() -> DataFrame:
        source = mysql_streams.source(
            startingOffsets="snapshot", eventTimeColumn="at", columns="id", finalWatermark="true"
        )
        keyed = follow_watermark(source).selectExpr("id", "event_time", f"id % {KEYS} AS key")
        return order_by_event_time(keyed, "key")

    found = Summed()
    found.run(mysql_streams, ordered())
    # At the end, when the watermark lets them all go.
    assert [tuple(batch) for batch in found.batches] == [(rows, rows, 0, 0)]
    # Nothing follows a snapshot, whatever is written.
    mysql_streams.run_sql(f"INSERT INTO t SELECT id + {rows}, at FROM t WHERE id = 1")
    found.run(mysql_streams, ordered())
    assert len(found.batches) == 1


def test_a_binlog_that_goes_on_without_rows_of_the_stream_is_no_news_to_one_that_has_ended(
    mysql_database: Database,
) -> None:
    mysql_database.run(_TABLE, "CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1, NOW())")

    def run(offset: dict[str, Any] | None) -> dict[str, Any]:
        life = Life(mysql_database, finalWatermark="true")
        life.reader.prepareForTriggerAvailableNow()
        start = life.reader.initialOffset() if offset is None else offset
        while (end := dict(life.reader.latestOffset(start, ALL))) != start:
            life.batches(start, end)
            start = end
        return start

    ended = run(None)
    assert ended["ended"]
    mysql_database.run("INSERT INTO other VALUES (1)")
    ended = run(ended)
    mysql_database.run("UPDATE t SET at = NOW() + INTERVAL 1 DAY")
    with pytest.raises(StreamEndedError, match="Rows have come since: binlog"):
        run(ended)


def test_a_snapshot_does_not_end_a_query_that_goes_on(mysql_streams: MySqlStreams) -> None:
    fill(mysql_streams, 10)
    source = mysql_streams.source(startingOffsets="snapshot", eventTimeColumn="at", columns="id", finalWatermark="true")
    running = mysql_streams.start(follow_watermark(source).select("id"))
    with pytest.raises(StreamingQueryException, match=r"finalWatermark.*availableNow"):
        running.settle()


def test_the_last_run_over_a_closed_topic_closes_all_windows(
    streams: KafkaStreams, direct: DirectKafka, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    streams.write(topic, {0: [0, 1, 7_200], 1: [60, 61]})

    def windows(**options: Any) -> DataFrame:
        rows = follow_watermark(streams.source(subscribe=topic, maxOutOfOrderness="1 hour", **options))
        counts = rows.groupBy(F.window("event_time", "1 minute").alias("w")).count()
        return counts.select((F.unix_millis("w.start") - F.lit(START)).alias("start"), "count")

    streams.run(windows(), "q")
    assert streams.result("q").count() == 0
    streams.write(topic, {2: [62]})
    streams.run(windows(finalWatermark="true"), "q")
    expected = [(0, 2), (60_000, 3), (7_200_000, 1)]
    assert sorted(map(tuple, streams.result("q").collect())) == expected
    streams.write(topic, {2: [63]})
    direct.continue_from(streams.offsets("q")[-1], "q")
    with pytest.raises(StreamEndedError, match="aligned-kafka has ended"):
        direct.run(direct.source(subscribe=topic, maxOutOfOrderness="1 hour", finalWatermark="true"), "q")
