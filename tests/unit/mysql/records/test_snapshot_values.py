"""Decimals as a SELECT shows them, to columns: what Python makes of the same texts."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mysql_cdc_wm.binlog.wire import padded
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values
from pyspark_mysql_cdc_wm.records.snapshot_values import text_column
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from watermark_source.errors import CorruptDataError


def column_of(texts: list[str | None], precision: int, scale: int) -> pa.Array:
    encoded = [b"" if text is None else text.encode() for text in texts]
    sizes = np.array([len(each) for each in encoded], np.int32)
    starts = (np.cumsum(sizes) - sizes).astype(np.int32)
    starts[[text is None for text in texts]] = -1
    column = Column(ColumnType.NEWDECIMAL, precision=precision, scale=scale)
    build = text_column(column, pa.decimal128(precision, scale))
    return build(Values(padded(b"".join(encoded)), starts, sizes))


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, list[str | None]]:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, min(30, precision)))
    digits = st.one_of(st.just(0), st.just(10**precision - 1), st.integers(0, 10**precision - 1))

    def shown(number: int, negative: bool) -> str:
        text = str(number).rjust(scale + 1, "0")
        whole, fraction = text[: len(text) - scale], text[len(text) - scale :]
        return ("-" if negative and number else "") + whole + ("." + fraction if scale else "")

    values = st.one_of(st.none(), st.builds(shown, digits, st.booleans()))
    return precision, scale, draw(st.lists(values, min_size=1, max_size=20))


@given(decimals())
def test_decimals_have_every_digit_that_the_server_shows(found: tuple[int, int, list[str | None]]) -> None:
    precision, scale, texts = found
    expected = [None if text is None else Decimal(text) for text in texts]
    made = column_of(texts, precision, scale)
    made.validate(full=True)
    assert made.to_pylist() == expected


@pytest.mark.parametrize("text", ["", "-", "1.555", "1,55", ".555", "1.5a", "x.55", "1..5"])
def test_what_is_no_decimal_of_the_column_is_refused(text: str) -> None:
    with pytest.raises(CorruptDataError, match=r"a number that is not of the type decimal128\(12, 2\)"):
        column_of([text], 12, 2)


@pytest.mark.parametrize("text", ["", "-", "1.5", "a"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(CorruptDataError, match=r"a number that is not of the type decimal128\(12, 0\)"):
        column_of([text], 12, 0)
