"""The checks of ``load()``: what a server, its user and the tables must fulfil before a query can start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, Row, check_may_dump
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.checked_server import CheckedServer
from pyspark_mysql_cdc_wm.lookup.committed_transactions import GTIDS_ON, shows_all_of_its_end
from pyspark_mysql_cdc_wm.lookup.server_cautions import advice
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns, nameless_in_part
from pyspark_mysql_cdc_wm.lookup.table_list import names_of
from pyspark_mysql_cdc_wm.options.mysql_options import MySqlOptions
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName, quoted
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from watermark_source.checks import Caution, Check
from watermark_source.errors import (
    OptionError,
    RefusedError,
    UnknownSplitError,
    UnsupportedFormatError,
    listed,
)


def _naming_roles(run: Callable[[CheckedServer], str]) -> Callable[[CheckedServer], str]:
    """Return a check that also names roles of the user that are not active, where the user lacks a privilege."""

    def named(server: CheckedServer) -> str:
        try:
            return run(server)
        except (RefusedError, UnknownSplitError) as refused:
            roles = server.inactive_roles
            if not roles:
                raise
            user = server.options.client.username
            word = "FOR" if server.connection.is_mariadb else "TO"
            raise type(refused)(
                f"{refused}. The user has roles that are not active: {listed(roles)}. If a role has the privilege, on "
                f"the server: SET DEFAULT ROLE {quoted(roles[0])} {word} '{user}'@'%'"
            ) from refused

    return named


def _logged(server: CheckedServer) -> str:
    logged = LoggedDatabases.of(server.log_status, server.connection, server.selection)
    logged.check(server.where, server.table_names)
    only, never = (", ".join(sorted(names)) for names in (logged.only, logged.never))
    return only or "all" + (f" except {never}" if never else "")


def check_logged(connection: MySqlConnection, selection: Selection, tables: Iterable[TableName]) -> None:
    """Check that the server logs the databases of tables; raises as ``LoggedDatabases.check``."""
    LoggedDatabases.of(LogStatus(connection).shown(), connection, selection).check(connection.settings.where, tables)


class LoggedDatabases(NamedTuple):
    """``binlog_do_db`` and ``binlog_ignore_db``, which leave whole databases out of the binlog."""

    only: frozenset[str]
    never: frozenset[str]
    folds_case: bool

    @classmethod
    def of(cls, log_status: Row, connection: MySqlConnection, selection: Selection) -> LoggedDatabases:
        """Parse the row that has the end of the binlog and, behind it, these settings."""
        only, never = (names_of(shown) for shown in (*log_status[2:4], "", "")[:2])
        # MariaDB compares these names exactly, whatever lower_case_table_names is.
        return cls(only, never, selection.ignores_case and not connection.is_mariadb)

    def check(self, where: str, tables: Iterable[TableName]) -> None:
        """Check that the server logs the databases of tables.

        Raises:
            UnsupportedFormatError: it leaves one out.
        """
        for table in tables:
            if setting := self._left_out_by(table.database):
                raise UnsupportedFormatError(
                    f"{where}: the binlog leaves out the database {table.database} ({setting}), and must have it. "
                    f"Change {setting} in the server's configuration and restart it"
                )

    def _left_out_by(self, database: str) -> str | None:
        if self._has(self.never, database):
            return "binlog_ignore_db"
        return "binlog_do_db" if self.only and not self._has(self.only, database) else None

    def _has(self, names: frozenset[str], database: str) -> bool:
        return database in names or (self.folds_case and database.lower() in map(str.lower, names))


def _tables(server: CheckedServer) -> str:
    return listed([str(name) for name in server.table_names])


def _readable(server: CheckedServer) -> str:
    if server.granted_in_part and server.switch(_METADATA.setting) == "MINIMAL":
        user = server.options.client.username
        raise nameless_in_part(server.granted_in_part[0], user, f"the user {user!r} may read only some of its columns")
    return "may be read"


def _columns(server: CheckedServer) -> str:
    return ", ".join(server.layout.names)


def _keys(server: CheckedServer) -> str | Caution:
    """Check the primary keys, by which snapshots are cut into chunks."""
    for name, table in server.tables.items():
        check_key(name, table)
    _check_chunk_columns(server)
    _check_again(server)
    check_visible(server.connection, server.tables)
    unkeyed = [name for name, table in server.tables.items() if not table.key]
    if unkeyed:
        return Caution(without_key(unkeyed))
    return listed(sorted({f"({', '.join(table.key)})" for table in server.tables.values()}))


def _check_chunk_columns(server: CheckedServer) -> None:
    """Check that the columns of the option snapshotChunkColumn exist.

    Raises:
        OptionError: a column does not exist, or its table is not read.
    """
    for named, column in server.options.choice.chunked_by:
        shown = column if named is None else f"{named}:{column}"
        if named is not None and not server.selection.matches(TableName.of(named)):
            raise OptionError("snapshotChunkColumn", shown, f"the table {named} is not one of {server.selection}")
        tables = {n: t for n, t in server.tables.items() if named is None or str(n).lower() == named.lower()}
        if tables and not any(column.lower() in map(str.lower, table.names) for table in tables.values()):
            name, table = next(iter(tables.items()))
            raise OptionError(
                "snapshotChunkColumn", shown, f"there is no column {column}; {name} has {', '.join(table.names)}"
            )


def _check_again(server: CheckedServer) -> None:
    """Check that rows of the tables of the option rereadTables can replace those read before.

    A table may be gone: its label stays in the options of a query that has read it.

    Raises:
        OptionError: one has no primary key.
    """
    unkeyed = {server.selection.key(name) for name, table in server.tables.items() if not table.key}
    for table, label in server.options.snapshot.reread:
        if server.selection.key(table) in unkeyed:
            why = "the table has no primary key, by which its rows would be known again"
            raise OptionError("rereadTables", f"{table}:{label}", why)


def check_key(name: TableName, table: TableColumns) -> None:
    """Check that a table can be cut into chunks.

    Raises:
        UnsupportedFormatError: the type of a key column cannot be ordered.
        OptionError: the column of the option snapshotChunkColumn may be NULL.
    """
    for column in table.chunk_columns:
        if column.chosen and column.nullable:
            raise OptionError(
                "snapshotChunkColumn", f"{name}:{column.name}", "may be NULL, and must be a column that is NOT NULL"
            )
        if not column.can_be_ordered:
            by = ", ".join(each.name for each in table.chunk_columns)
            raise UnsupportedFormatError(
                f"table {name}: a snapshot is cut by the primary key or snapshotChunkColumn, here ({by}), and the "
                f"column {column.name} is {_kind(column)}. Accepted are numbers, decimals of up to 38 digits, dates "
                "and times, text and bytes, BIT, SET, and ENUM without an empty label, if each label has a text of its "
                "own. Name another column of the table by snapshotChunkColumn, or set startingOffsets to latest or "
                "earliest to read the binlog alone"
            )


def _kind(column: KeyColumn) -> str:
    if not column.ambiguous:
        return f"of the type {column.type.name}"
    empty = "" in (column.labels or ())
    return "an ENUM with an empty label" if empty else f"of the type {column.type.name} with two labels of one text"


def without_key(tables: Iterable[TableName]) -> str:
    """Return the caution about tables without a primary key."""
    return (
        f"tables without a primary key: {listed([str(table) for table in tables])}. Without snapshotChunkColumn the "
        "snapshot of each is one chunk. Rows that are written while a chunk is read may be delivered twice, as part of "
        "the snapshot and as a change"
    )


def check_visible(connection: MySqlConnection, tables: Mapping[TableName, TableColumns]) -> None:
    """Check that a snapshot of tables would see all transactions before its position.

    Raises:
        UnsupportedFormatError: a table has no primary key, and the server is MySQL without GTIDs.
    """
    unkeyed = [str(name) for name, table in tables.items() if not table.key]
    if unkeyed and not shows_all_of_its_end(connection):
        raise UnsupportedFormatError(
            f"{connection.settings.where}: gtid_mode is not ON, and a snapshot of tables without a primary key would "
            f"lack transactions that are being committed: {listed(unkeyed)}. {GTIDS_ON} Or leave them out of the "
            "option tables, or set startingOffsets to latest or earliest"
        )


class _Needed(NamedTuple):
    setting: str
    value: str
    why: str
    then: str | None = ""
    """What follows the statement that sets it; ``None`` if only a restart does."""

    def remedy(self, server: CheckedServer) -> str:
        if self.then is None:
            return f"set {self.setting} in the server's configuration and restart it"
        return server.lasting({self.setting: f"'{self.value}'"}, self.then)


_OPEN_SESSIONS = "; sessions that are open keep their own {} until they end"
_SETTINGS = (
    _Needed("log_bin", "ON", "there is no binlog to read", None),
    _Needed("binlog_format", "ROW", "other formats log statements, not rows", _OPEN_SESSIONS.format("format")),
    _Needed("binlog_row_image", "FULL", "rows would lack columns", _OPEN_SESSIONS.format("image")),
)
_METADATA = _Needed("binlog_row_metadata", "FULL", "tables would be logged without the names of their columns")
_APPLIED = ("log_replica_updates", "log_slave_updates")
"""Names of the setting: that of MySQL since 8.0.26, and that of MariaDB and of earlier MySQL."""


def checks_of(options: MySqlOptions) -> tuple[Check[CheckedServer], ...]:
    """Return the checks for these options; each comes after those that it needs."""
    of_snapshots = Check("primary key", _keys, after=("columns",)), Check("gtid_mode", _gtids, after=("login",))
    return (
        Check("server", _server),
        Check("login", _login, after=("server",)),
        *(Check(each.setting, partial(_setting, each), after=("login",)) for each in _SETTINGS),
        Check(_METADATA.setting, _metadata, after=("login",)),
        Check("server_id", _server_id, after=("login",)),
        Check("log_replica_updates", _applied, after=("log_bin",)),
        Check("binlog_storage_engine", _files, after=("log_bin",)),
        Check("REPLICATION CLIENT", _naming_roles(_log_status), after=("log_bin",)),
        Check("REPLICATION SLAVE", _naming_roles(_log_events), after=("log_bin",)),
        Check("tables", _naming_roles(_tables), after=("login",)),
        Check("logged databases", _logged, after=("REPLICATION CLIENT", "tables")),
        Check("SELECT", _naming_roles(_readable), after=("tables",)),
        Check("columns", _columns, after=("SELECT",)),
        *(of_snapshots if options.reads_tables else ()),
        *advice(options),
    )


def _server(server: CheckedServer) -> str:
    # A refused login shows that the server can be reached.
    return "answers" if isinstance(server.login, RefusedError) else server.product


def _login(server: CheckedServer) -> str:
    if isinstance(server.login, RefusedError):
        raise server.login
    return f"{server.options.client.username}, as the account {server.login.account}"


def _setting(needed: _Needed, server: CheckedServer) -> str:
    # A server without the setting always behaves as needed.
    value = server.switch(needed.setting)
    if value is None:
        return "not set, and not needed"
    if value.upper() != needed.value:
        raise UnsupportedFormatError(
            f"{server.where}: {needed.setting} is {value or 'empty'}, and must be {needed.value}: "
            f"{needed.why}. On the server: {needed.remedy(server)}"
        )
    return value


def _metadata(server: CheckedServer) -> str | Caution:
    value = server.switch(_METADATA.setting)
    if value is None:
        raise UnsupportedFormatError(
            f"{server.where}: there is no {_METADATA.setting}, and the binlog does not describe columns without it. "
            "MySQL has it from 8.0.1 on, MariaDB from 10.5"
        )
    if value == "MINIMAL":
        return Caution(
            "MINIMAL: names of columns, labels of ENUM and SET and the primary key are not logged, and those at the "
            "time of reading are used. A change older than a statement that may have changed the table's columns ends "
            f"the query. On the server: {_METADATA.remedy(server)}"
        )
    return _setting(_METADATA, server)


def _server_id(server: CheckedServer) -> str | Caution:
    value = server.settings.get("server_id", "")
    if value == "0":
        raise UnsupportedFormatError(
            f"{server.where}: server_id is 0, and must be another number: a server without an id sends its binlog to "
            "no client. On the server: SET PERSIST server_id = 1, or any number that none of its replicas has"
        )
    if server.connection.is_mariadb and (value == "1" or server.switch("wsrep_on") == "ON"):
        return Caution(
            f"{value}: a query knows a MariaDB server by this number alone. With another one that has it too (a Galera "
            "node, a restored copy, a server with the default 1) it continues at the same position, where other "
            "changes are, without an error. If another may have it, give each server a number of its own, before "
            "queries begin: a checkpoint is valid for one number. On the server: SET GLOBAL server_id = 101, or any "
            "number that no other has, and the same in its configuration file"
        )
    return value


def _applied(server: CheckedServer) -> str | Caution:
    """Check that a replica also logs the changes that it applies."""
    setting = next((name for name in _APPLIED if name in server.settings), _APPLIED[0])
    value = server.switch(setting)
    if value is None or value.upper() == "ON":
        return value or "not set, and not needed"
    sources = server.sources
    if sources.current:
        raise UnsupportedFormatError(
            f"{server.where}: {setting} is {value}, and must be ON: {sources.current}, and its binlog lacks the "
            f"changes that it applies from there. Set {setting} = ON in the server's configuration and restart it, or "
            "read the server that the changes are made on"
        )
    if sources.former:
        return Caution(
            f"{value}: {sources.former}. If it applies changes of another server, its binlog and the stream lack them. "
            f"Set {setting} = ON in the server's configuration and restart it, or on the server: GRANT SLAVE MONITOR "
            f"ON *.* TO '{server.options.client.username}'@'%', and check again"
        )
    return f"{value}, and no other server is replicated"


def _files(server: CheckedServer) -> str:
    """Check that the binlog is in files, since a binlog in an engine's tablespaces has no positions."""
    engine = server.settings.get("binlog_storage_engine", "")
    if engine:
        raise UnsupportedFormatError(
            f"{server.where}: binlog_storage_engine is {engine}, and must be empty: the source reads positions in "
            "binlog files. Leave binlog_storage_engine out of the server's configuration and restart it"
        )
    return "files"


def _log_status(server: CheckedServer) -> str:
    file, position, *_ = server.log_status
    return f"the binlog ends in {file} at position {position}"


def _log_events(server: CheckedServer) -> str:
    if server.connection.is_mariadb:
        # MariaDB's statements about the binlog need other privileges than a dump.
        check_may_dump(server.options.client)
    else:
        server.connection.rows("SHOW BINLOG EVENTS LIMIT 1")
    return "the binlog may be read"


def _gtids(server: CheckedServer) -> str | Caution:
    """Check gtid_mode: GTIDs show which transactions are visible, which MariaDB reports without them."""
    if server.connection.is_mariadb:
        return "not needed with MariaDB"
    mode = server.settings.get("gtid_mode", "not set")
    if mode.upper() == "ON":
        return mode
    return Caution(
        f"{mode}: the server does not report which transactions of its binlog are visible, so each chunk of a snapshot "
        "reads the last file of the binlog from its beginning (FLUSH BINARY LOGS makes that short), and no query can "
        f"continue on a replica. {GTIDS_ON}"
    )
