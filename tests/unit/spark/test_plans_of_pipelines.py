"""Plans in functions of pipelines, which Spark does not analyse: what the client sends states what is known of them."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.functions import col, expr
from pyspark.sql.connect.plan import SQL, DataSource, Read
from pyspark.sql.connect.session import SparkSession

from watermark_source.errors import UsageError
from watermark_source.spark.accepted_operators import need_kept_markers
from watermark_source.spark.connect_plan import may_have_times_of_its_own, steps_sent
from watermark_source.spark.started_queries import examine


@functools.cache
def session() -> SparkSession:
    """A session that no request is made in, at the end of the process either: nothing listens there."""
    made = SparkSession("sc://127.0.0.1:1")
    atexit.unregister(made.client._on_exit)
    return made


def frame(plan: Any) -> Any:
    return DataFrame(plan, session())


def load(name: str = "aligned-kafka", **options: str) -> Any:
    return frame(DataSource(format=name, options=options, is_streaming=True))


def table() -> Any:
    return frame(Read("orders", is_streaming=True))


Change = Callable[[Any], Any]
KEPT: dict[str, Change] = {
    "nothing": lambda df: df,
    "select": lambda df: df.select("event_time", "marker"),
    "a computed column": lambda df: df.withColumn("double", col("value") * 2),
    "a column renamed or dropped": lambda df: df.withColumnRenamed("value", "v").drop("key"),
    "repartition": lambda df: df.repartition(3),
}
REFUSED: dict[str, tuple[Change, str]] = {
    "a filter": (lambda df: df.where(col("value") > 3), "the filter"),
    "a filter that spares markers": (lambda df: df.where("marker IS NOT NULL OR value > 3"), "the filter"),
    "limit": (lambda df: df.limit(1), "limit"),
    "union with itself": (lambda df: df.union(df), "made of 2 sources"),
    "union with another": (lambda df: df.union(load()), "made of 2 sources"),
    "a join": (lambda df: df.join(frame(Read("table")), "value"), "a join"),
    "an aggregation": (lambda df: df.groupBy("marker").count(), "an aggregation"),
    "what is not known": (lambda df: df.offset(3), "the operator Offset"),
    "a table": (lambda _: table(), "a table or view, which a pipeline shows by its name alone"),
    "SQL": (lambda _: frame(SQL("SELECT * FROM STREAM orders")), "a query in SQL, which a pipeline shows as its text"),
}


@pytest.mark.parametrize("step", KEPT)
def test_what_keeps_every_row_is_accepted(step: str) -> None:
    need_kept_markers(steps_sent(KEPT[step](load())))


@pytest.mark.parametrize("step", REFUSED)
def test_what_may_remove_rows_or_is_not_seen_is_refused(step: str) -> None:
    change, text = REFUSED[step]
    with pytest.raises(UsageError, match=text):
        need_kept_markers(steps_sent(change(load())))


EXAMINED: dict[str, tuple[Callable[[], Any], str | None, bool]] = {
    "markers among the rows": (lambda: load().select("value"), "the marker rows of aligned-kafka", True),
    "a watermark of Spark's": (
        lambda: load().withWatermark("event_time", "1 minute"),
        "highest event time of all rows",
        True,
    ),
    "of one side": (lambda: table().union(load().select("value")), "the marker rows of aligned-kafka", False),
    "rows alone": (lambda: load().where(col("marker").isNull()), None, True),
    "rows alone of a table": (lambda: table().where(expr("marker IS NULL")), None, True),
    "markers as asked": (lambda: load(includeMarkers="true"), None, True),
    "a table": (lambda: table().select("value"), None, False),
    "a format that nothing shows": (lambda: load("file-log"), None, False),
    "a format of Spark's": (lambda: load("rate"), None, False),
}


@pytest.mark.parametrize("flow", EXAMINED)
def test_a_flow_is_examined_as_far_as_it_is_seen(flow: str, caplog: pytest.LogCaptureFixture) -> None:
    """Tasks of a flow that was not seen whole warn."""
    make, text, is_whole = EXAMINED[flow]
    assert examine(make(), steps_sent) is is_whole
    assert len(caplog.messages) == (text is not None)
    assert text is None or text in caplog.text


def test_only_the_sources_own_column_is_known_to_have_its_times() -> None:
    assert not may_have_times_of_its_own(load().withColumn("t", col("value")), "event_time")
    assert may_have_times_of_its_own(load().withColumn("t", col("value")), "t")
    assert may_have_times_of_its_own(load().withColumn("event_time", col("value")), "event_time")
    assert may_have_times_of_its_own(load().select(col("value").alias("event_time")), "event_time")
