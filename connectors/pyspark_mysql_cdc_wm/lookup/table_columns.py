"""The columns of tables as the server describes them now, and what it leaves out of the binlog's table maps."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, Row
from pyspark_mysql_cdc_wm.lookup.collations import collations_of
from pyspark_mysql_cdc_wm.lookup.generated_columns import ShownColumn, refuse_generated
from pyspark_mysql_cdc_wm.lookup.rights import Rights, grant_select, rows_of_tables
from pyspark_mysql_cdc_wm.options.tables import TableName, quoted
from pyspark_mysql_cdc_wm.records.arrow_types import FLOATS, INTEGERS, LABELLED, STRINGS, column_type, has_empty_label
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn, key_column
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice
from pyspark_mysql_cdc_wm.records.table_definition import (
    ALL_METADATA,
    BINARY_COLLATION,
    COMPRESSED,
    Column,
    ColumnType,
    KeyPart,
    TableMap,
    key_names,
)
from watermark_source.errors import UnsupportedFormatError, listed

_NAMES_OF_TYPES: Mapping[ColumnType, tuple[str, ...]] = {
    ColumnType.TINY: ("tinyint",),
    ColumnType.SHORT: ("smallint",),
    ColumnType.INT24: ("mediumint",),
    ColumnType.LONG: ("int",),
    ColumnType.LONGLONG: ("bigint",),
    ColumnType.FLOAT: ("float",),
    ColumnType.DOUBLE: ("double",),
    ColumnType.NEWDECIMAL: ("decimal",),
    ColumnType.BIT: ("bit",),
    ColumnType.YEAR: ("year",),
    ColumnType.DATE: ("date",),
    ColumnType.TIME2: ("time",),
    ColumnType.DATETIME2: ("datetime",),
    ColumnType.TIMESTAMP2: ("timestamp",),
    ColumnType.STRING: ("char", "binary"),
    ColumnType.VARCHAR: ("varchar", "varbinary"),
    ColumnType.BLOB: tuple(f"{size}{kind}" for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")),
    ColumnType.JSON: ("json",),
    ColumnType.ENUM: ("enum",),
    ColumnType.SET: ("set",),
    ColumnType.VECTOR: ("vector",),
    ColumnType.GEOMETRY: (
        "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
        "geomcollection", "geometrycollection",
    ),
}  # fmt: skip
COLUMN_TYPES: Mapping[str, ColumnType] = {name: kind for kind, names in _NAMES_OF_TYPES.items() for name in names}
"""Column types by their names in ``information_schema``."""
_DESCRIBE = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, LOWER(DATA_TYPE), COLUMN_TYPE, IS_NULLABLE, NUMERIC_PRECISION,
       NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_OCTET_LENGTH, COLLATION_NAME, EXTRA,
       GENERATION_EXPRESSION, PRIVILEGES, COLUMN_KEY
FROM information_schema.COLUMNS WHERE
"""
_OF_COLUMN = 9
"""Fields of a row that make a ``Column``."""
_IN_ORDER = "ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
_KEYS = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE INDEX_NAME = 'PRIMARY' AND
"""
_IN_ORDER_OF_KEY = "ORDER BY TABLE_SCHEMA, TABLE_NAME, SEQ_IN_INDEX"
_UNIQUE = """
SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
"""
_VERSIONED = """
SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'SYSTEM VERSIONED' AND
"""
_LEAVE_OUT = "leave it out by the option excludeColumns"
_OLD_TIMES = re.compile(r"(time|datetime|timestamp)\(\d\) /\* mariadb-5\.3 \*/")
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_UNESCAPED = {"0": "\0", "n": "\n", "r": "\r"}


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table as the server describes it now: the columns to deliver, and those of its event time, key and chunks."""

    names: tuple[str, ...]
    """Names of all columns that the user may read, in the table's order."""
    columns: tuple[Column, ...]
    """The needed columns in the table's order; each has a name."""
    types: tuple[pa.DataType, ...]
    """The Arrow types of ``columns``."""
    key_columns: tuple[KeyColumn, ...]
    """The columns of the primary key in its order; empty without one."""
    chunk_columns: tuple[KeyColumn, ...]
    """The columns whose ranges are chunks: the primary key, or the one that the user chose; empty without either."""

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the columns of the primary key."""
        return tuple(column.name for column in self.key_columns)

    @property
    def by_name(self) -> Mapping[str, Column]:
        """``columns`` by name."""
        return {str(column.name): column for column in self.columns}

    @property
    def type_by_name(self) -> Mapping[str, pa.DataType]:
        """``types`` by the columns' names."""
        return dict(zip(self.by_name, self.types, strict=True))


