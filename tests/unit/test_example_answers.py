"""The table of early and final answers: in any order of writes, a final answer stays, and nothing is counted twice."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from examples.early_and_final import EARLY, FINAL, LATE, AnswerTable

EARLY_BATCH = (EARLY, 4, [(EARLY, 0, 7)])
FINAL_BATCH = (FINAL, 2, [(FINAL, 0, 9), (LATE, 10, 1)])
LATE_BATCH = (FINAL, 3, [(LATE, 0, 1), (LATE, 0, 1)])


@pytest.mark.parametrize("first", range(3))
def test_an_early_answer_replaces_no_final_one(tmp_path: Path, first: int) -> None:
    """The early query may be killed for an hour, and then write answers to windows that have been final for long."""
    table = AnswerTable(tmp_path / "answers.sqlite")
    batches = [FINAL_BATCH, LATE_BATCH]
    batches.insert(first, EARLY_BATCH)
    for batch in batches:
        table.record(*batch)
    assert table.counts() == {0: 11, 10: 1}
    assert table.answers() == {0: (7, 9, 2), 10: (None, None, 1)}


def test_a_batch_that_is_repeated_counts_once(tmp_path: Path) -> None:
    table = AnswerTable(tmp_path / "answers.sqlite")
    for batch in (FINAL_BATCH, EARLY_BATCH, FINAL_BATCH, LATE_BATCH, LATE_BATCH, EARLY_BATCH):
        table.record(*batch)
    assert table.counts() == {0: 11, 10: 1}


def test_a_batch_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    table = AnswerTable(tmp_path / "answers.sqlite")
    with pytest.raises(KeyError):
        table.record(FINAL, 0, [(LATE, 0, 1), ("unknown", 0, 1)])
    assert table.answers() == {}
    table.record(FINAL, 0, [(LATE, 0, 1)])
    assert table.counts() == {0: 1}


def test_until_the_final_answer_the_early_one_counts(tmp_path: Path) -> None:
    """A correction may come before the final answer to its window, and does not lower the early one."""
    for number, order in enumerate(itertools.permutations([(EARLY, 0, [(EARLY, 0, 7)]), (FINAL, 0, [(LATE, 0, 1)])])):
        table = AnswerTable(tmp_path / f"{number}.sqlite")
        for batch in order:
            table.record(*batch)
        assert table.counts() == {0: 7}
