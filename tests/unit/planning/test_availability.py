"""Which splits answer, are silent or are deleted: the table of states, and what becomes of late answers."""

from __future__ import annotations

from itertools import product

import pytest

from watermark_source.errors import UnreachableError
from watermark_source.planning.availability import (
    SILENCES,
    TRANSITIONS,
    Availability,
    AvailabilityEvent,
    AvailabilityTable,
    Effect,
)
from watermark_source.planning.split import Split

A, B = Split("t", 0), Split("t", 1)
KNOWN, DELETED = Availability.KNOWN, Availability.DELETED


@pytest.fixture
def table() -> AvailabilityTable[int]:
    return AvailabilityTable()


def test_every_state_has_a_transition_for_every_event() -> None:
    assert TRANSITIONS.keys() == set(product(Availability, AvailabilityEvent))


def test_each_way_into_a_silence_begins_it_and_each_way_out_ends_or_forgets_it() -> None:
    for (before, _), (after, effects) in TRANSITIONS.items():
        assert (Effect.BEGIN_SILENCE in effects) == (before not in SILENCES and after in SILENCES)
        leaves = before in SILENCES and after not in SILENCES
        assert leaves == (Effect.END_SILENCE in effects or (Effect.FORGET in effects and before in SILENCES))


def test_what_was_deleted_keeps_nothing() -> None:
    for state in set(Availability) - {DELETED}:
        assert TRANSITIONS[state, AvailabilityEvent.UNLISTED] == (DELETED, (Effect.FORGET,))


def test_a_late_answer_is_kept_for_the_next_call_and_given_once(table: AvailabilityTable[int]) -> None:
    assert table.answer({A, B}, {B}) == {}
    request = table.leave_in_flight({B}, sent_at=0.5)
    assert (table.take_begun(), table.of(B).silent_since) == ({B}, 0.5)
    table.answer_late(request, {B: 8}, 2.0)
    assert table.take_late({A}) == {}
    assert table.take_late({A, B}) == {B: 8}
    assert table.take_late({A, B}) == {}
    assert table.of(B).state is KNOWN


def test_an_answer_about_a_deleted_split_is_not_for_one_created_again(table: AvailabilityTable[int]) -> None:
    first = table.leave_in_flight({A, B}, sent_at=0.0)
    table.answer_late(first, {B: 8}, 1.0)
    table.note_listed(set())
    assert table.of(A).state is DELETED
    table.note_listed({A, B})
    table.answer_late(first, {A: 8}, 1.0)
    assert table.take_late({A, B}) == {}
    second = table.leave_in_flight({A}, sent_at=1.0)
    table.answer_late(first, {A: 8}, 2.0)
    assert table.take_late({A}) == {}
    table.answer_late(second, {A: 0}, 2.0)
    assert table.take_late({A}) == {A: 0}


def test_a_split_that_no_call_asks_for_is_requested_again_though_others_of_its_request_are_not_answered(
    table: AvailabilityTable[int],
) -> None:
    request = table.leave_in_flight({A, B}, sent_at=0.0)
    table.note_wanted({A}, 10.0)
    table.expire(5.0)
    assert table.in_flight == table.waiting_for(request, {A, B}) == {A}


def test_a_silence_is_overdue_after_the_limit_or_if_a_request_has_failed_when_the_call_ends(
    table: AvailabilityTable[int],
) -> None:
    def overdue(now: float) -> bool:
        return table.overdue({A}, now=now, call_ends_at=now + 3, limit=10) == {A}

    table.leave_in_flight({A}, sent_at=0.0)
    assert [overdue(now) for now in (6.9, 7.0, 9.9, 10.0)] == [False, False, False, True]
    table.time_out({A}, sent_at=9.0, failure=UnreachableError("away"))
    assert [overdue(now) for now in (6.9, 7.0, 9.9, 10.0)] == [False, True, True, True]
    # The silence is that of its first request.
    request = table.leave_in_flight({A}, sent_at=9.0)
    assert table.of(A).silent_since == 0.0
    table.answer_late(request, {A: 1}, 11.0)
    assert not overdue(99.0)


def test_each_silence_that_has_begun_is_taken_once_though_it_may_be_over(table: AvailabilityTable[int]) -> None:
    for _ in range(2):
        table.time_out({A}, sent_at=0.0)
        assert table.answer({A}, set()).keys() == {Effect.END_SILENCE}
        assert (table.take_begun(), table.take_begun()) == ({A}, set())
