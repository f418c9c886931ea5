"""What transactions undo themselves."""

from __future__ import annotations

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.xa import rollbacks
from tests.unit.mysql.made_events import logged
from watermark_source.errors import UnsupportedFormatError


def test_what_is_undone_since_a_savepoint_is_since_that_of_its_own_transaction() -> None:
    texts = ["SAVEPOINT `a`", "ROLLBACK TO `A`", "ROLLBACK TO `b`", "SAVEPOINT `a`", "ROLLBACK TO `a`", "ROLLBACK"]
    memory, events = logged(*texts, "ROLLBACK TO `a`")
    first, second = 1, 2
    transactions = np.array([first] * (2 + len(texts)) + [second])
    assert list(rollbacks(memory, events, transactions)) == [(3, 2), (4, None), (6, 5), (7, None), (8, None)]


@pytest.mark.parametrize(
    "texts", [("SAVEPOINT ss", "SAVEPOINT `ß`", "ROLLBACK TO ss"), ("SAVEPOINT é", "ROLLBACK TO e")]
)
def test_which_savepoint_is_meant_is_not_guessed_where_a_collation_decides(texts: tuple[str, ...]) -> None:
    memory, events = logged(*texts)
    with pytest.raises(UnsupportedFormatError, match=r"position \d+: ROLLBACK TO \w+: .* which one is not certain"):
        list(rollbacks(memory, events, np.ones(len(events), np.int64)))
