"""The combined watermark, and which splits it does not wait for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.planning.example_states import AWAITED, BEHIND, NOW, A, B, C, at, idle, observed
from watermark_source.planning.combined_watermark import with_own_rows
from watermark_source.planning.policy import Idleness
from watermark_source.planning.split import Split
from watermark_source.planning.split_watermarks import SplitWatermarks, at_dated_ends, combined, with_batch
from watermark_source.planning.state import SnapshotState, SourceState, SplitState
from watermark_source.planning.strategy import Bounded
from watermark_source.planning.watermark import Millis

PASSES, WAITS = Idleness(passes_returning=True), Idleness()
BEFORE = SourceState({A: at(1, 900), B: BEHIND}, watermark=Millis(500))


@pytest.mark.parametrize(
    ("splits", "watermark"),
    [
        pytest.param({A: at(1, 900), B: at(1, 700)}, 700, id="the slowest"),
        pytest.param({A: at(1, 900), B: BEHIND}, 900, id="the slowest but for one that came back"),
        pytest.param({A: at(1, 900), B: AWAITED}, 500, id="one that came back is waited for until it is read"),
        pytest.param({A: idle(900), B: BEHIND}, 500, id="nobody but one that came back: it stands still"),
        pytest.param({A: at(1, 900), B: replace(BEHIND, watermark=Millis(500))}, 500, id="it has caught up"),
        pytest.param({A: at(1, 900), B: at(1, 600), C: at(1)}, 500, id="one that is new is waited for"),
        pytest.param({A: idle(900), B: idle(700)}, 900, id="all are idle"),
    ],
)
def test_it_waits_for_all_but_idle_ones_and_those_that_came_back(
    splits: dict[Split, SplitState], watermark: int
) -> None:
    assert combined(BEFORE, splits, PASSES) == watermark


def test_before_the_first_there_is_none_and_it_never_goes_back() -> None:
    assert combined(SourceState(), {A: at(0)}, PASSES) is None
    assert combined(BEFORE, {A: at(1, 900), B: at(1, 90)}, WAITS) == 500


def test_rows_that_are_read_advance_a_split_and_never_back() -> None:
    table = SplitWatermarks({A: SplitState(9, 5, Millis(100)), B: SplitState(9, 5)})

    def advanced(reached: dict[Split, int]) -> dict[Split, int | None]:
        known = {s: Millis(t) for s, t in reached.items()}
        return {s: t.watermark for s, t in with_batch(table, known, Bounded(10), Millis(1_000)).states.items()}

    assert advanced({}) == {A: 100, B: None}
    assert advanced({A: 311, B: 211}) == {A: 300, B: 200}
    assert advanced({A: 50}) == {A: 100, B: None}
    assert advanced({A: 1_000, B: 1_001}) == {A: 989, B: None}


def test_a_range_without_positions_advances_nothing() -> None:
    table = SplitWatermarks({A: at(9, 100)})
    assert with_batch(table, {A: Millis(500)}, Bounded(), None).states == table.recorded


def read(planned: SourceState, reached: dict[Split, int]) -> SplitWatermarks:
    return with_batch(SplitWatermarks(planned.splits), {s: Millis(t) for s, t in reached.items()}, Bounded(), None)


def test_with_its_rows_a_batch_has_the_watermark_that_they_give() -> None:
    before = SourceState({A: at(5, 100)}, watermark=Millis(100))
    planned = SourceState({A: SplitState(9, 5, Millis(100))}, watermark=Millis(100))
    table = read(planned, {A: 301})
    assert with_own_rows(planned, before, table, WAITS).watermark == 300
    # Nothing but a clock's, or a snapshot's, which is one for all its rows.
    for other in ({"use_processing_time": True}, {"snapshots": SnapshotState(frontiers={"t": (None,)})}):
        kept = SourceState(planned.splits, watermark=Millis(100), **other)
        assert with_own_rows(kept, before, table, WAITS) is kept


def test_with_its_rows_a_split_may_have_caught_up() -> None:
    before = SourceState({A: at(1, 900), B: BEHIND, C: BEHIND}, watermark=Millis(500))
    reads = replace(BEHIND, position=9)
    planned = replace(before, splits={A: at(1, 900), B: reads, C: reads})
    sent = with_own_rows(planned, before, read(planned, {B: 501, C: 500}), PASSES)
    assert sent.splits == {**planned.splits, B: replace(reads, returning=None)}
    assert sent.watermark == 500


def test_a_dated_end_is_that_of_splits_that_are_read_to_it() -> None:
    whole, part, resting = SplitState(9, 5, Millis(100)), SplitState(8, 5, Millis(100)), at(9, 100)
    seen = observed(NOW, {A: 9, B: 9, C: 9}, reached={C: NOW, B: NOW, A: NOW})
    assert at_dated_ends({A: whole}, seen, Bounded(), None) == {A: NOW - 1}
    assert at_dated_ends({A: whole, B: part, C: resting}, seen, Bounded(), None) == {A: NOW - 1}


def test_each_column_advances_a_split_and_only_what_was_read_ahead_holds_it_back() -> None:
    recorded = {A: SplitState(9, 5, Millis(100)), B: SplitState(9, 5, Millis(100)), C: at(9)}
    table = SplitWatermarks(
        recorded,
        ahead={A: Millis(60), B: Millis(60)},
        at_end={B: Millis(80), C: Millis(7)},
        with_batch={C: Millis(9)},
        uncounted={C},
    )
    assert {s: t.watermark for s, t in table.states.items()} == {A: 60, B: 80, C: 9}
    assert table.counted.keys() == {A, B}
    # What the offset records is of rows that were read.
    assert table.recorded is recorded
