"""A table as a TABLE_MAP event describes it: its columns and the primary key."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark_mysql_cdc_wm.records.type_codes import ColumnType

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
    visible: bool = field(default=True, compare=False)
    hidden: bool = field(default=False, compare=False)
    """Whether the binlog has it and the server does not describe it to the user: it is no column of the stream."""


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
    """Return the columns of a table's primary key, none if it has none: a prefix of a column tells no rows apart."""
    parts = table.primary_key or ()
    whole = all(part.prefix is None for part in parts)
    return tuple(str(table.columns[part.column].name) for part in parts) if whole else ()
