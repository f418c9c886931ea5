"""The existing tables of a query, and similar names for one that does not exist."""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.rights import grant_select, left_out_text, readable_tables, refusal
from pyspark_mysql_cdc_wm.options.tables import SYSTEM_DATABASES, Selection, TableName
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from watermark_source.errors import RefusedError, UnknownSplitError, listed

_log = logging.getLogger(__name__)

REFRESH_SECONDS = 5.0
"""Interval in seconds at which a running query lists the tables again."""
VERSIONED = "SYSTEM VERSIONED"
"""Of a table of MariaDB that keeps former rows."""
_BASE_TABLES = ("BASE TABLE", VERSIONED)
_SEQUENCE = "SEQUENCE"
_SEQUENCE_COLUMNS = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option",
    "cycle_count",
)  # fmt: skip
_SIMILAR = 3


class TableList:
    """The existing tables of a selection that the user may read, listed again at intervals."""

    def __init__(
        self, connection: MySqlConnection, selection: Selection, checked: Iterable[TableName] = (),
        left_out: Iterable[TableName] = (),
    ) -> None:  # fmt: skip
        """Begin with tables that ``load()`` has found, readable ones and others that it has named."""
        self._connection = connection
        self.selection = selection
        self._tables = frozenset(checked)
        self._named = frozenset(left_out)
        self._until = 0.0

    def now(self) -> frozenset[TableName]:
        """Return the tables that existed at most ``REFRESH_SECONDS`` ago, and warn once of those that are left out.

        Raises:
            SourceError: the server cannot be reached, or refuses.
        """
        if time.monotonic() >= self._until:
            found = tables_of(self._connection, self.selection, readable=self._tables)
            if new := found.left_out - self._named:
                _log.warning("%s: %s", self._connection.settings.where, left_out_text(self._connection, new))
            self._tables, self._named = found.read, self._named | found.left_out
            self._until = time.monotonic() + REFRESH_SECONDS
        return self._tables

    def expire(self) -> None:
        """List the tables again at the next call, for example after one of them turned out to be missing."""
        self._until = 0.0


class Kind(NamedTuple):
    """What ``information_schema.TABLES`` states of a table or view."""

    type: str
    """``TABLE_TYPE``."""
    engine: str
    """Empty for a view."""


class Tables(NamedTuple):
    """The existing tables of a selection that the user can see."""

    read: frozenset[TableName]
    left_out: frozenset[TableName]
    """Tables that the user may not SELECT, but has another privilege for: it cannot see those without any."""
    kinds: Mapping[TableName, Kind]
    """Of everything in the databases that the selection can match."""


def tables_of(
    connection: MySqlConnection,
    selection: Selection,
    readable: Collection[TableName] = frozenset(),
    look: Callable[[frozenset[TableName]], frozenset[TableName]] | None = None,
) -> Tables:
    """Return the existing tables of a selection; those in ``readable`` are not asked for again.

    ``look`` returns those of some tables that the user may SELECT, as ``readable_tables`` does.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    kinds = _table_kinds(connection, selection)
    existing = _read_of(selection, kinds)
    unknown = existing.difference(readable)
    left_out = unknown - (readable_tables(connection, unknown) if look is None else look(unknown))
    # A table may have been dropped between the two answers.
    left_out &= _read_of(selection, _table_kinds(connection, selection)) if left_out else left_out
    return Tables(existing - left_out, left_out, kinds)


def check_found(connection: MySqlConnection, selection: Selection, tables: Tables) -> None:
    """Check that there are the tables that a selection names, and a table to read.

    Raises:
        UnknownSplitError: a named table does not exist or is a view, or no table exists at all.
        RefusedError: the user may not SELECT a named table, or any table.
        SourceError: the server cannot be reached, or refuses.
    """
    existing, refused = (set(map(selection.key, each)) for each in (tables.read, tables.left_out))
    for named in (entry.name for entry in selection.entries if entry.name is not None):
        if (key := selection.key(named)) in refused:
            raise refusal(connection, named)
        if key not in existing:
            kinds = [kind.type for name, kind in tables.kinds.items() if selection.key(name) == key]
            raise _missing(connection, named, kinds)
    where = connection.settings
    if tables.left_out and not tables.read:
        raise RefusedError(f"{where.where}: {left_out_text(connection, tables.left_out)}")
    if not tables.read:
        raise UnknownSplitError(
            f"{where.where}: there is no table like {selection}, or the user {where.username!r} may see none. The "
            f"tables it may see: {_similar(connection, str(selection))}"
        )


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


def _read_of(selection: Selection, kinds: Mapping[TableName, Kind]) -> frozenset[TableName]:
    return frozenset(name for name, kind in kinds.items() if kind.type in _BASE_TABLES and selection.matches(name))


def _table_kinds(connection: MySqlConnection, selection: Selection | None = None) -> dict[TableName, Kind]:
    """Return the kind (table, view, …) of everything in the databases that a selection can match."""
    databases = None if selection is None else selection.databases
    chosen, sign = (sorted(SYSTEM_DATABASES), "NOT IN") if databases is None else (databases, "IN")
    marks = ", ".join(["%s"] * len(chosen))
    rows = connection.rows(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES "  # noqa: S608 - marks alone
        f"WHERE TABLE_SCHEMA {sign} ({marks})",
        *chosen,
    )
    return {
        TableName(str(database), str(table)): Kind(str(kind).upper(), str(engine or ""))
        for database, table, kind, engine in rows
    }


def _missing(connection: MySqlConnection, name: TableName, kinds: Iterable[str]) -> UnknownSplitError:
    where, user = connection.settings.where, connection.settings.username
    for kind in kinds:
        return UnknownSplitError(f"{where}: {name} is a {kind.lower()}, not a table, and the binlog has no rows of it")
    return UnknownSplitError(
        f"{where}: there is no table {name}, or the user {user!r} may not see it. Check the option tables, or on the "
        f"server: {grant_select(user, name)}. The tables it may see: {_similar(connection, str(name))}"
    )


def _similar(connection: MySqlConnection, wanted: str) -> str:
    names = [str(name) for name, kind in _table_kinds(connection).items() if kind.type in _BASE_TABLES]
    similar = difflib.get_close_matches(wanted, names, n=_SIMILAR, cutoff=0.5)
    return ", ".join(similar) if similar else listed(names) or "none"


def names_of(shown: object) -> frozenset[str]:
    """Parse names of databases that a server shows separated by commas."""
    return frozenset(name.strip() for name in str(shown or "").split(",") if name.strip())
