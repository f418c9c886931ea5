"""Calls and options that cannot work: refused at once, in the project's own words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.queries import Streams
from watermark_source import data_rows, follow_watermark, markers
from watermark_source.errors import UsageError
from watermark_source.spark import started_queries
from watermark_source.spark.accepted_operators import has_times_of_its_own
from watermark_source.spark.plan_text import PlanText
from watermark_source.spark.started_queries import examine, examine_plan

pytestmark = pytest.mark.spark

Load = Callable[..., DataFrame]

MISUSES: dict[str, tuple[Callable[[DataFrame], Any], str]] = {
    "no marker column": (lambda df: follow_watermark(df.drop("marker")), "no column 'marker'.*includeMarkers"),
    "called twice": (lambda df: follow_watermark(follow_watermark(df)), "no column 'marker'"),
    "a marker of somebody else": (
        lambda df: follow_watermark(df.withColumn("marker", F.lit("x"))),
        "'marker' is not this project's marker but string",
    ),
    "a missing column": (lambda df: follow_watermark(df, "created_at"), "no column 'created_at'.*'event_time'"),
    "a column that is no time": (lambda df: follow_watermark(df, "value"), "'value' is bigint.*must be a timestamp"),
    "a local time": (
        lambda df: follow_watermark(df.withColumn("local", F.col("event_time").cast("timestamp_ntz")), "local"),
        "'local' is timestamp_ntz.*must be a timestamp",
    ),
    "a date": (lambda df: follow_watermark(df.withColumn("day", F.to_date("event_time")), "day"), "'day' is date"),
    "the marker itself": (lambda df: follow_watermark(df, "marker"), "'marker' is struct.*must be a timestamp"),
    "a delay that is none": (lambda df: follow_watermark(df, delay="soon"), "delay = .soon.*for example 10 minutes"),
    "markers without markers": (lambda df: markers(df.drop("marker")), "markers: .*no column 'marker'"),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_call_that_cannot_work_says_what_it_saw_and_what_it_needs(loaded: Load, misuse: str) -> None:
    call, text = MISUSES[misuse]
    with pytest.raises(UsageError, match=text):
        call(loaded())


def test_without_markers_in_the_stream_the_call_names_the_option(loaded: Load) -> None:
    with pytest.raises(UsageError, match="includeMarkers left at true"):
        follow_watermark(loaded(includeMarkers="false"))


def test_a_batch_frame_is_refused(loaded: Load) -> None:
    batch = loaded().sparkSession.createDataFrame([], loaded().schema)
    for call in (follow_watermark, markers):
        with pytest.raises(UsageError, match=r"needs a stream \(spark.readStream\)"):
            call(batch)


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "an unknown option": ({"idleTimout": "1 s"}, "idletimout: there is no such option; the nearest is idleTimeout"),
    "a wrong duration": ({"idleTimeout": "soon"}, 'option idleTimeout = "soon": must be .*for example 30 seconds'),
    "a duration of zero": ({"idleTimeout": "0 seconds"}, "greater than zero"),
    "a wrong word": ({"watermarkStrategy": "fast"}, '"fast": must be bounded, monotonous, percentile, .* or none'),
    "a wrong boolean": ({"includeMarkers": "yes"}, 'includeMarkers = "yes": must be true or false'),
    "a wrong number": ({"minPartitions": "0"}, 'minPartitions = "0": must be a whole number of at least 1'),
    "half an alignment": ({"alignmentGroup": "g"}, "option alignmentMaxDrift: is needed because alignmentGroup is set"),
    "options that contradict": ({"watermarkStrategy": "none", "idleTimeout": "1 s"}, "a clock is never idle"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_wrong_option_is_refused_at_load(streams: Streams, mistake: str) -> None:
    streams.write({0: [(0, 1)]})
    options, text = REFUSED[mistake]
    with pytest.raises(PySparkException, match=text):
        streams.load(**options)


def test_a_user_schema_is_refused(streams: Streams) -> None:
    streams.write({0: [(0, 1)]})
    reader = streams.spark.readStream.format("file-log").option("directory", str(streams.directory()))
    with pytest.raises(PySparkException, match=r"takes none from the user.*Leave \.schema"):
        streams.start(reader.schema("value BIGINT").load()).settle()


TIMES: dict[str, tuple[Callable[[DataFrame], DataFrame], str, bool]] = {
    "the source's own": (lambda df: df, "event_time", False),
    "renamed and cast": (lambda df: df.select(F.col("event_time").cast("timestamp").alias("t"), "marker"), "t", False),
    "computed": (lambda df: df.withColumn("t", F.timestamp_seconds("value")), "t", True),
    "computed, of the same name": (
        lambda df: df.withColumn("event_time", F.timestamp_seconds("value")),
        "event_time",
        True,
    ),
    "moved by an interval": (
        lambda df: df.withColumn("event_time", F.col("event_time") - F.expr("INTERVAL 9 MINUTES")),
        "event_time",
        False,
    ),
    "moved by a column": (
        lambda df: df.withColumn("t", F.col("event_time") - F.expr("make_dt_interval(0, 0, value)")),
        "t",
        True,
    ),
    "computed further down": (
        lambda df: df.select(F.timestamp_seconds("value").alias("a"), "marker").repartition(2).select("marker", "a"),
        "a",
        True,
    ),
}


@pytest.mark.parametrize("times", TIMES)
def test_a_column_with_times_of_its_own_is_warned_of(
    loaded: Load, caplog: pytest.LogCaptureFixture, times: str
) -> None:
    """Rows that are further behind in it than in the source's event time would be dropped without a word."""
    change, column, warned = TIMES[times]
    made = change(loaded())
    follow_watermark(made, column)
    of_text = PlanText.of(made._jdf.queryExecution().toString()).steps()
    assert has_times_of_its_own(of_text, column, ["event_time"]) is warned
    assert [r.getMessage() for r in caplog.records if "has times of its own" in r.getMessage()][1:] == []
    assert (f"column {column} has times of its own" in caplog.text) is warned