class ShownTables:
    """Tables as ``information_schema.COLUMNS`` has them."""

    def __init__(self, connection: MySqlConnection, tables: Iterable[TableName]) -> None:
        """Ask for all of them; raises as ``rows_of_tables``."""
        self.rows = _by_table(rows_of_tables(connection, _DESCRIBE, tables, _IN_ORDER))
        """The columns that the user sees, in order."""

    def readable(self) -> frozenset[TableName]:
        """Return the tables of which the user may SELECT a column."""
        return frozenset(name for name, rows in self.rows.items() if any(map(_may_select, rows)))


def _may_select(row: Row) -> bool:
    return "select" in str(row[-2]).split(",")


def described(
    connection: MySqlConnection, tables: Iterable[TableName], choice: ColumnChoice, shown: ShownTables | None = None
) -> dict[TableName, TableColumns]:
    """Return the columns of tables; the result lacks tables that do not exist.

    ``shown`` are these tables, and perhaps others, where they have been asked for: none that keeps former rows.

    Raises:
        UnsupportedFormatError: a chosen column has a type or character set that is not read.
        SourceError: the server cannot be reached, or refuses.
    """
    names = frozenset(tables)
    keys = _by_table(rows_of_tables(connection, _KEYS, names, _IN_ORDER_OF_KEY))
    if shown is None:
        refuse_versioned(connection, names)
        shown = ShownTables(connection, names)
    wanted = names & shown.readable()
    return {
        name: _described(connection, name, rows, keys.get(name, ()), choice)
        for name, rows in shown.rows.items()
        if name in wanted
    }


def _by_table(rows: Iterable[tuple[TableName, Row]]) -> dict[TableName, list[Row]]:
    groups: dict[TableName, list[Row]] = {}
    for table, row in rows:
        groups.setdefault(table, []).append(row)
    return groups


def refuse_versioned(connection: MySqlConnection, tables: Iterable[TableName]) -> None:
    """Refuse tables of MariaDB that keep former rows.

    The binlog has a former row as an insert after the change that replaced it.

    Raises:
        UnsupportedFormatError: a table is ``WITH SYSTEM VERSIONING``.
        SourceError: the server cannot be reached, or refuses.
    """
    if not connection.is_mariadb:
        return
    for name, _ in rows_of_tables(connection, _VERSIONED, tables):
        raise versioned_error(name)


def versioned_error(table: TableName) -> UnsupportedFormatError:
    """Return the error for a table of MariaDB that keeps former rows."""
    return UnsupportedFormatError(
        f"table {table}: it is WITH SYSTEM VERSIONING, and the binlog has its former rows as inserts of the same key, "
        "behind the change that ended them. Leave the table out of the option tables, or on the server: "
        f"ALTER TABLE {table.quoted} DROP SYSTEM VERSIONING"
    )


def _refuse_unseen_key(connection: MySqlConnection, table: TableName, in_key: Collection[str]) -> None:
    """Refuse a table of MariaDB whose primary key is not shown, since the user may not read all of its columns."""
    if not connection.is_mariadb or not in_key:
        return
    # COLUMN_KEY is also PRI for a unique key of a table without a primary key.
    unique = {name for (name,) in connection.rows(_UNIQUE, *table)}
    if not unique.issuperset(in_key):
        raise _unreadable_key(connection, table, "every column")


def _unreadable_key(connection: MySqlConnection, table: TableName, what: str) -> UnsupportedFormatError:
    user = connection.settings.username
    return UnsupportedFormatError(
        f"table {table}: the user {user!r} may not read {what} of the primary key, without which rows cannot be "
        f"distinguished. On the server, for all columns: {grant_select(user, table)}"
    )


class DescribedColumn(NamedTuple):
    """A column of any type, as the server describes it now."""

    name: str
    declared: str
    """The type as the server shows it."""
    column: Column | None
    """``None`` for a type that is not read."""


