"""Between which offsets a batch reads, with a dictionary in the place of a cluster."""

from __future__ import annotations

import pytest

from pyspark_aligned_kafka.lookup.batch_ranges import BatchBounds
from pyspark_aligned_kafka.options.positions import (
    At,
    AtTime,
    Earliest,
    Everywhere,
    Latest,
    NoMatch,
    PerSplit,
    PositionPolicy,
)
from tests.unit.kafka.example_logs import LOGS, T0, T1, T2, Log, Logs
from watermark_source.errors import OptionError, UnknownSplitError
from watermark_source.planning.ranges_per_task import OpenPiece, bind
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis

Rule = Everywhere | PerSplit


def bounds(start: Rule | None = None, end: Rule | None = None, no_match: NoMatch = NoMatch.ERROR) -> BatchBounds:
    return BatchBounds.of(
        None if start is None else PositionPolicy("startingOption", "(start)", start, no_match),
        None if end is None else PositionPolicy("endingOption", "(end)", end, NoMatch.LATEST),
    )


def read(chosen: BatchBounds) -> list[tuple[int, int, str]]:
    """Return start, end and late edges of each partition; the log begins at 10 and holds 3, 1 and 0 records."""
    ranges = chosen.late_ranges({T0, T1, T2}, LOGS)
    assert [r.range.split for r in ranges] == [T0, T1, T2]
    late = {(True, True): "both", (True, False): "start", (False, True): "end", (False, False): ""}
    return [(r.range.start, r.range.end, late[r.late_start, r.late_end]) for r in ranges]


def at_time(millis: int) -> AtTime:
    return AtTime(Millis(millis))


def per_split(*positions: At | AtTime | Earliest | Latest) -> PerSplit:
    return PerSplit(dict(zip((T0, T1, T2), positions, strict=True)))


def test_everything_there_is_by_default_whenever_it_is_read() -> None:
    assert read(bounds()) == [(10, 13, "both"), (10, 11, "both"), (10, 10, "both")]


def test_offsets_and_times_are_fixed_and_words_are_late() -> None:
    start = per_split(at_time(300), Earliest(), At(10))
    end = per_split(At(13), at_time(50), Latest())
    assert read(bounds(start, end)) == [(11, 13, ""), (10, 10, "start"), (10, 10, "end")]


def test_records_that_come_after_an_ending_time_was_looked_up_are_not_read() -> None:
    reached = Logs({T0: Log((100, 150))})
    (planned,) = bounds(None, Everywhere(at_time(200))).late_ranges({T0}, reached)
    # One of that time, written before a task reads.
    assert bind(OpenPiece(planned.range, planned), SplitRange(T0, 10, 13)) == SplitRange(T0, 10, 12)


def test_a_range_ends_before_the_first_record_of_its_ending_time() -> None:
    assert read(bounds(None, Everywhere(at_time(200)))) == [(10, 11, "start"), (10, 11, "start"), (10, 10, "start")]


