"""When rows arrived, and how long splits have been idle and paused: what a source remembers of its plans."""

from __future__ import annotations

from collections.abc import Mapping, Set

from tests.unit.planning.example_states import A, B, at, log_of, observation
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import Idleness, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.plan_history import Arrivals, History, StatusTimes
from watermark_source.status_model.source_status import TimeInStatus, Unprocessed


def answer(at: int, ends: Mapping[Split, int], unknown: Set[Split] = frozenset()) -> ObservedLogs:
    return ObservedLogs(asked_at=Millis(at), ends=ends, unknown=unknown)


def requests(*answers: tuple[int, Mapping[Split, int]], committed: Mapping[Split, int] | None = None) -> Arrivals:
    """Ends of logs by the time of the request; nothing is committed but what is given."""
    arrivals = Arrivals()
    for requested_at, ends in answers:
        arrivals = arrivals.after(committed or {A: 0}, answer(requested_at, ends), frozenset())
    return arrivals


def test_a_row_arrived_after_the_request_before_the_one_that_showed_it() -> None:
    arrivals = requests((100, {A: 0}), (200, {A: 0}), (300, {A: 5}), (400, {A: 9}))
    assert arrivals.oldest({A: 0}) == Unprocessed(200, "log-0")
    assert arrivals.oldest({A: 4}) == Unprocessed(200, "log-0")
    assert arrivals.oldest({A: 5}) == Unprocessed(300, "log-0")


def test_without_an_unprocessed_row_it_is_the_last_request() -> None:
    assert requests((100, {A: 0}), (200, {A: 5})).oldest({A: 5}) == Unprocessed(200)
    assert Arrivals().oldest({A: 5}) is None


def test_a_row_that_was_there_at_the_first_request_is_older_by_an_unknown_time() -> None:
    arrivals = requests((100, {A: 5}), (200, {A: 9}))
    assert arrivals.oldest({A: 0}) == Unprocessed(100, "log-0", is_older=True)
    assert arrivals.oldest({A: 5}) == Unprocessed(100, "log-0")
    assert arrivals.oldest({A: 9}) == Unprocessed(200)


def test_the_oldest_of_all_splits_counts() -> None:
    arrivals = requests((100, {A: 0, B: 0}), (200, {A: 0, B: 1}), (300, {A: 1, B: 1}), committed={A: 0, B: 0})
    assert arrivals.oldest({A: 0, B: 0}) == Unprocessed(100, "log-1")
    assert arrivals.oldest({A: 0, B: 1}) == Unprocessed(200, "log-0")


def test_a_split_found_later_has_no_row_from_before_the_first_request() -> None:
    arrivals = requests((100, {A: 0}), (200, {A: 0, B: 3}))
    assert arrivals.oldest({A: 0, B: 0}) == Unprocessed(100, "log-1")


def test_a_split_that_does_not_answer_counts_from_its_last_answer() -> None:
    first = requests((100, {A: 5, B: 5}), committed={A: 5, B: 5})
    arrivals = first.after({A: 5, B: 5}, answer(200, {A: 5}, unknown={B}), frozenset())
    assert arrivals.oldest({A: 5, B: 5}) == Unprocessed(100, "log-1")


def test_rows_of_a_table_under_snapshot_have_an_unknown_age() -> None:
    first = requests((100, {A: 5}), committed={A: 5})
    arrivals = first.after({A: 5}, answer(200, {A: 5, B: 3}), {B})
    assert arrivals.oldest({A: 5, B: 0}) == Unprocessed(100, "log-1", is_older=True)


def test_a_log_that_was_truncated_begins_again() -> None:
    arrivals = requests((100, {A: 0}), (200, {A: 9}), (300, {A: 2}))
    assert arrivals.oldest({A: 2}) == Unprocessed(300)
    assert arrivals.oldest({A: 0}) == Unprocessed(100, "log-0")


def test_ends_before_the_committed_rows_are_dropped_and_a_long_backlog_keeps_few() -> None:
    arrivals = Arrivals()
    for n in range(1_000):
        arrivals = arrivals.after({A: 0}, answer(n, {A: n}), frozenset())
        assert len(arrivals.ends.get(A, ())) <= 66
        found = arrivals.oldest({A: n // 2})
        # Each row with a position arrived just after the request of that number: never before the bound.
        assert found is not None
        assert found.arrived <= n // 2
    arrivals = arrivals.after({A: 999}, answer(1_000, {A: 1_000}), frozenset())
    assert arrivals.ends[A] == ((999, 999), (1_000, 1_000))


def test_when_new_rows_were_last_found_is_kept() -> None:
    assert requests((100, {A: 5})).rows_at is None
    found = requests((100, {A: 5}), (200, {A: 6}), (300, {A: 6}))
    assert (found.rows_after, found.rows_at) == (100, 200)


def test_time_in_a_status_is_between_the_moments_at_which_it_changed() -> None:
    times = StatusTimes(SplitStatus.ACTIVE, Millis(100))
    times = times.changed(SplitStatus.IDLE, Millis(150)).changed(SplitStatus.ACTIVE, Millis(450))
    times = times.changed(SplitStatus.PAUSED, Millis(500))
    assert times.as_of(Millis(501)) == TimeInStatus(active=100, idle=300, paused=1, changes=3)


def test_a_status_lasts_from_the_request_of_the_plan_that_began_it_to_that_of_the_one_that_ended_it() -> None:
    log, history = log_of([100], [200]), History()
    state = SourceState(splits={A: at(1, 99), B: at(1, 199)}, watermark=Millis(99))
    for now in (1_000, 1_100, 1_130):
        if now == 1_130:
            log.splits[A].append([300])
        planned = plan(state, observation(log, now=Millis(now)), PlanPolicy(idleness=Idleness(timeout=50)), log)
        # The plan itself takes a while.
        history, state = history.after(state, planned, Millis(now + 7)), planned.state
    assert history.times[A].as_of(Millis(1_200)) == TimeInStatus(active=170, idle=30, paused=0, changes=2)
    assert history.times[B].as_of(Millis(1_200)) == TimeInStatus(active=100, idle=100, paused=0, changes=1)
    assert (history.status_changes, history.watermark_changes) == (3, 1)
    assert history.unprocessed == Unprocessed(1_100, "log-0")
    assert history.arrivals.oldest({A: 2, B: 1}) == Unprocessed(1_130)


def test_the_first_plan_of_a_process_counts_the_status_of_the_checkpoint_from_now_on() -> None:
    log = log_of([100], [200])
    state = SourceState(splits={A: at(1, 99, status=SplitStatus.IDLE, since=Millis(5)), B: at(1, 199)})
    seen = observation(log, now=Millis(1_000))
    planned = plan(state, seen, PlanPolicy(idleness=Idleness(timeout=50)), log)
    history = History().after(state, planned, Millis(1_000))
    assert history.times[A].as_of(Millis(1_200)) == TimeInStatus(0, 200, 0)
    assert (history.watermark_changes, history.unprocessed) == (planned.state.watermark is not None, Unprocessed(1_000))
