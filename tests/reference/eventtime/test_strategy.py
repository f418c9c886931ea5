from __future__ import annotations

import pytest

from tests.reference.eventtime.probing import probed, probing
from tests.reference.eventtime.strategy import (
    AlignmentParams,
    ProbeResult,
    bounded,
    monotonous,
    no_watermarks,
    observe,
    probe_split,
    punctuated,
)
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.eventtime.watermark_generators import candidate


@pytest.mark.parametrize(
    ("highest", "bound", "expected"),
    [(None, 0, MIN), (None, 10, MIN), (1337, 10, 1326), (MIN, 10, MIN), (MAX, 0, MAX - 1), (MAX, 5, MAX - 6)],
)
def test_candidate_follows_the_highest_event_time_without_overflow(
    highest: Millis | None, bound: int, expected: int
) -> None:
    assert candidate(highest, bound) == expected


def test_none_generates_nothing() -> None:
    split, found = observe(no_watermarks().start(), Millis(5), Millis(5))
    assert found is None
    assert probe_split(split, 0)[1] is ProbeResult.NOTHING


def test_none_with_idleness_still_turns_idle() -> None:
    split, _ = observe(no_watermarks().with_idleness(10).start(), Millis(5))
    found = []
    for reading in (0, 1, 12, 13):
        split, said = probe_split(split, reading)
        found.append(said)
    assert found == [ProbeResult.NOTHING, ProbeResult.NOTHING, ProbeResult.IDLE, ProbeResult.NOTHING]


def test_punctuated_only_repeats_what_records_say() -> None:
    split, found = observe(punctuated().start(), Millis(5), Millis(3))
    assert found == 3
    assert observe(split, Millis(6))[1] is None
    assert probe_split(split, 0)[1] is ProbeResult.NOTHING


def test_wrappers_may_be_added_in_any_order() -> None:
    one = bounded(5).with_idleness(7).with_alignment("g", 9, update_interval=11)
    other = bounded(5).with_alignment("g", 9, update_interval=11).with_idleness(7)
    assert one == other
    assert one.alignment == AlignmentParams("g", 9, 11)


@pytest.mark.parametrize("group", ["", None, 3])
def test_a_group_without_a_name_is_refused(group: str) -> None:
    with pytest.raises(UsageError, match="must be a name that is not empty"):
        monotonous().with_alignment(group, 9)


def test_probes_come_at_a_fixed_delay() -> None:
    schedule = probing(200, 1_000)
    assert schedule.due == 1_200
    assert probed(schedule, 1_350).due == 1_550
    assert probed(probing(0, 5), 10).due is None


def test_a_refused_duration_comes_with_an_example() -> None:
    with pytest.raises(UsageError, match="out-of-orderness bound is -1 ms; it must not be negative, for example 200"):
        bounded(-1)
