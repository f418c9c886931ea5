from __future__ import annotations

from dataclasses import replace

from watermark_source.planning.disorder import SEGMENT, DisorderSegment, RangeSummary
from watermark_source.planning.range_report import NO_ROWS, Coverage, LateRows, RangeReport, RowTotals, cover, whole
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis

A, B = Split("log", 0), Split("log", 1)


def report(start: int, end: int, highest: int | None = None, split: Split = A) -> RangeReport:
    time = None if highest is None else Millis(highest)
    return RangeReport(SplitRange(split, start, end), time, RowTotals(read=end - start, future=1))


def test_parts_in_any_order_cover_a_range() -> None:
    found = cover(SplitRange(A, 0, 30), [report(20, 30, 5), report(0, 10, 7), report(10, 20)])
    assert found == Coverage(RangeSummary(Millis(7)), RowTotals(read=30, future=3))


def test_one_report_of_a_whole_range_covers_it() -> None:
    segment, late = DisorderSegment(None, Millis(9), ((0, 1),)), LateRows((2,), 5, 7)
    rows = RowTotals(read=10, undated=4, malformed=5, late=late)
    reported = replace(report(0, 10, 7), segments=(segment,), marked=Millis(3), rows=rows, summary='"a"')
    assert whole(reported) == cover(reported.range, [reported])
    assert whole(report(0, 10)) == cover(SplitRange(A, 0, 10), [report(0, 10)])


def test_the_summaries_of_parts_come_in_the_order_of_their_rows() -> None:
    parts = [replace(report(start, start + 10), summary=text) for start, text in ((20, '"c"'), (0, '"a"'), (10, None))]
    assert cover(SplitRange(A, 0, 30), parts).seen.summaries == ('"a"', '"c"')


def test_what_no_report_tells_about_is_missing() -> None:
    found = cover(SplitRange(A, 0, 40), [report(10, 20, -5), report(30, 35, -7)])
    assert found.missing == (SplitRange(A, 0, 10), SplitRange(A, 20, 30), SplitRange(A, 35, 40))
    assert found.seen.highest == -5


def test_a_repeated_report_counts_once() -> None:
    once = cover(SplitRange(A, 0, 10), [report(0, 10, 1)])
    assert cover(SplitRange(A, 0, 10), [report(0, 10, 1), report(0, 10, 1)]) == once


def test_a_report_that_overlaps_another_does_not_count() -> None:
    found = cover(SplitRange(A, 0, 20), [report(0, 12, 1), report(8, 20, 9)])
    assert found == Coverage(
        RangeSummary(Millis(1), is_whole=False), RowTotals(read=12, future=1), (SplitRange(A, 12, 20),)
    )


def test_reports_about_other_splits_empty_ranges_or_beyond_the_range_do_not_count() -> None:
    others = [report(0, 10, 9, split=B), report(5, 15, 9), report(3, 3, 9)]
    assert cover(SplitRange(A, 0, 10), others) == Coverage(
        RangeSummary(is_whole=False), NO_ROWS, (SplitRange(A, 0, 10),)
    )


def test_an_empty_range_is_covered_by_nothing() -> None:
    assert cover(SplitRange(A, 5, 5), []) == Coverage(RangeSummary(), NO_ROWS)


def test_a_report_that_counts_disorder_in_other_segments_does_not_count() -> None:
    """A task's share ends where a segment does, counted from the beginning of the range it is given."""
    segment = DisorderSegment(None, Millis(9), ((0, 1),))

    def counted(start: int, end: int) -> RangeReport:
        return replace(report(start, end), segments=(segment,))

    wanted = SplitRange(A, 5, 5 + 2 * SEGMENT)
    parts = [counted(5, 5 + SEGMENT), counted(5 + SEGMENT, wanted.end)]
    assert cover(wanted, parts).seen.segments == (segment, segment)
    others = [parts[0], counted(6 + SEGMENT, wanted.end)]
    found = cover(wanted, others)
    assert (found.seen.segments, found.missing) == ((segment,), (SplitRange(A, 5 + SEGMENT, wanted.end),))
    # One that counts none may begin where it likes.
    assert cover(wanted, [parts[0], report(6 + SEGMENT, wanted.end)]).missing == (
        SplitRange(A, 5 + SEGMENT, 6 + SEGMENT),
    )
