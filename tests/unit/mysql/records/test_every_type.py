"""Every type of column is entered wherever a type has to be: ``ColumnType`` lists the places."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.lookup.table_columns import COLUMN_TYPES
from pyspark_mysql_cdc_wm.records.arrow_types import column_type, column_width
from pyspark_mysql_cdc_wm.records.decoding import column_decoder
from pyspark_mysql_cdc_wm.records.json_rows import json_rows
from pyspark_mysql_cdc_wm.records.key_column import key_column
from pyspark_mysql_cdc_wm.records.snapshot_values import text_column
from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, Column, ColumnType
from pyspark_mysql_cdc_wm.records.table_map import read_table_map
from tests.unit.mysql.records.located_values import values
from tests.unit.mysql.records.type_samples import CHARSETS, COLLATIONS, NOT_READ, SAMPLES, Sample
from watermark_source.errors import UnsupportedFormatError


def _title(sample: Sample) -> str:
    column = sample.column
    return f"{column.type.name}{'-unsigned' * column.unsigned}-{column.length or column.precision}-{column.size}"


each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=_title)
each_shown = pytest.mark.parametrize(
    "sample", [each for each in SAMPLES if each.values[0].shown is not None], ids=_title
)


def built(sample: Sample) -> pa.Array:
    return column_decoder(sample.column, CHARSETS, "here")(values(*(each.stored for each in sample.values), None))


def test_there_is_a_sample_of_every_type() -> None:
    assert {each.column.type for each in SAMPLES} | NOT_READ.keys() == set(ColumnType), (
        "a type needs a sample in type_samples.py, and an entry in each of the places that ColumnType lists"
    )


def test_the_types_that_a_server_describes_are_those_that_it_shows() -> None:
    shown = {each.column.type for each in SAMPLES if each.values[0].shown is not None}
    assert shown == {*COLUMN_TYPES.values()}


@each_sample
def test_a_table_map_describes_it(sample: Sample) -> None:
    column, (kind, *metadata) = sample.column, sample.described
    body = bytes(8) + b"\1d\0\1t\0\1" + bytes([kind, len(metadata), *metadata]) + b"\1" + _optional(column)
    (found,) = read_table_map(body, "here").columns
    assert found == column
    assert found.nullable


def _optional(column: Column) -> bytes:
    """What a server logs of a column besides, of those that have a place for it."""
    has_labels = column.type in (ColumnType.ENUM, ColumnType.SET)
    fields = b"\x01\x01\x80" if column.unsigned else b""
    if column.collation is not None:
        fields += bytes([10 if has_labels else 2, 1, column.collation])
    if column.labels is not None:
        labels = bytes([len(column.labels)]) + b"".join(bytes([len(each)]) + each for each in column.labels)
        fields += bytes([6 if column.type is ColumnType.ENUM else 5, len(labels)]) + labels
    return fields


@each_sample
@pytest.mark.parametrize("last", [(), (None,)], ids=["", "and null"])
def test_a_row_has_its_values(sample: Sample, last: tuple[None, ...]) -> None:
    found = column_decoder(sample.column, CHARSETS, "here")(values(*(each.stored for each in sample.values), *last))
    found.validate(full=True)
    assert found.type == column_type(sample.column, CHARSETS, "here")
    assert found.to_pylist() == [*(each.value for each in sample.values), *last]
    # What has no length before it is as wide as its values.
    width = column_width(sample.column)
    assert -width == sample.column.size if width < 0 else {len(each.stored) for each in sample.values} == {width}


@each_shown
def test_a_select_has_the_same_values(sample: Sample) -> None:
    kind = column_type(sample.column, CHARSETS, "here")
    found = text_column(sample.column, kind)(values(*(each.shown for each in sample.values), None))
    found.validate(full=True)
    assert found == built(sample)


@each_sample
def test_json_rows_have_them(sample: Sample) -> None:
    column, found = replace(sample.column, name='a"é'), built(sample)
    texts = [*(each.as_json for each in sample.values), "null"]
    made = json_rows([(column, found), (column, found)], len(found))
    made.validate(full=True)
    assert made.to_pylist() == [f'{{"a\\"é":{text},"a\\"é":{text}}}' for text in texts]
    # A part of a column is as good as a whole one.
    assert json_rows([(column, found[1:])], len(found) - 1).to_pylist() == [f'{{"a\\"é":{text}}}' for text in texts[1:]]


def test_json_rows_have_room_for_long_values_and_none() -> None:
    texts = pa.array([each * size for size in range(100) for each in ('"', "\\", "\x1f")])
    contents = pa.array([b"\xfe" * size for size in range(200)])
    for column, shown in (
        (texts, [json.dumps(text.as_py()) for text in texts]),
        (contents, [f'"{b64encode(content.as_py()).decode()}"' for content in contents]),
        (pa.array(["", ""]), ['""'] * 2),
        (pa.array([b"", None]), ['""', "null"]),
        (pa.nulls(2, pa.string()), ["null"] * 2),
        (pa.array([None], pa.list_(pa.string())), ["null"]),
    ):
        made = json_rows([(Column(ColumnType.VARCHAR, name="a"), column)], len(column))
        assert made.to_pylist() == [f'{{"a":{each}}}' for each in shown]
    assert json_rows([], 2).to_pylist() == ["{}"] * 2


@each_sample
def test_whether_chunks_can_be_cut_by_it_is_known(sample: Sample) -> None:
    kind = column_type(sample.column, CHARSETS, "here")
    assert key_column(sample.column, kind, CHARSETS, COLLATIONS).can_be_ordered is sample.can_be_ordered


@pytest.mark.parametrize(("kind", "message"), NOT_READ.items())
def test_what_is_not_read_is_refused(kind: ColumnType, message: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=message):
        column_decoder(Column(kind), CHARSETS, "here")


@pytest.mark.parametrize("kind", [ColumnType.ENUM, ColumnType.SET, ColumnType.VARCHAR])
def test_text_of_a_collation_that_the_server_has_not_is_refused(kind: ColumnType) -> None:
    with pytest.raises(UnsupportedFormatError, match="a collation with the number 99"):
        column_decoder(Column(kind, size=1, collation=99, labels=(b"a",)), CHARSETS, "here")


def test_labels_of_bytes_are_texts() -> None:
    column = Column(ColumnType.ENUM, size=1, collation=BINARY_COLLATION, labels=(b"a", b"b"))
    assert column_decoder(column, CHARSETS, "here")(values(b"\2")).to_pylist() == ["b"]
