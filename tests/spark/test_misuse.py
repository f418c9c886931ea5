"""Calls and options that cannot work: refused at once, in the project's own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.queries import Streams
from watermark_source import data_rows, follow_watermark, markers
from watermark_source.errors import UsageError
from watermark_source.spark import accepted_operators

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
    "a second watermark": (
        lambda df: follow_watermark(df).withWatermark("event_time", "5 minutes"),
        r'by follow_watermark .*, and Spark takes no second one.*\.option\("maxOutOfOrderness", "5 minutes"\)',
    ),
    "a second watermark further up": (
        lambda df: (
            follow_watermark(df).select("event_time", "value").where("value > 1").withWatermark("event_time", "1 s")
        ),
        "and Spark takes no second one: leave it out",
    ),
    "a second watermark above a join": (
        lambda df: follow_watermark(df).join(follow_watermark(df), "value").withWatermark("split", "1 s"),
        "and Spark takes no second one",
    ),
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
    "computed further down": (
        lambda df: df.select(F.timestamp_seconds("value").alias("a"), "marker").repartition(2).select("marker", "a"),
        "a",
        True,
    ),
}


@pytest.mark.parametrize("times", TIMES)
def test_a_column_with_times_of_its_own_is_warned_of_where_no_option_names_them(
    loaded: Load, caplog: pytest.LogCaptureFixture, times: str
) -> None:
    """Rows that are further behind in it than in the source's event time would be dropped without a word."""
    change, column, warned = TIMES[times]
    follow_watermark(change(loaded()), column)
    assert [r.getMessage() for r in caplog.records if "has times of its own" in r.getMessage()][1:] == []
    assert (f"column {column} has times of its own" in caplog.text) is warned


IN_ITS_PLACE = 'follow_watermark(spark.readStream….option("maxOutOfOrderness", "10 seconds").load()'
UNFOLLOWED: dict[str, tuple[Callable[[Load], DataFrame], str, str | None]] = {
    "the source's own": (lambda load: load(), "event_time", f"{IN_ITS_PLACE})."),
    "some columns": (lambda load: load().select("value", "event_time"), "event_time", f"{IN_ITS_PLACE})."),
    "computed": (lambda load: load().withColumn("t", F.timestamp_seconds("value")), "t", f'{IN_ITS_PLACE}, "t").'),
    "markers spared": (lambda load: load().where("marker IS NOT NULL OR value > 1"), "event_time", IN_ITS_PLACE),
    "united": (lambda load: data_rows(load()).union(load().drop("marker")), "event_time", IN_ITS_PLACE),
    "twice": (lambda load: load().withWatermark("event_time", "10 seconds"), "event_time", IN_ITS_PLACE),
    "data rows": (lambda load: data_rows(load()).where("value > 1"), "event_time", None),
    "filtered with the markers": (lambda load: load().where("value > 1 AND marker IS NULL"), "event_time", None),
    "markers": (lambda load: markers(load()), "watermark", None),
    "without markers": (lambda load: load(includeMarkers="false"), "event_time", None),
    "another source": (lambda load: load().sparkSession.readStream.format("rate").load(), "timestamp", None),
    "no stream": (lambda load: load().sparkSession.sql("SELECT now() AS t, 'x' AS marker"), "t", None),
}


@pytest.mark.parametrize("stream", UNFOLLOWED)
def test_a_watermark_in_place_of_follow_watermark_is_warned_of_once(
    loaded: Load, caplog: pytest.LogCaptureFixture, stream: str
) -> None:
    """Windows would drop the rows of slower partitions, and only the status would show it."""
    made, column, text = UNFOLLOWED[stream]
    made(loaded).withWatermark(column, "10 seconds")
    found = [r.getMessage() for r in caplog.records if r.getMessage().startswith("withWatermark")]
    assert len(found) == (text is not None)
    assert text is None or (text in found[0] and "highest event time of all rows of file-log" in found[0])


def test_a_plan_that_cannot_be_examined_is_left_to_spark(loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(plan: Any) -> bool:
        raise RuntimeError(plan)

    monkeypatch.setattr(accepted_operators, "_reads_from_project", unknown)
    assert loaded().withWatermark("event_time", "10 seconds").isStreaming
