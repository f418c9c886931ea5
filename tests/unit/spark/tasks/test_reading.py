"""What a task sees of event times, and what it yields and reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BooleanType, LongType, StructField, StructType, TimestampType

from watermark_source.eventtime.watermark import MAX, Millis
from watermark_source.planning.late_rows import LateRows
from watermark_source.planning.range_report import RangeReport
from watermark_source.planning.split import Split, SplitRange
from watermark_source.spark.columns.column_names import EVENT_TIME, MARKER
from watermark_source.spark.columns.markers import MARKER_TYPE, Marker, arrow_schema
from watermark_source.spark.connector.read_batch import ReadBatch
from watermark_source.spark.driver.report_server import ReportBook, ReportServer
from watermark_source.spark.exchange.read_tasks import ReadTask
from watermark_source.spark.tasks.reading import Observer, observe, run_task

A, B = Split("log", 0), Split("log", 1)
MICROS = pa.timestamp("us", tz="UTC")
SYSTEM = StructType([StructField("value", LongType()), StructField(EVENT_TIME, TimestampType())])
SCHEMA = StructType([*SYSTEM.fields, StructField(MARKER, MARKER_TYPE)])
WATERMARK = Marker("watermark", None, None, 5, None, False, None)


def batch(split: Split, *micros: int) -> ReadBatch:
    times = pa.array(micros, pa.int64()).view(MICROS)
    return ReadBatch(split, len(micros), (pa.array(range(len(micros)), pa.int64()),), times)


def seen(batches: Sequence[ReadBatch], cap: int | None = None) -> list[tuple[int | None, int, int]]:
    ranges = [SplitRange(A, 0, 10), SplitRange(B, 0, 10)]
    reports = observe(batches, ranges, None if cap is None else Millis(cap))
    assert [r.range for r in reports] == ranges
    return [(r.max_event_time, r.rows, r.future_rows) for r in reports]


def test_each_range_reports_its_highest_event_time_in_whole_milliseconds() -> None:
    assert seen([batch(A, 1_999, 7_000, 3_000), batch(B, 12_345), batch(A, 6_999)]) == [(7, 4, 0), (12, 1, 0)]


def test_milliseconds_are_rounded_down_before_1970_too() -> None:
    assert seen([batch(A, -1, -2_000)]) == [(-1, 2, 0), (None, 0, 0)]


def test_a_range_without_rows_reports_no_event_time() -> None:
    assert seen([]) == [(None, 0, 0), (None, 0, 0)]


def test_rows_of_a_split_that_is_in_several_ranges_are_counted_once() -> None:
    ranges = [SplitRange(A, 0, 1), SplitRange(A, 1, 2), SplitRange(B, 0, 1)]
    reports = observe([batch(A, 1_000, 2_000), batch(A, 3_000), batch(B, 4_000)], ranges, Millis(2))
    assert [(r.rows, r.future_rows) for r in reports] == [(3, 1), (0, 0), (1, 1)]


def test_an_empty_batch_is_accepted() -> None:
    empty = ReadBatch(A, 0, (pa.array([], pa.int64()),), pa.array([], MICROS))
    assert seen([empty, batch(A, 5_000), batch(A)]) == [(5, 1, 0), (None, 0, 0)]


def test_every_microsecond_of_the_capped_millisecond_still_counts() -> None:
    assert seen([batch(A, 5_999)], cap=5) == [(5, 1, 0), (None, 0, 0)]
    assert seen([batch(A, 4_000, 6_000)], cap=5) == [(4, 2, 1), (None, 0, 0)]


def test_rows_all_beyond_the_cap_are_counted_and_move_nothing() -> None:
    assert seen([batch(A, 6_000, 7_000)], cap=5) == [(None, 2, 2), (None, 0, 0)]
    assert seen([batch(A, 3_000), batch(A, 9_000)], cap=5) == [(3, 2, 1), (None, 0, 0)]


def test_a_cap_at_the_end_of_time_lets_every_event_count() -> None:
    assert seen([batch(A, 2**63 - 1)], cap=MAX) == [((2**63 - 1) // 1_000, 1, 0), (None, 0, 0)]


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1), st.data())
def test_a_sliced_column_is_seen_as_its_slice(micros: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(micros)))
    length = data.draw(st.integers(0, len(micros) - start))
    whole = pa.array(micros, pa.int64()).view(MICROS)
    observer = Observer([SplitRange(A, 0, 10)], None)
    observer.observe(ReadBatch(A, length, (), whole.slice(start, length)))
    part = micros[start : start + length]
    expected = max(part) // 1_000 if part else None
    assert [(r.max_event_time, r.rows) for r in observer.reports()] == [(expected, length)]


@dataclass(frozen=True)
class Given:
    batches: tuple[ReadBatch, ...]

    def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
        yield from (b for b in self.batches if b.split in {r.split for r in ranges})


def work(**changes: object) -> ReadTask:
    plain: dict[str, object] = {
        "ranges": (SplitRange(A, 0, 2),), "markers": (), "future_cap": None, "clock": None, "late_at": None,
        "report_to": None,
    }  # fmt: skip
    return ReadTask(**{**plain, **changes})  # type: ignore[arg-type]


def test_markers_come_first_and_rows_have_none() -> None:
    first, rows = run_task(Given((batch(A, 1, 2),)), work(markers=(WATERMARK,)), SCHEMA)
    assert first.schema == rows.schema == arrow_schema(SCHEMA)
    assert (first.num_rows, first.column(2).null_count) == (1, 0)
    assert (rows.num_rows, rows.column(2).null_count) == (2, 2)


def test_a_pack_of_markers_alone_reads_nothing() -> None:
    (only,) = run_task(Given((batch(A, 1),)), work(ranges=(), markers=(WATERMARK,)), SCHEMA)
    assert only.column(2).to_pylist()[0]["type"] == "watermark"


def test_without_a_marker_column_no_marker_rows_come() -> None:
    (rows,) = run_task(Given((batch(A, 1),)), work(markers=(WATERMARK,)), SYSTEM)
    assert rows.schema == arrow_schema(SYSTEM)
    assert rows.num_rows == 1


def test_with_processing_time_every_row_has_the_clock_of_the_plan() -> None:
    (rows,) = run_task(Given((batch(A, 1, 2),)), work(clock=Millis(7)), SCHEMA)
    assert rows.column(1).cast(pa.int64()).to_pylist() == [7_000, 7_000]


def test_the_report_goes_out_when_the_last_row_has_been_taken_and_not_before() -> None:
    book = ReportBook()
    server = ReportServer(book)
    try:
        wanted = SplitRange(A, 0, 2)
        batches = run_task(Given((batch(A, 1_000), batch(A, 9_000))), work(report_to=server.address), SCHEMA)
        next(batches)
        next(batches)
        assert book.cover(wanted).missing == (wanted,)
        assert next(batches, None) is None
        assert book.cover(wanted).missing == ()
        assert book.cover(wanted).max_event_time == 9
    finally:
        server.close()


def test_a_reader_that_fails_reports_nothing() -> None:
    class Broken:
        def read(self, ranges: Sequence[SplitRange]) -> Iterator[ReadBatch]:
            yield batch(A, 1_000)
            raise OSError("gone")

    book = ReportBook()
    server = ReportServer(book)
    try:
        with pytest.raises(OSError, match="gone"):
            list(run_task(Broken(), work(report_to=server.address), SCHEMA))
        assert book.cover(SplitRange(A, 0, 2)).rows == 0
    finally:
        server.close()


def test_rows_at_or_before_the_watermark_of_the_batch_are_late() -> None:
    late_too = StructType([*SYSTEM.fields, StructField("late", BooleanType()), StructField(MARKER, MARKER_TYPE)])
    times = batch(A, 4_000, 5_000, 5_001, 9_000)
    first, rows = run_task(Given((times,)), work(markers=(WATERMARK,), late_at=Millis(5)), late_too)
    assert first.column(2).to_pylist() == [None]
    # As Spark has it: 5.001 ms are behind a watermark of 5 ms.
    assert rows.column(2).to_pylist() == [True, True, False, False]
    (rows,) = run_task(Given((times,)), work(), late_too)
    assert rows.column(2).to_pylist() == [False] * 4


def test_late_rows_are_counted_by_how_far_they_are_behind_with_or_without_the_column() -> None:
    times = batch(A, -60_001_000, -1_000_000, 0, 1, 10_000_000)
    (report,) = observe([times, times], [SplitRange(A, 0, 10)], None, late_at=Millis(0))
    assert (report.late.rows, report.late.longest, report.late.total) == (6, 60_001, 2 * 61_001)
    assert report.late.up_to[:7] == (4, 4, 4, 4, 4, 4, 6)
    assert (report.late.behind_at_most(0.6), report.late.behind_at_most(0.99)) == (1_000, 60_001)
    (none,) = observe([times], [SplitRange(A, 0, 10)], None)
    assert none.late == LateRows()


@given(
    st.lists(st.integers(-(10**15), 10**15)), st.lists(st.integers(-(10**15), 10**15)), st.integers(-(10**12), 10**12)
)
def test_late_rows_of_two_parts_add_up_to_those_of_the_whole(one: list[int], two: list[int], late_at: int) -> None:
    whole = [SplitRange(A, 0, 10)]
    (parts,) = observe([batch(A, *one), batch(A, *two)], whole, None, Millis(late_at))
    (both,) = observe([batch(A, *one, *two)], whole, None, Millis(late_at))
    assert parts.late == both.late
    assert both.late.rows == sum(m <= late_at * 1_000 for m in (*one, *two))


def test_a_report_is_a_fact_of_its_range() -> None:
    # Twice the same, as a retried or speculative task does.
    first, second = (observe([batch(A, 1_000, 5_000)], [SplitRange(A, 0, 2)], None) for _ in range(2))
    assert first == second == [RangeReport(SplitRange(A, 0, 2), Millis(5), 2, 0)]
