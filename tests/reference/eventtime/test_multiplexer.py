from __future__ import annotations

import pytest

from tests.reference.eventtime.multiplexer import Mode, Multiplexer, register, set_status, tick, unregister, update
from tests.reference.eventtime.watermark import Status, Watermark
from watermark_source.errors import InternalError
from watermark_source.eventtime.watermark import Millis


def two() -> Multiplexer[str]:
    return register(register(Multiplexer(), "a")[0], "b")[0]


def test_registering_twice_is_an_error() -> None:
    with pytest.raises(InternalError, match="split a is registered already"):
        register(two(), "a")


@pytest.mark.parametrize("mode", Mode)
def test_an_unknown_split_is_an_error(mode: Mode) -> None:
    with pytest.raises(InternalError, match="split c is not registered"):
        update(two(), "c", Watermark(Millis(1)), mode)
    with pytest.raises(InternalError, match="split c is not registered"):
        set_status(two(), "c", Status.IDLE, mode)


def test_what_a_released_split_deferred_is_not_lost() -> None:
    state, _ = update(two(), "a", Watermark(Millis(5)), Mode.DEFERRED)
    state, _ = set_status(state, "b", Status.IDLE, Mode.DEFERRED)
    state, existed, sent = unregister(state, "a")
    assert existed
    assert sent == (Watermark(Millis(5)),)


def test_splits_that_go_with_the_clock_make_the_source_go_with_it() -> None:
    clock = Watermark(Millis(3), use_processing_time=True)
    state, sent = update(two(), "a", clock)
    assert sent == ()
    state, sent = update(state, "b", clock)
    assert sent == (clock,)
    assert tick(state)[1] == ()


def test_a_split_marked_active_wakes_the_source() -> None:
    state = two()
    for split in ("a", "b"):
        state, _ = set_status(state, split, Status.IDLE)
    assert set_status(state, "a", Status.ACTIVE)[1] == (Status.ACTIVE,)
