"""``finalWatermark``: Spark's operators, and ours, let go all that they hold when a stream has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.spark.counting_timer import counted_after
from tests.spark.queries import START, Rows, Streams, at
from tests.spark.test_follow_operators import in_windows, of_few_in_sessions, of_few_twice_grouped
from watermark_source import follow_watermark, markers, order_by_event_time, temporal_join
from watermark_source.planning.watermark import MAX

pytestmark = pytest.mark.spark

MINUTE, HOUR = 60, 3_600
ROWS: Rows = {0: [(HOUR, 1), (HOUR + 10, 2)], 1: [(0, 3), (30, 4)]}
# Far behind all that is usual, as "for ever" is often written: 9999-12-31 23:59:59.999.
FOR_EVER = 253_402_300_799_999 / 1_000 - START / 1_000
ENDS = {"finalWatermark": "true"}

Build = Callable[[DataFrame], DataFrame]


OWN_STATE = pytest.mark.usefixtures("rocksdb")
CASES: dict[str, tuple[Build, list[tuple[Any, ...]]]] = {
    "dropDuplicatesWithinWatermark and session_window": (of_few_in_sessions, [(at(0), 1), (at(30), 1), (at(HOUR), 2)]),
    # START is 13 minutes into an hour.
    "dropDuplicates, union and two aggregations": (
        of_few_twice_grouped,
        [(at(-13 * MINUTE), 2), (at(47 * MINUTE), 2)],
    ),
    "timer": (lambda rows: counted_after(60_000, rows, "split"), [(0, 2), (1, 2)]),
}


BY_DAY = "dropDuplicatesWithinWatermark and session_window"


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case == BY_DAY else pytest.mark.long("BY_DAY")) for case in CASES]
)
def test_a_stream_that_has_ended_leaves_nothing_in_state(
    streams: Streams, case: str, request: pytest.FixtureRequest
) -> None:
    build, expected = CASES[case]
    if case == "timer":
        request.getfixturevalue("rocksdb")
    streams.write(ROWS)
    query = streams.run(build(follow_watermark(streams.load(**ENDS))), "q")
    assert sorted(tuple(row) for row in streams.result("q").collect()) == expected
    assert [o["wm"] for o in streams.offsets("q")[-2:]] == [MAX, MAX]
    states = [operator for progress in query.recentProgress for operator in progress["stateOperators"]]
    assert sum(int(operator["numRowsDroppedByWatermark"]) for operator in states) == 0
    assert int(states[-1]["numRowsTotal"]) == 0


@OWN_STATE
@pytest.mark.long("test_all_rows_of_a_snapshot_leave_in_order_and_once_in_one_run")
def test_rows_that_wait_for_their_turn_are_let_go_and_those_of_for_ever_too(streams: Streams) -> None:
    streams.write({**ROWS, 2: [(0, 5), (FOR_EVER, 6)]})
    rows = follow_watermark(streams.load(**ENDS)).select("value", "split", "event_time")
    streams.run(order_by_event_time(rows, "split", buckets=2).select("value", "late"), "q")
    assert sorted(tuple(row) for row in streams.result("q").collect()) == [(value, False) for value in range(1, 7)]


def test_an_outer_join_of_two_streams_that_have_ended_gives_what_had_no_partner(streams: Streams) -> None:
    streams.write({0: [(HOUR, 1), (0, 2)]}, name="left")
    streams.write({0: [(HOUR, 1), (0, 9)]}, name="right")
    left = follow_watermark(streams.load(name="left", **ENDS)).selectExpr("value as l", "event_time as lt")
    right = follow_watermark(streams.load(name="right", **ENDS)).selectExpr("value as r", "event_time as rt")
    on = F.expr("l = r AND rt BETWEEN lt AND lt + INTERVAL 100 DAYS")
    streams.run(left.join(right, on, "fullOuter").select("l", "r"), "q")
    assert sorted(map(tuple, streams.result("q").collect()), key=str) == [(1, 1), (2, None), (None, 9)]


@OWN_STATE
@pytest.mark.long("test_a_stream_that_has_ended_leaves_nothing_in_state")
def test_a_temporal_join_of_streams_that_have_ended_gives_all_rows(streams: Streams) -> None:
    streams.write({0: [(0, 1), (HOUR, 2)]}, name="versions")
    streams.write({0: [(10, 1), (2 * HOUR, 2)]}, name="probe")
    versions = follow_watermark(streams.load(name="versions", **ENDS)).selectExpr("split", "event_time", "value AS v")
    probe = follow_watermark(streams.load(name="probe", **ENDS)).select("split", "event_time", "value")
    joined = temporal_join(probe, versions, on="split", buckets=2).select("value", "v")
    streams.run(joined, "q")
    assert sorted(map(tuple, streams.result("q").collect())) == [(1, 1), (2, 2)]


def test_the_marker_of_the_end_can_be_collected(streams: Streams) -> None:
    streams.write(ROWS)
    found: list[Any] = []
    writer = markers(streams.load(**ENDS)).writeStream.trigger(availableNow=True)
    query = writer.foreachBatch(lambda batch, _: found.extend(batch.collect())).start()
    query.awaitTermination(240)
    assert [row.watermark.year for row in found if row.type == "watermark"][-2:] == [9999, 9999]


def test_a_driver_that_dies_at_the_end_leaves_nothing_undone(streams: Streams) -> None:
    """It is killed with the last batches planned or done, and its successor states no error before all is out."""
    streams.write(ROWS)
    frame = in_windows(follow_watermark(streams.load(maxRowsPerTrigger=2, **ENDS)))
    streams.run(frame, "q")
    expected = sorted(tuple(row) for row in streams.result("q").collect())
    for missing, is_planned in ((1, True), (2, False), (3, True)):
        streams.forget("q", len(streams.offsets("q")) - missing, is_planned=is_planned)
        streams.run(frame, "q")
        assert sorted(tuple(row) for row in streams.result("q").collect()) == expected
        assert streams.offsets("q")[-1]["ended"]


def test_a_source_that_has_ended_lets_another_one_of_its_query_come_to_its_end(streams: Streams) -> None:
    """Killed while the other one reads."""
    streams.write({0: [(HOUR, 1)]}, name="left")
    streams.write({0: [(minute * MINUTE, minute) for minute in range(8)]}, name="right")
    frames = [follow_watermark(streams.load(name=name, maxRowsPerTrigger=2, **ENDS)) for name in ("left", "right")]
    frame = in_windows(frames[0].select("value", "event_time").union(frames[1].select("value", "event_time")))
    streams.run(frame, "q")
    expected = sorted(tuple(row) for row in streams.result("q").collect())
    assert [start for start, _ in expected] == [at(minute * MINUTE) for minute in (*range(8), 60)]
    left, right = (streams.offsets("q", source=source) for source in range(2))
    done = next(n for n, offset in enumerate(left) if offset.get("ended"))
    assert "ended" not in right[done + 1]
    streams.forget("q", done + 1)
    streams.run(frame, "q")
    assert sorted(tuple(row) for row in streams.result("q").collect()) == expected
    assert all(streams.offsets("q", source=source)[-1]["ended"] for source in range(2))


@pytest.mark.parametrize(
    "trigger", [{"processingTime": "0 seconds"}, pytest.param({"once": True}, marks=pytest.mark.long("processingTime"))]
)
def test_a_trigger_that_lets_the_query_go_on_is_refused(streams: Streams, trigger: dict[str, Any]) -> None:
    streams.write(ROWS)
    query = streams.start_file(in_windows(follow_watermark(streams.load(**ENDS))), "q", **trigger)
    with pytest.raises(StreamingQueryException, match=r"option finalWatermark = \"true\".*availableNow"):
        query.awaitTermination(120)


def test_runs_without_it_go_on_the_last_one_has_it_and_none_comes_after_that(streams: Streams) -> None:
    streams.write(ROWS)
    streams.run(in_windows(follow_watermark(streams.load())), "q")
    assert streams.result("q").count() == 0
    streams.write({0: [(HOUR + 20, 5)]})
    streams.run(in_windows(follow_watermark(streams.load(**ENDS))), "q")
    assert sorted(tuple(row) for row in streams.result("q").collect()) == [(at(0), 2), (at(HOUR), 3)]
    before = streams.offsets("q")
    streams.write({0: [(2 * HOUR, 9)]})
    for options in (ENDS, {}):
        again = in_windows(follow_watermark(streams.load(**options)))
        with pytest.raises(StreamingQueryException, match=r"StreamEndedError.*has ended.*new checkpoint location"):
            streams.run(again, "q")
    assert streams.offsets("q") == before
