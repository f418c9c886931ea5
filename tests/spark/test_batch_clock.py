"""``follow_clock``: streams of Spark's own sources on the clock of their batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from services.wait_until import wait_until
from tests.spark.queries import Streams
from watermark_source import data_rows, follow_clock, follow_watermark
from watermark_source.errors import UsageError
from watermark_source.spark.batch_clock import ClockTicks

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def files(streams: Streams, *values: int, **options: Any) -> DataFrame:
    """Return a stream of Spark's own file source, after adding a file for each value."""
    folder = streams.directory("files")
    for value in values:
        written = folder / f".{value}"
        written.write_text(json.dumps({"value": value}))
        written.rename(folder / f"{value}.json")
    return streams.spark.readStream.schema("value long").options(**options).json(str(folder))


def batch_times(streams: Streams, name: str) -> list[datetime]:
    """Return the time that Spark recorded for each batch."""
    logs = sorted((streams.checkpoint(name) / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    millis = [json.loads(log.read_text().splitlines()[1])["batchTimestampMs"] for log in logs]
    return [datetime.fromtimestamp(each / 1_000, tz=UTC).replace(tzinfo=None) for each in millis]


def test_each_row_has_the_time_of_its_batch_also_when_the_batch_is_repeated(streams: Streams) -> None:
    rows = follow_clock(files(streams, 1, 2, 3, maxFilesPerTrigger=1), "proctime")
    assert rows.columns == ["value", "proctime"]
    streams.run(rows, "times")
    # With one file a batch: the rows of the clock beside the stream leave its limits in force.
    found = sorted(tuple(row) for row in streams.result("times").collect())
    times = batch_times(streams, "times")
    assert [value for value, _ in found] == [1, 2, 3]
    assert len({time for _, time in found}) == 3
    assert {time for _, time in found} <= set(times)
    last = streams.uncommit("times")
    streams.forget("times", last)
    streams.run(rows, "times")
    assert sorted(tuple(row) for row in streams.result("times").collect()) == found


def test_windows_close_while_the_stream_is_silent_and_count_each_row_once(streams: Streams) -> None:
    rows = follow_clock(files(streams, *range(5)).where("value > 0"))
    # A filter above it removes no second of the clock.
    counted = rows.where("value < 4").groupBy(F.window("event_time", "1 second")).count().select("count")
    query = streams.start(counted)
    wait_until(lambda: sum(count for (count,) in query.rows()) == 3, 240, "the last window", poll_seconds=0.5)
    assert len(query.rows()) == 1
    assert query.dropped == 0


@pytest.mark.long("test_windows_close_while_the_stream_is_silent_and_count_each_row_once")
def test_windows_over_a_stream_of_random_rates_count_every_row_once(streams: Streams) -> None:
    rate = streams.spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    rows = follow_clock(rate)
    counted = rows.groupBy(F.window("event_time", "1 second")).agg(
        F.count("*").alias("n"), F.min("value").alias("first"), F.max("value").alias("last")
    )
    query = streams.start(counted.select("first", "last", "n"))
    wait_until(lambda: len(query.rows()) >= 3, 240, "three windows", poll_seconds=0.5)
    found = query.rows()
    assert [n for _, _, n in found] == [last - first + 1 for first, last, _ in found]
    assert [first for first, _, _ in found] == [0, *(last + 1 for _, last, _ in found[:-1])]
    assert query.dropped == 0


REFUSED: dict[str, tuple[Callable[[DataFrame], Any], str]] = {
    "a batch": (
        lambda df: follow_clock(df.sparkSession.range(1).toDF("value")),
        r"the DataFrame is a batch.*spark\.readStream",
    ),
    "a watermark of Spark's own": (
        lambda df: follow_clock(plain(df).withWatermark("timestamp", "1 minute")),
        "has a watermark already, by withWatermark on timestamp.*leave that call out",
    ),
    "called twice": (
        lambda df: follow_clock(follow_clock(plain(df)), "again"),
        "has a watermark already, by follow_watermark or follow_clock",
    ),
    "withWatermark above it": (
        lambda df: follow_clock(plain(df)).withWatermark("event_time", "1 minute").writeStream.format("noop").start(),
        "by follow_watermark or follow_clock, and Spark takes no second one: leave it out",
    ),
    "a name that is taken": (
        lambda df: follow_clock(plain(df), "TimeStamp"),
        r"has a column 'timestamp' already.*follow_clock\(stream, \"batch_time\"\)",
    ),
    "a source of this project": (
        lambda df: follow_clock(df),
        r"read from 'clicks', a source of this project.*\"watermarkStrategy\", \"none\".*follow_watermark",
    ),
    "such a source without its markers": (
        lambda df: follow_clock(data_rows(df).select("value")),
        "read from 'clicks', a source of this project",
    ),
    "such a source that follows its own watermark": (
        lambda df: follow_clock(follow_watermark(df).select("value")),
        "read from 'clicks', a source of this project",
    ),
    "a delay that is none": (
        lambda df: follow_clock(plain(df), delay="soon"),
        "follow_clock: delay = .soon.*for example 10 minutes",
    ),
}


def plain(df: DataFrame) -> DataFrame:
    return df.sparkSession.readStream.format("rate").load()


@pytest.mark.parametrize("call", REFUSED)
def test_a_stream_that_has_its_own_time_is_refused(loaded: Callable[..., DataFrame], call: str) -> None:
    refused, text = REFUSED[call]
    with pytest.raises(UsageError, match=text):
        refused(loaded(sourceName="clicks"))


def test_the_tick_offset_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ClockTicks({}).streamReader(StructType())
    now = [1_000.9]
    monkeypatch.setattr("time.time", lambda: now[0])
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    assert (start, first) == ({"second": 999}, {"second": 1_000})
    now[0] = 500.0
    assert reader.latestOffset(first, ReadAllAvailable()) == first
