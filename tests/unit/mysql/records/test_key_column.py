"""Bounds of chunks as statements have them: never anything else than a value of the column's type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.records.arrow_types import column_type
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn, comparable, key_column
from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, Column, ColumnType
from tests.unit.mysql.records.test_every_type import built, each_shown
from tests.unit.mysql.records.type_samples import CHARSETS, COLLATIONS, UTF8, Sample
from watermark_source.errors import OffsetError, UnsupportedFormatError

_TIME = KeyColumn("k", ColumnType.TIME2, pa.duration("us"))
_FLOAT = KeyColumn("k", ColumnType.FLOAT, pa.float32())
_DOUBLE = KeyColumn("k", ColumnType.DOUBLE, pa.float64())
_ENUM = KeyColumn("k", ColumnType.ENUM, pa.string(), choices=3)
_SET = KeyColumn("k", ColumnType.SET, pa.list_(pa.string()))
_BIT = KeyColumn("k", ColumnType.BIT, pa.binary(), size=2)
_TEXT = KeyColumn("k", ColumnType.VARCHAR, pa.string(), "utf8mb4", "utf8mb4_general_ci")
_BYTES = KeyColumn("k", ColumnType.STRING, pa.binary())
_DECIMAL = KeyColumn("k", ColumnType.NEWDECIMAL, pa.decimal128(12, 2))
_DATE = KeyColumn("k", ColumnType.DATE, pa.date32())
_MOMENT = KeyColumn("k", ColumnType.TIMESTAMP2, pa.timestamp("us", tz="UTC"))
_INT = KeyColumn("k", ColumnType.LONG, pa.int32())


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
        (KeyColumn("k", ColumnType.ENUM, pa.string()), 2, "k >= 2"),
        (_INT, -5, "k >= -5"),
        (_DECIMAL, "-1234.50", "k >= -1234.50"),
        (_DECIMAL, "1E-10", "k >= 0.0000000001"),
        (_DECIMAL, "1e100", "k >= 1" + "0" * 100),
        (_TEXT, "é'", "k >= _utf8mb4 x'c3a927'"),
        (_BYTES, "00ff", "k >= x'00ff'"),
        (_DATE, "2024-05-07", "k >= DATE'2024-05-07'"),
        (_DATE, "0000-00-00", "k >= 0"),
        (_MOMENT, "2024-05-07 12:30:15.5", "k >= TIMESTAMP'2024-05-07 12:30:15.5'"),
        (_MOMENT, "0000-00-00 00:00:00.000", "k >= 0"),
    ],
)
def test_a_bound_is_compared_as_a_value_of_its_type(column: KeyColumn, value: int | str, shown: str) -> None:
    assert column.compared("k", ">=", value) == shown


@pytest.mark.parametrize(
    ("column", "asked", "answer", "value"),
    [
        (_INT, "k", "5", 5),
        (_DECIMAL, "k", Decimal("1.50"), "1.50"),
        (_TEXT, "k", "a", "a"),
        (_BYTES, "HEX(k)", "00FF", "00FF"),
        (_ENUM, "CAST(k AS UNSIGNED)", "2", 2),
        (_SET, "CAST(k AS UNSIGNED)", 3, 3),
        (_BIT, "CAST(k AS UNSIGNED)", 3, 3),
        (_FLOAT, "k + 0e0", 0.5, "0.5"),
        (_DOUBLE, "k + 0e0", 0.5, "0.5"),
        (_TIME, "CAST(k AS CHAR)", "-01:02:03", "-01:02:03"),
        (_MOMENT, "CAST(k AS CHAR)", "2024-05-07 12:30:15", "2024-05-07 12:30:15"),
    ],
)
def test_what_is_asked_for_becomes_a_bound(column: KeyColumn, asked: str, answer: Any, value: int | str) -> None:
    assert (column.selected("k"), column.bound_value(answer)) == (asked, value)


@each_shown
def test_a_bound_is_one_of_the_values_of_its_column(sample: Sample) -> None:
    column = key_column(sample.column, column_type(sample.column, CHARSETS, ""), CHARSETS, COLLATIONS)
    if not column.can_be_ordered or column.type in (ColumnType.ENUM, ColumnType.SET):
        return
    for each, value in zip(sample.values, built(sample), strict=False):
        shown = each.shown or b""
        if column.type is ColumnType.BIT:
            bound: int | str = int.from_bytes(shown, "big")
        elif column.is_binary:
            bound = shown.hex()
        else:
            bound = column.bound_value(shown.decode())
        assert column.scalar(bound) == value


def test_days_that_are_none_sort_before_all() -> None:
    assert [_DATE.scalar("0000-00-00").is_valid, _MOMENT.scalar("0000-00-00 00:00:00").is_valid] == [False, False]
    with pytest.raises(OffsetError):
        _TEXT.scalar(0)
    assert _TEXT.scalar("0000-00-00").as_py() == "0000-00-00"


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (
            Column(ColumnType.ENUM, size=1, name="k", collation=UTF8, labels=(b"a", b""), nullable=False),
            KeyColumn("k", ColumnType.ENUM, pa.string(), labels=("a", ""), choices=2, size=1, ambiguous=True),
        ),
        (
            Column(ColumnType.ENUM, size=2, name="k", labels=(b"a",)),
            KeyColumn("k", ColumnType.ENUM, pa.string(), labels=("a", ""), choices=1, size=2, nullable=True),
        ),
        (
            Column(ColumnType.SET, size=1, name="k", labels=(b"a", b"")),
            KeyColumn("k", ColumnType.SET, pa.string(), labels=("a", ""), choices=2, size=1, nullable=True),
        ),
        (
            Column(ColumnType.ENUM, size=1, name="k"),
            KeyColumn("k", ColumnType.ENUM, pa.string(), labels=("a", ""), size=1, nullable=True),
        ),
        (
            Column(ColumnType.VARCHAR, name="k", collation=UTF8, nullable=False),
            KeyColumn("k", ColumnType.VARCHAR, pa.string(), "utf8mb4", "utf8mb4_general_ci"),
        ),
        (
            Column(ColumnType.VARCHAR, name="k", collation=BINARY_COLLATION),
            KeyColumn("k", ColumnType.VARCHAR, pa.string(), nullable=True),
        ),
        (
            Column(ColumnType.STRING, name="k", collation=99),
            KeyColumn("k", ColumnType.STRING, pa.string(), nullable=True),
        ),
        (Column(ColumnType.STRING, name="k"), KeyColumn("k", ColumnType.STRING, pa.string(), nullable=True)),
        (
            Column(ColumnType.BLOB, name="k", collation=UTF8),
            KeyColumn("k", ColumnType.BLOB, pa.string(), nullable=True),
        ),
    ],
)
def test_what_orders_rows_is_identified_by_the_column(column: Column, expected: KeyColumn) -> None:
    assert key_column(column, pa.string(), CHARSETS, COLLATIONS, ("a", "")) == expected
    assert not expected.ambiguous or not expected.can_be_ordered


@pytest.mark.parametrize("kind", [ColumnType.ENUM, ColumnType.SET])
@pytest.mark.parametrize(
    ("labels", "ambiguous"), [(("\u2252", "\u2252"), True), (("a", "b"), False), (("?", "?"), False)]
)
def test_labels_that_are_two_codes_of_one_text_order_no_rows(
    kind: ColumnType, labels: tuple[str, ...], *, ambiguous: bool
) -> None:
    """As 0x8790 and 0x81E0 are in cp932. A label with ? may have any character beyond U+FFFF there."""
    column = Column(kind, size=1, name="k", labels=tuple(map(str.encode, labels)))
    found = key_column(column, pa.string(), CHARSETS, COLLATIONS, labels)
    assert (found.ambiguous, found.can_be_ordered) == (ambiguous, not ambiguous)


def test_sets_are_compared_as_texts_of_which_an_empty_label_makes_another() -> None:
    sets = pa.array([["a", "b"], [], None, [""], ["", "a"], ["a"]], pa.list_(pa.string()))
    assert comparable(sets).to_pylist() == ["2,a,b", "0,", None, "1,", "2,,a", "1,a"]
    numbers = pa.array([1])
    assert comparable(numbers) is numbers


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
        (_DECIMAL, "1e101"), (_DECIMAL, "1e-101"), (_DECIMAL, "Infinity"), (_DECIMAL, 1), (_INT, "1"), (_TEXT, 1),
        (_BYTES, "0"), (_DATE, "2024-02-30"), (_DATE, "0000-00-01"), (_MOMENT, "2024-05-07 12:30:15.x"),
        (_TIME, "1:2:3"),
    ],
)  # fmt: skip
def test_what_is_no_value_of_the_type_is_refused(column: KeyColumn, value: Any) -> None:
    with pytest.raises(OffsetError, match="which cannot be one of its type"):
        column.literal(value)


@pytest.mark.parametrize(
    ("column", "value"), [(_BIT, 2**16), (_TIME, "1:00"), (_FLOAT, "x"), (_INT, 2**31), (_DECIMAL, "0.001")]
)
def test_what_does_not_fit_is_not_compared(column: KeyColumn, value: Any) -> None:
    with pytest.raises(OffsetError, match="which cannot be one of its type"):
        column.scalar(value)


def test_a_key_that_a_stream_does_not_distinguish_is_no_bound() -> None:
    text = KeyColumn("k", ColumnType.VARCHAR, pa.string(), "cp932", "cp932_bin")
    back = "CAST(CONVERT(CONVERT(`k` USING utf8mb4) USING cp932) AS BINARY)"
    assert text.selected("`k`") == f"IF({back} = CAST(`k` AS BINARY), `k`, NULL)"
    assert _TEXT.selected("`k`") == "`k`"
    with pytest.raises(UnsupportedFormatError, match=r"a key of the character set cp932 .* second code"):
        text.bound_value(None)
    assert (text.bound_value("≒"), _DATE.bound_value("0000-00-00")) == ("≒", "0000-00-00")
    with pytest.raises(UnsupportedFormatError, match="a key of 2010-00-00, which is not a calendar date"):
        _DATE.bound_value("2010-00-00")
