"""Which ranges are fetched together, in which order, and for how many bytes."""

from __future__ import annotations

from pyspark_aligned_kafka.reading.range_progress import (
    Pending,
    fetch_bytes,
    learned,
    next_group,
    starved_first,
    unfinished,
)
from watermark_source.planning.split import Split, SplitRange

MB = 1 << 20


def pending(number: int, start: int, end: int, topic: str = "t") -> Pending:
    return Pending(SplitRange(Split(topic, number), start, end), start)


def test_small_ranges_of_one_broker_go_together() -> None:
    many = [pending(number, 0, 100) for number in range(6)]
    nodes = {each.split: each.split.number % 2 for each in many}
    assert next_group(many, nodes, {}, 4 * MB) == [many[0], many[2], many[4]]


def test_a_big_range_goes_alone_and_waits_for_its_turn() -> None:
    small, big, other = pending(0, 0, 10), pending(1, 0, 10_000_000), pending(2, 0, 10)
    nodes = {each.split: 1 for each in (small, big, other)}
    assert next_group([small, big, other], nodes, {}, 4 * MB) == [small, other]
    assert next_group([big, other], nodes, {}, 4 * MB) == [big]


def test_what_is_small_depends_on_the_bytes_seen() -> None:
    two = [pending(0, 0, 1000), pending(1, 0, 1000)]
    nodes = {each.split: 1 for each in two}
    assert next_group(two, nodes, {"t": 100.0}, MB) == two
    assert next_group(two, nodes, {"t": 900.0}, MB) == two[:1]


def test_a_split_is_in_a_request_once() -> None:
    pieces = [pending(0, 0, 10), pending(0, 10, 20), pending(1, 0, 10)]
    assert next_group(pieces, dict.fromkeys([each.split for each in pieces], 1), {}, MB) == [pieces[0], pieces[2]]


def test_a_group_is_never_larger_than_a_response() -> None:
    many = [pending(number, 0, 1000) for number in range(100)]
    group = next_group(many, {each.split: 1 for each in many}, {"t": 1000.0}, 4 * MB)
    assert len(group) == 4


def test_a_position_never_goes_back() -> None:
    assert pending(0, 50, 100).at(20).position == 50
    assert pending(0, 50, 100).at(70).left == 30


def test_ranges_that_got_nothing_are_asked_for_first() -> None:
    before = [pending(0, 0, 100), pending(1, 0, 100), pending(2, 0, 100)]
    after = [before[0].at(10), before[1], before[2].at(10)]
    assert starved_first(before, after) == [after[1], after[0], after[2]]


def test_a_range_read_to_its_end_is_finished() -> None:
    both = [pending(0, 0, 100).at(100), pending(1, 0, 100)]
    assert unfinished(both) == both[1:]


def test_a_fetch_asks_for_little_more_than_the_range_holds() -> None:
    assert fetch_bytes(pending(0, 0, 10_000), {"t": 100.0}, 8 * MB) == 64 * 1024 + 1_100_000
    assert fetch_bytes(pending(0, 0, 10_000_000), {"t": 100.0}, 8 * MB) == 8 * MB


def test_densities_follow_what_is_seen_and_keep_other_topics() -> None:
    assert learned({}, "t", 1000, 10) == {"t": 100.0}
    assert learned({"t": 50.0, "u": 7.0}, "t", 1000, 10) == {"t": 75.0, "u": 7.0}
    assert learned({"t": 50.0}, "t", 1000, 0) == {"t": 50.0}
