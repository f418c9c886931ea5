"""Properties of outputs, combining and the valve, for any script of events."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.eventtime import multiplexer as mux
from tests.reference.eventtime import operator as op
from tests.reference.eventtime import output as out
from tests.reference.eventtime import valve as valves
from tests.reference.eventtime.combine import Member, recompute_watermark
from tests.reference.eventtime.output import Feeder, Output, SourceOutput
from tests.reference.eventtime.watermark import START, Emission, Status, Watermark
from tests.reference.strategies import any_times, emissions, flagged_emissions, small_times, watermarks
from watermark_source.errors import UsageError
from watermark_source.eventtime.lowest_of_active import recompute
from watermark_source.eventtime.watermark import MAX, MIN, Millis

Script = Sequence[tuple[int, Emission]]
NOW = Millis(MAX - 1)


def through_valve(channels: int, script: Script) -> tuple[valves.Valve, list[Emission]]:
    state, seen = valves.valve(channels), []
    for channel, said in script:
        if isinstance(said, Watermark):
            state, sent = valves.on_watermark(state, channel, said)
        else:
            state, sent = valves.on_status(state, channel, said)
        seen += sent
    return state, seen


def through_task(script: Script) -> list[Emission]:
    """Four channels, two in front of each input of one operator."""
    gates, state, seen = [valves.valve(2), valves.valve(2)], op.operator(2), []
    for number, said in script:
        gate, channel = divmod(number, 2)
        if isinstance(said, Watermark):
            gates[gate], passed = valves.on_watermark(gates[gate], channel, said)
        else:
            gates[gate], passed = valves.on_status(gates[gate], channel, said)
        for one in passed:
            if isinstance(one, Watermark):
                state, sent = op.on_watermark(state, gate, one)
            else:
                state, sent = op.on_status(state, gate, one)
            seen += sent
    return seen


def through_source(script: Script) -> list[Emission]:
    """Three splits behind the multiplexer; a fourth member is the main output; splits come at their first event."""
    state: mux.Multiplexer[int] = mux.Multiplexer()
    source, seen = SourceOutput(), []
    for number, said in script:
        feeder, passed = Feeder.MAIN, (said,)
        if number < 3:
            feeder, passed = Feeder.SPLITS, ()
            if number not in state.members:
                state, passed = mux.register(state, number)
            if isinstance(said, Watermark):
                state, more = mux.update(state, number, said)
            else:
                state, more = mux.set_status(state, number, said)
            passed = (*passed, *more)
        for one in passed:
            source, sent = out.feed(source, feeder, one, NOW)
            seen += sent
    return seen


def well_formed(seen: Sequence[Emission]) -> bool:
    status, last = Status.ACTIVE, START
    for one in seen:
        if isinstance(one, Status):
            if one is status:
                return False
            status = one
        else:
            if status is Status.IDLE or (one.timestamp, one.use_processing_time) <= (
                last.timestamp,
                last.use_processing_time,
            ):
                return False
            if one.timestamp < last.timestamp or one.use_processing_time < last.use_processing_time:
                return False
            last = one
    return True


@given(emissions(4, ends=True))
def test_a_task_sends_growing_watermarks_and_alternating_statuses(script: Script) -> None:
    assert well_formed(through_task(script))


@given(emissions(3, ends=True) | flagged_emissions(3))
def test_a_valve_sends_growing_watermarks_and_alternating_statuses(script: Script) -> None:
    assert well_formed(through_valve(3, script)[1])


@given(emissions(4))
def test_a_source_sends_growing_watermarks_and_alternating_statuses(script: Script) -> None:
    assert well_formed(through_source(script))


@given(emissions(4), st.permutations(range(4)), st.permutations(range(4)))
def test_the_order_of_turning_idle_does_not_matter_to_a_valve(script: Script, one: list[int], other: list[int]) -> None:
    ends = [through_valve(4, [*script, *((c, Status.IDLE) for c in order)]) for order in (one, other)]
    assert ends[0][0].last == ends[1][0].last
    assert ends[0][0].status is Status.IDLE


@given(emissions(3), st.permutations(range(3)), st.permutations(range(3)))
def test_the_order_of_turning_idle_does_not_matter_to_a_source(
    script: Script, one: list[int], other: list[int]
) -> None:
    met = [(0, Watermark(MIN)), (1, Watermark(MIN)), (2, Watermark(MIN)), *script]
    finals = []
    for order in (one, other):
        sent = through_source([*met, *((s, Status.IDLE) for s in order)])
        finals.append(max((w.timestamp for w in sent if isinstance(w, Watermark)), default=None))
    assert finals[0] == finals[1]


@given(st.lists(st.tuples(st.integers(0, 3), watermarks), max_size=40))
def test_without_idle_members_the_output_is_the_minimum_of_the_maxima(
    script: list[tuple[int, Watermark]],
) -> None:
    state, gate, highest = op.operator(4), valves.valve(4), [MIN] * 4
    for number, watermark in script:
        highest[number] = max(highest[number], watermark.timestamp)
        state, _ = op.on_watermark(state, number, watermark)
        gate, _ = valves.on_watermark(gate, number, watermark)
        assert state.combined.timestamp == gate.last.timestamp == min(highest)


@given(st.lists(st.tuples(any_times, st.booleans()), max_size=6), any_times)
def test_recompute_never_goes_back_and_says_whether_it_advanced(
    members: list[tuple[Millis, bool]], combined: Millis
) -> None:
    found = recompute(members, combined)
    active = [watermark for watermark, idle in members if not idle]
    found_by_hand = min(active, default=max((w for w, _ in members), default=combined))
    assert found.timestamp == max(found_by_hand, combined)
    assert found.advanced == (found.timestamp > combined)
    assert found.all_idle == (not active if members else combined > MIN)


@given(any_times, any_times, st.booleans(), st.booleans())
def test_two_inputs_combine_as_the_table_of_the_proposal_says(
    one: Millis, other: Millis, one_flag: bool, other_flag: bool
) -> None:
    members = [Member(Watermark(one, one_flag)), Member(Watermark(other, other_flag))]
    table = {
        (False, False): Watermark(min(one, other)),
        (False, True): Watermark(one),
        (True, False): Watermark(other),
        (True, True): Watermark(min(one, other), use_processing_time=True),
    }
    assert recompute_watermark(members, START).watermark == table[one_flag, other_flag]


@given(flagged_emissions(3))
def test_flag_of_a_valve_never_goes_back(script: Script) -> None:
    sent = [w for w in through_valve(3, script)[1] if isinstance(w, Watermark)]
    assert all(a.use_processing_time <= b.use_processing_time for a, b in pairwise(sent))


@given(emissions(3, ends=True))
def test_the_end_of_time_comes_once_and_last_and_when_every_channel_has_ended(script: Script) -> None:
    _, sent = through_valve(3, script)
    ended = {channel for channel, said in script if said == Watermark(MAX)}
    at = [i for i, one in enumerate(sent) if isinstance(one, Watermark) and one.timestamp == MAX]
    assert at == ([len(sent) - 1] if ended == {0, 1, 2} else [])


@given(emissions(1))
def test_an_output_ends_once_and_is_active_then(script: Script) -> None:
    output, seen = Output(), []
    for _, said in script:
        output, sent = out.emit(output, said, NOW) if isinstance(said, Watermark) else out.mark(output, said)
        seen += sent
    output, sent = out.finish(output)
    assert well_formed([*seen, *sent])
    assert sent[-1] == Watermark(MAX)
    assert output.status is Status.ACTIVE
    assert out.finish(output)[1] == ()


@given(emissions(3), st.integers(0, 2))
def test_removing_a_split_never_lowers_the_output_and_leaves_no_stale_minimum(script: Script, gone: int) -> None:
    state: mux.Multiplexer[int] = reduce(lambda s, n: mux.register(s, n)[0], range(3), mux.Multiplexer())
    for number, said in script:
        if isinstance(said, Watermark):
            state, _ = mux.update(state, number, said, mux.Mode.DEFERRED)
        else:
            state, _ = mux.set_status(state, number, said, mux.Mode.DEFERRED)
    before = mux.tick(state)[0].combined.timestamp
    state, existed, _ = mux.unregister(state, gone)
    assert existed
    assert state.combined.timestamp == before
    after = mux.tick(state)[0].combined.timestamp
    left = [(m.watermark.timestamp, m.idle) for m in state.members.values()]
    assert after == recompute(left, before).timestamp >= before


@given(emissions(2))
def test_a_split_that_is_registered_again_is_a_new_one(script: Script) -> None:
    state: mux.Multiplexer[int] = reduce(lambda s, n: mux.register(s, n)[0], range(2), mux.Multiplexer())
    for number, said in script:
        if isinstance(said, Watermark):
            state, _ = mux.update(state, number, said)
        else:
            state, _ = mux.set_status(state, number, said)
    state, _, _ = mux.unregister(state, 0)
    state, sent = mux.register(state, 0)
    assert state.members[0] == Member()
    assert not state.idle
    assert sent == (Status.ACTIVE,)


@given(small_times, small_times, small_times)
def test_a_flagged_watermark_needs_a_clock_that_has_reached_it(last: Millis, time: Millis, now: Millis) -> None:
    output, _ = out.emit(Output(), Watermark(last), NOW)
    watermark = Watermark(time, use_processing_time=True)
    if now < max(last, time):
        with pytest.raises(UsageError, match="system clock"):
            out.emit(output, watermark, now)
    else:
        assert out.emit(output, watermark, now)[1] == (Watermark(max(last, time), use_processing_time=True),)
