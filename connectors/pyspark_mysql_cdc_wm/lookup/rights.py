"""What the user may SELECT, as the server answers now: one answer for ``load()``, for snapshots and for the binlog.

A server sends its binlog whole to a user with REPLICATION SLAVE, with the rows of tables that the user may not SELECT.
``PRIVILEGES`` in ``information_schema.COLUMNS`` is what a SELECT is checked by: it includes the privileges of active
roles and those for patterns of databases, and excludes what MySQL's partial revokes take away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, partial

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, Row
from pyspark_mysql_cdc_wm.client.server_errors import LOCKED, code_of
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName, quoted
from watermark_source.errors import RefusedError, SourceError, UnknownSplitError, listed

_TABLES_A_QUERY = 5_000
"""MariaDB opens every table of a database for each statement about some of them: few statements are fast ones."""
_OF_TABLES = "TABLE_SCHEMA IN ({}) AND TABLE_NAME IN ({})"
_READABLE = """
SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMNS
WHERE FIND_IN_SET('select', PRIVILEGES) AND
"""
_COLUMNS = """
SELECT COLUMN_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND FIND_IN_SET('select', PRIVILEGES)
"""
_OF_COLUMNS = "SELECT ("
"""In a statement of SHOW GRANTS: the privilege for some columns of a table."""
_DECLARED = re.compile(r"^  `", re.MULTILINE)
"""Where SHOW CREATE TABLE declares a column."""
_ANY = "watermark_source_any"
"""A name of no table: a server checks the privilege for its database before it looks for the table."""


def rows_of_tables(
    connection: MySqlConnection, select: str, tables: Iterable[TableName], order: str = ""
) -> Iterator[tuple[TableName, Row]]:
    """Yield the rows of a statement about many tables, each with its table.

    Args:
        connection: the server.
        select: a SELECT of the database, the table and more, up to its last condition's ``WHERE`` or ``AND``.
        tables: the tables; a statement asks for up to 5 000.
        order: what follows the condition.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    names = sorted(tables)
    for first in range(0, len(names), _TABLES_A_QUERY):
        group = frozenset(names[first : first + _TABLES_A_QUERY])
        given = [sorted({name.database for name in group}), sorted({name.table for name in group})]
        condition = _OF_TABLES.format(*(", ".join(["%s"] * len(each)) for each in given))
        for database, table, *row in connection.rows(f"{select} {condition} {order}", *given[0], *given[1]):
            name = TableName(str(database), str(table))
            # Other tables of these databases may have a name of the group.
            if name in group:
                yield name, tuple(row)


def readable_tables(connection: MySqlConnection, tables: Iterable[TableName]) -> frozenset[TableName]:
    """Return the tables of which the user may SELECT a column; raises as ``rows_of_tables``."""
    return frozenset(name for name, _ in rows_of_tables(connection, _READABLE, tables))


def readable_columns(connection: MySqlConnection, table: TableName) -> frozenset[str]:
    """Return the names of the columns that the user may SELECT; raises as ``rows_of_tables``.

    The result is empty for a table that does not exist.
    """
    return frozenset(str(name) for (name,) in connection.rows(_COLUMNS, *table))


class Rights:
    """What the user may SELECT; each table is asked for once, when it is met first."""

    def __init__(self, connection: MySqlConnection, roles: str | None = None) -> None:
        """Begin without asking. ``roles`` is what ``CURRENT_ROLE()`` returns, where that is known."""
        self._connection = connection
        self._roles = roles
        self.columns = cache(partial(readable_columns, connection))
        """Returns the columns that the user may SELECT, none of a table that does not exist; raises ``SourceError``."""
        self._refused: dict[TableName, bool] = {}
        self._in_part: dict[TableName, bool] = {}
        self._granted: str | None = None

    def are_refused(self, table: TableName) -> bool:
        """Return whether the user may SELECT no column of a table; raises ``SourceError``."""
        if table not in self._refused:
            self._refused[table] = False
            if not self.columns(table):
                with self._connection.waiting_for_locks():
                    self._refused[table] = not _may_select(self._connection, table)
        return self._refused[table]

    def are_in_part(self, table: TableName) -> bool:
        """Return whether the user may SELECT some columns of a table and not others; raises ``SourceError``.

        Of a table that does not exist this is so if a grant for columns may be for it.
        """
        if table not in self._in_part:
            if self._granted is None:
                self._granted = _grants_of_columns(self._connection, self._roles)
            # Only a table in a grant for columns is asked for.
            self._in_part[table] = _names(self._granted, table) and not self._are_whole(table)
        return self._in_part[table]

    def _are_whole(self, table: TableName) -> bool:
        """Return whether the user may SELECT all columns of a table, also the invisible ones."""
        if not self.columns(table):
            return False
        with self._connection.waiting_for_locks():
            if not _may_select(self._connection, table, "*"):
                return False
            # It needs a privilege for the table as a whole, which need not be that to read it.
            shown = _unless_refused(self._connection, f"SHOW CREATE TABLE {table.quoted}")
        declared = _DECLARED.findall(str(shown[0][1])) if shown else ()
        # Asked for again, and last: a table may have got columns since, and one that was dropped has none.
        readable = readable_columns(self._connection, table)
        return len(declared) <= len(readable) if declared else not readable

    def refusal(self, table: TableName) -> RefusedError:
        """Return the error for a table that the user may not SELECT."""
        return refusal(self._connection, table)

    def left_out(self, table: TableName) -> str:
        """Return the warning about a table in the binlog that the user may not SELECT."""
        return f"{self._connection.settings.where}: the binlog has changes: {left_out_text(self._connection, [table])}"


