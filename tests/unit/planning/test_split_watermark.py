"""A split's watermark and its event times."""

from __future__ import annotations

from tests.unit.planning.example_states import NOW, at
from watermark_source.planning import split_watermarks
from watermark_source.planning.disorder import MILLION, RangeSummary
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState
from watermark_source.planning.strategy import Bounded, Percentile, ProcessingTime, Punctuated, WatermarkStrategy
from watermark_source.planning.watermark import MAX, MIN, Millis


def advanced(state: SplitState, seen: RangeSummary | None, strategy: WatermarkStrategy) -> SplitState:
    return split_watermarks.advanced(Split("t", 0), state, seen, strategy, None)


def test_watermark_and_event_time_are_inverse_and_saturate() -> None:
    strategy = Bounded(500)
    assert strategy.watermark_of(Millis(1_000)) == 499
    assert strategy.event_time_of(Millis(499)) == 1_000
    assert strategy.watermark_of(MIN) == MIN
    assert strategy.event_time_of(MAX) == MAX


def test_the_future_cap_is_the_skew_after_now() -> None:
    assert PlanPolicy().future_cap(NOW) is None
    assert PlanPolicy(max_future_skew=5).future_cap(NOW) == NOW + 5


def test_rows_that_were_read_lead_on_and_never_back() -> None:
    read, strategy = SplitState(9, 5, Millis(80)), Bounded(10)
    assert advanced(read, RangeSummary(Millis(100)), strategy) == at(9, 89)
    assert advanced(read, RangeSummary(Millis(50)), strategy) == at(9, 80)
    assert advanced(read, RangeSummary(), strategy) == at(9, 80)
    assert advanced(read, RangeSummary(Millis(100), marked=Millis(85)), Punctuated()) == at(9, 85)
    assert advanced(read, RangeSummary(Millis(100)), ProcessingTime()) == at(9, 80)


def test_a_learned_bound_that_became_less_moves_a_split_without_rows() -> None:
    def with_bound(bound: int) -> WatermarkStrategy:
        return Percentile(MILLION // 2, 1_000, 500, learned=bound)

    rests = at(9, 80, highest=Millis(100))
    assert advanced(rests, None, with_bound(10)) == at(9, 89, highest=Millis(100))
    assert advanced(rests, None, with_bound(19)) is rests
    assert advanced(at(9, highest=Millis(100)), None, with_bound(19)) == at(9, 80, highest=Millis(100))
    assert advanced(at(9, 80), None, with_bound(0)) == at(9, 80)
    # Rows that were read lead from the highest of all.
    read = SplitState(9, 5, Millis(80), highest=Millis(100))
    assert advanced(read, RangeSummary(Millis(95)), with_bound(10)) == at(9, 89, highest=Millis(100))
    assert advanced(read, RangeSummary(Millis(105)), with_bound(10)) == at(9, 94, highest=Millis(105))


def test_where_no_one_learns_the_highest_event_time_is_forgotten() -> None:
    assert advanced(at(9, 80, highest=Millis(81)), None, Bounded()) == at(9, 80)
    assert advanced(at(9, 80, highest=Millis(100)), None, Bounded()) == at(9, 80)
