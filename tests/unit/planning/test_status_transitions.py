from __future__ import annotations

from itertools import product

import pytest

from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.planning.status_transitions import (
    TRANSITIONS,
    SplitEvent,
    caught_up_since,
    is_quiet,
    next_since,
    on_the_clock,
    rest_event,
    stays_at_rest,
    to_planned_end,
    unanswered,
    uncommitted,
)
from watermark_source.planning.watermark import Millis

ACTIVE, IDLE, PAUSED = SplitStatus.ACTIVE, SplitStatus.IDLE, SplitStatus.PAUSED
NOW = Millis(1_000_000)


def split(status: SplitStatus = ACTIVE, since: int | None = None) -> SplitState:
    return SplitState(5, 5, status=status, since=None if since is None else Millis(since))


def test_every_status_knows_every_event() -> None:
    assert TRANSITIONS.keys() == set(product(SplitStatus, SplitEvent))


def test_only_quiet_makes_a_split_idle() -> None:
    assert {event for (before, event), after in TRANSITIONS.items() if after is IDLE and before is not IDLE} == {
        SplitEvent.QUIET
    }


@pytest.mark.parametrize("status", SplitStatus)
@pytest.mark.parametrize("since", [None, NOW - 31, NOW - 30, NOW, NOW + 1])
@pytest.mark.parametrize("timeout", [None, 30])
def test_a_split_that_stays_at_rest_is_one_that_a_plan_leaves_as_it_is(
    status: SplitStatus, since: int | None, timeout: int | None
) -> None:
    """One that turns idle, or begins to be quiet, may not be passed over."""
    at = split(status, since)
    assert stays_at_rest(at, NOW, timeout) is (to_planned_end(at, None, None, NOW, timeout) is at)


def test_a_paused_split_never_turns_idle_at_once() -> None:
    assert IDLE not in {after for (before, _), after in TRANSITIONS.items() if before is PAUSED}


@pytest.mark.parametrize("event", [SplitEvent.READS, SplitEvent.WAITS, SplitEvent.PAUSED])
def test_rows_end_idleness(event: SplitEvent) -> None:
    assert TRANSITIONS[IDLE, event] is not IDLE


@pytest.mark.parametrize("status", SplitStatus)
def test_rows_in_an_open_transaction_make_a_split_active_and_its_quiet_time_starts_anew(status: SplitStatus) -> None:
    assert uncommitted(split(status, since=7)) == split(ACTIVE)


def test_on_the_clock_no_split_is_idle_and_a_pause_lasts() -> None:
    assert on_the_clock(split(IDLE, since=7)) == split(ACTIVE)
    for other in (split(since=7), split(PAUSED, since=7)):
        assert on_the_clock(other) == other


def test_while_no_one_answers_no_quiet_time_passes_and_nothing_else_changes() -> None:
    assert unanswered(split(since=7)) == split()
    for other in (split(), split(IDLE, since=7), split(PAUSED, since=7)):
        assert unanswered(other) == other
    assert [is_quiet(each) for each in (split(since=0), split(), split(IDLE, since=7))] == [True, False, False]


def test_a_split_is_quiet_after_more_than_the_timeout() -> None:
    assert rest_event(split(since=NOW - 100), NOW, 100) is SplitEvent.CAUGHT_UP
    assert rest_event(split(since=NOW - 101), NOW, 100) is SplitEvent.QUIET
    assert rest_event(split(since=0), NOW, None) is SplitEvent.CAUGHT_UP


def test_the_wait_begins_when_the_split_is_first_seen_with_nothing_left() -> None:
    assert caught_up_since(split(), NOW) == NOW
    assert caught_up_since(split(since=7), NOW) == 7
    assert caught_up_since(split(PAUSED, since=7), NOW) == NOW


def test_a_clock_set_back_makes_no_moment_in_the_future() -> None:
    assert caught_up_since(split(since=NOW + 5), NOW) == NOW


@pytest.mark.parametrize(
    ("before", "event", "after", "since"),
    [
        (split(since=7), SplitEvent.CAUGHT_UP, ACTIVE, 7),
        (split(since=7), SplitEvent.READS, ACTIVE, None),
        (split(since=7), SplitEvent.QUIET, IDLE, NOW),
        (split(IDLE, 7), SplitEvent.CAUGHT_UP, IDLE, 7),
        (split(IDLE), SplitEvent.CAUGHT_UP, IDLE, NOW),
        (split(), SplitEvent.PAUSED, PAUSED, NOW),
        (split(PAUSED, 7), SplitEvent.PAUSED, PAUSED, 7),
        (split(PAUSED, 7), SplitEvent.READS, ACTIVE, None),
        (split(PAUSED, 7), SplitEvent.QUIET, ACTIVE, NOW),
    ],
)
def test_the_moment_is_that_of_the_last_change(
    before: SplitState, event: SplitEvent, after: SplitStatus, since: int | None
) -> None:
    assert TRANSITIONS[before.status, event] is after
    assert next_since(before, event, after, NOW) == since
