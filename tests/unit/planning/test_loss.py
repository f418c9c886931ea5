from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.planning.example_states import NOW, A, B, C, at
from watermark_source.errors import DataLossError
from watermark_source.planning.loss import Loss, check_loss, refuse
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.policy import LossKind, OnLoss
from watermark_source.planning.split import Split


def outside(**changes: object) -> ObservedLogs:
    return ObservedLogs(**{"asked_at": NOW, "ends": {}, **changes})  # type: ignore[arg-type]


def test_a_split_whose_end_is_not_known_is_not_gone() -> None:
    state = at(7, 100)
    assert check_loss({A: state, B: at(1)}, outside(ends={B: 1}, unknown={A})) == ({A: state, B: at(1)}, ())


def test_nothing_is_lost_when_all_is_there() -> None:
    state = at(5, 100)
    splits, losses = check_loss({A: state}, outside(ends={A: 5, B: 0}, added={B: 0}, earliest={A: 5}))
    assert splits == {A: state, B: at(0)}
    assert losses == ()


def test_a_split_that_is_gone_is_left_out() -> None:
    splits, losses = check_loss({A: at(5), B: at(1)}, outside(ends={B: 1}))
    assert splits == {B: at(1)}
    assert [loss.split for loss in losses] == [A]
    assert "gone" in losses[0].text


def test_a_log_shorter_than_our_position_goes_on_at_its_end_and_keeps_its_watermark() -> None:
    splits, losses = check_loss({A: at(5, 100)}, outside(ends={A: 3}))
    assert splits == {A: at(3, 100)}
    assert "re-created" in losses[0].text


def test_rows_deleted_before_they_were_read_are_skipped_and_told() -> None:
    splits, losses = check_loss({A: at(5, 100)}, outside(ends={A: 30}, earliest={A: 12}))
    assert splits == {A: at(12, 100)}
    assert "begins at 12" in losses[0].text


def test_positions_are_told_as_users_know_them() -> None:
    def shown(split: Split, position: int) -> str:
        return f"page {position} of {split}"

    state, known = {A: at(5), B: at(5)}, outside(ends={A: 30, B: 3}, earliest={A: 12}, added={C: 4})
    known = replace(known, ends={**known.ends, C: 9})
    _, losses = check_loss(state, known, shown)
    assert f"read only up to page 5 of {A}, and begins at page 12 of {A} now" in losses[0].text
    assert f"ends at page 3 of {B}, but was already read up to page 5 of {B}:" in losses[1].text
    assert f"it starts at page 4 of {C}" in losses[2].text
    _, (gone,) = check_loss({A: at(5)}, outside(), shown)
    assert gone.text.endswith(f"up to page 5 of {A}")


def test_a_skip_goes_no_further_than_the_end_of_the_run() -> None:
    splits, losses = check_loss({A: at(5)}, outside(ends={A: 8}, earliest={A: 12}))
    assert splits == {A: at(8)}
    assert len(losses) == 1


def test_a_new_split_that_does_not_begin_at_zero_has_lost_rows() -> None:
    splits, losses = check_loss({}, outside(ends={A: 9}, added={A: 1}))
    assert splits == {A: at(1)}
    assert "not at 0" in losses[0].text


def test_a_new_split_that_is_gone_already_is_no_split() -> None:
    assert check_loss({}, outside(ends={B: 0}, added={A: 0, B: 0})) == ({B: at(0)}, ())


def test_losses_are_refused_in_one_error() -> None:
    losses = [Loss(A, LossKind.SPLIT_GONE, "a is gone"), Loss(B, LossKind.LOG_SHORTER, "b is short")]
    refuse([], OnLoss())
    refuse(losses, OnLoss(fails=False))
    with pytest.raises(DataLossError, match=r"^data was lost: a is gone; b is short.*failOnDataLoss") as caught:
        refuse(losses, OnLoss(conditions={LossKind.LOG_SHORTER: "SHORT"}))
    with pytest.raises(DataLossError, match=r"^\[GONE\] data was lost: a is gone"):
        refuse(losses, OnLoss(conditions={LossKind.SPLIT_GONE: "GONE"}))
    assert "false" in str(caught.value)
