"""Markers of a batch, from its two offsets."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from watermark_source.planning.split import Split
from watermark_source.planning.state import CatchUp, SnapshotState, SourceState, SplitState, SplitStatus
from watermark_source.planning.watermark import MAX, MIN, Millis
from watermark_source.spark.column_names import EVENT_TIME, MARKER
from watermark_source.spark.markers import CAUGHT_UP, Marker, arrow_schema, marker_batch, markers_between, no_markers
from watermark_source.spark.stream_schema import MARKER_TYPE

ACTIVE, IDLE, PAUSED = SplitStatus.ACTIVE, SplitStatus.IDLE, SplitStatus.PAUSED

SCHEMA = StructType(
    [
        StructField("key", StringType()),
        StructField("value", LongType()),
        StructField(EVENT_TIME, TimestampType()),
        StructField(MARKER, MARKER_TYPE),
    ]
)


def state(*statuses: SplitStatus, watermark: int | None = None) -> SourceState:
    splits = {
        Split("log", n): SplitState(position=5, observed=5, watermark=Millis(n), status=s)
        for n, s in enumerate(statuses)
    }
    return SourceState(splits=splits, watermark=None if watermark is None else Millis(watermark))


def contents(markers: tuple[Marker, ...]) -> list[tuple[int | None, str | None]]:
    return [(m.split, m.status) for m in markers]


def test_active_comes_before_the_watermark_and_idle_after_it() -> None:
    before = state(ACTIVE, IDLE, PAUSED, ACTIVE, watermark=5)
    after = state(IDLE, ACTIVE, ACTIVE, PAUSED, watermark=9)
    assert contents(markers_between(before, after)) == [
        (1, "active"), (2, "active"), (3, "paused"), (None, None), (0, "idle"),
    ]  # fmt: skip


def test_the_watermark_is_sent_again_when_it_has_not_moved() -> None:
    same = state(ACTIVE, watermark=9)
    assert [(m.type, m.watermark) for m in markers_between(same, same)] == [("watermark", 9)]


def test_without_a_watermark_only_status_changes_are_sent() -> None:
    assert contents(markers_between(state(ACTIVE, ACTIVE), state(ACTIVE, IDLE))) == [(1, "idle")]


def test_a_new_split_is_taken_for_active() -> None:
    assert markers_between(state(), state(ACTIVE)) == ()
    assert contents(markers_between(state(), state(PAUSED))) == [(0, "paused")]


def test_a_watermark_marker_is_of_the_whole_source_and_a_status_marker_of_one_split() -> None:
    (idle,) = markers_between(state(ACTIVE), state(IDLE))
    assert (idle.type, idle.log, idle.split, idle.watermark) == ("status", "log", 0, 0)
    assert "idleTimeout" in (idle.reason or "")
    (whole,) = markers_between(state(), state(watermark=3))
    assert (whole.type, whole.log, whole.split, whole.status) == ("watermark", None, None, None)


@given(st.lists(st.sampled_from(SplitStatus), max_size=5), st.lists(st.sampled_from(SplitStatus), max_size=5))
def test_every_change_is_announced_exactly_once(before: list[SplitStatus], after: list[SplitStatus]) -> None:
    sent = contents(markers_between(state(*before), state(*after)))
    known = before + [ACTIVE] * len(after)
    assert sorted(sent) == [(n, s.name.lower()) for n, s in enumerate(after) if s is not known[n]]


def test_marker_rows_have_the_schema_spark_compares_with_and_nulls_beside_them() -> None:
    batch = marker_batch(markers_between(state(ACTIVE), state(IDLE, watermark=1_700_000_000_123)), SCHEMA)
    assert batch.schema == arrow_schema(SCHEMA)
    assert [batch.column(n).null_count for n in range(4)] == [2, 2, 2, 0]
    watermark, idle = batch.column(3).to_pylist()
    assert watermark["watermark"] == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert (idle["type"], idle["split"], idle["status"]) == ("status", 0, "idle")


def test_a_watermark_before_1970_is_carried() -> None:
    batch = marker_batch(markers_between(state(), state(watermark=-1)), SCHEMA)
    assert batch.column(3).to_pylist()[0]["watermark"] == datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)


def test_the_marker_column_of_data_rows_is_null_at_any_length() -> None:
    for rows in (0, 1, 16_384, 16_385, 100_000):
        column = no_markers(rows, SCHEMA)
        assert (len(column), column.null_count, column.type) == (rows, rows, arrow_schema(SCHEMA).field(MARKER).type)
        pa.RecordBatch.from_arrays([column], names=["marker"]).validate(full=True)


@pytest.mark.parametrize(("watermark", "micros"), [(MIN, -9_191_749_636_854_775_000), (MAX, 9_191_749_636_854_775_000)])
def test_the_ends_of_time_are_a_thousand_years_within_sparks(watermark: Millis, micros: int) -> None:
    batch = marker_batch((Marker("watermark", None, None, watermark, None, False, None),), SCHEMA)
    assert pa.Array.from_buffers(pa.int64(), 1, batch[MARKER].field("watermark").buffers())[0].as_py() == micros


def test_the_end_of_each_snapshot_is_reported_and_then_that_of_all_before_the_watermark() -> None:
    first = replace(state(ACTIVE), snapshots=SnapshotState(frontiers={"a": ((1,), None), "b": ((1,),)}))
    second = replace(state(ACTIVE, watermark=9), snapshots=SnapshotState(complete=frozenset({"a", "b"})))
    then = replace(first, snapshots=SnapshotState(frontiers={"b": (None,)}, complete=frozenset({"a"})))
    assert markers_between(first, then) == (
        Marker("status", "a", 0, None, "finished", False, "its snapshot is read to its end"),
    )  # fmt: skip
    assert [(m.type, m.log, m.status, m.reason) for m in markers_between(first, second)] == [
        ("status", "a", "finished", "its snapshot is read to its end"),
        ("status", "b", "finished", "its snapshot is read to its end"),
        ("status", None, "active", "snapshot_complete"),
        ("watermark", None, None, None),
    ]
    assert [m.type for m in markers_between(second, second)] == ["watermark"]
    gone = replace(second, snapshots=SnapshotState(frontiers={}, complete=frozenset({"a"})))
    assert [m.log for m in markers_between(first, gone)] == ["a", None, None]


def test_a_source_that_has_caught_up_is_marked_once() -> None:
    reading = replace(state(ACTIVE), catch_up=CatchUp({Split("log", 0): 9}))
    done = replace(state(ACTIVE, watermark=9), catch_up=CatchUp({}, again=True))
    assert [m.reason for m in markers_between(reading, done)] == [CAUGHT_UP, None]
    assert [m.reason for m in markers_between(done, done)] == [None]
    assert markers_between(reading, reading) == ()
