from __future__ import annotations

from tests.reference.eventtime.valve import TRANSITIONS, ChannelStatus, Signal, on_status, on_watermark, valve
from tests.reference.eventtime.watermark import END, Status, Watermark
from watermark_source.eventtime.watermark import MAX, Millis


def clock(time: int) -> Watermark:
    return Watermark(Millis(time), use_processing_time=True)


def at(time: int) -> Watermark:
    return Watermark(Millis(time))


def test_every_status_answers_every_signal() -> None:
    assert set(TRANSITIONS) == {(status, signal) for status in ChannelStatus for signal in Signal}


def test_a_channel_that_goes_with_the_clock_is_not_the_minimum() -> None:
    state, _ = on_watermark(valve(2), 0, clock(3))
    assert on_watermark(state, 1, at(7))[1] == (at(7),)


def test_the_flag_goes_out_when_all_aligned_channels_have_it() -> None:
    state, _ = on_watermark(valve(2), 0, clock(3))
    assert on_watermark(state, 1, clock(7))[1] == (clock(3),)


def test_a_channel_without_the_flag_is_behind_one_that_went_out() -> None:
    state, _ = on_status(valve(2), 1, Status.IDLE)
    state, sent = on_watermark(state, 0, clock(3))
    assert sent == (clock(3),)
    state, sent = on_status(state, 1, Status.ACTIVE)
    assert sent == ()
    state, sent = on_watermark(state, 1, at(9))
    assert sent == ()
    assert [c.aligned for c in state.channels] == [True, False]
    assert on_watermark(state, 0, clock(8))[1] == (clock(8),)


def test_a_channel_with_the_flag_does_not_turn_idle() -> None:
    state, _ = on_watermark(valve(1), 0, clock(3))
    assert on_status(state, 0, Status.IDLE) == (state, ())


def test_a_flagged_watermark_wakes_an_idle_channel() -> None:
    state, _ = on_status(valve(1), 0, Status.IDLE)
    assert on_watermark(state, 0, clock(3))[1] == (Status.ACTIVE, clock(3))


def test_a_finished_channel_answers_nothing_more() -> None:
    state, _ = on_watermark(valve(2), 0, END)
    for said in (Status.IDLE, Status.ACTIVE):
        assert on_status(state, 0, said) == (state, ())
    assert on_watermark(state, 0, clock(5)) == (state, ())
    assert on_watermark(state, 0, END) == (state, ())


def test_idle_channels_keep_the_valve_idle_when_the_last_active_one_ends() -> None:
    state, _ = on_status(valve(2), 0, Status.IDLE)
    state, sent = on_watermark(state, 1, END)
    assert sent == (Status.IDLE,)
    state, sent = on_status(state, 0, Status.ACTIVE)
    assert sent == (Status.ACTIVE,)
    state, sent = on_watermark(state, 0, at(4))
    assert sent == (at(4),)
    assert on_watermark(state, 0, END)[1] == (END,)


def test_the_end_of_a_stream_that_went_with_the_clock_keeps_the_flag() -> None:
    state, _ = on_watermark(valve(1), 0, clock(3))
    assert on_watermark(state, 0, END)[1] == (clock(MAX),)
