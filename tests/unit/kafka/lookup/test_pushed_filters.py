"""What filters say about partitions, offsets and times."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pyspark_aligned_kafka.lookup.pushed_filters import EVERYTHING, Wanted, wanted_by
from watermark_source.planning.split import Split

TOPIC, PARTITION, OFFSET, TIMESTAMP = (("topic",), ("partition",), ("offset",), ("timestamp",))
MOMENT = datetime(2024, 1, 1, 12, tzinfo=UTC)
MILLIS = 1_704_110_400_000


def wanted(*filters: Filter, by_timestamp: bool = True) -> Wanted:
    return wanted_by(filters, event_time_is_timestamp=by_timestamp)


def taken(*filters: Filter) -> list[str]:
    return [str(s) for s in (Split(t, n) for t in ("a", "b") for n in (0, 1)) if wanted(*filters).takes(s)]


def test_partitions_and_topics_are_chosen_by_what_holds_for_all_their_rows() -> None:
    assert taken(EqualTo(PARTITION, 1), IsNotNull(TOPIC)) == ["a-1", "b-1"]
    assert taken(Not(EqualNullSafe(PARTITION, 1))) == ["a-0", "b-0"]
    assert taken(In(PARTITION, (0, 7)), StringStartsWith(TOPIC, "b")) == ["b-0"]
    assert taken(Not(In(PARTITION, (0, 7)))) == ["a-1", "b-1"]
    assert taken(GreaterThan(TOPIC, "a"), LessThanOrEqual(PARTITION, 0)) == ["b-0"]
    assert taken(Not(StringContains(TOPIC, "a")), StringEndsWith(TOPIC, "b"), LessThan(PARTITION, 1)) == ["b-0"]
    assert taken(GreaterThanOrEqual(PARTITION, 1), EqualTo(TOPIC, "a")) == ["a-1"]
    assert taken(IsNull(PARTITION)) == []


def test_a_null_in_a_list_leaves_open_what_is_not_in_it() -> None:
    assert len(taken(In(PARTITION, (1, None)))) == len(taken(Not(In(PARTITION, (5, None))))) == 4
    assert taken(Not(In(PARTITION, (1, None)))) == ["a-0", "b-0"]


@pytest.mark.parametrize(
    ("filters", "intervals"),
    [
        ([GreaterThan(OFFSET, 5)], ((6, None),)),
        ([GreaterThanOrEqual(OFFSET, 5), LessThan(OFFSET, 9)], ((5, 9),)),
        ([LessThanOrEqual(OFFSET, 9), GreaterThan(OFFSET, 5), EqualTo(OFFSET, 7)], ((7, 8),)),
        ([EqualNullSafe(OFFSET, 7), IsNotNull(OFFSET)], ((7, 8),)),
        ([In(OFFSET, (3, 1, 1_000_000, None))], ((1, 4), (1_000_000, 1_000_001))),
        ([In(OFFSET, (1, 1_000_000)), GreaterThan(OFFSET, 1)], ((1_000_000, 1_000_001),)),
        ([LessThan(OFFSET, 0)], ()),
        ([EqualTo(OFFSET, 3), EqualTo(OFFSET, 4)], ()),
        ([Not(EqualTo(OFFSET, 3)), Not(In(OFFSET, (3, 4))), IsNull(OFFSET)], ((0, None),)),
    ],
)  # fmt: skip
def test_offsets_lie_in_intervals(filters: list[Filter], intervals: object) -> None:
    assert wanted(*filters).offsets == intervals
    assert wanted(*filters).takes(Split("a", 0)) == bool(intervals)


@pytest.mark.parametrize(
    ("filters", "since"),
    [
        ([GreaterThanOrEqual(TIMESTAMP, MOMENT)], MILLIS),
        ([GreaterThanOrEqual(TIMESTAMP, MOMENT.astimezone(ZoneInfo("Asia/Tokyo")))], MILLIS),
        ([GreaterThanOrEqual(TIMESTAMP, MOMENT + timedelta(microseconds=1))], MILLIS + 1),
        ([GreaterThan(TIMESTAMP, MOMENT)], MILLIS + 1),
        ([GreaterThan(TIMESTAMP, MOMENT + timedelta(microseconds=999))], MILLIS + 1),
        ([EqualTo(TIMESTAMP, MOMENT), IsNotNull(TIMESTAMP)], MILLIS),
        ([EqualNullSafe(TIMESTAMP, MOMENT)], MILLIS),
        ([In(TIMESTAMP, (MOMENT + timedelta(1), None, MOMENT))], MILLIS),
        ([GreaterThan(TIMESTAMP, MOMENT), EqualTo(("event_time",), MOMENT + timedelta(1))], MILLIS + 86_400_000),
        ([LessThan(TIMESTAMP, MOMENT)], None),
        ([LessThanOrEqual(TIMESTAMP, MOMENT), Not(EqualTo(TIMESTAMP, MOMENT))], None),
        ([GreaterThan(("marker", "timestamp"), MOMENT), EqualTo(("value",), b"x")], None),
    ],
)  # fmt: skip
def test_only_a_lowest_time_counts_to_the_millisecond(filters: list[Filter], since: int | None) -> None:
    assert wanted(*filters).since == since


def test_event_time_in_the_payload_is_not_what_brokers_look_up_by() -> None:
    assert wanted(GreaterThan(("event_time",), MOMENT), by_timestamp=False) == EVERYTHING


KINDS: dict[type[Filter], Callable[[int, int], bool]] = {
    EqualTo: operator.eq, EqualNullSafe: operator.eq, LessThan: operator.lt, LessThanOrEqual: operator.le,
    GreaterThan: operator.gt, GreaterThanOrEqual: operator.ge,
}  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(list(KINDS)), st.integers(-2, 12), st.booleans()), max_size=4))
def test_no_offset_that_passes_is_left_out(drawn: list[tuple[type[Filter], int, bool]]) -> None:
    filters = []
    for kind, value, is_not in drawn:
        plain: Filter = kind(OFFSET, value)  # type: ignore[call-arg]
        filters.append(Not(plain) if is_not else plain)
    intervals = wanted(*filters).offsets
    for offset in range(12):
        passes = all(KINDS[kind](offset, value) is not is_not for kind, value, is_not in drawn)
        read = any(start <= offset and (stop is None or offset < stop) for start, stop in intervals)
        assert read or not passes
        if not any(is_not for _, _, is_not in drawn):
            assert read == passes
