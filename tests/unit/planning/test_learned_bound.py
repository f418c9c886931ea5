"""Which bound is in force where it is learned from disorder."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.planning.example_states import A, B, at
from watermark_source.planning.disorder import MILLION, DisorderSegment, Learned, RangeSummary
from watermark_source.planning.split_watermarks import learned_after
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.strategy import Bounded, Percentile
from watermark_source.planning.watermark import Millis

PERCENTILE = Percentile(on_time=MILLION // 2, rows=1_000, most=500)
KNOWN = Learned(7, ((1, 2),))
SEEN = {A: RangeSummary(Millis(90), segments=(DisorderSegment(Millis(50), None, ((0, 3),)),))}


def test_rows_are_counted_of_ranges_that_were_read_and_are_known_to_be_exact() -> None:
    read = SourceState({A: SplitState(9, 5, highest=Millis(40)), B: at(3)}, learned=KNOWN)
    learned = learned_after(read, SEEN, PERCENTILE)
    assert learned is not None
    assert learned.recent == ((0, 3), (1, 2))
    # Rows before the range were later than all that its counted rows were compared with.
    ahead = replace(read, splits={A: SplitState(9, 5, highest=Millis(60))})
    assert learned_after(ahead, SEEN, PERCENTILE) is KNOWN


def test_without_rows_what_is_known_stays_and_at_first_the_bound_is_the_users() -> None:
    assert learned_after(SourceState({A: at(3)}, learned=KNOWN), SEEN, PERCENTILE) is KNOWN
    assert learned_after(SourceState({A: at(3)}), SEEN, PERCENTILE) == Learned(500)
    assert learned_after(SourceState({A: at(3)}, learned=KNOWN), SEEN, Bounded()) is None


def test_the_bound_that_was_learned_is_in_force_up_to_the_users() -> None:
    assert PERCENTILE.with_learned(None) is PERCENTILE
    assert PERCENTILE.with_learned(Learned(7)).bound == 7
    assert PERCENTILE.with_learned(Learned(501)).bound == 500
    assert Bounded(3).with_learned(Learned(7)).bound == 3
