"""The existing tables of a query, and similar names for one that does not exist."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable
from dataclasses import replace

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.options.tables import SYSTEM_DATABASES, Selection, TableName
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from watermark_source.errors import UnknownSplitError, listed

REFRESH_SECONDS = 5.0
"""Interval in seconds at which a running query lists the tables again."""
_BASE_TABLES = ("BASE TABLE", "SYSTEM VERSIONED")
_SEQUENCE = "SEQUENCE"
_SEQUENCE_COLUMNS = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option",
    "cycle_count",
)  # fmt: skip
_SIMILAR = 3


class TableList:
    """The existing tables of a selection, listed again at intervals."""

    def __init__(self, connection: MySqlConnection, selection: Selection) -> None:
        self._connection = connection
        self.selection = selection
        self._tables: frozenset[TableName] = frozenset()
        self._until = 0.0

    def now(self) -> frozenset[TableName]:
        """Return the tables that existed at most ``REFRESH_SECONDS`` ago.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        if time.monotonic() >= self._until:
            types = _table_types(self._connection, self.selection)
            self._tables = frozenset(name for name in types if _is_read(self.selection, name, types[name]))
            self._until = time.monotonic() + REFRESH_SECONDS
        return self._tables

    def expire(self) -> None:
        """List the tables again at the next call, for example after one of them turned out to be missing."""
        self._until = 0.0


def on_server(connection: MySqlConnection, selection: Selection) -> Selection:
    """Return a selection that treats the case of table names as the server does.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    row = connection.one("SELECT @@GLOBAL.lower_case_table_names")
    return replace(selection, ignores_case=bool(row and int(row[0])))


def tables_of(connection: MySqlConnection, selection: Selection) -> tuple[TableName, ...]:
    """Return the existing tables of a selection in order.

    Raises:
        UnknownSplitError: a named table does not exist or is a view, or no table exists at all.
        SourceError: the server cannot be reached, or refuses.
    """
    types = _table_types(connection, selection)
    tables = sorted(name for name in types if _is_read(selection, name, types[name]))
    existing = set(map(selection.key, tables))
    for named in (entry.name for entry in selection.entries if entry.name is not None):
        if (key := selection.key(named)) not in existing:
            raise _missing(connection, named, [types[name] for name in types if selection.key(name) == key])
    if not tables:
        where = connection.settings
        raise UnknownSplitError(
            f"{where.where}: there is no table like {selection}, or the user {where.username!r} may see none. The "
            f"tables it may see: {_similar(connection, str(selection))}"
        )
    return tuple(tables)


def is_sequence(connection: MySqlConnection, table: TableMap) -> bool:
    """Return whether rows in the binlog are states of a MariaDB sequence, which is logged like a table.

    A table map with the columns of a sequence is one, unless the server lists a table of that name.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    if tuple(column.name for column in table.columns) != _SEQUENCE_COLUMNS or not connection.is_mariadb:
        return False
    name = TableName(table.database, table.table)
    kind = connection.one(
        "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s", *name
    )
    return kind is None or str(kind[0]).upper() == _SEQUENCE


def _is_read(selection: Selection, name: TableName, kind: str) -> bool:
    return kind in _BASE_TABLES and selection.matches(name)


def _table_types(connection: MySqlConnection, selection: Selection | None = None) -> dict[TableName, str]:
    """Return the ``TABLE_TYPE`` (table, view, …) of everything in the databases that a selection can match."""
    databases = None if selection is None else selection.databases
    chosen, sign = (sorted(SYSTEM_DATABASES), "NOT IN") if databases is None else (databases, "IN")
    marks = ", ".join(["%s"] * len(chosen))
    rows = connection.rows(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES "  # noqa: S608 - marks alone
        f"WHERE TABLE_SCHEMA {sign} ({marks})",
        *chosen,
    )
    return {TableName(str(database), str(table)): str(kind).upper() for database, table, kind in rows}


def _missing(connection: MySqlConnection, name: TableName, kinds: Iterable[str]) -> UnknownSplitError:
    where, user = connection.settings.where, connection.settings.username
    for kind in kinds:
        return UnknownSplitError(f"{where}: {name} is a {kind.lower()}, not a table, and the binlog has no rows of it")
    return UnknownSplitError(
        f"{where}: there is no table {name}, or the user {user!r} may not see it. Check the option tables, or on the "
        f"server: {grant_select(user, name)}. The tables it may see: {_similar(connection, str(name))}"
    )


def grant_select(user: str, table: TableName) -> str:
    """Return the statement that lets a user read a table."""
    return f"GRANT SELECT ON {table.quoted} TO '{user}'@'%'"


def _similar(connection: MySqlConnection, wanted: str) -> str:
    names = [str(name) for name, kind in _table_types(connection).items() if kind in _BASE_TABLES]
    similar = difflib.get_close_matches(wanted, names, n=_SIMILAR, cutoff=0.5)
    return ", ".join(similar) if similar else listed(names) or "none"


def names_of(shown: object) -> frozenset[str]:
    """Parse names of databases that a server shows separated by commas."""
    return frozenset(name.strip() for name in str(shown or "").split(",") if name.strip())
