"""What a task sees of event times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.spark.executor.read_batches import MICROS, A, B, batch, observe
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import InternalError
from watermark_source.planning.disorder import SEGMENT
from watermark_source.planning.range_report import LateRows, RangeReport, RowTotals
from watermark_source.planning.split import SplitRange
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.spark.executor.event_time_observer import EventTimeObserver, Summing
from watermark_source.spark.markers import in_micros
from watermark_source.spark.read_tasks import Beginning, ReadTask
from watermark_source.spark.report_protocol import decode, messages


def seen(batches: Sequence[ReadBatch], cap: int | None = None) -> list[tuple[int | None, int, int]]:
    ranges = [SplitRange(A, 0, 10), SplitRange(B, 0, 10)]
    reports = observe(batches, ranges, None if cap is None else Millis(cap))
    assert [r.range for r in reports] == ranges
    return [(r.max_event_time, r.rows.read, r.rows.future) for r in reports]


def test_each_range_reports_its_highest_event_time_in_whole_milliseconds() -> None:
    assert seen([batch(A, 1_999, 7_000, 3_000), batch(B, 12_345), batch(A, 6_999)]) == [(7, 4, 0), (12, 1, 0)]


def test_milliseconds_are_rounded_down_before_1970_too() -> None:
    assert seen([batch(A, -1, -2_000)]) == [(-1, 2, 0), (None, 0, 0)]


def test_a_range_without_rows_reports_no_event_time() -> None:
    assert seen([]) == [(None, 0, 0), (None, 0, 0)]


def test_rows_of_a_split_that_is_in_several_ranges_are_counted_once() -> None:
    ranges = [SplitRange(A, 0, 1), SplitRange(A, 1, 2), SplitRange(B, 0, 1)]
    reports = observe([batch(A, 1_000, 2_000), batch(A, 3_000), batch(B, 4_000)], ranges, Millis(2))
    assert [(r.rows.read, r.rows.future) for r in reports] == [(3, 1), (0, 0), (1, 1)]


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
    observer = EventTimeObserver(ReadTask((SplitRange(A, 0, 10),)))
    observer.observe(ReadBatch(A, length, (), whole.slice(start, length)))
    part = micros[start : start + length]
    expected = max(part) // 1_000 if part else None
    assert [(r.max_event_time, r.rows.read) for r in observer.reports()] == [(expected, length)]


def test_late_rows_are_counted_by_how_far_they_are_behind_with_or_without_the_column() -> None:
    times = batch(A, -60_001_000, -1_000_000, 0, 1, 10_000_000)
    (report,) = observe([times, times], [SplitRange(A, 0, 10)], None, late_at=Millis(0))
    assert (report.rows.late.rows, report.rows.late.longest, report.rows.late.total) == (6, 60_001, 2 * 61_001)
    assert report.rows.late.up_to[:7] == (4, 4, 4, 4, 4, 4, 6)
    assert (report.rows.late.behind_at_most(0.6), report.rows.late.behind_at_most(0.99)) == (1_000, 60_001)
    (none,) = observe([times], [SplitRange(A, 0, 10)], None)
    assert none.rows.late == LateRows()


@pytest.mark.parametrize(
    ("late_at", "micros"),
    [
        pytest.param(
            1_764_500_000_000_000, 1_764_500_000_000_000, id="one producer wrote microseconds as milliseconds"
        ),
        pytest.param(1_764_500_000_000, -62_135_596_800_000_000, id="no date is the year 1"),
        pytest.param(MAX, -(2**63), id="all of time"),
    ],
)
def test_late_rows_are_reported_however_far_they_are_behind(late_at: int, micros: int) -> None:
    reports = observe([batch(A, *[micros] * 10_000)] * 16, [SplitRange(A, 0, 10)], None, late_at=Millis(late_at))
    (late,) = (each.rows.late for each in decode(b"".join(messages(reports))))
    assert late.longest == (in_micros(late_at) - micros) // 1_000
    assert late.total == pytest.approx(min(160_000 * late.longest, MAX))


@given(
    st.lists(st.integers(-(10**15), 10**15)), st.lists(st.integers(-(10**15), 10**15)), st.integers(-(10**12), 10**12)
)
def test_late_rows_of_two_parts_add_up_to_those_of_the_whole(one: list[int], two: list[int], late_at: int) -> None:
    whole = [SplitRange(A, 0, 10)]
    (parts,) = observe([batch(A, *one), batch(A, *two)], whole, None, Millis(late_at))
    (both,) = observe([batch(A, *one, *two)], whole, None, Millis(late_at))
    assert parts.rows.late == both.rows.late
    assert both.rows.late.rows == sum(m <= late_at * 1_000 for m in (*one, *two))


def test_a_report_is_a_fact_of_its_range() -> None:
    # Twice the same, as a retried or speculative task does.
    first, second = (observe([batch(A, 1_000, 5_000)], [SplitRange(A, 0, 2)], None) for _ in range(2))
    assert first == second == [RangeReport(SplitRange(A, 0, 2), Millis(5), RowTotals(read=2))]


def test_rows_without_an_event_time_are_counted_once() -> None:
    undated = replace(batch(A, 1_000), undated=1)
    ranges = [SplitRange(A, 0, 5), SplitRange(A, 5, 10), SplitRange(B, 0, 1)]
    assert [r.rows.undated for r in observe([undated, undated, batch(A, 2_000)], ranges, None)] == [2, 0, 0]


def test_values_that_do_not_fit_are_counted_once() -> None:
    malformed = replace(batch(A, 1_000, 1_500), malformed=1)
    ranges = [SplitRange(A, 0, 5), SplitRange(A, 5, 10), SplitRange(B, 0, 1)]
    assert [r.rows.malformed for r in observe([malformed, malformed, batch(A, 2_000)], ranges, None)] == [2, 0, 0]


def test_a_log_may_say_that_it_is_further_than_its_rows_but_not_beyond_the_cap() -> None:
    assert seen([replace(batch(A, 3_000), reached=9_000), replace(batch(A, 4_000), reached=7_000)])[0] == (9, 2, 0)
    assert seen([replace(batch(A), reached=5_999)], cap=5)[0] == (5, 0, 0)
    assert seen([replace(batch(A, 3_000), reached=6_000)], cap=5)[0] == (3, 1, 0)


def test_the_highest_watermark_that_rows_carry_is_reported_and_those_beyond_the_cap_count_as_future() -> None:
    marked = [replace(batch(A, 1_000), marks=pa.array(marks, pa.int64())) for marks in ([4_999, 2_000], [], [3_000])]
    (report,) = observe(marked, [SplitRange(A, 0, 9)], Millis(9))
    assert (report.marked, report.max_event_time, report.rows.future) == (4, 1, 0)
    ahead = replace(batch(A, 20_000), marks=pa.array([6_000, 10_000, 11_000], pa.int64()))
    (report,) = observe([*marked, ahead, ahead], [SplitRange(A, 0, 9)], Millis(9))
    assert (report.marked, report.max_event_time, report.rows.future) == (6, 1, 4)


def test_a_users_class_sums_up_the_rows_that_count_with_their_columns_however_they_come() -> None:
    dated = ReadBatch(
        A, 4, (pa.array(["a", "b", "a", "a"]), pa.array([5, 6, 7, 8])),
        pa.array([1_000, 2_000, None, 9_000_000], pa.int64()).view(MICROS),
    )  # fmt: skip
    summing = Summing.of("examples.file_log.watermarks:Heartbeats", ["writer", "written_to", "event_time", "marker"])
    ranges = [SplitRange(A, 0, 4), SplitRange(A, 4, 8), SplitRange(B, 0, 4)]
    parts = [
        ReadBatch(A, 1, tuple(c.slice(n, 1) for c in dated.columns), dated.event_time.slice(n, 1)) for n in range(4)
    ]
    for batches in ([dated], parts, [dated, dated]):
        # What lies beyond the cap does not count, a row without a time does.
        assert [r.summary for r in observe(batches, ranges, Millis(5_000), summing=summing)] == [
            '{"a":7,"b":6}', None, None,
        ]  # fmt: skip
    assert observe([dated], ranges, None, summing=summing)[0].summary == '{"a":8,"b":6}'
    assert [r.summary for r in observe([dated], ranges, None)] == [None] * 3


def test_disorder_is_counted_of_rows_that_have_an_event_time_within_the_cap() -> None:
    times, places = [5_000_000, None, 1_000_000, 9_000_000, 4_000_000], [0, 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT - 1]
    whole = ReadBatch(A, 5, (), pa.array(times, pa.int64()).view(MICROS), positions=pa.array(places))
    counted = pa.array([0, 2, 4])
    assert whole.event_time is not None
    assert whole.positions is not None
    alone = replace(whole, rows=3, event_time=whole.event_time.take(counted), positions=whole.positions.take(counted))
    ranges, beginnings = [SplitRange(A, 0, 3 * SEGMENT)], {A: Beginning(0, None)}
    (found,), (expected,) = (observe([one], ranges, Millis(6_000), None, beginnings) for one in (whole, alone))
    assert found.segments == expected.segments
    assert [segment.highest for segment in found.segments] == [5_000, 1_000, 4_000]


def test_disorder_cannot_be_counted_without_the_places_of_rows() -> None:
    with pytest.raises(InternalError, match="needs the positions of rows"):
        observe([batch(A, 1_000)], [SplitRange(A, 0, 9)], None, None, {})
