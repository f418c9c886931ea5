"""Spark's own operators above ``follow_watermark``: nothing is late, and the right windows close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.counting_timer import counted_after
from tests.spark.queries import Rows, Streams, at
from watermark_source import data_rows, follow_watermark

pytestmark = pytest.mark.spark

MINUTE, HOUR = 60, 3_600

# Split 0 is an hour ahead. Split 1's second part comes after Spark has seen split 0.
FIRST: Rows = {0: [(HOUR, 1), (HOUR + 10, 2)], 1: [(0, 3), (30, 4)]}
SECOND: Rows = {1: [(60, 5), (90, 6)]}
THIRD: Rows = {0: [(2 * HOUR, 7)], 1: [(2 * HOUR, 8)]}

Build = Callable[[DataFrame], DataFrame]


def in_windows(rows: DataFrame) -> DataFrame:
    return rows.groupBy(F.window("event_time", "1 minute")).count().select("window.start", "count")


def in_sessions(rows: DataFrame) -> DataFrame:
    grouped = rows.groupBy(F.session_window("event_time", "20 seconds"), "split").count()
    return grouped.select("session_window.start", "count")


def without_duplicates(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["value", "event_time"]).select("value")


def without_duplicates_for_a_while(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicatesWithinWatermark(["value"]).select("value")


def twice_grouped(rows: DataFrame) -> DataFrame:
    minutes = rows.union(rows.where("value > 100")).groupBy(F.window("event_time", "1 minute")).count()
    hours = minutes.groupBy(F.window(F.window_time("window"), "1 hour")).agg(F.sum("count").alias("n"))
    return hours.select("window.start", "n")


CASES: dict[str, tuple[Build, list[tuple[Any, ...]]]] = {
    "window": (in_windows, [(at(0), 2), (at(60), 2), (at(HOUR), 2)]),
    "session_window": (
        in_sessions,
        [(at(0), 1), (at(30), 1), (at(60), 1), (at(90), 1), (at(HOUR), 2)],
    ),
    "dropDuplicates": (without_duplicates, [(n,) for n in range(1, 9)]),
    "dropDuplicatesWithinWatermark": (without_duplicates_for_a_while, [(n,) for n in range(1, 9)]),
    # START is 13 minutes into an hour; [13:13, 14:13) is no window, [13:00, 14:00) and [14:00, 15:00) are.
    "union and two aggregations": (twice_grouped, [(at(-13 * MINUTE), 4), (at(47 * MINUTE), 2)]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_split_an_hour_ahead_makes_no_row_of_the_others_late(streams: Streams, case: str) -> None:
    build, expected = CASES[case]
    streams.write({0: [], 1: []})
    frame = streams.load()
    ours = streams.start(build(follow_watermark(frame)))
    plain = streams.start(build(data_rows(frame).withWatermark("event_time", "0 seconds")))
    for rows in (FIRST, SECOND, THIRD):
        streams.write(rows)
        ours.settle()
        plain.settle()
    assert ours.dropped == 0
    assert ours.rows() == expected
    assert plain.dropped > 0
    assert plain.rows() != expected


def test_outer_join_of_two_sources_waits_for_the_slowest_split_of_both(streams: Streams) -> None:
    streams.write({0: [], 1: []}, name="left")
    streams.write({0: [], 1: []}, name="right")

    def joined(prepare: Build) -> DataFrame:
        left = prepare(streams.load(name="left")).selectExpr("value as l", "event_time as lt")
        right = prepare(streams.load(name="right")).selectExpr("value as r", "event_time as rt")
        on = F.expr("l = r AND rt BETWEEN lt AND lt + INTERVAL 1 MINUTE")
        return left.join(right, on, "leftOuter").select("l", "r")

    ours = streams.start(joined(follow_watermark))
    plain = streams.start(joined(lambda df: data_rows(df).withWatermark("event_time", "0 seconds")))
    for left, right in (
        ({0: [(HOUR, 1)], 1: [(0, 2)]}, {0: [(HOUR, 1)], 1: [(0, 9)]}),
        ({1: [(60, 3), (70, 4)]}, {1: [(61, 3)]}),
        ({0: [(2 * HOUR, 5)], 1: [(2 * HOUR, 6)]}, {0: [(2 * HOUR, 7)], 1: [(2 * HOUR, 7)]}),
    ):
        streams.write(left, name="left")
        streams.write(right, name="right")
        ours.settle()
        plain.settle()
    assert ours.dropped == 0
    # 5 and 6 still wait for their partners.
    assert sorted(ours.rows(), key=str) == [(1, 1), (2, None), (3, 3), (4, None)]
    assert plain.dropped > 0
    assert (3, 3) not in plain.rows()


@pytest.mark.usefixtures("rocksdb")
def test_event_timers_fire_by_the_source_watermark(streams: Streams) -> None:
    streams.write({0: [], 1: []})
    frame = streams.load()

    def counted(rows: DataFrame) -> DataFrame:
        return counted_after(60_000, rows, "split")

    ours = streams.start(counted(follow_watermark(frame)))
    plain = streams.start(counted(data_rows(frame).withWatermark("event_time", "0 seconds")))
    seen: list[list[tuple[Any, ...]]] = []
    for rows in (FIRST, {1: [(45, 5)]}, {1: [(61, 6)]}, THIRD):
        streams.write(rows)
        ours.settle()
        plain.settle()
        seen.append(ours.rows())
    assert ours.dropped == 0
    # The split's timer at 60 s fires when its own watermark passes that, and counts all four rows.
    assert seen == [[], [], [(1, 4)], [(0, 3), (1, 4)]]
    assert plain.dropped > 0