def refusal(connection: MySqlConnection, table: TableName) -> RefusedError:
    """Return the error for a table that the user may not SELECT."""
    settings = connection.settings
    return RefusedError(
        f"{settings.where}: the user {settings.username!r} may not read {table}. On the server: "
        f"{grant_select(settings.username, table)}"
    )


def left_out_text(connection: MySqlConnection, tables: Iterable[TableName]) -> str:
    """Return the caution about tables that match and that the user may not SELECT."""
    settings, names = connection.settings, sorted(tables)
    return (
        f"the user {settings.username!r} may not read {listed(names)}: the stream lacks "
        f"{'this table' if len(names) == 1 else 'these tables'}. On the server: "
        + "; ".join(grant_select(settings.username, name) for name in names[:_MOST_GRANTS])
        + ("; and so on" if len(names) > _MOST_GRANTS else "")
    )


_MOST_GRANTS = 3


def grant_select(user: str, table: TableName) -> str:
    """Return the statement that lets a user read a table."""
    return f"GRANT SELECT ON {table.quoted} TO '{user}'@'%'"


def hidden_from_user(connection: MySqlConnection, selection: Selection) -> tuple[str, ...]:
    """Return which databases the patterns of a selection look for tables in that the user may not even see.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    databases = {entry.database for entry in selection.entries if entry.name is None}
    return tuple(
        "*" if name is None else quoted(name)
        for name in sorted(databases, key=str)
        if not _may_select(connection, TableName(_ANY if name is None else name, _ANY))
    )


def _grants_of_columns(connection: MySqlConnection, roles: str | None) -> str:
    """Return the user's grants for columns, with those of the roles that are active, in lower case."""
    shown = "SHOW GRANTS"
    if not connection.is_mariadb:
        # MySQL shows those of roles only if they are named.
        roles = roles or str((connection.one("SELECT CURRENT_ROLE()") or ("NONE",))[0])
        shown += " FOR CURRENT_USER()" + ("" if roles == "NONE" else f" USING {roles}")
    grants = [str(grant) for (grant,) in connection.rows(shown)]
    return "\n".join(grant for grant in grants if _OF_COLUMNS in grant).lower()


def _names(grants: str, table: TableName) -> bool:
    """Return whether grants may name a table: a server's settings decide whether names are in quotes, and which."""
    name = table.table.lower()
    return any(each in grants for each in {name, name.replace("`", "``"), name.replace('"', '""')})


def _may_select(connection: MySqlConnection, table: TableName, what: str = "1") -> bool:
    """Return whether a server accepts a SELECT; it looks for the table after it has checked the privilege."""
    statement = f"SELECT {what} FROM {table.quoted} LIMIT 0"  # noqa: S608 - quoted
    return _unless_refused(connection, statement) is not None


def _unless_refused(connection: MySqlConnection, statement: str) -> tuple[Row, ...] | None:
    """Return a statement's rows, none if its table is locked or does not exist, and ``None`` if it is refused."""
    try:
        return connection.rows(statement)
    except RefusedError:
        return None
    except UnknownSplitError:
        return ()
    except SourceError as refused:
        # The server checks privileges before it waits for the lock.
        if code_of(refused.__cause__) != LOCKED:
            raise
        return ()