def test_a_starting_time_nothing_has_reached_is_an_error_or_the_end_as_of_planning() -> None:
    start = Everywhere(at_time(60))
    with pytest.raises(OptionError, match="no record is that new in t-1, t-2"):
        read(bounds(start))
    assert read(bounds(start, no_match=NoMatch.LATEST)) == [(10, 13, "end"), (11, 11, "end"), (10, 10, "end")]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (
            Everywhere(Latest()),
            r"option startingOption = .*begin at the end \(latest, -1\), for example earliest",
        ),
        (per_split(At(1), Latest(), At(1)), r"cannot begin at the end \(latest, -1\); t-1 does"),
        (PerSplit({}, {"t": Latest()}), "cannot begin at the end .*; t does"),
    ],
)
def test_a_batch_cannot_begin_at_the_end(start: Rule, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        bounds(start)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (Everywhere(Earliest()), r"option endingOption = .*cannot end at the beginning \(earliest, -2\), .* latest"),
        (per_split(At(1), At(1), Earliest()), "cannot end at the beginning .*; t-2 does"),
        (PerSplit({}, {"t": Earliest()}), "cannot end at the beginning .*; t does"),
    ],
)
def test_a_batch_cannot_end_at_the_beginning(end: Rule, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        bounds(None, end)


OTHER = Split("u", 0)
MISMATCHES: list[tuple[PerSplit, PerSplit]] = [
    (PerSplit({T0: At(1), T1: At(1)}), PerSplit({T0: At(1)})),
    (PerSplit({T0: At(1)}), PerSplit({T0: at_time(1), T1: at_time(1)})),
    (PerSplit({T0: At(1)}, {"u": Earliest()}), PerSplit({T0: At(1)})),
    (PerSplit({}, {"t": Earliest()}), PerSplit({OTHER: At(1)})),
    (PerSplit({T0: At(1)}, {"u": Earliest()}), PerSplit({T1: At(1), OTHER: At(1)})),
]


@pytest.mark.parametrize(("start", "end"), MISMATCHES)
def test_start_and_end_must_name_the_same_partitions(start: PerSplit, end: PerSplit) -> None:
    with pytest.raises(OptionError) as caught:
        bounds(start, end)
    assert str(caught.value) == (
        "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET] "
        'option endingOption = "(end)": must name the same partitions as startingOption does'
    )


def test_a_whole_topic_stands_for_any_of_its_partitions() -> None:
    bounds(PerSplit({}, {"t": Earliest()}), PerSplit({T0: At(1), T1: At(1)}))
    bounds(PerSplit({T0: At(1), OTHER: At(1)}), PerSplit({OTHER: At(1)}, {"t": Latest()}))


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (PerSplit({T0: At(5), T1: At(5)}), PerSplit({T0: At(5), T1: At(4)}), "t-1 ends at offset 4, before .* 5"),
        (PerSplit({T0: at_time(5)}), PerSplit({T0: at_time(4)}), "t-0 ends at time 4, before its start time 5"),
        (Everywhere(at_time(5)), Everywhere(at_time(4)), "every partition ends at time 4, before"),
    ],
)
def test_an_end_given_before_its_start_is_refused_without_asking_anybody(start: Rule, end: Rule, message: str) -> None:
    with pytest.raises(OptionError, match=rf"^\[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\] .*{message}"):
        bounds(start, end)


def test_an_empty_partition_has_nothing_between_any_times() -> None:
    """Each of its own for the beginnings, and one for all ends."""
    start = per_split(at_time(100), at_time(50), at_time(2**60))
    assert read(bounds(start, Everywhere(at_time(200)), NoMatch.LATEST)) == [
        (10, 11, ""),
        (10, 11, ""),
        (10, 10, ""),
    ]
    late = per_split(at_time(100), at_time(2**60), at_time(2**60))
    with pytest.raises(OptionError, match="t-1 would begin at offset 11 and end at 10, which is before it"):
        read(bounds(late, Everywhere(at_time(20)), NoMatch.LATEST))


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (PerSplit({T0: At(5)}), PerSplit({T0: At(5)})),
        (Everywhere(at_time(5)), PerSplit({T0: at_time(4)})),
        (PerSplit({T0: at_time(5)}), Everywhere(at_time(4))),
        (PerSplit({T0: At(5)}), PerSplit({T0: at_time(4)})),
        (PerSplit({T0: Earliest()}), PerSplit({T0: At(0)})),
        (Everywhere(at_time(5)), PerSplit({}, {"t": Latest()})),
    ],
)
def test_bounds_that_cannot_be_compared_yet_are_not_refused_yet(start: Rule, end: Rule) -> None:
    bounds(start, end)


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (per_split(At(14), At(11), At(10)), None, "t-0 would begin at offset 14 and end at 13"),
        (None, per_split(At(12), At(9), At(10)), "t-1 would begin at offset 10 and end at 9"),
        (Everywhere(at_time(50)), per_split(At(13), At(11), At(10)), None),
        (per_split(At(12), At(10), At(10)), Everywhere(at_time(101)), "t-0 would begin at offset 12 and end at 11"),
    ],
)
def test_an_end_found_before_its_start_is_refused(start: Rule | None, end: Rule | None, message: str | None) -> None:
    chosen = bounds(start, end, NoMatch.LATEST)
    if message is None:
        assert read(chosen) == [(10, 13, ""), (10, 11, ""), (10, 10, "")]
        return
    with pytest.raises(OptionError, match=rf"^\[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\] .*{message}, which"):
        read(chosen)


def test_a_partition_deleted_while_planning_is_an_error_that_names_it() -> None:
    class Shrinking(Logs):
        def end_positions(self, splits: object) -> dict[Split, int]:
            return {T0: 11}

    logs = Shrinking({T0: Log((1,)), T1: Log((1,))})
    with pytest.raises(UnknownSplitError, match="t-1 was deleted while the batch was planned"):
        bounds().late_ranges({T0, T1}, logs)
