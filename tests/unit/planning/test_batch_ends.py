"""What a batch reads, and the status that gives its splits."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.planning.example_states import NOW, A, B, at, log_of, observation
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import Idleness, PlanPolicy
from watermark_source.planning.state import Returning, SourceState, SplitStatus
from watermark_source.planning.watermark import Millis


def test_a_paused_split_is_active_when_it_reads_and_not_while_the_budget_goes_to_others() -> None:
    log = log_of([100, 101], [50])
    state = SourceState({A: at(0, 98, status=SplitStatus.PAUSED, since=Millis(7)), B: at(0)})
    held = plan(state, observation(log, max_rows=1), PlanPolicy(), log).state.splits
    assert (held[A], held[B].position) == (state.splits[A], 1)
    read = plan(state, observation(log), PlanPolicy(), log).state.splits[A]
    assert (read.position, read.status, read.since) == (2, SplitStatus.ACTIVE, None)


def test_only_splits_that_came_back_and_are_not_waited_for_leave_the_budget_to_the_others() -> None:
    log = log_of(range(300), range(100))
    for returning, read in ((Returning.READ, {A: 30, B: 30}), (Returning.AWAITED, {A: 45, B: 15})):
        state = SourceState({A: at(0, 900), B: at(0, 90, returning=returning)}, watermark=Millis(500))
        policy = PlanPolicy(idleness=Idleness(passes_returning=True))
        found = plan(state, observation(log, max_rows=60), policy, None).state.splits
        assert {s: t.position for s, t in found.items()} == read


def test_a_step_is_kept_as_long_as_nothing_looks_event_times_up() -> None:
    log = log_of(range(5))
    state = SourceState({A: replace(at(0, 9), step=7)})
    for index, step in ((None, 7), (log, None)):
        assert plan(state, observation(log), PlanPolicy(), index).state.splits[A].step == step


def test_an_end_of_a_while_ago_makes_a_split_neither_quiet_nor_idle() -> None:
    log = log_of([], [])
    state = SourceState({A: at(0), B: at(0)})
    found = plan(state, observation(log, stale={B}), PlanPolicy(), log).state.splits
    assert (found[A].since, found[B].since) == (NOW, None)
