"""The columns of tables as the server describes them now, and the schema of the stream they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pyspark_mysql_cdc_wm.client.charsets import charsets_of
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.column import BINARY_COLLATION, Column, ColumnType
from pyspark_mysql_cdc_wm.records.column_types import column_type
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn, key_column
from watermark_source.errors import OptionError, SchemaError, UnknownSplitError, UnsupportedFormatError

_TYPES: Mapping[str, ColumnType] = {
    "tinyint": ColumnType.TINY,
    "smallint": ColumnType.SHORT,
    "mediumint": ColumnType.INT24,
    "int": ColumnType.LONG,
    "bigint": ColumnType.LONGLONG,
    "float": ColumnType.FLOAT,
    "double": ColumnType.DOUBLE,
    "decimal": ColumnType.NEWDECIMAL,
    "bit": ColumnType.BIT,
    "year": ColumnType.YEAR,
    "date": ColumnType.DATE,
    "time": ColumnType.TIME2,
    "datetime": ColumnType.DATETIME2,
    "timestamp": ColumnType.TIMESTAMP2,
    "char": ColumnType.STRING,
    "varchar": ColumnType.VARCHAR,
    "binary": ColumnType.STRING,
    "varbinary": ColumnType.VARCHAR,
    "tinytext": ColumnType.BLOB,
    "text": ColumnType.BLOB,
    "mediumtext": ColumnType.BLOB,
    "longtext": ColumnType.BLOB,
    "tinyblob": ColumnType.BLOB,
    "blob": ColumnType.BLOB,
    "mediumblob": ColumnType.BLOB,
    "longblob": ColumnType.BLOB,
    "json": ColumnType.JSON,
    "enum": ColumnType.ENUM,
    "set": ColumnType.SET,
    "vector": ColumnType.VECTOR,
}
_SHAPES = frozenset(
    {
        "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
        "geomcollection", "geometrycollection",
    }
)  # fmt: skip
_DESCRIBE = """
SELECT COLUMN_NAME, LOWER(DATA_TYPE), COLUMN_TYPE, IS_NULLABLE, NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION,
       CHARACTER_OCTET_LENGTH, COLLATION_NAME, EXTRA
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_KEY = """
SELECT COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX
"""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """What all tables of a stream have in common."""

    columns: tuple[Column, ...]
    """All of them, in the tables' order; each has a name."""
    types: tuple[pa.DataType, ...]
    key_columns: tuple[KeyColumn, ...]
    """Those of the primary key, in its order; empty without one."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(str(column.name) for column in self.columns)

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the columns of the primary key."""
        return tuple(column.name for column in self.key_columns)

    def type_of(self, name: str) -> pa.DataType:
        """Return a column's type."""
        return self.types[self.names.index(name)]

    def column(self, name: str) -> Column:
        """Return a column."""
        return self.columns[self.names.index(name)]


def table_columns(connection: MySqlConnection, tables: Sequence[TableName]) -> TableColumns:
    """Ask the server about tables, which must have equal columns.

    Raises:
        UnknownSplitError: a table that is not there, or that the user may not see.
        SchemaError: tables with different columns.
        UnsupportedFormatError: a column of a type or character set that is not read.
    """
    charsets = charsets_of(connection)
    collations = _collations(connection)
    found = {table: _described(connection, table, charsets, collations) for table in tables}
    first, *others = found
    for other in others:
        if found[other] != found[first]:
            raise SchemaError(
                f"the tables {first} and {other} have different columns or keys, and a stream has one schema: "
                f"{_shown(found[first])} and {_shown(found[other])}. Read them as two streams, or choose columns they "
                "share with two sources"
            )
    return found[first]


def chosen_columns(table: TableColumns, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names to deliver, in the table's order.

    Raises:
        OptionError: a column that is not there.
    """
    if wanted is None:
        return table.names
    spelling = {name.lower(): name for name in table.names}
    for name in wanted:
        if name.lower() not in spelling:
            raise OptionError(
                "columns", ",".join(wanted), f"there is no column {name}; the columns are {', '.join(table.names)}"
            )
    chosen = {name.lower() for name in wanted}
    return tuple(name for name in table.names if name.lower() in chosen)


def unknown_table(connection: MySqlConnection, table: TableName) -> UnknownSplitError:
    """Return the error for a table that the server does not tell about."""
    user = connection.settings.username
    return UnknownSplitError(
        f"{connection.settings.where}: there is no table {table}, or the user {user!r} may not see it. Check the "
        f"option tables, or on the server: {grant_select(connection, table)}"
    )


def grant_select(connection: MySqlConnection, table: TableName) -> str:
    """Return the statement that lets the user read a table."""
    return f"GRANT SELECT ON {table.quoted} TO '{connection.settings.username}'@'%'"


def _described(
    connection: MySqlConnection, table: TableName, charsets: Mapping[int, str], collations: Mapping[str, int]
) -> TableColumns:
    rows = connection.rows(_DESCRIBE, *table)
    if not rows:
        raise unknown_table(connection, table)
    columns = tuple(_column(row, collations, table) for row in rows)
    types = tuple(column_type(each, charsets, f"table {table} column {each.name}") for each in columns)
    key = connection.rows(_KEY, *table)
    # A prefix of a column orders no rows.
    whole = all(part is None for _, part in key)
    collated = {str(row[0]): (collations[row[8]], str(row[8])) for row in rows if row[8] is not None}
    described = {str(column.name): (column.type, kind) for column, kind in zip(columns, types, strict=True)}
    names = [str(name) for name, _ in key] if whole else []
    return TableColumns(
        columns,
        types,
        tuple(key_column(name, *described[name], collated.get(name), charsets) for name in names),
    )


def _column(row: Sequence[Any], collations: Mapping[str, int], table: TableName) -> Column:
    name, kind, declared, nullable, precision, scale, fraction, octets, collation, extra = row
    found = ColumnType.GEOMETRY if kind in _SHAPES else _TYPES.get(kind)
    if found is None:
        raise UnsupportedFormatError(
            f"table {table} column {name}: the type {declared} is not read; name the others in the option columns"
        )
    column = Column(
        found, name=name, nullable=nullable == "YES", visible="INVISIBLE" not in str(extra).upper(), size=1,
        unsigned="unsigned" in declared,
    )  # fmt: skip
    if found in (ColumnType.FLOAT, ColumnType.DOUBLE):
        column = replace(column, size=4 if found is ColumnType.FLOAT else 8)
    elif found is ColumnType.NEWDECIMAL:
        column = replace(column, precision=int(precision), scale=int(scale))
    elif found is ColumnType.BIT:
        column = replace(column, length=int(precision), size=(int(precision) + 7) // 8)
    elif found in (ColumnType.TIME2, ColumnType.DATETIME2, ColumnType.TIMESTAMP2):
        column = replace(column, precision=int(fraction or 0))
    elif found in (ColumnType.ENUM, ColumnType.SET):
        # Their labels come with the rows; here they only tell that there are some.
        column = replace(column, labels=())
    elif kind.endswith(("binary", "blob")):
        column = replace(column, collation=BINARY_COLLATION, length=int(octets or 0))
    elif collation is not None:
        column = replace(column, collation=collations[collation])
    return column


def _collations(connection: MySqlConnection) -> dict[str, int]:
    statement = "SELECT COLLATION_NAME, ID FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
    if connection.is_mariadb:
        statement = (
            "SELECT FULL_COLLATION_NAME, ID FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY "
            "WHERE ID IS NOT NULL"
        )
    return {str(name): int(number) for name, number in connection.rows(statement)}


def _shown(table: TableColumns) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in zip(table.names, table.types, strict=True))
