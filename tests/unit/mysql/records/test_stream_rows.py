"""Rows of a table as the stream's columns, whatever the table had when they were written."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.records.layout import MOMENT, WHOLE_ROWS, ColumnChoice, EventTimeColumn, Layout
from pyspark_mysql_cdc_wm.records.stream_rows import TableRows, table_rows
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from watermark_source.errors import UnsupportedFormatError

TABLE = {
    "id": Column(ColumnType.LONG, name="id"),
    "hidden": Column(ColumnType.LONG, name="hidden"),
    "At": Column(ColumnType.TIMESTAMP2, name="At"),
}
IDS = pa.array([7, 8, None], pa.int32())
TIMES = pa.array([1_000_000, None, 3_000_000], MOMENT)
READ = {"id": IDS, "At": TIMES}
BY_AT = EventTimeColumn("at")


def found(layout: Layout, values: dict[str, pa.Array] = READ, rows: int = 3) -> TableRows:
    return table_rows(layout, "table d.t", TABLE, values, rows)


def fitted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    (column,) = found(Layout(("id",), (kind,)), {"id": values}).columns
    return column


def test_columns_are_in_the_streams_order_and_null_where_the_table_has_none() -> None:
    rows = found(Layout(("new", "id"), (pa.string(), pa.int32())))
    assert rows.event_time is None
    assert rows.columns[0] == pa.nulls(3, pa.string())
    # What fits as it is, is not copied.
    assert rows.columns[1] is IDS


def test_event_time_is_null_where_the_table_tells_none() -> None:
    layout = Layout(("id",), (pa.int32(),), event_time=BY_AT)
    assert found(layout).event_time == TIMES
    assert found(layout, {"id": IDS}).event_time == pa.nulls(3, MOMENT)
    with pytest.raises(UnsupportedFormatError, match=r"^table d\.t was altered: .* the column At, .*, is int32"):
        found(layout, {"id": IDS, "At": IDS})


def test_a_whole_row_is_of_the_columns_that_are_read_in_the_tables_order() -> None:
    rows = found(Layout(*WHOLE_ROWS, ColumnChoice(without=("at",)), BY_AT))
    assert [column.to_pylist() for column in rows.columns] == [['{"id":7}', '{"id":8}', '{"id":null}']]
    assert rows.event_time == TIMES
    (texts,) = found(Layout(*WHOLE_ROWS, ColumnChoice()), {"At": TIMES, "hidden": IDS, "id": IDS}).columns
    assert texts[0].as_py() == '{"id":7,"hidden":7,"At":"1970-01-01 00:00:01Z"}'


def test_some_rows_are_taken_of_all_columns() -> None:
    at = pa.array([2, 0])
    taken = found(Layout(("id", "At"), (pa.int32(), MOMENT), event_time=BY_AT)).take(at)
    assert [column.to_pylist() for column in taken.columns] == [IDS.take(at).to_pylist(), TIMES.take(at).to_pylist()]
    assert taken.event_time == TIMES.take(at)
    assert found(Layout(("id",), (pa.int32(),))).take(at).event_time is None


@pytest.mark.parametrize(
    ("was", "kind", "value"),
    [
        (pa.int8(), pa.int16(), 5),
        (pa.int32(), pa.int64(), 5),
        # BIGINT UNSIGNED.
        (pa.int64(), pa.decimal128(20, 0), 2**63 - 1),
        (pa.int32(), pa.decimal128(20, 0), -(2**31)),
        (pa.decimal128(5, 2), pa.decimal128(6, 2), Decimal("-1.25")),
        (pa.decimal128(5, 2), pa.decimal128(6, 3), Decimal("-1.250")),
        (pa.float32(), pa.float64(), 0.5),
    ],
)
def test_a_type_with_room_for_the_tables_holds_its_values(was: pa.DataType, kind: pa.DataType, value: Any) -> None:
    column = fitted(pa.array([value, None], was), kind)
    assert (column.type, column.to_pylist()) == (kind, [value, None])
    # The other way round the stream has too little room, and is asked to take the table's type.
    with pytest.raises(UnsupportedFormatError, match=_says(kind, was)):
        fitted(pa.array([value, None], kind), was)


@pytest.mark.parametrize(
    ("was", "kind"),
    [
        (pa.int32(), pa.string()),
        (pa.string(), pa.int32()),
        (pa.int32(), pa.float64()),
        (pa.float32(), pa.int64()),
        (pa.int64(), pa.decimal128(18, 0)),
        (pa.int32(), pa.decimal128(20, 2)),
        (pa.decimal128(5, 2), pa.float64()),
        # Each has room for digits on one side of the point that the other has not.
        (pa.decimal128(5, 2), pa.decimal128(6, 1)),
        (pa.decimal128(5, 2), pa.decimal128(5, 3)),
        (pa.float32(), pa.string()),
        (pa.string(), pa.float64()),
    ],
)
def test_a_type_that_has_no_room_for_the_other_nor_it_for_that_one_is_refused(
    was: pa.DataType, kind: pa.DataType
) -> None:
    with pytest.raises(UnsupportedFormatError, match=_says(was, kind)):
        fitted(pa.nulls(1, was), kind)


def _says(was: pa.DataType, kind: pa.DataType) -> str:
    found = re.escape(f"the column id is {was}, and the stream has it as {kind}. Load the stream again")
    return f"{found}.* the table has now, unless the batch has rows of an earlier type"
