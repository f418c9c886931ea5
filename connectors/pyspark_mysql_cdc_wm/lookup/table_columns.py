"""The columns of tables as the server describes them now."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, Row
from pyspark_mysql_cdc_wm.errors.server_errors import LOCKED, code_of
from pyspark_mysql_cdc_wm.lookup.collations import Collations, collations_of
from pyspark_mysql_cdc_wm.lookup.metadata_lock_limit import waiting_for_locks
from pyspark_mysql_cdc_wm.options.tables import TableName, quoted
from pyspark_mysql_cdc_wm.records.arrow_types import column_type, has_empty_label
from pyspark_mysql_cdc_wm.records.column_choice import ColumnChoice
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn, key_column
from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, Column
from pyspark_mysql_cdc_wm.records.type_codes import COMPRESSED, ColumnType
from watermark_source.errors import RefusedError, SourceError, UnsupportedFormatError

COLUMN_TYPES: Mapping[str, ColumnType] = {
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
    **dict.fromkeys(
        (
            "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
            "geomcollection", "geometrycollection",
        ),
        ColumnType.GEOMETRY,
    ),
}  # fmt: skip
"""By their names in ``information_schema``."""
_DESCRIBE = """
SELECT TABLE_NAME, COLUMN_NAME, LOWER(DATA_TYPE), COLUMN_TYPE, IS_NULLABLE, NUMERIC_PRECISION, NUMERIC_SCALE,
       DATETIME_PRECISION, CHARACTER_OCTET_LENGTH, COLLATION_NAME, EXTRA, PRIVILEGES,
       COLUMN_KEY
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME IN ({}) ORDER BY TABLE_NAME, ORDINAL_POSITION
"""
_KEYS = """
SELECT TABLE_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME IN ({}) AND INDEX_NAME = 'PRIMARY' ORDER BY TABLE_NAME, SEQ_IN_INDEX
"""
_UNIQUE = """
SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
"""
_GRANT = "GRANT SELECT ON {} TO '{}'@'%'"
_NAMES = """
SELECT COLUMN_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND FIND_IN_SET('select', PRIVILEGES)
"""
_VERSIONED = """
SELECT TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_NAME IN ({}) AND TABLE_TYPE = 'SYSTEM VERSIONED'
"""
_COLUMN_GRANTS = """
SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMN_PRIVILEGES WHERE PRIVILEGE_TYPE = 'SELECT'
"""
_LEAVE_OUT = "leave it out by the option excludeColumns"
_OLD_TIMES = re.compile(r"(time|datetime|timestamp)\(\d\) /\* mariadb-5\.3 \*/")
_TABLES_A_QUESTION = 500
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_MEANS = {"0": "\0", "n": "\n", "r": "\r"}


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table as the server describes it now: the columns to deliver, and those of its event time, key and chunks."""

    names: tuple[str, ...]
    """Of all columns, in the table's order, whether or not they are described."""
    columns: tuple[Column, ...]
    """In the table's order; each has a name."""
    types: tuple[pa.DataType, ...]
    key_columns: tuple[KeyColumn, ...]
    """Those of the primary key, in its order; empty without one."""
    chunk_columns: tuple[KeyColumn, ...]
    """Those that chunks are ranges of: the primary key, or the one that the user chose; empty without either."""

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the columns of the primary key."""
        return tuple(column.name for column in self.key_columns)

    @property
    def by_name(self) -> Mapping[str, Column]:
        """The columns."""
        return {str(column.name): column for column in self.columns}

    @property
    def type_by_name(self) -> Mapping[str, pa.DataType]:
        """The columns' types."""
        return dict(zip(self.by_name, self.types, strict=True))


