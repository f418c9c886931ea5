"""``order_by_event_time`` in Spark: order, late rows, restarts, what may change and what may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.left_rows import Left
from tests.spark.queries import Streams, at
from watermark_source import follow_watermark, order_by_event_time
from watermark_source.errors import UsageError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("rocksdb")]

DISORDER = {"maxOutOfOrderness": "10 seconds"}


def with_key(df: DataFrame) -> DataFrame:
    return df.selectExpr("value", "split", "event_time AS happened", "value % 2 = 0 AS even", "array(value) AS list")


@pytest.mark.long("test_rows_of_a_topic_leave_in_order_and_once_though_batches_are_retried")
def test_rows_of_a_key_leave_in_order_across_restarts_and_late_ones_at_once(streams: Streams) -> None:
    streams.write({0: [], 1: []})
    frame = with_key(follow_watermark(streams.load(**DISORDER)))
    ordered = order_by_event_time(frame, "EVEN", "happened", late="Late", buckets=3)
    assert ordered.schema.fieldNames() == ["value", "split", "happened", "even", "list", "Late"]
    left = Left(["even", "value", "Late"])
    runs: list[list[tuple[Any, ...]]] = []
    for rows in (
        # Ties of one split keep its order, and split 1 comes behind split 0.
        {0: [(5, 1), (3, 2), (3, 4), (9, 3), (3, 6), (20, 8)], 1: [(4, 5), (3, 10), (12, 7)]},
        # Before the watermark, of 1.999 s after the first run: 12 less 10 s less a millisecond.
        {0: [(1.9, 9)], 1: [(1.999, 12), (2, 14), (40, 16)]},
        {0: [(60, 18)], 1: [(60, 11)]},
    ):
        streams.write(rows)
        before = len(left.rows)
        left.run(streams, ordered, "q")
        runs.append(left.rows[before:])
    assert runs[0] == []
    assert sorted(runs[1]) == [
        (False, 1, False), (False, 3, False), (False, 5, False), (False, 9, True),
        (True, 2, False), (True, 4, False), (True, 6, False), (True, 10, False), (True, 12, True), (True, 14, False),
    ]  # fmt: skip
    by_key = [[value for even, value, late in left.rows if even is key and not late] for key in (True, False)]
    assert by_key == [[14, 2, 4, 6, 10, 8, 16], [5, 1, 3, 7]]


def test_windows_above_it_and_a_union_below_count_rows_in_order_and_leave_out_the_late(streams: Streams) -> None:
    streams.write({0: [(100, 1), (10, 2), (59, 3), (61, 4), (200, 5)]})
    streams.write({0: [(70, 6), (200, 7)]}, name="other")
    disorder = {"maxOutOfOrderness": "100 seconds"}
    both = follow_watermark(streams.load(**disorder)).union(follow_watermark(streams.load(name="other", **disorder)))
    ordered = order_by_event_time(both, "split", buckets=2)
    counted = ordered.groupBy(F.window("event_time", "1 minute").alias("w")).agg(F.count("*"), F.max("late"))
    running = streams.start(counted.select("w.start", "count(1)", "max(late)"))
    running.settle()
    for rows in ({0: [(50, 8), (400, 9)]}, {0: [(900, 10)]}):
        streams.write(rows)
        streams.write({0: rows[0][-1:]}, name="other")
        running.settle()
    assert running.rows() == [(at(0), 2, False), (at(60), 3, False), (at(180), 2, False), (at(360), 2, False)]


def test_while_rows_wait_columns_and_buckets_stay_as_they_are(streams: Streams) -> None:
    streams.write({0: [(5, 1)]})
    frame = follow_watermark(streams.load(**DISORDER))
    left = Left(["value"])
    left.run(streams, order_by_event_time(frame, "value", buckets=2), "q")
    streams.write({0: [(30, 1)]})
    changes = {
        "now struct<.*more:int": order_by_event_time(frame.withColumn("more", F.lit(1)), "value", buckets=2),
        "in 2 buckets; .*in 1 buckets": order_by_event_time(frame, "value", buckets=1),
    }
    for text, change in changes.items():
        with pytest.raises(StreamingQueryException, match=f"the rows that wait in this checkpoint are struct<.*{text}"):
            left.run(streams, change, "q")
    left.run(streams, order_by_event_time(frame, "value", buckets=2), "q")
    assert left.rows == [(1,)]


MISUSES: dict[str, tuple[Callable[[DataFrame], Any], str]] = {
    "no stream": (
        lambda df: order_by_event_time(df.sparkSession.createDataFrame([], df.schema), "value"),
        r"needs a stream \(spark.readStream\).*orderBy\('value', 'event_time'\)",
    ),
    "no such key": (lambda df: order_by_event_time(df, ["value", "user"]), "no column 'user'.*'value'"),
    "no key": (lambda df: order_by_event_time(df, []), "key names no column; name one or more of .*'value'"),
    "a map": (lambda df: order_by_event_time(df.withColumn("m", F.expr("map(1, 2)")), "m"), "key m is a map"),
    "a collation": (
        lambda df: order_by_event_time(df.withColumn("c", F.expr("array(struct('a' COLLATE UTF8_LCASE))")), "c"),
        "key c has strings with a collation",
    ),
    "a computed time": (
        lambda df: order_by_event_time(df.withColumn("t", F.expr("event_time + INTERVAL 1 HOUR")), "value", "t"),
        r"column 't' \(timestamp\) follows no watermark",
    ),
    "a name that is taken": (lambda df: order_by_event_time(df, "value", late="VALUE"), 'late="is_late"'),
    "one name twice": (
        lambda df: order_by_event_time(df.selectExpr("*", "1 AS Value"), "split"),
        "column names must be unique",
    ),
    "a type that Python has not": (
        lambda df: order_by_event_time(df.withColumn("months", F.expr("INTERVAL '2' MONTH")), "value"),
        "column 'months' is interval month, which Spark cannot pass to Python .*; drop or cast it first",
    ),
    "rows that waited": (
        lambda df: order_by_event_time(order_by_event_time(df, "value").drop("late"), "value"),
        "order_by_event_time emits rows once the watermark has passed 'event_time', so that all of them would be late",
    ),
    "no buckets": (lambda df: order_by_event_time(df, "value", buckets=0), "buckets = 0; .* integer from 1 to 65536"),
    "a text of buckets": (
        lambda df: order_by_event_time(df, "value", buckets="64"),  # type: ignore[arg-type]
        "buckets = '64'; .* integer",
    ),
    "a column": (
        lambda df: order_by_event_time(df, df["value"]),  # type: ignore[arg-type]
        'must be names of columns, as in key="user"',
    ),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_call_that_cannot_work_says_what_it_saw_and_what_it_needs(streams: Streams, misuse: str) -> None:
    streams.write({0: [(0, 1)]})
    call, text = MISUSES[misuse]
    with pytest.raises(UsageError, match=text):
        call(follow_watermark(streams.load()))


def test_without_rocksdb_the_call_names_the_setting(streams: Streams) -> None:
    streams.write({0: [(0, 1)]})
    streams.spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    with pytest.raises(UsageError, match=r'spark.conf.set\("spark.sql.streaming.stateStore.providerClass"'):
        order_by_event_time(follow_watermark(streams.load()), "value")
