from __future__ import annotations

import pytest

from tests.simulation.ahead import SimulatedLookAhead
from tests.unit.planning.example_states import A, B, C, at, log_of, observation
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split_watermarks import Unread, ahead_of_batch
from watermark_source.planning.state import SourceState
from watermark_source.planning.strategy import LookAhead
from watermark_source.planning.watermark import Millis

POLICY = PlanPolicy(strategy=LookAhead(rows_ahead=10, bound=50))


@pytest.mark.parametrize(
    ("watermark", "found", "expected"),
    [
        (None, Unread(5, None, None), None),
        (500, Unread(5, None, None), 500),
        # Nothing is ahead: the bound, below the highest in the log.
        (500, Unread(5, None, Millis(1_000)), 949),
        (980, Unread(5, None, Millis(1_000)), 980),
        (500, Unread(5, Millis(700), Millis(1_000)), 699),
        (None, Unread(5, Millis(700), Millis(1_000)), 699),
        # What is behind the band may be as far behind as the bound states.
        (500, Unread(5, Millis(990), Millis(1_000)), 949),
        # All that is known is of the future.
        (None, Unread(5, Millis(4_000_000_000_000), None), None),
    ],
)
def test_a_split_has_the_lower_of_what_is_unread_and_the_bound(
    watermark: int | None, found: Unread, expected: int | None
) -> None:
    left = ahead_of_batch({A: at(2, watermark)}, {A: found}, None, observation(log_of([])).logs, POLICY.strategy)
    assert left[A] == expected


def test_a_split_whose_rows_ahead_cannot_be_read_leads_no_further_than_what_was_sent() -> None:
    unread = {A: Unread(5, Millis(700), Millis(1_000), is_readable=False)}
    logs = observation(log_of([])).logs
    left = ahead_of_batch({A: at(2, 99), B: at(1, 80)}, unread, Millis(49), logs, POLICY.strategy)
    assert left == {A: 49}
    assert ahead_of_batch({A: at(2, 99)}, unread, None, logs, POLICY.strategy).get(A) is None
    assert ahead_of_batch({A: at(2)}, unread, Millis(49), logs, POLICY.strategy).get(A) is None


@pytest.mark.parametrize("silence", ["unknown", "stale"])
def test_a_split_that_does_not_answer_leads_no_further_than_what_was_sent(silence: str) -> None:
    """What of it is unread, and held the watermark, is not known to a process that has not looked at it."""
    seen = observation(log_of([]), **{silence: {A}})
    left = ahead_of_batch({A: at(2, 99), B: at(1, 80)}, {}, Millis(49), seen.logs, POLICY.strategy)
    assert left == {A: 49}
    assert ahead_of_batch({A: at(2, 99)}, {}, None, seen.logs, POLICY.strategy).get(A) is None
    assert ahead_of_batch({A: at(2)}, {}, Millis(49), seen.logs, POLICY.strategy).get(A) is None


def test_what_is_behind_an_end_of_a_while_ago_is_not_asked_for() -> None:
    log = log_of([100, 900], [200, 800], [300])
    ahead = SimulatedLookAhead(log, 10)
    state = SourceState({A: at(1, 99), B: at(1, 199), C: at(1, 299)}, watermark=Millis(99))
    planned = plan(state, observation(log, stale={A}, max_rows=1), POLICY, None, ahead=ahead)
    # Nor what nothing is behind.
    assert planned.watermarks.unread.keys() == {B}


def test_the_watermark_goes_out_with_the_batch_and_stops_before_what_is_behind_it() -> None:
    log = log_of([100, 900, 300, 1_000], [200, 800])
    state = SourceState({A: at(0), B: at(0)})
    planned = plan(state, observation(log, max_rows=5), POLICY, None, ahead=SimulatedLookAhead(log, 10))
    assert {s: t.position for s, t in planned.state.splits.items()} == {A: 3, B: 1}
    assert planned.state.watermark == 749
    # What was read of a split stays its own watermark.
    assert all(t.watermark is None for t in planned.state.splits.values())
    short = plan(state, observation(log, max_rows=3), POLICY, None, ahead=SimulatedLookAhead(log, 10))
    assert {s: t.position for s, t in short.state.splits.items()} == {A: 2, B: 1}
    assert short.state.watermark == 299


def test_until_all_splits_are_known_it_goes_no_further_than_the_plan_before_led() -> None:
    log = log_of([100, 900], [200, 800])
    state = SourceState({A: at(0), B: at(0)}, watermark=Millis(10))
    ahead = SimulatedLookAhead(log, 10)
    for earlier, expected in ((None, 10), (5, 10), (120, 120)):
        seen = observation(log, all_found_now=False, combined=earlier)
        planned = plan(state, seen, POLICY, None, ahead=ahead)
        assert planned.state.watermark == expected
        assert planned.watermarks.combined == 749
