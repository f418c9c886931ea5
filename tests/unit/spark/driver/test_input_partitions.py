"""Which ranges a batch is made of whose beginning is further back than the last plan's."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.planning.example_states import A, at
from watermark_source.planning.policy import OnLoss, PlanPolicy
from watermark_source.planning.split import SplitRange
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.spark.driver.input_partitions import InputPartitions


@pytest.mark.parametrize(("after_id", "begins"), [("new", 0), ("old", 50)])
def test_a_batch_that_is_repeated_over_a_log_created_again_has_it_from_its_beginning(
    after_id: str, begins: int
) -> None:
    """With asynchronous progress tracking Spark repeats several batches as one, from the last that it has logged."""
    parts: dict[str, Any] = dict.fromkeys(field.name for field in fields(InputPartitions))
    parts["connector"] = SimpleNamespace(
        positions_are_rows=True, bounds=SimpleNamespace(earliest_positions=lambda splits: dict.fromkeys(splits, 0))
    )
    parts["options"] = SimpleNamespace(policy=PlanPolicy(on_loss=OnLoss(fails=False)))
    parts["observer"] = SimpleNamespace(added=lambda splits, snapshots: {})
    before = SourceState({A: at(100)}, ids={A.log: "old"})
    after = SourceState({A: SplitState(80, 50)}, ids={A.log: after_id})
    assert InputPartitions(**parts)._ranges_since(before, after) == [SplitRange(A, begins, 80)]
