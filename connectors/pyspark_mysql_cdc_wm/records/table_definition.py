"""A table as a TABLE_MAP event describes it: its columns and the primary key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

ALL_METADATA = "SET PERSIST binlog_row_metadata = 'FULL' (MariaDB: SET GLOBAL, and in its configuration file)"
"""The statement for errors about what a server does not log of columns."""

# Types of columns in the binlog.


class ColumnType(IntEnum):
    """Types of columns in a binlog; ENUM and SET are logged as STRING and distinguished when the event is read.

    Where each is entered: in ``table_map.py`` its metadata, and whether it has a place among the signs, collations and
    labels, without which those of other columns are read as its own; its width and type in Arrow in ``arrow_types.py``;
    its values from a row in ``decoding.py``, and from a SELECT in ``snapshot_values.py``; whether chunks can be cut by
    it in ``key_column.py``; its form in JSON rows, where the type in Arrow does not give it, in ``json_rows.py``; its
    names in a table's description in ``lookup/table_columns.py``. A sample in tests/unit/mysql/records/type_samples.py
    shows what is missing: test_every_type.py has a test for each place.
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


BINARY_COLLATION = 63


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    type: ColumnType
    size: int = 0
    """Bytes of the length before a value (strings, BLOB, JSON, GEOMETRY, VECTOR), or of the value (ENUM, SET, BIT)."""
    length: int = 0
    """Of strings the most bytes of a value, of BIT the bits."""
    precision: int = 0
    """Of decimals all digits, of times those of the fraction of a second."""
    scale: int = 0
    """Of decimals the digits after the point."""
    nullable: bool = field(default=True, compare=False)
    name: str | None = None
    """``None`` where the server logs the least of metadata, as it does by default."""
    unsigned: bool = False
    collation: int | None = None
    """Of text, ENUM and SET; 63 is binary."""
    labels: tuple[bytes, ...] | None = None
    """Of ENUM and SET, in the character set of ``collation``."""
    hidden: bool = field(default=False, compare=False)
    """Whether the binlog has it and the server does not describe it to the user: the stream leaves it out."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column of the primary key by its index; ``prefix`` characters of it, or all with ``None``."""

    column: int
    prefix: int | None = None


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table at one position of the binlog."""

    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[KeyPart, ...] | None = None
    """``None`` where the server does not log it, or the table has none."""


def shown_names(table: TableMap) -> tuple[str, ...]:
    """Return the names of a table's columns, in its order, without those that are hidden."""
    return tuple(str(column.name) for column in table.columns if not column.hidden)


def key_names(table: TableMap) -> tuple[str, ...]:
    """Return the columns of a table's primary key, none without one: prefixes of columns do not distinguish rows."""
    parts = table.primary_key or ()
    whole = all(part.prefix is None for part in parts)
    return tuple(str(table.columns[part.column].name) for part in parts) if whole else ()
