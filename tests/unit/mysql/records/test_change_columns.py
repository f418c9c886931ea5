"""What an update is delivered as, and which of its rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.layout import MOMENT, EventTimeColumn, Layout
from pyspark_mysql_cdc_wm.records.row_events import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from pyspark_mysql_cdc_wm.records.stream_rows import change_types, changed_rows, integers
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


@pytest.mark.parametrize(
    ("before", "after", "update"),
    [
        (1, None, (DELETE, INSERT)),
        (None, 1, (DELETE, INSERT)),
        (None, None, (UPDATE_BEFORE, UPDATE_AFTER)),
    ],
)
def test_a_key_that_is_no_date_is_null_and_another_than_any_date(
    before: int | None, after: int | None, update: tuple[int, int]
) -> None:
    found = changes()
    at = found.names.index("id")
    keys = pa.array([1, 4_000_000_000, before, after, 4_000_000_000], found.columns[at].type)
    columns = (*found.columns[:at], keys, *found.columns[at + 1 :])
    zero = found._replace(images=found.images._replace(columns=columns))
    assert change_types(zero, None).tolist() == [INSERT, INSERT, *update, DELETE]


def test_behind_the_tables_columns_come_those_about_changes_and_event_time_is_when_it_was_committed() -> None:
    found = changes()
    rows = changed_rows(found, Layout(("customer",), (pa.string(),)))
    assert rows.rows == 5
    delivered = [column.to_pylist() for column in rows.columns]
    assert delivered[:3] == [
        ["Ann", "Zoë", "Ann", "Ann", "Zoë"],
        ["insert", "insert", "update_preimage", "update_postimage", "delete"],
        [False] * 5,
    ]
    assert delivered[3:5] == [found.versions.tolist(), found.numbers.tolist()]
    assert delivered[6:] == [["shop"] * 5, ["orders"] * 5]
    for when in (rows.columns[5], rows.event_time):
        assert (when.type, when.cast(pa.int64()).to_pylist()) == (MOMENT, found.committed.tolist())


def test_of_rows_that_are_kept_all_is_theirs_and_only_what_is_asked_for_comes() -> None:
    found = changes()
    kept = np.array([False, True, False, True, True])
    about = ("_change_type", "_commit_version", "_change_number", "_commit_timestamp")
    rows = changed_rows(found, Layout(("customer",), (pa.string(),), about=about), kept)
    assert rows.rows == 3
    assert [column.to_pylist() for column in rows.columns[:4]] == [
        ["Zoë", "Ann", "Zoë"],
        ["insert", "insert", "delete"],
        found.versions[kept].tolist(),
        found.numbers[kept].tolist(),
    ]
    assert rows.columns[4].cast(pa.int64()).to_pylist() == found.committed[kept].tolist()


def test_a_row_whose_column_tells_no_event_time_goes_by_its_commit() -> None:
    found = changes()
    rows = changed_rows(found, Layout(("id",), (pa.int64(),), event_time=EventTimeColumn("at")))
    at, committed = 1_715_085_015_123_000, found.committed.tolist()
    assert rows.event_time.cast(pa.int64()).to_pylist() == [at, committed[1], at, at, committed[4]]


def test_without_an_update_all_is_as_it_was_logged() -> None:
    first, *_ = decoded("full", batch_rows=1)
    assert change_types(first, None).tolist() == [INSERT]


def test_integers_are_columns_of_what_they_stand_for() -> None:
    found = integers(np.array([5, -1], np.int32)[::-1], pa.timestamp("us"))
    found.validate(full=True)
    assert (found.type, found.cast(pa.int64()).to_pylist(), found.null_count) == (pa.timestamp("us"), [-1, 5], 0)