def all_columns(
    connection: MySqlConnection, table: TableName
) -> tuple[Sequence[DescribedColumn], Sequence[tuple[str, int | None]]]:
    """Return every column of a table, and the columns of its primary key with how many first characters are in it.

    Both are empty for a table that does not exist; ``None`` characters are all.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    collations = collations_of(connection).numbers
    columns = [
        DescribedColumn(
            str(row[0]),
            str(row[2]),
            _column(row[:_OF_COLUMN], collations, table, mariadb=connection.is_mariadb)
            if row[1] in COLUMN_TYPES
            else None,
        )
        for _, row in rows_of_tables(connection, _DESCRIBE, [table], _IN_ORDER)
    ]
    keys = rows_of_tables(connection, _KEYS, [table], _IN_ORDER_OF_KEY)
    return columns, [(str(name), prefix) for _, (name, prefix) in keys]


def _described(
    connection: MySqlConnection, table: TableName, rows: Sequence[Row], key: Sequence[Row], choice: ColumnChoice
) -> TableColumns:
    collations, mariadb = collations_of(connection), connection.is_mariadb
    readable = {str(row[0]): row[:_OF_COLUMN] for row in rows if _may_select(row)}
    if not key:
        _refuse_unseen_key(connection, table, [str(row[0]) for row in rows if row[-1] == "PRI"])
    chunk_column = choice.chunk_column(str(table), readable)
    read = {name for name in readable if choice.reads(name) or name == chunk_column}
    shown = [ShownColumn(*(str(row[at]) for at in (0, 1, 9, 10))) for row in rows]
    refuse_generated(table, shown, read, mariadb=mariadb)
    # A key over prefixes of columns does not order the rows.
    names = [str(name) for name, _ in key] if all(part is None for _, part in key) else []
    if unreadable := [name for name in names if name not in readable]:
        raise _unreadable_key(connection, table, ", ".join(unreadable))
    described = read.union(names)
    needed = [row for name, row in readable.items() if name in described]
    columns = tuple(_column(row, collations.numbers, table, mariadb=mariadb) for row in needed)
    types = tuple(column_type(each, collations.charsets, f"table {table} column {each.name}") for each in columns)
    kinds = {str(column.name): (column, kind) for column, kind in zip(columns, types, strict=True)}

    def ordered(name: str) -> KeyColumn:
        column, kind = kinds[name]
        labels = None if column.labels is None else tuple(label.decode() for label in column.labels)
        return key_column(column, kind, collations.charsets, collations.names, labels)

    key_columns = chunk_columns = tuple(map(ordered, names))
    if chunk_column is not None and names != [chunk_column]:
        chunk_columns = (replace(ordered(chunk_column), chosen=True),)
    return TableColumns(tuple(readable), columns, types, key_columns, chunk_columns)


def declared_labels(declared: str) -> tuple[bytes, ...]:
    """Return the labels of ``enum('a','b')`` in UTF-8, whatever the column's character set is."""
    return tuple(
        _ESCAPED.sub(lambda match: _UNESCAPED.get(match[1], match[1]) if match[1] else "'", label).encode()
        for label in _LABEL.findall(declared)
    )


def _refuse_ambiguous(table: TableName, name: str, declared: str) -> None:
    """Refuse types of MariaDB whose values a SELECT or the binlog does not have completely."""
    if declared == "year(2)":
        why, replacement = "a SELECT shows two of its four digits", "YEAR(4)"
    elif _OLD_TIMES.fullmatch(declared):
        why = "the binlog does not have the length of its values"
        replacement = f"{declared.partition(' ')[0].upper()}, with mysql56_temporal_format = ON"
    else:
        return
    raise UnsupportedFormatError(
        f"table {table} column {name}: the type {declared} is not read, because {why}; {_LEAVE_OUT}. Or on the server: "
        f"ALTER TABLE {table.quoted} MODIFY {quoted(name)} {replacement}"
    )


