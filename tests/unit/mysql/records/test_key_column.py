"""Bounds of chunks as statements have them: never anything else than a value of the column's type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.records.column import ColumnType
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from watermark_source.errors import OffsetError

_TIME = KeyColumn("k", ColumnType.TIME2, pa.duration("us"))
_FLOAT = KeyColumn("k", ColumnType.FLOAT, pa.float32())
_DOUBLE = KeyColumn("k", ColumnType.DOUBLE, pa.float64())
_ENUM = KeyColumn("k", ColumnType.ENUM, pa.string(), choices=3)
_SET = KeyColumn("k", ColumnType.SET, pa.list_(pa.string()))
_BIT = KeyColumn("k", ColumnType.BIT, pa.binary(), size=2)


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        (_TIME, "-838:59:59.000001", "k >= TIME'-838:59:59.000001'"),
        (_FLOAT, "0.5", "k >= 0.5e0"),
        (_DOUBLE, "-1e-05", "k >= -1e-05"),
        (_DOUBLE, "1e+300", "k >= 1e+300"),
        (_ENUM, 2, "k IN (2, 3)"),
        (_ENUM, 4, "FALSE"),
        (_SET, 2**64 - 1, "CAST(k AS UNSIGNED) >= 18446744073709551615"),
        (_BIT, 300, "k >= 300"),
    ],
)
def test_a_bound_is_compared_as_a_value_of_its_type(column: KeyColumn, value: int | str, shown: str) -> None:
    assert column.compared("k", ">=", value) == shown


def test_an_enum_is_compared_by_the_numbers_that_are_there() -> None:
    assert _ENUM.compared("k", "<", 2) == "k IN (0, 1)"
    assert _ENUM.compared("k", ">", 2) == "k IN (3)"
    assert _ENUM.compared("k", "<", 0) == "FALSE"
    assert _ENUM.compared("k", "=", 2) == "k = 2"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (_TIME, "12:00:00' OR 1"), (_TIME, "12:61:00"), (_TIME, 5), (_FLOAT, "nan"), (_DOUBLE, "inf"),
        (_DOUBLE, "1 OR 1"), (_ENUM, -1), (_ENUM, "1"), (_SET, 2**64), (_SET, "a"), (_BIT, -1), (_BIT, "1"),
    ],
)  # fmt: skip
def test_what_is_no_value_of_the_type_is_refused(column: KeyColumn, value: Any) -> None:
    with pytest.raises(OffsetError, match="which cannot be one of its type"):
        column.literal(value)


@pytest.mark.parametrize(("column", "value"), [(_BIT, 2**16), (_TIME, "1:00"), (_FLOAT, "x")])
def test_what_does_not_fit_is_not_compared(column: KeyColumn, value: Any) -> None:
    with pytest.raises(OffsetError, match="which cannot be one of its type"):
        column.scalar(value)
