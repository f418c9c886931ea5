"""What a source's status states of its group: only times are shown as times."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import count

import pytest

from tests.spark.file_log import TABLE
from tests.unit.planning.example_states import A, B, C, at, log_of, observation
from watermark_source.clock import Clock
from watermark_source.planning.announced import AnnouncedBy
from watermark_source.planning.disorder import Learned
from watermark_source.planning.group import FIRST, OtherMember, OtherMembers, Peer, incomplete
from watermark_source.planning.holds import HeldBy
from watermark_source.planning.observation import LogTimes
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import AfterCatchUp, Alignment, PlanPolicy
from watermark_source.planning.range_report import BOUNDS_MS, LateRows, RowTotals
from watermark_source.planning.state import CatchUp, Returning, SourceState, SplitStatus
from watermark_source.planning.strategy import Announced, Ingestion, Percentile
from watermark_source.planning.watermark import MAX, MIN, Millis
from watermark_source.spark.driver.status import StatusReport
from watermark_source.spark.driver.status_from_plan import Seen, source_status
from watermark_source.spark.driver.task_reports import RowCounts
from watermark_source.spark.options import EngineOptions
from watermark_source.status_model.hold_texts import advice_of
from watermark_source.status_model.source_status import SourceStatus, Status
from watermark_source.status_model.status_json import status_from_json, status_to_json

GIVEN = {"alignmentGroup": "g", "alignmentMaxDrift": "10 ms"}
OPTIONS = EngineOptions.of(TABLE.parse(GIVEN), format_name="file-log", given=GIVEN)


BEGUN = SourceState(splits={A: at(1, 99)}, watermark=Millis(99))


def seen_beside(others: OtherMembers, state: SourceState = BEGUN) -> Seen:
    """Return a plan of a source that has read a row at 100, and has another one at 200."""
    log = log_of([100, 200])
    seen = observation(log, others=others)
    return Seen(plan(state, seen, PlanPolicy(alignment=Alignment(max_drift=10)), log), RowCounts(), store="driver")


def status_beside(others: OtherMembers) -> SourceStatus:
    seen = seen_beside(others)
    return source_status(seen, OPTIONS, "file-log", seen.plan.observation.now)


def test_the_newest_in_the_log_is_shown_where_the_plan_knows_it() -> None:
    assert [view.newest_in_log for view in status_beside(OtherMembers()).splits] == [200]
    seen = seen_beside(OtherMembers())
    known = seen.plan.observation
    unknown = replace(known, logs=replace(known.logs, times=LogTimes()))
    status = source_status(replace(seen, plan=replace(seen.plan, observation=unknown)), OPTIONS, "file-log", known.now)
    assert [view.newest_in_log for view in status.splits] == [None]


def test_a_silence_that_begins_or_ends_is_in_the_status_at_once_and_not_a_second_later() -> None:
    report = StatusReport(OPTIONS, "file-log", Clock())
    shown, state = [], BEGUN
    for silent in (900, 1_600, 100):
        peer = Peer("frozen", "active", Millis(20), silent, is_waited_for=True)
        seen = seen_beside(OtherMembers(Millis(20), OtherMember("frozen"), 1, peers=(peer,)), state)
        report.note(seen, state)
        state = seen.plan.state
        group = status_from_json(report.json() or {}).group
        assert group is not None
        shown.append(group.peers[0].silent)
    # It waits for the other one: no plan after the first is a batch.
    assert not seen.plan.is_batch
    assert shown == [900, 1_600, 100]


@pytest.mark.parametrize(("price", "lasts"), [(0.0, 1.0), (0.05, 5.0), (3.0, 10.0)])
def test_a_status_that_takes_long_is_made_more_rarely_without_a_batch_and_once_in_ten_seconds_at_least(
    monkeypatch: pytest.MonkeyPatch, price: float, lasts: float
) -> None:
    now, used = 1_000.0, count(0.0, price)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "thread_time", lambda: next(used))
    report = StatusReport(OPTIONS, "file-log", Clock())
    report.note(seen_beside(OtherMembers(Millis(20), OtherMember("users"), 1)), BEGUN)
    made = report.json()
    now += lasts - 0.001
    assert report.json() is made
    now += 0.002
    assert report.json() is not made


@pytest.mark.parametrize("minimum", [MIN, FIRST])
def test_while_another_has_not_begun_there_is_no_limit_that_is_a_time(minimum: Millis) -> None:
    status = status_beside(OtherMembers(minimum, OtherMember("users"), 1))
    assert status.group is not None
    # While the first rows are read, no one has to be started.
    assert (status.group.limit, status.group.hold, status.group.store) == (None, True, "driver")
    assert advice_of(status) == ""
    assert status.splits[0].why == "reads nothing before its alignment group may begin: waits for users"


def test_drift_is_against_the_slowest_of_the_group_which_may_be_another_source() -> None:
    (alone,) = status_beside(OtherMembers()).splits
    assert alone.drift == 0
    (behind,) = status_beside(OtherMembers(Millis(150), OtherMember("users"), 1)).splits
    assert behind.drift == 0
    (ahead,) = status_beside(OtherMembers(Millis(20), OtherMember("users"), 1)).splits
    assert (ahead.drift, ahead.holds_back) == (79, False)
    (first,) = status_beside(OtherMembers(FIRST, OtherMember("users"), 1)).splits
    assert first.drift is None


@pytest.mark.parametrize(
    ("read", "elsewhere", "holder"),
    [
        (1, None, (HeldBy.SPLIT, "log-0")),
        (1, 150_000, (HeldBy.SPLIT, "log-0")),
        (1, 20_000, (HeldBy.SPLIT, "log-0")),
        (2, 150_000, (HeldBy.SPLIT, "log-0")),
        # Its next row is too far ahead of the other source.
        (2, 20_000, (HeldBy.SOURCE, "users")),
    ],
)
def test_a_source_is_held_by_its_slowest_split_or_by_the_source_that_this_waits_for(
    read: int, elsewhere: int | None, holder: tuple[HeldBy, str]
) -> None:
    log = log_of([100_000, 101_000][:read], [400_000])
    others = OtherMembers() if elsewhere is None else OtherMembers(Millis(elsewhere), OtherMember("users"), 1)
    seen = observation(log, others=others)
    state = SourceState(splits={A: at(1, 99_999), B: at(1, 399_999)}, watermark=Millis(99_999))
    planned = plan(state, seen, PlanPolicy(alignment=Alignment(max_drift=10)), log)
    status = source_status(Seen(planned, RowCounts()), OPTIONS, "file-log", seen.now)
    (held,) = status.holds
    assert (held.by, held.name) == holder
    assert {v.split: v.holds_back for v in status.splits} == {A: held.by is HeldBy.SPLIT, B: False}
    assert held.by is HeldBy.SPLIT or held.why == "log-0 is paused: 1 min 19 s ahead of users (alignmentMaxDrift 10 ms)"


def test_the_status_has_the_watermark_that_there_would_be_without_what_holds_it() -> None:
    for log, splits, sent, without in (
        (log_of([100], [40_000]), {A: at(1, 99), B: at(1, 39_999)}, 99, 39_999),
        (log_of([100], [400], [40_000]), {A: at(1, 99), B: at(1, 399), C: at(1, 39_999)}, 99, 39_999),
        (log_of([400], []), {A: at(1, 399), B: at(0)}, None, 399),
        (log_of([100], [400]), {A: at(1, 99), B: at(1, 399)}, 99, None),
        (log_of([100]), {A: at(1, 99)}, 99, None),
    ):
        seen = observation(log)
        state = SourceState(splits=splits, watermark=None if sent is None else Millis(sent))
        planned = plan(state, seen, PlanPolicy(), log)
        status = source_status(Seen(planned, RowCounts()), OPTIONS, "file-log", seen.now)
        assert status.without_holder == without
        assert status_from_json(status_to_json(status)) == status


def test_the_status_has_why_rows_are_late_as_the_strategy_in_force_has_it() -> None:
    log, counts = log_of([100]), RowCounts()
    counts.totals = RowTotals(read=3, late=LateRows((3,) + (0,) * len(BOUNDS_MS), 500, 900))
    planned = plan(SourceState(splits={A: at(1, 99)}, watermark=Millis(99)), observation(log), PlanPolicy(), log)
    for policy in (PlanPolicy(), PlanPolicy(strategy=Ingestion(10_000))):
        status = source_status(
            Seen(planned, counts), replace(OPTIONS, policy=policy), "file-log", planned.observation.now
        )
        assert status.late_cause == policy.strategy.cause_of_late_rows(500)
        assert status_from_json(status_to_json(status)) == status


def test_the_status_has_the_bound_that_was_learned_and_no_newest_time_by_its_limit() -> None:
    policy, learned = PlanPolicy(strategy=Percentile.of(950_000, 600_000)), Learned(2_000)
    splits = {A: replace(at(1, 97_999), highest=Millis(100_000)), B: at(1, 97_999)}
    state = SourceState(splits=splits, watermark=Millis(97_999), learned=learned)
    log = log_of([100_000], [100_000])
    planned = plan(state, observation(log), policy, log)
    status = source_status(
        Seen(planned, RowCounts()), replace(OPTIONS, policy=policy), "file-log", planned.observation.now
    )
    assert status.out_of_orderness == 2_000
    assert {hold.newest for hold in status.slowest} == {100_000}


def test_beside_a_clock_the_status_has_no_newest_time_by_the_bound() -> None:
    policy, log = PlanPolicy(strategy=Ingestion(10_000, 60_000)), log_of([100_000])
    planned = plan(SourceState(splits={A: at(1, 39_999)}, watermark=Millis(39_999)), observation(log), policy, log)
    status = source_status(
        Seen(planned, RowCounts()), replace(OPTIONS, policy=policy), "file-log", planned.observation.now
    )
    assert (status.out_of_orderness, {hold.newest for hold in status.slowest}) == (None, {None})


def test_once_time_is_the_clock_the_status_has_no_watermarks_of_splits_and_none_is_idle() -> None:
    given = {**GIVEN, "idleTimeout": "5 ms"}
    options = EngineOptions.of(TABLE.parse(given), format_name="file-log", given=given)
    options = replace(options, policy=replace(options.policy, after_catch_up=AfterCatchUp.CLOCK))
    policy = options.policy
    log = log_of([100], [400])
    idle = replace(at(1, 99), status=SplitStatus.IDLE, since=Millis(0))
    state = SourceState(splits={A: idle, B: at(1, 399)}, watermark=Millis(99), catch_up=CatchUp({}, again=True))
    planned = plan(state, observation(log), policy, log)
    status = source_status(Seen(planned, RowCounts()), options, "file-log", planned.observation.now)
    assert status.processing_time
    assert [(v.status, v.holds_back, v.idle_after) for v in status.splits] == [(Status.ACTIVE, False, None)] * 2
    assert (status.idle_timeout, status.out_of_orderness, status.without_holder) == (None, None, None)
    assert status.group is not None
    assert status.group.max_drift is None


def test_the_lowest_drift_of_the_group_sets_the_limit_and_the_status_names_whose_it_is() -> None:
    low = OtherMembers(Millis(98), OtherMember("users"), 2, drift=5, drift_of="orders")
    status = status_beside(low)
    assert status.group is not None
    assert (status.group.limit, status.group.max_drift) == (103, 5)
    assert (status.group.max_drift_of, status.group.own_max_drift) == ("orders", 10)
    assert status.splits[0].why == "next record over 5 ms ahead of users (alignmentMaxDrift of orders)"
    higher = status_beside(replace(low, drift=11)).group
    assert higher is not None
    assert (higher.limit, higher.max_drift, higher.max_drift_of, higher.own_max_drift) == (108, 10, None, None)


def test_a_limit_that_is_a_time_is_shown_and_one_that_is_none_is_not() -> None:
    group = status_beside(OtherMembers(Millis(150), OtherMember("users"), 1)).group
    assert group is not None
    assert (group.limit, group.hold) == (160, False)
    unlimited = status_beside(incomplete(OtherMembers(), Millis(MAX))).group
    assert unlimited is not None
    # Its own log's end, with the drift.
    assert (unlimited.limit, unlimited.hold) == (209, False)


def test_a_split_that_came_back_holds_back_until_it_is_known_how_far_behind_it_is() -> None:
    given = {**GIVEN, "idleTimeout": "1 second", "idleReturn": "pass"}
    options = EngineOptions.of(TABLE.parse(given), format_name="file-log", given=given)
    log = log_of([400], [100])
    seen = observation(log)
    for came_to, holds_back in ((None, True), (99, False)):
        back = at(1, came_to, returning=Returning.READ)
        state = SourceState(splits={A: at(1, 399), B: back}, watermark=Millis(399))
        planned = plan(state, seen, options.policy, log)
        status = source_status(Seen(planned, RowCounts()), options, "file-log", seen.now)
        assert {v.split: v.holds_back for v in status.splits}[B] is holds_back


@pytest.mark.parametrize(
    ("run", "seen", "why"),
    [
        (1, None, "no record seen yet; holds the watermark"),
        (2, None, "no record seen since the query was started; holds the watermark"),
        (
            2,
            RowTotals(read=20, undated=20),
            "20 records, none with an event time; holds the watermark, and is never idle without idleTimeout",
        ),
    ],
)
def test_a_split_without_a_watermark_says_what_was_read_of_it(run: int, seen: RowTotals | None, why: str) -> None:
    log, counts = log_of([100], range(20)), RowCounts()
    if seen is not None:
        counts.add(B, seen)
    observed = observation(log)
    planned = plan(SourceState(splits={A: at(1, 99), B: at(20)}, run=run), observed, PlanPolicy(), log)
    status = source_status(Seen(planned, counts), OPTIONS, "file-log", observed.now)
    assert {v.split: v.why for v in status.splits}[B] == why


def test_a_split_of_an_announced_source_lacks_no_event_time() -> None:
    log, counts = log_of(range(20)), RowCounts()
    counts.add(A, RowTotals(read=20))
    observed = observation(log)
    options = replace(OPTIONS, policy=replace(OPTIONS.policy, strategy=Announced(AnnouncedBy())))
    planned = plan(SourceState(splits={A: at(20)}), observed, PlanPolicy(strategy=options.policy.strategy), log)
    (view,) = source_status(Seen(planned, counts), options, "file-log", observed.now).splits
    assert (view.watermark, view.why) == (None, "caught up")


@pytest.mark.parametrize("passes", [False, True])
def test_a_split_that_was_idle_and_is_behind_says_so(passes: bool) -> None:
    given = {**GIVEN, "idleTimeout": "1 second", "idleReturn": "pass" if passes else "wait"}
    options = EngineOptions.of(TABLE.parse(given), format_name="file-log", given=given)
    log = log_of([400_000], [100_000])
    back = at(1, 99_999, returning=Returning.READ if passes else None)
    state = SourceState(splits={A: at(1, 399_999), B: back}, watermark=Millis(399_999))
    seen = observation(log)
    planned = plan(state, seen, options.policy, log)
    reported = Seen(planned, RowCounts(), idled={B})
    (ahead, behind) = source_status(reported, options, "file-log", seen.now).splits
    assert "behind the watermark" not in ahead.why
    assert "5 min behind the watermark (it was idle): its rows up to there are late" in behind.why
    assert ("advances without it" in behind.why) is passes


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, (None, 0)),
        ({"idleTimeout": "30 seconds", "maxOutOfOrderness": "10 seconds"}, (30_000, 10_000)),
        ({"watermarkStrategy": "none"}, (None, None)),
        ({"watermarkStrategy": "tests.unit.planning.generators:ByParity"}, (None, None)),
    ],
)
def test_the_options_that_decide_when_a_window_closes_are_in_the_status(
    given: dict[str, str], shown: tuple[int | None, int | None]
) -> None:
    options = EngineOptions.of(TABLE.parse(given), format_name="file-log", given=given)
    log = log_of([100])
    seen = observation(log)
    planned = plan(SourceState(splits={A: at(1, 99)}, watermark=Millis(99)), seen, PlanPolicy(), log)
    status = source_status(Seen(planned, RowCounts()), options, "file-log", seen.now)
    assert (status.idle_timeout, status.out_of_orderness, status.late_cause) == (*shown, None)
    assert status_from_json(status_to_json(status)) == status


def test_a_silence_is_as_long_as_the_plan_saw_it_however_long_its_batch_takes() -> None:
    log = log_of([100], [400], [400, 500])
    seen = observation(log)
    asked_at = seen.logs.asked_at
    splits = {A: at(1, 99, since=Millis(asked_at - 3)), B: at(1, 399, since=Millis(asked_at - 12_000)), C: at(1, 399)}
    planned = plan(SourceState(splits=splits, watermark=Millis(99)), seen, PlanPolicy(), log)
    assert planned.is_batch
    status = source_status(Seen(planned, RowCounts()), OPTIONS, "file-log", Millis(seen.now + 70_000))
    assert [(v.why, v.quiet, v.unobserved) for v in status.splits] == [
        ("caught up", 3, 0),
        ("nothing to read for 12 s", 12_000, 0),
        ("caught up", None, 1),
    ]
    assert status_from_json(status_to_json(status)) == status