def described(
    connection: MySqlConnection, tables: Iterable[TableName], choice: ColumnChoice
) -> dict[TableName, TableColumns]:
    """Ask the server about tables; those that are not there are left out.

    Raises:
        UnsupportedFormatError: a chosen column of a type or character set that is not read.
        SourceError: the server cannot be reached, or refuses.
    """
    by_database: dict[str, list[str]] = {}
    for database, table in sorted(tables):
        by_database.setdefault(database, []).append(table)
    collations = collations_of(connection)
    found: dict[TableName, TableColumns] = {}
    for database, names in by_database.items():
        for first in range(0, len(names), _TABLES_A_QUESTION):
            some = names[first : first + _TABLES_A_QUESTION]
            marks = ", ".join(["%s"] * len(some))
            keys = _by_table(connection.rows(_KEYS.format(marks), database, *some))
            refuse_versioned(connection, database, some)
            for table, rows in _by_table(connection.rows(_DESCRIBE.format(marks), database, *some)).items():
                name = TableName(database, table)
                readable = [row[:-2] for row in rows if "select" in str(row[-2]).split(",")]
                if readable and not keys.get(table):
                    _refuse_unseen_key(connection, name, [str(row[0]) for row in rows if row[-1] == "PRI"])
                if readable:
                    _refuse_what_changes_lack(connection, name, readable, choice)
                    found[name] = _described(
                        name, readable, keys.get(table, ()), choice, collations,
                        user=connection.settings.username, mariadb=connection.is_mariadb,
                    )  # fmt: skip
    return found


def refuse_versioned(connection: MySqlConnection, database: str, tables: Sequence[str]) -> None:
    """Refuse tables of MariaDB that keep former rows: the binlog has them as inserts, behind what replaced them.

    Raises:
        UnsupportedFormatError: a table is ``WITH SYSTEM VERSIONING``.
        SourceError: the server cannot be reached, or refuses.
    """
    if not connection.is_mariadb:
        return
    marks = ", ".join(["%s"] * len(tables))
    for (name,) in connection.rows(_VERSIONED.format(marks), database, *tables):
        raise versioned_error(TableName(database, str(name)))


def versioned_error(table: TableName) -> UnsupportedFormatError:
    """Return the error for a table of MariaDB that keeps former rows."""
    return UnsupportedFormatError(
        f"table {table}: it is WITH SYSTEM VERSIONING, and the binlog has its former rows as inserts of the same key, "
        "behind the change that ended them. Leave the table out of the option tables, or on the server: "
        f"ALTER TABLE {table.quoted} DROP SYSTEM VERSIONING"
    )


def _refuse_unseen_key(connection: MySqlConnection, table: TableName, in_key: Collection[str]) -> None:
    """Refuse a table of MariaDB that shows no key to a user who may not read all of its columns."""
    if not connection.is_mariadb or not in_key:
        return
    # A unique key may stand in for a primary one.
    unique = {name for (name,) in connection.rows(_UNIQUE, *table)}
    if not unique.issuperset(in_key):
        raise _unreadable_key(connection.settings.username, table, "every column")


def _unreadable_key(user: str, table: TableName, what: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"table {table}: the user {user!r} may not read {what} of the primary key, without which its rows are not "
        f"distinguished. On the server, for all columns: {_GRANT.format(table.quoted, user)}"
    )


def _refuse_what_changes_lack(
    connection: MySqlConnection, table: TableName, rows: Sequence[Row], choice: ColumnChoice
) -> None:
    """Refuse generated columns of MariaDB, which logs them in inserts alone, whatever ``binlog_row_image`` is."""
    if not connection.is_mariadb:
        return
    chunk_column = choice.chunk_column(str(table), [str(row[0]) for row in rows])
    generated = [str(row[0]) for row in rows if " GENERATED" in str(row[9]).upper()]
    if lacking := [name for name in generated if choice.reads(name) or name == chunk_column]:
        raise UnsupportedFormatError(
            f"table {table}: MariaDB logs no values of generated columns in updates and deletions, here of "
            f"{', '.join(lacking)}. Leave them out, excludeColumns={','.join(lacking)}, and compute them in the query"
        )


class DescribedColumn(NamedTuple):
    """A column of any type, as the server describes it now."""

    name: str
    declared: str
    """Its type, in the server's words."""
    column: Column | None
    """``None`` of a type that is not read."""


class DescribedKey(NamedTuple):
    """A column of a primary key; ``prefix`` characters of it, or all with ``None``."""

    name: str
    prefix: int | None


