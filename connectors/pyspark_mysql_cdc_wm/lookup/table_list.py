"""Which tables there are of those a query reads, and what is near a name that there is not."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable
from dataclasses import replace

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.options.tables import SYSTEM_DATABASES, Selection, TableName
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from watermark_source.errors import UnknownSplitError, listed

LOOK_SECONDS = 5.0
"""So often a running query looks for new tables."""
_BASE_TABLES = ("BASE TABLE", "SYSTEM VERSIONED")
_SEQUENCE = "SEQUENCE"
_OF_A_SEQUENCE = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option",
    "cycle_count",
)  # fmt: skip
_NEAR = 3


class TableList:
    """The tables of a selection, asked for again now and then."""

    def __init__(self, connection: MySqlConnection, selection: Selection) -> None:
        self._connection = connection
        self.selection = selection
        self._found: frozenset[TableName] = frozenset()
        self._until = 0.0

    def now(self) -> frozenset[TableName]:
        """Return the tables there were at most ``LOOK_SECONDS`` ago.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        if time.monotonic() >= self._until:
            kinds = _kinds(self._connection, self.selection)
            self._found = frozenset(name for name in kinds if _is_read(self.selection, name, kinds[name]))
            self._until = time.monotonic() + LOOK_SECONDS
        return self._found

    def forget(self) -> None:
        """Ask again the next time: a table was not there."""
        self._until = 0.0


def on_server(connection: MySqlConnection, selection: Selection) -> Selection:
    """Return a selection that takes names of tables as the server does.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    answer = connection.one("SELECT @@GLOBAL.lower_case_table_names")
    return replace(selection, ignores_case=bool(answer and int(answer[0])))


def tables_of(connection: MySqlConnection, selection: Selection) -> tuple[TableName, ...]:
    """Return the tables there are now, in order.

    Raises:
        UnknownSplitError: a table that was named is not there, is a view, or nothing is there at all.
        SourceError: the server cannot be reached, or refuses.
    """
    kinds = _kinds(connection, selection)
    found = sorted(name for name in kinds if _is_read(selection, name, kinds[name]))
    there = set(map(selection.key, found))
    for named in (entry.name for entry in selection.entries if entry.name is not None):
        if (key := selection.key(named)) not in there:
            raise _missing(connection, named, [kinds[name] for name in kinds if selection.key(name) == key])
    if not found:
        where = connection.settings
        raise UnknownSplitError(
            f"{where.where}: there is no table like {selection}, or the user {where.username!r} may see none. The "
            f"tables it may see: {_near(connection, str(selection))}"
        )
    return tuple(found)


def is_sequence(connection: MySqlConnection, table: TableMap) -> bool:
    """Return whether rows in the binlog are states of a sequence of MariaDB's, logged as if it were a table.

    What has the columns of one is one, unless the server lists a table of that name.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    if tuple(column.name for column in table.columns) != _OF_A_SEQUENCE or not connection.is_mariadb:
        return False
    name = TableName(table.database, table.table)
    kind = connection.one(
        "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s", *name
    )
    return kind is None or str(kind[0]).upper() == _SEQUENCE


def _is_read(selection: Selection, name: TableName, kind: str) -> bool:
    return kind in _BASE_TABLES and selection.matches(name)


def _kinds(connection: MySqlConnection, selection: Selection | None = None) -> dict[TableName, str]:
    """Return what is a table, a view or another thing, of all databases that a selection can mean."""
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
        return UnknownSplitError(f"{where}: {name} is no table but a {kind.lower()}, of which no binlog tells")
    return UnknownSplitError(
        f"{where}: there is no table {name}, or the user {user!r} may not see it. Check the option tables, or on the "
        f"server: {grant_select(user, name)}. The tables it may see: {_near(connection, str(name))}"
    )


def grant_select(user: str, table: TableName) -> str:
    """Return the statement that lets a user read a table."""
    return f"GRANT SELECT ON {table.quoted} TO '{user}'@'%'"


def _near(connection: MySqlConnection, wanted: str) -> str:
    names = [str(name) for name, kind in _kinds(connection).items() if kind in _BASE_TABLES]
    near = difflib.get_close_matches(wanted, names, n=_NEAR, cutoff=0.5)
    return ", ".join(near) if near else listed(names) or "none"


def names_of(shown: object) -> frozenset[str]:
    """Return the names of databases that a server shows with commas between them."""
    return frozenset(name.strip() for name in str(shown or "").split(",") if name.strip())
