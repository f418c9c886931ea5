"""Properties of alignment: there is always somebody who may go on, and nobody goes further than allowed."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from tests.reference.alignment import pausing as ps
from tests.reference.alignment.aggregator import Aggregator, latest, removed
from tests.reference.alignment.group import Group, change, join, leave, report, report_all
from tests.reference.strategies import any_times, drifts, ended
from watermark_source.alignment.group import MemberStatus, limit, view
from watermark_source.eventtime.watermark import MAX, MIN, Millis

KEYS = list("abcd")
keys = st.sampled_from(KEYS)
changes = st.one_of(
    any_times,
    ended,
    st.sampled_from([MemberStatus.IDLE, MemberStatus.FINISHED, MemberStatus.ACTIVE]),
    st.none(),
)
histories = st.lists(st.tuples(keys, changes), max_size=40)


def lived(history: list[tuple[str, Millis | MemberStatus | None]], drift: int) -> Group[str]:
    """A group after a history of reports, statuses and departures (None)."""
    group: Group[str] = Group("g", drift)
    for key, what in history:
        if what is None:
            group = leave(group, key)
            continue
        group = join(group, key, drift=drift)
        group = change(group, key, what) if isinstance(what, MemberStatus) else report(group, key, what)
    return group


def counting(group: Group[str]) -> dict[str, Millis]:
    return {
        k: m.watermark for k, m in group.members.items() if m.status is MemberStatus.ACTIVE and m.watermark is not None
    }


@given(histories, drifts)
def test_some_active_member_may_always_go_on(
    history: list[tuple[str, Millis | MemberStatus | None]], drift: int
) -> None:
    group = lived(history, drift)
    assert not counting(group) or group.held_back() < frozenset(counting(group))


@given(histories, drifts)
def test_the_minimum_is_never_stale(history: list[tuple[str, Millis | MemberStatus | None]], drift: int) -> None:
    group = lived(history, drift)
    active = counting(group)
    assert group.counting.minimum == min(active.values(), default=None)
    assert group.view() == view(active.items(), drift)
    assert (group.view().slowest is None) == (not active)


@given(histories, drifts, st.sampled_from([MemberStatus.IDLE, MemberStatus.FINISHED]))
def test_nobody_waits_once_the_slow_ones_leave_or_catch_up(
    history: list[tuple[str, Millis | MemberStatus | None]], drift: int, how: MemberStatus
) -> None:
    group = lived(history, drift)
    while group.held_back():
        slowest = group.view().slowest
        assert slowest is not None
        fastest = max(counting(group).values())
        caught_up = report(group, slowest, fastest)
        assert caught_up.held_back() - {slowest} <= group.held_back()
        group = change(group, slowest, how)
    assert group.held_back() == frozenset()


@given(histories, st.dictionaries(keys, any_times))
def test_many_reports_at_once_are_the_same_as_one_after_the_other(
    history: list[tuple[str, Millis | MemberStatus | None]], watermarks: dict[str, Millis]
) -> None:
    group = lived(history, 5)
    watermarks = {key: watermark for key, watermark in watermarks.items() if key in group.members}
    one_by_one = reduce(lambda g, item: report(g, *item), watermarks.items(), group)
    at_once = report_all(group, watermarks)
    assert at_once == one_by_one
    assert list(at_once.members) == list(one_by_one.members)


@given(any_times | ended | st.none(), drifts)
def test_the_limit_saturates_and_is_never_below_the_minimum(minimum: Millis | None, drift: int) -> None:
    found = limit(minimum, drift)
    assert MIN <= found <= MAX
    if minimum is None:
        assert found == MAX
    else:
        assert found == min(minimum + drift, MAX)


@given(histories)
def test_without_active_members_there_is_no_limit(history: list[tuple[str, Millis | MemberStatus | None]]) -> None:
    group = lived(history, 5)
    for key in group.members:
        group = change(group, key, MemberStatus.IDLE)
    assert group.limit == MAX


@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(any_times, ended, st.none())), max_size=60))
def test_the_aggregator_has_the_true_minimum(script: list[tuple[int, Millis | None]]) -> None:
    state: Aggregator[int] = Aggregator()
    truth: dict[int, Millis] = {}
    for key, value in script:
        if value is None:
            state = removed(state, key)
            truth.pop(key, None)
        else:
            state = latest(state, key, value)
            truth[key] = value
        assert dict(state.values) == truth
        assert state.minimum == min(truth.values(), default=None)


steps = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=60)


@given(steps, st.integers(0, 20))
def test_with_instant_limits_nobody_is_ahead_by_more_than_one_record(script: list[tuple[int, int]], drift: int) -> None:
    group: Group[int] = Group("g", drift)
    state: ps.SplitPausing[int] = ps.SplitPausing()
    watermark = dict.fromkeys(range(3), Millis(0))
    for split in range(3):
        group = report(join(group, split, drift=drift), split, Millis(0))
        state = ps.add_split(state, split)
    state, _ = ps.on_limit(state, group.limit)
    for split, step in script:
        if split in state.paused:
            continue
        allowed = group.limit
        assert watermark[split] <= allowed
        watermark[split] = Millis(watermark[split] + step)
        state, _ = ps.on_watermark(state, split, watermark[split])
        assert (split in state.paused) == (watermark[split] > allowed)
        group = report(group, split, watermark[split])
        state, _ = ps.on_limit(state, group.limit)
        assert frozenset(range(3)) - state.paused
        assert state.paused == group.held_back()


happenings = st.lists(
    st.tuples(keys, st.sampled_from(["watermark", "quiet", "active", "sample", "limit"]), st.integers(0, 20)),
    max_size=50,
)


def happen(state: ps.SplitPausing[str], key: str, what: str, value: int) -> ps.SplitPausing[str]:
    if what == "watermark":
        return ps.on_watermark(state, key, Millis(value))[0]
    if what == "quiet":
        return ps.on_quiet(state, key)
    if what == "active":
        return ps.on_active(state, key)[0]
    return ps.on_sample(state)[0] if what == "sample" else ps.on_limit(state, Millis(value))[0]


def reading(buffer_size: int) -> ps.SplitPausing[str]:
    state: ps.SplitPausing[str] = ps.SplitPausing(buffer_size)
    for key in KEYS:
        state = ps.add_split(state, key)
    return state


@given(happenings, st.integers(0, 3))
def test_a_paused_split_never_turns_idle(script: list[tuple[str, str, int]], buffer_size: int) -> None:
    state = reading(buffer_size)
    for key, what, value in script:
        before = state.paused
        state = happen(state, key, what, value)
        idle = {k for k, s in state.splits.items() if s.state is ps.Activity.IDLE}
        assert not before & idle


@given(happenings, st.integers(0, 3))
def test_every_split_is_let_go_when_the_limit_is_lifted(script: list[tuple[str, str, int]], buffer_size: int) -> None:
    state = reading(buffer_size)
    for key, what, value in script:
        state = happen(state, key, what, value)
    state, request = ps.on_limit(state, MAX)
    assert state.paused == frozenset()
    assert request.pause == frozenset()


@given(happenings, st.integers(0, 3))
def test_a_split_that_is_added_again_is_a_new_one(script: list[tuple[str, str, int]], buffer_size: int) -> None:
    state = reading(buffer_size)
    for key, what, value in script:
        state = happen(state, key, what, value)
    state = ps.add_split(ps.release_split(state, "a"), "a")
    assert state.splits["a"] == reading(buffer_size).splits["a"]
    assert "a" not in state.paused


@given(happenings, st.integers(0, 3))
def test_requests_say_exactly_what_changed(script: list[tuple[str, str, int]], buffer_size: int) -> None:
    state, at_reader = reading(buffer_size), frozenset[str]()
    for key, what, value in script:
        if what in ("sample", "limit"):
            state, request = ps.on_sample(state) if what == "sample" else ps.on_limit(state, Millis(value))
        elif what == "quiet":
            state, request = ps.on_quiet(state, key), ps.PauseRequest()
        else:
            state, request = (
                ps.on_active(state, key) if what == "active" else ps.on_watermark(state, key, Millis(value))
            )
        at_reader = ps.apply_request(at_reader, request, frozenset(KEYS))
        assert at_reader == state.paused
