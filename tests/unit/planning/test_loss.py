from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.planning.example_states import NOW, A, B, C, at
from watermark_source.errors import DataLossError
from watermark_source.planning.lineage import Cut, Parting
from watermark_source.planning.loss import Loss, check_loss, refuse
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.policy import LossKind, OnLoss
from watermark_source.planning.split import Split
from watermark_source.planning.state import Epoch


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


def test_rows_deleted_before_they_were_read_are_skipped_and_reported() -> None:
    splits, losses = check_loss({A: at(5, 100)}, outside(ends={A: 30}, earliest={A: 12}))
    assert splits == {A: at(12, 100)}
    assert losses[0].text.endswith("begins at 12 now: what was between, up to 7 rows, was deleted before it was read")


def test_positions_are_reported_as_users_know_them() -> None:
    def shown(split: Split, position: int) -> str:
        return f"page {position} of {split}"

    state, known = {A: at(5), B: at(5)}, outside(ends={A: 30, B: 3}, earliest={A: 12}, added={C: 4})
    known = replace(known, ends={**known.ends, C: 9})
    of_pages = OnLoss(position_text=shown, positions_are_rows=False)
    _, losses = check_loss(state, known, of_pages)
    gap = f"read only up to page 5 of {A}, and begins at page 12 of {A} now: what was between, if anything, "
    assert gap in losses[0].text
    assert f"ends at page 3 of {B}, but was already read up to page 5 of {B}:" in losses[1].text
    assert f"it starts at page 4 of {C}" in losses[2].text
    _, (gone,) = check_loss({A: at(5)}, outside(), of_pages)
    assert gone.text.endswith(f"up to page 5 of {A}")


def test_a_skip_goes_no_further_than_the_end_of_the_run() -> None:
    splits, losses = check_loss({A: at(5)}, outside(ends={A: 8}, earliest={A: 12}))
    assert splits == {A: at(8)}
    assert len(losses) == 1


def test_what_is_known_of_rows_behind_the_end_of_a_shorter_log_is_forgotten() -> None:
    """An epoch that begins behind the position could not be read from an offset."""
    splits, _ = check_loss({A: at(100, epoch=Epoch(5, 80))}, outside(ends={A: 60}))
    assert splits == {A: at(60)}  # without an epoch


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


def test_a_log_created_again_is_read_from_its_beginning_whatever_its_size() -> None:
    for end, beginning in ((3, 0), (5, 0), (50, 0), (50, 7)):
        logs = outside(ends={A: end}, earliest={A: beginning}, ids={A.log: "new"})
        splits, (lost,) = check_loss({A: at(5, 100, epoch=Epoch(3, 0))}, logs, ids={A.log: "old"})
        assert splits == {A: at(beginning, 100)}
        assert lost.kind is LossKind.LOG_REPLACED
        assert "log-0 was read up to 5, and log was deleted and created again since: it had the id old" in lost.text


def test_a_split_of_a_log_created_again_whose_end_is_not_known_is_not_read_on_either() -> None:
    logs = outside(ends={B: 1}, unknown={A}, ids={A.log: "new"})
    splits, losses = check_loss({A: at(5), B: at(0)}, logs, ids={A.log: "old"})
    assert splits == {A: at(0), B: at(0)}
    # Of the other nothing had been read.
    assert [loss.split for loss in losses] == [A]


@pytest.mark.parametrize("ids", [{}, {"log": "same"}, {"other": "old"}])
def test_a_log_with_the_same_id_or_none_is_the_same(ids: dict[str, str]) -> None:
    assert check_loss({A: at(5)}, outside(ends={A: 9}, ids={"log": "same"}), ids=ids) == ({A: at(5)}, ())


@pytest.mark.parametrize("end", [35, 50, 80])
def test_a_log_with_other_rows_before_our_position_goes_on_at_the_first_of_them(end: int) -> None:
    logs = outside(ends={A: end}, histories={A: [Epoch(5, 30), Epoch(2, 0)]})
    splits, (lost,) = check_loss({A: at(50, 100, epoch=Epoch(2, 0))}, logs)
    assert splits == {A: at(30, 100, epoch=Epoch(2, 0))}
    assert lost.kind is LossKind.LOG_REPLACED
    assert "its rows from 30 to 49 are gone: the leader of epoch 5 did not have them" in lost.text


@pytest.mark.parametrize(("position", "gone"), [(20, "30 to 49"), (35, "35 to 49")])
def test_rows_behind_our_position_that_a_leader_did_not_have_are_lost_and_reading_goes_on(
    position: int, gone: str
) -> None:
    logs = outside(ends={A: 80}, cuts={A: Cut(Parting(30, 5), 50)})
    splits, (lost,) = check_loss({A: at(position, 100)}, logs)
    assert splits == {A: at(position, 100)}
    assert f"its rows from {gone}, which were still to be read, are gone: the leader of epoch 5" in lost.text
