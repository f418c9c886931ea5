"""Every type of column: what a snapshot reads of a value is what the binlog told when it was inserted."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from services.mysql_program import Flavour, flavour_from_environment
from tests.integration.mysql_binlog import Database
from tests.integration.mysql_columns import SAMPLES
from tests.integration.mysql_lives import ALL, Life

pytestmark = pytest.mark.service

_COLUMNS = [each for each in SAMPLES if each.only in (None, flavour_from_environment() or Flavour.MYSQL)]
_ANYTHING = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'"


def rows_of(life: Life) -> pa.Table:
    """Return what a new query reads first, in order of the key."""
    start = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    found = pa.Table.from_batches([b for b in life.batches(start, end) if b.column("id").null_count == 0])
    life.reader.stop()
    return found.sort_by("id")


def test_a_value_is_the_same_in_the_snapshot_and_in_the_binlog(mysql_database: Database) -> None:
    declared = ", ".join(f"{each.name} {each.declaration}" for each in _COLUMNS)
    names = ", ".join(each.name for each in _COLUMNS)
    values = [
        f"({row}, " + ", ".join(each.literals[row] if row < len(each.literals) else "NULL" for each in _COLUMNS) + ")"
        for row in range(max(len(each.literals) for each in _COLUMNS) + 1)
    ]
    mysql_database.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, {declared}) ROW_FORMAT = DYNAMIC", _ANYTHING,
        f"INSERT INTO t (id, {names}) VALUES " + ", ".join(values),
    )  # fmt: skip
    since = mysql_database.since
    place = json.dumps({"file": since.file, "position": since.position})
    logged = rows_of(Life(mysql_database, startingOffsets=place))
    shown = rows_of(Life(mysql_database, snapshotChunkRows=10, snapshotParallelism=1000))
    # Rolled back: the first row image after the place is what is delivered.
    life = Life(mysql_database, snapshotChunkRows=10, snapshotParallelism=1000)
    start: Any = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    mysql_database.run("DELETE FROM t WHERE id % 2 = 0", "UPDATE t SET tiny = 99")
    undone = pa.Table.from_batches([b for b in life.batches(start, end) if b.num_rows]).sort_by("id")
    life.reader.stop()
    assert logged.num_rows == shown.num_rows == undone.num_rows == len(values)
    for column in _COLUMNS:
        told = as_bits(logged.column(column.name).combine_chunks())
        for found in (shown, undone):
            assert as_bits(found.column(column.name).combine_chunks()).equals(told), column


def as_bits(values: pa.Array) -> pa.Array:
    """Return floating point numbers as their bits: 0 and -0 are equal otherwise."""
    if not pa.types.is_floating(values.type):
        return values
    return values.view(pa.int32() if values.type == pa.float32() else pa.int64())