def _column(row: Sequence[Any], collations: Mapping[str, int], table: TableName, *, mariadb: bool) -> Column:
    name, kind, declared, nullable, precision, scale, fraction, octets, collation = row
    type_ = COLUMN_TYPES.get(kind)
    if type_ is None:
        raise UnsupportedFormatError(f"table {table} column {name}: the type {declared} is not read; {_LEAVE_OUT}")
    if kind == "vector" and mariadb:
        # MariaDB logs vectors as VARBINARY.
        type_, kind = ColumnType.VARCHAR, "varbinary"
    _refuse_ambiguous(table, name, declared)
    if declared.endswith("COMPRESSED*/"):
        # MariaDB shows compressed columns by a comment behind the type.
        type_ = COMPRESSED[type_]
    column = Column(type_, name=name, nullable=nullable == "YES", size=1, unsigned="unsigned" in declared)
    if type_ in FLOATS:
        column = replace(column, size=4 if type_ is ColumnType.FLOAT else 8)
    elif type_ is ColumnType.NEWDECIMAL:
        column = replace(column, precision=int(precision), scale=int(scale))
    elif type_ is ColumnType.BIT:
        column = replace(column, length=int(precision), size=(int(precision) + 7) // 8)
    elif type_ in (ColumnType.TIME2, ColumnType.DATETIME2, ColumnType.TIMESTAMP2):
        column = replace(column, precision=int(fraction or 0))
    elif type_ in LABELLED:
        column = replace(column, labels=declared_labels(declared))
        if has_empty_label(column) and "?" in declared:
            raise UnsupportedFormatError(
                f"table {table} column {name}: {declared} has an empty label, so its values are read by their numbers, "
                f"and a label with a ?, which the server shows for characters beyond U+FFFF as well; {_LEAVE_OUT}"
            )
    elif kind.endswith(("binary", "blob")):
        column = replace(column, collation=BINARY_COLLATION, length=int(octets or 0))
    elif collation is not None:
        column = replace(column, collation=collations[collation])
    return column


# Table maps of the binlog, completed from what the server describes now.

_UTF8MB4 = 45
"""The number that a collation of utf8mb4 has on every server; descriptions are in that character set."""
_NOT_SHOWN = "?"
_REMEDY = f"On the server: {ALL_METADATA}; and begin a new query"
_VARIABLE = (ColumnType.VARCHAR, ColumnType.VAR_STRING)
_HASH = re.compile(r"DB_ROW_HASH_\d+")
_PERIOD = ("row_start", "row_end")
"""Names of the last two columns, a row's period, where a versioned table of MariaDB declares no others."""


def as_described(
    connection: MySqlConnection,
    is_read: Callable[[TableName], bool],
    named: Callable[[TableName], object],
    rights: Rights,
) -> Callable[[TableMap], TableMap]:
    """Return the function that completes the table maps of tables that are read, and marks their hidden columns.

    With ``binlog_row_metadata = MINIMAL`` a server does not log the names of columns, labels of ENUM and SET, and the
    primary key; those that it describes now are right unless the table was altered since. What can be seen of that here
    is refused; and ``named`` is called with each such table, which must be held against the statements in the binlog
    since (``PresentNames``).

    It raises ``UnsupportedFormatError`` for a table that was altered after this position of the binlog, that keeps
    former rows (MariaDB, ``WITH SYSTEM VERSIONING``), or of which the user may not SELECT what is needed; and
    ``SourceError`` if the server cannot be reached, or refuses.
    """

    def completed(table: TableMap) -> TableMap:
        name = TableName(table.database, table.table)
        if any(column.name is None for column in table.columns) and is_read(name):
            table = _with_present_names(table, name, connection, rights)
            named(name)
        return _with_hidden_columns(table, name, connection, rights)

    return completed


def _with_present_names(table: TableMap, name: TableName, connection: MySqlConnection, rights: Rights) -> TableMap:
    columns, key = all_columns(connection, name)
    if not columns:
        raise _altered(name, "it does not exist now")
    if len(columns) < len(table.columns) and rights.are_in_part(name):
        user = connection.settings.username
        raise nameless_in_part(
            name, user, f"the binlog has {len(table.columns)} columns, of which the user {user!r} may read "
            f"{len(columns)} now"
        )  # fmt: skip
    if len(columns) != len(table.columns):
        raise _altered(name, f"it had {len(table.columns)} columns then, and has {len(columns)} now")
    for logged, now in zip(table.columns, columns, strict=True):
        if now.column is None or not _same_type(logged, now.column):
            raise _altered(name, f"the column {now.name} had another type then, and is {now.declared} now")
        if logged.type in LABELLED and _NOT_SHOWN in now.declared:
            raise UnsupportedFormatError(
                f"table {name} column {now.name}: a label of {now.declared} has a {_NOT_SHOWN}, which the server "
                f"shows for characters beyond U+FFFF as well, and binlog_row_metadata is MINIMAL. {_REMEDY}"
            )
    names = [column.name for column in columns]
    return replace(
        table,
        columns=tuple(_completed(logged, now) for logged, now in zip(table.columns, columns, strict=True)),
        primary_key=tuple(KeyPart(names.index(name), prefix) for name, prefix in key) or None,
    )


def nameless_in_part(table: TableName, user: str, seen: str) -> UnsupportedFormatError:
    """Return the error for a table of which the user may read some columns, where the binlog does not name them."""
    return UnsupportedFormatError(
        f"table {table}: {seen}. With binlog_row_metadata = MINIMAL the binlog does not have the names of columns, so "
        f"which of its values may be read is not known. On the server: {grant_select(user, table)}; or "
        f"{ALL_METADATA}, and begin a new query"
    )


def _completed(logged: Column, now: DescribedColumn) -> Column:
    if logged.type not in LABELLED:
        return replace(logged, name=now.name)
    return replace(logged, name=now.name, labels=declared_labels(now.declared), collation=_UTF8MB4)


def _same_type(logged: Column, now: Column) -> bool:
    """Return whether a column's current type is the logged one, as far as the type is logged."""
    kind = ColumnType.VARCHAR if logged.type in _VARIABLE else logged.type
    if kind is not now.type:
        return False
    if kind in INTEGERS:
        return logged.unsigned == now.unsigned
    if kind in STRINGS:
        return logged.collation == now.collation
    bits = kind is not ColumnType.BIT or logged.length == now.length
    return bits and (logged.precision, logged.scale) == (now.precision, now.scale)


def _altered(name: TableName, what: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"table {name} was altered after this position of the binlog: {what}. binlog_row_metadata was MINIMAL then, "
        f"so the binlog does not have the names of columns. {_REMEDY}"
    )


def _with_hidden_columns(table: TableMap, name: TableName, connection: MySqlConnection, rights: Rights) -> TableMap:
    """Return a table with the columns marked that the binlog has and the server does not describe to the user.

    These are MariaDB's hash of each unique key over a TEXT, BLOB or long VARCHAR (``DB_ROW_HASH_1``) and, with grants
    for columns, the columns that were not granted.
    """
    mariadb = connection.is_mariadb
    if mariadb and _may_be_versioned(table.columns):
        refuse_versioned(connection, [name])
    shown = rights.columns(name)
    period = mariadb and tuple(column.name for column in table.columns[-2:]) == _PERIOD
    if period and not shown.intersection(_PERIOD):
        raise versioned_error(name)
    folded = {each.lower() for each in shown}
    missing = {column.name for column in table.columns if str(column.name).lower() not in folded}
    # Other columns may have been dropped or renamed since.
    hidden = {column.name for column in table.columns if mariadb and _may_be_hash(column)} & missing
    if missing - hidden and rights.are_in_part(name):
        hidden = missing
        if shown and (unreadable := hidden.intersection(key_names(table))):
            raise _unreadable_key(connection, name, listed(unreadable))
    if not hidden:
        return table
    return replace(
        table, columns=tuple(replace(each, hidden=True) if each.name in hidden else each for each in table.columns)
    )


def _may_be_hash(column: Column) -> bool:
    return column.type is ColumnType.LONGLONG and column.name is not None and bool(_HASH.fullmatch(column.name))


def _may_be_versioned(columns: Collection[Column]) -> bool:
    """Return whether two columns may be a row's period: timestamps, or numbers of transactions."""
    timestamps = [column for column in columns if column.type is ColumnType.TIMESTAMP2 and column.precision == 6]
    numbers = [column for column in columns if column.type is ColumnType.LONGLONG and column.unsigned]
    return any(len([column for column in kind if not column.nullable]) > 1 for kind in (timestamps, numbers))
