"""Several sources below one operator: Spark's watermark is what the chart of FLIP-326 states of theirs."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.queries import START, Streams, at
from watermark_source import follow_watermark

pytestmark = pytest.mark.spark

HOUR = 3_600
# Its clock is reported with rows alone, so that a query comes to rest.
CLOCK: dict[str, Any] = {"watermarkStrategy": "none", "watermarkInterval": "1 hour"}
EVENTS: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param(EVENTS, CLOCK, id="event times and a clock"),
        pytest.param(CLOCK, CLOCK, marks=pytest.mark.long("event times and a clock"), id="a clock and a clock"),
    ],
)
def test_the_watermark_of_two_sources_is_the_lower_and_a_clock_is_not_the_lower_but_of_the_future(
    streams: Streams, left: dict[str, Any], right: dict[str, Any]
) -> None:
    options = {"left": left, "right": right}
    for name in options:
        streams.write({0: []}, name=name)
    frames = [follow_watermark(streams.load(name=n, **o)).select("value", "event_time") for n, o in options.items()]
    minutes = frames[0].union(frames[1]).groupBy(F.window("event_time", "1 minute")).count()
    running = streams.start(minutes.select("window.start", "count"))
    hour_hence = time.time() + HOUR - START / 1_000
    for second in (0.0, 30.0, 90.0, hour_hence):
        for name in options:
            streams.write({0: [(second, 1)]}, name=name)
        running.settle()
    running.query.stop()
    assert running.dropped == 0
    reported = [streams.offsets(running.table, source=source) for source in range(2)]
    reached, highest = streams.committed(running.table), -START
    for number, both in enumerate(zip(*reported, strict=True)):
        if all("wm" in offset for offset in both):
            highest = max(highest, min(offset["wm"] for offset in both) - START)
        # The last one has begun, and is not done, if anything.
        assert reached.get(number, highest) == highest, (number, both)
    closed = [(at(0), 2), (at(60), 1)] if EVENTS in options.values() else []
    # What the clock has closed depends on when this runs.
    assert [row for row in running.rows() if row[0] < at(HOUR)] == closed
    # The event times are of the future by now: no clock is behind what it may be.
    assert highest < (time.time() - START / 1_000) * 1_000