IN_ITS_PLACE = 'follow_watermark(spark.readStream….option("maxOutOfOrderness", "10 seconds").load()'
HIGHEST = "highest event time of all rows of file-log"
NULLS = "the marker rows of file-log, which carry its watermark and are null in every other column"
UNFOLLOWED: dict[str, tuple[Callable[[Load], DataFrame], tuple[str, ...]]] = {
    "a watermark of Spark's": (lambda load: watermarked(load()), (HIGHEST, f"{IN_ITS_PLACE});")),
    "of some columns": (lambda load: watermarked(load().select("value", "event_time")), (f"{IN_ITS_PLACE});",)),
    "of a computed one": (
        lambda load: watermarked(load().withColumn("t", F.timestamp_seconds("value")), "t"),
        (f'{IN_ITS_PLACE}, "t");',),
    ),
    "with markers spared": (lambda load: watermarked(load().where("marker IS NOT NULL OR value > 1")), (HIGHEST,)),
    "without rows of nulls": (lambda load: watermarked(load().where("value > 1")), (HIGHEST,)),
    "united": (lambda load: watermarked(data_rows(load()).union(load().drop("marker"))), (HIGHEST,)),
    "in SQL": (
        lambda load: sql(load, "SELECT count(*) FROM STREAM v WATERMARK event_time DELAY OF INTERVAL 10 SECONDS"),
        (HIGHEST, 'follow_watermark(spark.readStream.table(…)).createOrReplaceTempView("followed")'),
    ),
    "above a common table expression": (
        lambda load: sql(
            load,
            "WITH a AS (SELECT * FROM v WHERE value > 1) "
            "SELECT count(*) FROM a WATERMARK event_time DELAY OF INTERVAL 10 SECONDS",
        ),
        (HIGHEST,),
    ),
    "of data rows": (lambda load: watermarked(data_rows(load()).where("value > 1")), ()),
    "with the markers filtered": (lambda load: watermarked(load().where("value > 1 AND marker IS NULL")), ()),
    "of markers": (lambda load: watermarked(markers(load()), "watermark"), ()),
    "of a source without markers": (lambda load: watermarked(load(includeMarkers="false")), ()),
    "of another source": (lambda load: watermarked(rate(load), "timestamp"), ()),
    "some columns": (lambda load: load().select("value"), (NULLS, "data_rows(stream)", "includeMarkers")),
    "counts": (lambda load: load().groupBy("value").count(), (NULLS,)),
    "in SQL over a view": (lambda load: sql(load, "SELECT value + 1 AS next FROM v"), (NULLS,)),
    "nulls that a filter keeps": (lambda load: load().where("value IS NULL OR value > 3"), (NULLS,)),
    "joined with nulls kept": (lambda load: load().join(rate(load).select("value"), "value", "leftOuter"), (NULLS,)),
    "beside a stream that follows": (
        lambda load: follow_watermark(load()).select("value").union(load().select("value")),
        (NULLS,),
    ),
    "rows alone united with a stream that follows": (
        lambda load: follow_watermark(load()).union(data_rows(load(name="other"))).groupBy("event_time").count(),
        ("no watermark where they are united", "follow_watermark(stream) for each"),
    ),
    "late rows united after the windows": (
        lambda load: (
            (late := follow_watermark(load(includeLate="true")))
            .where("NOT late")
            .groupBy("event_time")
            .count()
            .select("event_time")
            .union(late.where("late").select("event_time"))
        ),
        (),
    ),
    "follow_watermark": (lambda load: follow_watermark(load()).where("value > 1"), ()),
    "SQL over what follows": (lambda load: sql(load, "SELECT * FROM v", follow_watermark), ()),
    "rows alone": (lambda load: data_rows(load()), ()),
    "nulls that a filter drops": (lambda load: load().where("value > 3 AND split = 1"), ()),
    "nulls that a join drops": (lambda load: load().join(rate(load).select("value"), "value"), ()),
    "markers alone": (lambda load: markers(load()), ()),
    "markers as asked": (lambda load: load(includeMarkers="true"), ()),
    "another source": (lambda load: rate(load), ()),
}


