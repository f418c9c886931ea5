"""Decimals and sets as a SELECT shows them, to columns: what Python makes of the same texts."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mysql_cdc_wm.binlog.wire import padded
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values
from pyspark_mysql_cdc_wm.records.arrow_types import SET_TYPE
from pyspark_mysql_cdc_wm.records.snapshot_values import text_column
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from watermark_source.errors import CorruptDataError, UnsupportedFormatError


def values_of(texts: Sequence[str | None]) -> Values:
    encoded = [b"" if text is None else text.encode() for text in texts]
    sizes = np.array([len(each) for each in encoded], np.int32)
    starts = (np.cumsum(sizes) - sizes).astype(np.int32)
    starts[[text is None for text in texts]] = -1
    return Values(padded(b"".join(encoded)), starts, sizes)


def column_of(texts: list[str | None], precision: int, scale: int) -> pa.Array:
    column = Column(ColumnType.NEWDECIMAL, precision=precision, scale=scale)
    return text_column(column, pa.decimal128(precision, scale))(values_of(texts))


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


def set_of(labels: Sequence[bytes], numbers: Sequence[int | None]) -> pa.Array:
    build = text_column(Column(ColumnType.SET, labels=tuple(labels)), SET_TYPE)
    made = build(values_of([None if number is None else str(number) for number in numbers]))
    made.validate(full=True)
    return made


def test_a_set_with_an_empty_label_is_identified_by_its_number_for_its_text_is_the_empty_sets_too() -> None:
    labels = ("", "a", "bé")
    numbers = [0, None, 1, *range(2, 8), None]
    expected = [
        None if number is None else [label for bit, label in enumerate(labels) if number >> bit & 1]
        for number in numbers
    ]
    assert set_of([label.encode() for label in labels], numbers).to_pylist() == expected


def test_a_set_of_sixty_four_labels_has_its_last_one() -> None:
    labels = [b"", *(b"%d" % label for label in range(1, 64))]
    assert set_of(labels, [1 << 63, (1 << 63) + 1, (1 << 64) - 1]).to_pylist() == [
        ["63"], ["", "63"], [label.decode() for label in labels]
    ]  # fmt: skip


@pytest.mark.parametrize("number", [8, 1 << 63])
def test_a_bit_above_the_labels_of_a_set_is_refused(number: int) -> None:
    with pytest.raises(CorruptDataError, match="a SET of 3 labels has a bit above them"):
        set_of([b"", b"a", b"b"], [1, number])


def test_a_document_that_the_server_shows_nothing_of_is_refused() -> None:
    # Of a JSON document whose text is longer than max_allowed_packet a SELECT shows the empty text.
    build = text_column(Column(ColumnType.JSON), pa.string())
    assert build(values_of(["[1]", None, "null"])).to_pylist() == ["[1]", None, "null"]
    with pytest.raises(UnsupportedFormatError, match=r"longer than max_allowed_packet.*SET PERSIST max_allowed_packet"):
        build(values_of(["[1]", "", None]))
    assert text_column(Column(ColumnType.BLOB, collation=45), pa.string())(values_of([""])).to_pylist() == [""]
