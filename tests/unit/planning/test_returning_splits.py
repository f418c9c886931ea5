"""Splits that come back from idleness."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.planning.example_states import AWAITED, BEHIND, A, B, at, idle
from watermark_source.planning.disorder import NOTHING_SEEN, RangeSummary
from watermark_source.planning.policy import Idleness
from watermark_source.planning.state import Returning, SourceState, SplitState, is_left_out, marked_returning, returned
from watermark_source.planning.watermark import Millis

PASSES, WAITS = Idleness(passes_returning=True), Idleness()
BEFORE = SourceState({A: at(1, 900), B: BEHIND}, watermark=Millis(500))


def test_whoever_was_idle_is_waited_for_until_it_is_read() -> None:
    assert is_left_out(BEHIND, BEFORE, PASSES)
    assert not is_left_out(BEHIND, BEFORE, WAITS)
    assert not is_left_out(at(1, 90), BEFORE, PASSES)
    assert not is_left_out(AWAITED, BEFORE, PASSES)
    assert not is_left_out(replace(BEHIND, watermark=None), BEFORE, PASSES)
    assert not is_left_out(BEHIND, SourceState(BEFORE.splits), PASSES)
    assert returned(AWAITED, RangeSummary(Millis(90))) == BEHIND
    # Of a transaction that was aborted.
    assert returned(AWAITED, NOTHING_SEEN) == AWAITED
    assert returned(at(1, 90), RangeSummary(Millis(90))) == at(1, 90)


@pytest.mark.parametrize(
    ("before", "planned", "returning"),
    [
        pytest.param(idle(90), at(1, 90), Returning.AWAITED, id="it comes back"),
        pytest.param(BEHIND, replace(BEHIND, watermark=Millis(499)), Returning.READ, id="it is behind"),
        pytest.param(BEHIND, replace(BEHIND, watermark=None), Returning.READ, id="none of its rows tells a time"),
        pytest.param(BEHIND, replace(BEHIND, watermark=Millis(500)), None, id="it has caught up"),
        pytest.param(BEHIND, replace(idle(90), returning=Returning.READ), None, id="it is idle again"),
        pytest.param(at(1, 90), at(1, 90), None, id="it was not idle"),
    ],
)
def test_a_split_comes_back_until_it_has_caught_up(
    before: SplitState, planned: SplitState, returning: Returning | None
) -> None:
    def marked(idleness: Idleness) -> SplitState:
        changed = marked_returning(SourceState({B: before}, watermark=Millis(500)), {B: planned}, idleness)
        assert changed != {B: planned}
        return changed.get(B, planned)

    assert marked(PASSES) == replace(planned, returning=returning)
    # As of a checkpoint of a query that passed them.
    assert marked(WAITS) == replace(planned, returning=None)


def test_before_the_first_watermark_no_split_is_behind() -> None:
    assert marked_returning(SourceState({B: BEHIND}), {B: BEHIND}, PASSES) == {B: replace(BEHIND, returning=None)}