def watermarked(df: DataFrame, column: str = "event_time") -> DataFrame:
    return df.withWatermark(column, "10 seconds")


def rate(load: Load) -> DataFrame:
    return load().sparkSession.readStream.format("rate").load()


def sql(load: Load, query: str, change: Callable[[DataFrame], DataFrame] = lambda df: df) -> DataFrame:
    change(load()).createOrReplaceTempView("v")
    return load().sparkSession.sql(query)


@pytest.mark.parametrize("stream", UNFOLLOWED)
def test_a_stream_that_nothing_follows_is_warned_of_once_when_its_query_starts(
    loaded: Load, caplog: pytest.LogCaptureFixture, stream: str
) -> None:
    """Windows would drop the rows of slower partitions, or marker rows reach the sink, and nothing would show."""
    make, texts = UNFOLLOWED[stream]
    made = make(loaded)
    examine(made)
    warned = [r.getMessage() for r in caplog.records if r.name.endswith("started_queries")]
    assert len(warned) == bool(texts)
    assert all(text in warned[0] for text in texts)
    # As a client of Spark Connect reads the plan.
    of_text = PlanText.of(made._jdf.queryExecution().toString()).steps()
    assert [str(each).replace("10 seconds", "…") for each in examine_plan(of_text).warnings] == [
        each.replace("10 seconds", "…") for each in warned
    ]


def test_windows_that_no_watermark_closes_fail_by_a_condition_that_troubleshooting_has(loaded: Load) -> None:
    counts = loaded().groupBy(F.window("event_time", "1 minute")).count()
    with pytest.raises(AnalysisException) as failed:
        counts.writeStream.format("noop").start()
    page = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert f"| `{failed.value.getCondition()}`: aggregations without watermark | `follow_watermark` is missing" in page


SECOND: dict[str, Callable[[DataFrame], DataFrame]] = {
    "directly": lambda df: df.withWatermark("event_time", "5 minutes"),
    "further up": lambda df: (
        df.select("event_time", "value").where("value > 1").withWatermark("event_time", "5 minutes")
    ),
    "above a union": lambda df: df.union(df).withWatermark("event_time", "5 minutes"),
    "in SQL": lambda df: sql(
        lambda: df, "SELECT count(*) FROM STREAM v WATERMARK event_time DELAY OF INTERVAL 5 MINUTES"
    ),
    "above a common table expression": lambda df: sql(
        lambda: df,
        "WITH a AS (SELECT * FROM v) SELECT count(*) FROM a WATERMARK event_time DELAY OF INTERVAL 5 MINUTES",
    ),
}


@pytest.mark.parametrize("where", SECOND)
def test_a_second_watermark_is_refused_when_the_query_starts(loaded: Load, where: str) -> None:
    text = r'by follow_watermark .*, and Spark takes no second one.*\.option\("maxOutOfOrderness", "5 minutes"\)'
    with pytest.raises(UsageError, match=text):
        SECOND[where](follow_watermark(loaded())).writeStream.format("noop").start()


def test_a_plan_that_cannot_be_examined_is_left_to_spark(loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(plan: Any) -> Any:
        raise RuntimeError(plan)

    monkeypatch.setattr(started_queries, "steps_of", unknown)
    assert not examine(loaded())
