from __future__ import annotations

import pytest

from tests.reference.alignment.pausing import (
    TRANSITIONS,
    PauseRequest,
    SplitEvent,
    SplitPausing,
    add_split,
    deliverable,
    on_active,
    on_limit,
    on_quiet,
    on_watermark,
)
from tests.reference.eventtime.accounting import Activity
from watermark_source.errors import InternalError
from watermark_source.eventtime.watermark import Millis


def test_every_state_answers_every_event() -> None:
    assert set(TRANSITIONS) == {(state, event) for state in Activity for event in SplitEvent}


def test_only_the_limit_lets_a_paused_split_go() -> None:
    leads_out = {event for (state, event), to in TRANSITIONS.items() if state is Activity.PAUSED and to is not state}
    assert leads_out == {SplitEvent.WITHIN}


def test_the_pause_of_an_idle_split_comes_when_it_is_active() -> None:
    state: SplitPausing[str] = add_split(SplitPausing(), "s")
    state, _ = on_watermark(state, "s", Millis(7))
    state, request = on_limit(on_quiet(state, "s"), Millis(4))
    assert not request
    state, request = on_active(state, "s")
    assert request == PauseRequest(pause=frozenset("s"))


def test_a_split_that_is_not_read_is_an_error() -> None:
    with pytest.raises(InternalError, match="split s is not being read"):
        on_watermark(SplitPausing(), "s", Millis(7))


def test_an_empty_request_asks_nothing_of_a_reader_that_cannot_pause() -> None:
    nothing: PauseRequest[str] = PauseRequest()
    assert deliverable(nothing, reader_can_pause=False, allow_unaligned_splits=False) == nothing
