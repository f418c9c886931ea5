"""Types of columns in the binlog."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class ColumnType(IntEnum):
    """Types of columns in a binlog; ENUM and SET come as STRING and are told apart when the event is read.

    Where each is entered: its metadata in ``table_map_event.py``; whether it has a place among the signs, collations
    and labels in ``row_metadata.py``, without which those of other columns are read as its own; its width and type in
    Arrow in ``arrow_types.py``; its values from a row in ``column_decoders.py``, and from a SELECT in
    ``snapshot_values.py``; whether chunks can be cut by it in ``key_column.py``; its form in JSON rows, where the type
    in Arrow does not tell, in ``json_rows.py``; its names in a table's description in ``lookup/table_columns.py``. A
    sample in tests/unit/mysql/records/type_samples.py shows what is missing: test_every_type.py has a test for each
    place.
    """

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


COMPRESSED: Mapping[ColumnType, ColumnType] = {
    ColumnType.VARCHAR: ColumnType.VARCHAR_COMPRESSED,
    ColumnType.BLOB: ColumnType.BLOB_COMPRESSED,
}
"""What columns are that MariaDB has COMPRESSED."""
