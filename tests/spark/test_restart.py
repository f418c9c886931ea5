"""Stop and continue: what a query's next run reads, sends and remembers."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.queries import Streams, at
from watermark_source import follow_watermark

pytestmark = pytest.mark.spark


def windows(rows: DataFrame) -> DataFrame:
    return rows.groupBy(F.window("event_time", "1 minute").alias("w")).count().select("w.start", "count")


def values(streams: Streams, name: str) -> list[int]:
    return sorted(r.value for r in streams.result(name).where("marker IS NULL").collect())


def test_every_run_goes_on_where_the_last_one_stopped(streams: Streams) -> None:
    """Rows exactly once; the first batch of each run carries the watermark; a run without rows adds one batch."""
    streams.write({0: [(100, 1)], 1: [(10, 2)]})
    df = streams.load()
    streams.run(df, "raw")
    assert values(streams, "raw") == [1, 2]
    first = streams.offsets("raw")
    assert [o["wm"] for o in first[1:]] == [first[-1]["wm"]]

    streams.run(df, "raw")
    second = streams.offsets("raw")[len(first) :]
    assert len(second) == 1
    assert second[0]["wm"] == first[-1]["wm"]
    clocks = streams.result("raw").where("marker.type = 'watermark'").select("marker.watermark").collect()
    assert [c.watermark for c in clocks] == [at(9.999)] * 2

    streams.write({1: [(20, 3)], 2: [(15, 4)]})
    streams.run(df, "raw")
    third = streams.offsets("raw")[len(first) + len(second) :]
    # A marker with the data, and one for what the data stated.
    assert [o["wm"] - first[-1]["wm"] for o in third] == [0, 5_000]
    assert values(streams, "raw") == [1, 2, 3, 4]
    assert [o["run"] for o in streams.offsets("raw")] == [1] * len(first) + [2, 3, 3]


def test_windows_and_watermark_survive_a_stop_between_rows_and_their_watermark(streams: Streams) -> None:
    streams.write({0: [(3_600, 1)], 1: [(0, 2), (30, 3)]})
    rows = windows(follow_watermark(streams.load(maxRowsPerTrigger=2)))
    streams.run(rows, "w", once=True)
    # One batch, and no one has reported yet what it held.
    assert list(streams.committed("w")) == [0]
    streams.write({1: [(60, 4), (3_601, 5)]})
    query = streams.start_file(rows, "w")
    query.processAllAvailable()
    query.stop()
    assert streams.result("w").orderBy("start").collect() == [(at(0), 2), (at(60), 1)]
    assert max(streams.committed("w").values()) == 3_599_999
    dropped = sum(int(o["numRowsDroppedByWatermark"]) for p in query.recentProgress for o in p["stateOperators"])
    assert dropped == 0


@pytest.mark.long("test_idleness_works_across_available_now_runs")
def test_a_split_turns_idle_across_runs(streams: Streams) -> None:
    streams.write({0: [(0, 1), (120, 2)], 1: []})
    rows = windows(follow_watermark(streams.load(idleTimeout="500 ms")))
    streams.run(rows, "idle", once=True)
    assert streams.result("idle").collect() == []
    time.sleep(0.5)
    streams.run(rows, "idle")
    assert streams.result("idle").collect() == [(at(0), 1)]


@pytest.mark.long("test_outer_join_of_two_sources_waits_for_the_slowest_split_of_both")
def test_a_join_moves_on_when_each_run_brings_rows_of_one_source_only(streams: Streams) -> None:
    streams.write({0: [(0, 1), (200, 200)]}, name="left")
    streams.write({0: [(0, 2)]}, name="right")
    left = follow_watermark(streams.load(name="left")).selectExpr("value AS l", "event_time AS lt")
    right = follow_watermark(streams.load(name="right")).selectExpr("value AS r", "event_time AS rt")
    on = F.expr("l = r AND rt BETWEEN lt AND lt + INTERVAL 1 MINUTE")
    joined = left.join(right, on, "leftOuter").select("l", "r")
    reached = []
    for name, second in (("right", 400), ("left", 300)):
        streams.run(joined, "join")
        reached.append(max(streams.committed("join").values()))
        streams.write({0: [(second, second)]}, name=name)
    streams.run(joined, "join")
    reached.append(max(streams.committed("join").values()))
    # Each time the lower of the two sources.
    assert reached == [-1, 199_999, 299_999]
    assert sorted(streams.result("join").collect()) == [(1, None), (200, None)]


@pytest.mark.long("test_available_now_reads_what_was_there_in_batches")
def test_trigger_once_reads_all_and_available_now_in_batches_of_the_limit(streams: Streams) -> None:
    streams.write({0: [(n, n) for n in range(25)], 1: [(n, 100 + n) for n in range(5)]})
    df = streams.load(maxRowsPerTrigger=10)
    streams.run(df, "once", once=True)
    assert len(streams.offsets("once")) == 1
    assert len(values(streams, "once")) == 30
    query = streams.run(df, "now")
    read = [p["numInputRows"] for p in query.recentProgress]
    # A marker or none comes on top of the rows.
    assert all(n <= 11 for n in read)
    assert values(streams, "now") == values(streams, "once")


@pytest.mark.long("test_first_rows_of_new_partitions_are_on_time")
def test_splits_that_appear_are_read_from_their_first_row_while_running_and_after_a_restart(streams: Streams) -> None:
    streams.write({0: [(0, 1)]})
    df = streams.load(startingOffsets="latest")
    query = streams.start_file(df, "new")
    query.processAllAvailable()
    streams.write({1: [(0, 2), (1, 3)]})
    query.processAllAvailable()
    query.stop()
    streams.write({2: [(0, 4)], 0: [(5, 5)]}, log="other")
    streams.run(df, "new")
    assert values(streams, "new") == [2, 3, 4, 5]


def test_an_idle_query_makes_no_batches(streams: Streams) -> None:
    streams.write({0: [(0, 1)], 1: [(5, 2)]})
    df = streams.load(
        idleTimeout="1 hour", maxFutureSkew="1 minute", alignmentGroup="g", alignmentMaxDrift="1 second",
        sourceName="calm",
    )  # fmt: skip
    query = streams.start_file(df, "calm")
    query.processAllAvailable()
    # The last watermark may follow in a batch of its own.
    batches, end = -1, time.monotonic() + 120
    while batches != (batches := len(streams.offsets("calm"))):
        assert time.monotonic() < end
        time.sleep(3)
    assert query.isActive
