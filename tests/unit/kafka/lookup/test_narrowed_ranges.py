"""Ranges cut down to what filters leave of them, with a dictionary in the place of a cluster."""

from __future__ import annotations

from pyspark.sql.datasource import EqualTo

from pyspark_aligned_kafka.lookup.batch_ranges import narrowed
from pyspark_aligned_kafka.lookup.pushed_filters import EVERYTHING, Wanted
from tests.unit.kafka.example_logs import LOGS, T0, T1, T2
from watermark_source.planning.ranges_per_task import OpenRange
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis

WHOLE = [OpenRange(SplitRange(split, 10, end), True, True) for split, end in ((T0, 13), (T1, 11), (T2, 10))]


def left(wanted: Wanted, ranges: list[OpenRange] = WHOLE) -> list[str]:
    return [str(each.range) for each in narrowed(ranges, wanted, LOGS)]


def since(millis: int) -> Wanted:
    return Wanted(since=Millis(millis))


def fixed(split: Split, start: int, end: int) -> OpenRange:
    return OpenRange(SplitRange(split, start, end), late_start=False, late_end=False)


def test_without_filters_all_is_left() -> None:
    assert narrowed(WHOLE, EVERYTHING, LOGS) == WHOLE


def test_a_range_begins_with_the_first_record_that_is_as_new() -> None:
    assert left(since(60)) == ["t-0[10,13)", "t-1[11,11)", "t-2[10,10)"]
    assert left(since(200)) == ["t-0[11,13)", "t-1[11,11)", "t-2[10,10)"]
    assert left(since(301)) == ["t-0[13,13)", "t-1[11,11)", "t-2[10,10)"]
    assert left(since(0)) == left(since(-5)) == left(EVERYTHING)


def test_where_no_record_is_as_new_a_fixed_range_is_left_out() -> None:
    assert left(since(301), [fixed(T0, 10, 13), fixed(T1, 10, 11)]) == []
    # The end is beyond the log's, for the reader to find.
    assert left(since(301), [fixed(T0, 10, 15)]) == ["t-0[13,15)"]


def test_a_start_that_is_lost_stays_for_the_reader_to_find() -> None:
    assert left(since(200), [fixed(T0, 4, 13), fixed(T1, 10, 11)]) == ["t-0[4,13)"]


def test_partitions_and_offsets_are_left_out() -> None:
    assert left(Wanted(of_splits=(EqualTo(("partition",), 1),))) == ["t-1[10,11)"]
    assert left(Wanted(offsets=((0, 11), (12, None)))) == [
        "t-0[10,11)", "t-0[12,13)", "t-1[10,11)", "t-1[11,11)", "t-2[10,10)", "t-2[10,10)",
    ]  # fmt: skip
    assert left(Wanted(offsets=())) == left(Wanted(offsets=((0, 10),))) == []
