"""What an update is delivered as, and which of its rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.records.change_columns import change_types, integers
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.rows import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from tests.unit.mysql.recordings import decoded


def changes() -> Changes:
    """Two inserts, an update and a delete."""
    (found,) = decoded("full", batch_rows=100)
    assert found.images.kinds.tolist() == [INSERT, INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE]
    return found


@pytest.mark.parametrize(
    ("kept", "update"),
    [
        (None, (UPDATE_BEFORE, UPDATE_AFTER)),
        ((True, True), (UPDATE_BEFORE, UPDATE_AFTER)),
        ((True, False), (DELETE, INSERT)),
        ((False, True), (DELETE, INSERT)),
        ((False, False), (UPDATE_BEFORE, UPDATE_AFTER)),
    ],
)
def test_an_update_of_which_one_image_is_kept_is_that_ones_half(
    kept: tuple[bool, bool] | None, update: tuple[int, int]
) -> None:
    mask = None if kept is None else np.array([True, False, *kept, False])
    assert change_types(changes(), mask).tolist() == [INSERT, INSERT, *update, DELETE]


def test_an_update_of_the_key_deletes_one_row_and_inserts_another() -> None:
    found = changes()
    assert found.key == ("id",)
    at = found.names.index("id")
    keys = pa.array([1, 4_000_000_000, 1, 2, 4_000_000_000], found.columns[at].type)
    columns = (*found.columns[:at], keys, *found.columns[at + 1 :])
    moved = found._replace(images=found.images._replace(columns=columns))
    assert change_types(moved, None).tolist() == [INSERT, INSERT, DELETE, INSERT, DELETE]


def test_without_an_update_all_is_as_it_was_logged() -> None:
    first, *_ = decoded("full", batch_rows=1)
    assert change_types(first, None).tolist() == [INSERT]


def test_integers_are_columns_of_what_they_stand_for() -> None:
    found = integers(np.array([5, -1], np.int32)[::-1], pa.timestamp("us"))
    found.validate(full=True)
    assert (found.type, found.cast(pa.int64()).to_pylist(), found.null_count) == (pa.timestamp("us"), [-1, 5], 0)