def all_columns(
    connection: MySqlConnection, table: TableName
) -> tuple[Sequence[DescribedColumn], Sequence[DescribedKey]]:
    """Ask the server about every column of a table, and its primary key; nothing of a table that is not there.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    collations = collations_of(connection).numbers
    columns = [
        DescribedColumn(
            str(row[1]),
            str(row[3]),
            _column(row[1:-2], collations, table, mariadb=connection.is_mariadb) if row[2] in COLUMN_TYPES else None,
        )
        for row in connection.rows(_DESCRIBE.format("%s"), *table)
    ]
    return columns, [DescribedKey(str(name), prefix) for _, name, prefix in connection.rows(_KEYS.format("%s"), *table)]


def columns_now(connection: MySqlConnection, table: TableName) -> frozenset[str]:
    """Return the names of a table's columns, none of a table that is not there; raises as ``all_columns``."""
    return frozenset(str(name) for (name,) in connection.rows(_NAMES, *table))


def partly_readable(connection: MySqlConnection, tables: Iterable[TableName]) -> tuple[TableName, ...]:
    """Return which tables the user may read some columns of, and not others.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    named = {(database, table) for database, table in connection.rows(_COLUMN_GRANTS)}
    with waiting_for_locks(connection):
        return tuple(table for table in tables if tuple(table) in named or not _may_read_all(connection, table))


def _may_read_all(connection: MySqlConnection, table: TableName) -> bool:
    """Return whether the user may read every column but invisible ones, of which nothing is asked."""
    try:
        connection.rows(f"SELECT * FROM {table.quoted} LIMIT 0")  # noqa: S608 - quoted
    except RefusedError:
        return False
    except SourceError as refused:
        # One that is locked is asked for another time.
        if code_of(refused.__cause__) != LOCKED:
            raise
    return True


def _by_table(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return rows without their first column, which names the table, by table."""
    found: dict[str, list[Row]] = {}
    for table, *row in rows:
        found.setdefault(str(table), []).append(tuple(row))
    return found


def _described(
    table: TableName,
    rows: Sequence[Row],
    key: Sequence[Row],
    choice: ColumnChoice,
    collations: Collations,
    *,
    user: str,
    mariadb: bool,
) -> TableColumns:
    # A prefix of a column orders no rows.
    names = [str(name) for name, _ in key] if all(part is None for _, part in key) else []
    all_names = tuple(str(row[0]) for row in rows)
    chunk_column = choice.chunk_column(str(table), all_names)
    if unreadable := [name for name in names if name not in all_names]:
        raise _unreadable_key(user, table, ", ".join(unreadable))
    needed = [row for row in rows if choice.reads(str(row[0])) or row[0] in (*names, chunk_column)]
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
    return TableColumns(all_names, columns, types, key_columns, chunk_columns)


def declared_labels(declared: str) -> tuple[bytes, ...]:
    """Return the labels of ``enum('a','b')``, in UTF-8 whatever their column's character set is."""
    return tuple(
        _ESCAPED.sub(lambda found: _MEANS.get(found[1], found[1]) if found[1] else "'", label).encode()
        for label in _LABEL.findall(declared)
    )


def _refuse_ambiguous(table: TableName, name: str, declared: str) -> None:
    """Refuse types of MariaDB of which a SELECT or the binlog does not have the whole value."""
    if declared == "year(2)":
        why, renewed = "a SELECT shows two of its four digits", "YEAR(4)"
    elif _OLD_TIMES.fullmatch(declared):
        why = "the binlog does not have the length of its values"
        renewed = f"{declared.partition(' ')[0].upper()}, with mysql56_temporal_format = ON"
    else:
        return
    raise UnsupportedFormatError(
        f"table {table} column {name}: the type {declared} is not read, because {why}; {_LEAVE_OUT}. Or on the server: "
        f"ALTER TABLE {table.quoted} MODIFY {quoted(name)} {renewed}"
    )


def _column(row: Sequence[Any], collations: Mapping[str, int], table: TableName, *, mariadb: bool) -> Column:
    name, kind, declared, nullable, precision, scale, fraction, octets, collation, extra = row
    found = COLUMN_TYPES.get(kind)
    if found is None:
        raise UnsupportedFormatError(f"table {table} column {name}: the type {declared} is not read; {_LEAVE_OUT}")
    if kind == "vector" and mariadb:
        # Bytes like any other in its binlog.
        found, kind = ColumnType.VARCHAR, "varbinary"
    _refuse_ambiguous(table, name, declared)
    if declared.endswith("COMPRESSED*/"):
        # MariaDB shows it by a remark.
        found = COMPRESSED[found]
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
