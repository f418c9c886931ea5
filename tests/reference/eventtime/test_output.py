from __future__ import annotations

import pytest

from tests.reference.eventtime.output import Feeder, Output, SourceOutput, emit, feed, finish, mark
from tests.reference.eventtime.watermark import END, Status, Watermark
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import MAX, Millis

CLOCK = Watermark(Millis(10), use_processing_time=True)


def test_a_stream_that_goes_with_the_clock_is_never_idle() -> None:
    output, _ = emit(Output(), CLOCK, Millis(50))
    assert mark(output, Status.IDLE) == (output, ())


def test_a_flagged_watermark_wakes_an_idle_output_first() -> None:
    output, _ = mark(Output(), Status.IDLE)
    assert emit(output, CLOCK, Millis(50))[1] == (Status.ACTIVE, CLOCK)


def test_a_flagged_watermark_never_takes_time_back() -> None:
    output, _ = emit(Output(), Watermark(Millis(30)), Millis(50))
    assert emit(output, CLOCK, Millis(50))[1] == (Watermark(Millis(30), use_processing_time=True),)


def test_a_flagged_watermark_may_name_the_clock_itself_and_nothing_beyond() -> None:
    assert emit(Output(), CLOCK, Millis(10))[1] == (CLOCK,)
    with pytest.raises(UsageError, match="system clock is 9; the clock must have reached both"):
        emit(Output(), CLOCK, Millis(9))


def test_the_end_keeps_the_flag_and_wakes_an_idle_output() -> None:
    output, _ = emit(Output(), CLOCK, Millis(50))
    assert finish(output)[1] == (Watermark(MAX, use_processing_time=True),)
    assert finish(mark(Output(), Status.IDLE)[0])[1] == (Status.ACTIVE, END)


def test_a_feeder_that_is_never_used_blocks_nothing() -> None:
    source, sent = feed(SourceOutput(), Feeder.SPLITS, Status.IDLE, Millis(0))
    assert sent == (Status.IDLE,)
    assert source.idle == frozenset(Feeder)


def test_a_swallowed_watermark_makes_its_feeder_active() -> None:
    source, _ = feed(SourceOutput(), Feeder.MAIN, Watermark(Millis(5)), Millis(0))
    source, _ = feed(source, Feeder.MAIN, Status.IDLE, Millis(0))
    source, sent = feed(source, Feeder.MAIN, Watermark(Millis(5)), Millis(0))
    assert sent == (Status.ACTIVE,)
    assert feed(source, Feeder.SPLITS, Status.IDLE, Millis(0))[1] == ()
