"""Spark's own operators above ``follow_watermark``: nothing is late, and the right windows close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.counting_timer import counted_after
from tests.spark.queries import START, Rows, Streams, at
from watermark_source import data_rows, follow_watermark, why_open
from watermark_source.monitor.open_windows import WindowVerdict

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


def of_few_in_sessions(rows: DataFrame) -> DataFrame:
    return in_sessions(rows.dropDuplicatesWithinWatermark(["value"]))


def of_few_twice_grouped(rows: DataFrame) -> DataFrame:
    few = rows.dropDuplicates(["value", "event_time"])
    minutes = few.union(rows.where("value > 100")).groupBy(F.window("event_time", "1 minute")).count()
    hours = minutes.groupBy(F.window(F.window_time("window"), "1 hour")).agg(F.sum("count").alias("n"))
    return hours.select("window.start", "n")


CASES: dict[str, tuple[Build, list[tuple[Any, ...]]]] = {
    "dropDuplicatesWithinWatermark and session_window": (
        of_few_in_sessions,
        [(at(0), 1), (at(30), 1), (at(60), 1), (at(90), 1), (at(HOUR), 2)],
    ),
    # START is 13 minutes into an hour; [13:13, 14:13) is no window, [13:00, 14:00) and [14:00, 15:00) are.
    "dropDuplicates, union and two aggregations": (of_few_twice_grouped, [(at(-13 * MINUTE), 4), (at(47 * MINUTE), 2)]),
}


BY_DAY = "dropDuplicates, union and two aggregations"


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case == BY_DAY else pytest.mark.long("BY_DAY")) for case in CASES]
)
def test_a_split_an_hour_ahead_makes_no_row_of_the_others_late(streams: Streams, case: str) -> None:
    build, expected = CASES[case]
    streams.write({0: [], 1: []})
    ours = streams.start(build(follow_watermark(streams.load())))
    for rows in (FIRST, SECOND, THIRD):
        streams.write(rows)
        ours.settle()
    assert ours.dropped == 0
    assert ours.rows() == expected


@pytest.mark.long("test_a_fast_a_slow_and_a_silent_partition_lose_nothing_and_plain_spark_loses_rows")
def test_by_a_watermark_of_sparks_own_the_same_rows_are_late(streams: Streams) -> None:
    streams.write({0: [], 1: []})
    plain = streams.start(in_windows(data_rows(streams.load()).withWatermark("event_time", "0 seconds")))
    for rows in (FIRST, SECOND, THIRD):
        streams.write(rows)
        plain.settle()
    assert plain.dropped > 0
    assert plain.rows() == [(at(0), 2), (at(HOUR), 2)]


@pytest.mark.parametrize(
    "slow", [[(0, 1)], pytest.param([], marks=pytest.mark.long("a slow split"))], ids=["slow", "empty"]
)
def test_a_watermark_of_sparks_own_is_the_diagnosis_of_a_live_query_from_its_first_windows_on(
    streams: Streams, slow: list[tuple[float, int]]
) -> None:
    """Of a window that it closed too early, at and beyond it, and of all; also before the sources have a watermark."""
    streams.write({0: [(0, 1), (HOUR, 1)], 1: slow})
    plain = streams.start(in_windows(data_rows(streams.load()).withWatermark("event_time", "0 seconds")))
    plain.settle()
    assert plain.rows() == [(at(0), 1 + len(slow))]
    for asked in (plain.query, streams.checkpoint(plain.table)):
        for end in (600, HOUR, HOUR + 600, None):
            found = why_open(asked, None if end is None else START + end * 1_000)
            assert found.verdict is WindowVerdict.UNFOLLOWED, (asked, end)
            assert "use follow_watermark(stream) instead of withWatermark" in found.sentence
        closed = why_open(asked, START + 600_000)
        assert (
            "closed before the sources' watermark passed it, and rows that come for it now are dro" in closed.sentence
        )
    # The same of a window that both have passed.
    both = why_open(plain.query, START - 60_000)
    assert both.verdict is (WindowVerdict.CLOSED if slow else WindowVerdict.UNFOLLOWED)
    assert any("instead of withWatermark" in text for text in (both.sentence, *both.remarks))


def test_outer_join_of_two_sources_waits_for_the_slowest_split_of_both(streams: Streams) -> None:
    streams.write({0: [], 1: []}, name="left")
    streams.write({0: [], 1: []}, name="right")
    left = follow_watermark(streams.load(name="left")).selectExpr("value as l", "event_time as lt")
    right = follow_watermark(streams.load(name="right")).selectExpr("value as r", "event_time as rt")
    on = F.expr("l = r AND rt BETWEEN lt AND lt + INTERVAL 1 MINUTE")
    ours = streams.start(left.join(right, on, "leftOuter").select("l", "r"))
    for of_left, of_right in (
        ({0: [(HOUR, 1)], 1: [(0, 2)]}, {0: [(HOUR, 1)], 1: [(0, 9)]}),
        ({1: [(60, 3), (70, 4)]}, {1: [(61, 3)]}),
        ({0: [(2 * HOUR, 5)], 1: [(2 * HOUR, 6)]}, {0: [(2 * HOUR, 7)], 1: [(2 * HOUR, 7)]}),
    ):
        streams.write(of_left, name="left")
        streams.write(of_right, name="right")
        ours.settle()
    assert ours.dropped == 0
    # 5 and 6 still wait for their partners.
    assert sorted(ours.rows(), key=str) == [(1, 1), (2, None), (3, 3), (4, None)]


@pytest.mark.usefixtures("rocksdb")
def test_event_timers_fire_by_the_source_watermark(streams: Streams) -> None:
    streams.write({0: [], 1: []})
    ours = streams.start(counted_after(60_000, follow_watermark(streams.load()), "split"))
    seen: list[list[tuple[Any, ...]]] = []
    for rows in (FIRST, {1: [(45, 5)]}, {1: [(61, 6)]}, THIRD):
        streams.write(rows)
        ours.settle()
        seen.append(ours.rows())
    assert ours.dropped == 0
    # The split's timer at 60 s fires when its own watermark passes that, and counts all four rows.
    assert seen == [[], [], [(1, 4)], [(0, 3), (1, 4)]]


@pytest.mark.long("test_early_answers_become_the_counts_of_a_batch_query")
def test_one_query_answers_early_by_shifted_event_times_and_then_finally(streams: Streams) -> None:
    """The early answer is without a row that comes after it, the final one has it: docs/late-rows.md."""
    ahead = F.expr("INTERVAL 50 SECONDS")

    def counts(rows: DataFrame, answer: str, ahead: Column) -> DataFrame:
        counted = rows.groupBy(F.window("event_time", "10 seconds")).count()
        return counted.select((F.col("window.start") + ahead).alias("start"), F.lit(answer), "count")

    streams.write({0: []})
    stream = streams.load(maxOutOfOrderness="60 seconds")
    early = follow_watermark(stream.withColumn("event_time", F.col("event_time") - ahead))
    both = counts(early, "early", ahead).union(counts(follow_watermark(stream), "final", F.expr("INTERVAL 0 SECONDS")))
    answers = streams.start(both)
    first = (at(0), "early", 3)
    for rows, sent in (
        ([(1, 1), (2, 1), (9, 1)], []),
        ([(25, 1)], [first]),
        ([(3, 1)], [first]),
        ([(75, 1)], [first, (at(0), "final", 4), (at(20), "early", 1)]),
    ):
        streams.write({0: rows})
        answers.settle()
        assert answers.rows() == sent
