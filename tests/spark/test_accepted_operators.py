"""What may stand between a source and ``follow_watermark``: Spark itself states what becomes of a marker row there.

Each plan is read in two forms: that of Classic, and the text that Spark Connect's server gives its client.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.functions import window

from tests.spark.queries import Streams, at
from watermark_source import follow_watermark, split_late
from watermark_source.errors import UsageError
from watermark_source.operators.followed_time import declarations
from watermark_source.spark import plan_steps
from watermark_source.spark.accepted_operators import need_kept_markers
from watermark_source.spark.plan_text import PlanText
from watermark_source.spark.query_plan import steps_of
from watermark_source.spark.started_queries import examine_plan

pytestmark = pytest.mark.spark

Step = Callable[[DataFrame], DataFrame]
Load = Callable[..., DataFrame]


def _static(df: DataFrame) -> DataFrame:
    return df.sparkSession.createDataFrame([(1, "one")], "value BIGINT, name STRING")


def _by_view(df: DataFrame, query: str) -> DataFrame:
    df.createOrReplaceTempView("rows_of_a_source")
    return df.sparkSession.sql(query)


KEEPS: dict[str, Step] = {
    "nothing": lambda df: df,
    "select": lambda df: df.select("marker", "event_time"),
    "a computed column": lambda df: df.withColumn("double", F.col("value") * 2),
    "a column renamed": lambda df: df.withColumnRenamed("value", "v"),
    "a column dropped": lambda df: df.drop("value"),
    "alias": lambda df: df.alias("a"),
    "repartition": lambda df: df.repartition(3),
    "repartition by a column": lambda df: df.repartition("split"),
    "coalesce": lambda df: df.coalesce(1),
    "a hint": lambda df: df.hint("rebalance"),
    "a filter that spares markers": lambda df: df.where("marker IS NOT NULL OR value > 3"),
    "one that spares them last": lambda df: df.where("value > 3 OR marker IS NOT NULL"),
    "one that spares them by their type": lambda df: df.where("marker.type IS NOT NULL OR value > 3"),
    "one that spares nulls": lambda df: df.where("value IS NULL OR value > 3"),
    "one that spares nulls of a renamed column": lambda df: df.selectExpr("value AS v", "event_time", "marker").where(
        "v IS NULL OR v > 3"
    ),
    "several that spare them": lambda df: df.where(
        "(marker IS NOT NULL OR value > 3) AND NOT (marker IS NULL AND value < 9)"
    ),
    "a filter that is always true": lambda df: df.where("true"),
    "a left outer join with a table": lambda df: df.join(_static(df), "value", "left"),
    "rows of which a table has none": lambda df: df.join(_static(df), "value", "left").where("name IS NULL"),
    "a right outer join of a table": lambda df: _static(df).join(df, "value", "right"),
    "explode_outer": lambda df: df.withColumn("each", F.explode_outer(F.array("value"))),
    "SQL over a view": lambda df: _by_view(df, "SELECT event_time, marker, value + 1 AS next FROM rows_of_a_source"),
    "SQL with a common table expression": lambda df: _by_view(
        df, "WITH r AS (SELECT * FROM rows_of_a_source) SELECT event_time, marker FROM r"
    ),
}
MAY_REMOVE: dict[str, tuple[Step, str]] = {
    "a filter": (lambda df: df.where("value > 3"), r"the filter \(value > CAST\(3 AS BIGINT\)\)"),
    "a filter that keeps data alone": (lambda df: df.where("marker IS NULL"), "the filter"),
    "a filter on the time": (lambda df: df.where(F.col("event_time") > F.lit("2020-01-01")), "the filter"),
    "not null": (lambda df: df.where("value IS NOT NULL"), "the filter"),
    "not equal": (lambda df: df.where("value <> 3"), "the filter"),
    "one of several": (lambda df: df.where("(marker IS NOT NULL OR value > 3) AND value < 9"), "the filter"),
    "two filters": (lambda df: df.where("value IS NULL OR value > 3").where("value < 9"), "the filter"),
    "dropna": (lambda df: df.dropna(subset=["value"]), "the filter"),
    "a filter on a computed column": (lambda df: df.withColumn("v", F.col("value") + 1).where("v > 3"), "the filter"),
    "a filter below a projection": (lambda df: df.where("value > 3").select("event_time", "marker"), "the filter"),
    "a filter on rand()": (lambda df: df.where(F.rand(seed=1) < 0.0), "the filter"),
    "a filter that is never true": (lambda df: df.where("false"), "the filter"),
    "a filter in SQL": (lambda df: _by_view(df, "SELECT * FROM rows_of_a_source WHERE split = 1"), "the filter"),
    "a filter in a common table expression": (
        lambda df: _by_view(df, "WITH r AS (SELECT * FROM rows_of_a_source WHERE value > 3) SELECT * FROM r"),
        "the filter",
    ),
    "explode": (lambda df: df.withColumn("each", F.explode(F.array_compact(F.array("value")))), "explode"),
    "an inner join with a table": (lambda df: df.join(_static(df), "value"), "a join that leaves out rows"),
    "a left semi join": (lambda df: df.join(_static(df), "value", "leftsemi"), "a join that leaves out rows"),
    "a join from the wrong side": (lambda df: df.join(_static(df), "value", "right"), "a join that leaves out rows"),
    "a filter below a join": (lambda df: df.where("value > 3").join(_static(df), "value", "left"), "the filter"),
    "a filter on a table that has a row for each": (
        lambda df: df.join(_static(df).select("name"), F.lit(True), "left").where("name IS NULL"),
        "the filter",
    ),
    "a filter on a table that has a row for nulls": (
        lambda df: df.join(_static(df).toDF("v", "name"), F.expr("coalesce(value, 1) = v"), "left").where(
            "name IS NULL"
        ),
        "the filter",
    ),
    "limit": (lambda df: df.limit(0), "limit"),
    "sample": (lambda df: df.sample(fraction=0.0, seed=1), "sample"),
}


@pytest.fixture(scope="module")
def keeping(spark: SparkSession, loaded: Load) -> set[str]:
    """After which steps one marker, as a batch in the schema of a stream, is still there, by Spark."""
    schema = loaded().schema
    marker = ("watermark", None, None, at(1), None, False, None)
    row = spark.createDataFrame([(None,) * (len(schema) - 1) + (marker,)], schema)
    steps = {**KEEPS, **{name: step for name, (step, _) in MAY_REMOVE.items()}}
    left = [step(row).where("marker IS NOT NULL").select(F.lit(name)) for name, step in steps.items()]
    return {name for (name,) in functools.reduce(DataFrame.unionAll, left).collect()}


def text_of(df: DataFrame) -> plan_steps.Step:
    """The plan as a client of Spark Connect reads it."""
    return PlanText.of(df._jdf.queryExecution().toString()).steps()


@pytest.mark.parametrize("step", KEEPS)
def test_what_keeps_every_marker_is_accepted(loaded: Load, keeping: set[str], step: str) -> None:
    assert step in keeping
    made = KEEPS[step](loaded())
    need_kept_markers(text_of(made))
    assert "marker" not in follow_watermark(made).columns


@pytest.mark.parametrize("step", MAY_REMOVE)
def test_what_may_remove_a_marker_is_refused_with_what_to_write_instead(
    loaded: Load, keeping: set[str], step: str
) -> None:
    change, text = MAY_REMOVE[step]
    assert step not in keeping
    with pytest.raises(UsageError, match=f"{text}.*no window would ever close. Call follow_watermark first"):
        follow_watermark(change(loaded()))
    # Columns have numbers there.
    of_text = text.partition(r" \(")[0]
    with pytest.raises(UsageError, match=f"{of_text}.*no window would ever close. Call follow_watermark first"):
        need_kept_markers(text_of(change(loaded())))


def test_the_error_has_the_filter_to_write_instead(loaded: Load) -> None:
    with pytest.raises(UsageError) as refused:
        follow_watermark(loaded().where("value > 3"))
    _, instead = str(refused.value).split('or spare the markers: where("')
    follow_watermark(loaded().where(instead.removesuffix('")')))


def test_a_plan_of_which_spark_prints_the_beginning_alone_is_seen_whole(spark: SparkSession, loaded: Load) -> None:
    stream = loaded()
    columns = [F.lit(number).alias(f"column_{number}") for number in range(40)]
    spark.conf.set("spark.sql.maxPlanStringLength", "100")
    try:
        assert "column_39" in follow_watermark(stream.select("*", *columns)).columns
        with pytest.raises(UsageError, match=r"the filter \(value > "):
            follow_watermark(stream.where("value > 3").select("*", *columns))
    finally:
        spark.conf.unset("spark.sql.maxPlanStringLength")


def test_what_a_source_declares_is_seen_beside_columns_of_any_names(loaded: Load) -> None:
    followed = follow_watermark(loaded().withColumnRenamed("value", "Value, (in EUR"))
    for plan in (steps_of(followed), text_of(followed)):
        assert [declared.source for declared in declarations(plan)] == ["file-log"]
        assert examine_plan(plan) == ((), True)


OF_STREAMS_ALONE: dict[str, tuple[Step, str]] = {
    "dropDuplicates": (lambda df: df.dropDuplicates(["value"]), "dropDuplicates"),
    "a watermark of Spark's own": (lambda df: df.withWatermark("event_time", "1 second"), "withWatermark"),
    "mapInArrow": (lambda df: df.mapInArrow(lambda batches: batches, df.schema), "mapInArrow"),
}


@pytest.mark.parametrize("step", OF_STREAMS_ALONE)
def test_what_cannot_be_known_to_keep_them_is_refused(loaded: Load, step: str) -> None:
    change, text = OF_STREAMS_ALONE[step]
    for check in (follow_watermark, lambda df: need_kept_markers(text_of(df))):
        with pytest.raises(UsageError, match=f"{text} before it may remove the marker rows"):
            check(change(loaded()))


@pytest.mark.long("test_filters_projections_and_parsing_leave_the_watermark_alone")
def test_windows_close_behind_what_is_accepted(streams: Streams) -> None:
    streams.write({0: [(1, 1), (70, 5), (75, 9)]})
    stream = streams.load()
    prepared = (
        stream.repartition(2)
        .withColumn("double", F.col("value") * 2)
        .where("marker IS NOT NULL OR value <> 5")
        .join(_static(stream), "value", "left")
    )
    counts = follow_watermark(prepared).groupBy(window("event_time", "1 minute")).agg(F.sum("double").alias("sum"))
    running = streams.start(counts.select("window.start", "sum"))
    running.settle()
    assert running.rows() == [(at(0), 2)]


@pytest.mark.long("test_windows_and_late_rows_of_one_query_have_every_row_once")
def test_late_rows_may_be_split_off_before(streams: Streams) -> None:
    streams.write({0: [(1, 1), (61, 2)]})
    on_time, _ = split_late(streams.load(includeLate="true"))
    counts = follow_watermark(on_time).groupBy(window("event_time", "1 minute").alias("w")).count().select("count")
    running = streams.start(counts)
    running.settle()
    assert running.rows() == [(1,)]
