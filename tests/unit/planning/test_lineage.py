"""Where a log parts from the one that was read, by the epochs of its leaders."""

from __future__ import annotations

import pytest

from tests.unit.planning.example_states import A, B, at
from watermark_source.planning.lineage import Parting, epoch_at, parting, with_epochs
from watermark_source.planning.state import Epoch

TWO = [Epoch(5, 40), Epoch(3, 30), Epoch(2, 0)]


@pytest.mark.parametrize(("position", "epoch"), [(0, None), (1, 2), (30, 2), (31, 3), (40, 3), (41, 5), (900, 5)])
def test_a_position_has_the_epoch_of_the_row_before_it(position: int, epoch: int | None) -> None:
    found = epoch_at(TWO, position)
    assert (None if found is None else found.number) == epoch


@pytest.mark.parametrize(
    ("position", "known", "history", "expected"),
    [
        pytest.param(40, Epoch(3, 30), TWO, None, id="all of it is there"),
        pytest.param(900, Epoch(5, 40), TWO, None, id="the newest epoch goes on"),
        pytest.param(50, Epoch(3, 30), TWO, Parting(40, 5), id="a later leader wrote from 40 on"),
        pytest.param(50, Epoch(2, 0), TWO, Parting(30, 3), id="two leaders since: the first of them"),
        pytest.param(45, Epoch(4, 35), TWO, Parting(35, 5), id="its epoch is not there: from its first row on"),
        pytest.param(60, Epoch(4, 42), TWO, Parting(40, 5), id="its epoch is not there, nor the rows before it"),
        pytest.param(45, Epoch(7, 42), TWO, Parting(0, 5), id="the leader's epoch is an earlier one"),
        pytest.param(40, Epoch(1, 3), [Epoch(3, 40)], None, id="rows up to the position were deleted by age"),
        pytest.param(41, Epoch(1, 3), [Epoch(3, 40)], Parting(40, 3), id="what is left begins before the position"),
    ],
)
def test_where_a_log_parts(position: int, known: Epoch, history: list[Epoch], expected: Parting | None) -> None:
    assert parting(position, known, history) == expected


def test_planned_splits_take_the_epoch_of_their_last_row_and_others_keep_theirs() -> None:
    splits = {A: at(35, epoch=Epoch(2, 0)), B: at(9, epoch=Epoch(2, 0))}
    assert with_epochs(splits, {A: TWO}) == {A: at(35, epoch=Epoch(3, 30)), B: splits[B]}
    assert with_epochs(splits, {}) is splits
