"""What transactions undo themselves."""

from __future__ import annotations

import numpy as np

from pyspark_mysql_cdc_wm.binlog.rollbacks import rollbacks
from tests.unit.mysql.made_events import logged


def test_what_is_undone_since_a_savepoint_is_since_that_of_its_own_transaction() -> None:
    texts = ["SAVEPOINT `a`", "ROLLBACK TO `A`", "ROLLBACK TO `b`", "SAVEPOINT `a`", "ROLLBACK TO `a`", "ROLLBACK"]
    memory, events = logged(*texts, "ROLLBACK TO `a`")
    first, second = 1, 2
    transactions = np.array([first] * (2 + len(texts)) + [second])
    assert list(rollbacks(memory, events, transactions)) == [(3, 2), (4, None), (6, 5), (7, None), (8, None)]
