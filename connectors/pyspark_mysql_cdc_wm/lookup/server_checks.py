"""What must hold of a server and its user before a query can start, and the list of checks that ``load()`` goes by."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from pyspark_mysql_cdc_wm.client.dump_privilege import check_may_dump
from pyspark_mysql_cdc_wm.lookup.checked_server import CheckedServer
from pyspark_mysql_cdc_wm.lookup.commit_visibility import GTIDS_ON
from pyspark_mysql_cdc_wm.lookup.server_cautions import advice
from pyspark_mysql_cdc_wm.lookup.table_checks import table_checks
from pyspark_mysql_cdc_wm.options.mysql_options import MySqlOptions
from watermark_source.checks import Caution, Check
from watermark_source.errors import UnsupportedFormatError


class _Needed(NamedTuple):
    setting: str
    value: str
    why: str
    mends: str


_SETTINGS = (
    _Needed(
        "log_bin", "ON", "there is no binlog to read",
        "set log_bin in the server's configuration and restart it",
    ),
    _Needed(
        "binlog_format", "ROW", "other formats log statements, not rows",
        "SET GLOBAL binlog_format = 'ROW'; sessions that are open keep their own format until they end",
    ),
    _Needed(
        "binlog_row_image", "FULL", "rows would lack columns",
        "SET GLOBAL binlog_row_image = 'FULL'; sessions that are open keep their own image until they end",
    ),
)  # fmt: skip
_APPLIED = ("log_replica_updates", "log_slave_updates")
"""The setting's names: MySQL's from 8.0.26 on, and that of MariaDB and of MySQL before."""
_METADATA = _Needed(
    "binlog_row_metadata",
    "FULL",
    "tables would be logged without the names of their columns",
    "SET GLOBAL binlog_row_metadata = 'FULL'",
)


def checks_of(options: MySqlOptions) -> tuple[Check[CheckedServer], ...]:
    """Return what is looked at for these options, in an order in which what is needed comes first."""
    return (
        Check("server", _server),
        Check("login", _login, after=("server",)),
        *(Check(each.setting, partial(_setting, each), after=("login",)) for each in _SETTINGS),
        Check(_METADATA.setting, _metadata, after=("login",)),
        Check("server_id", _server_id, after=("login",)),
        Check("log_replica_updates", _applied, after=("log_bin",)),
        Check("binlog_storage_engine", _files, after=("log_bin",)),
        Check("REPLICATION CLIENT", _log_status, after=("log_bin",)),
        Check("REPLICATION SLAVE", _log_events, after=("log_bin",)),
        *table_checks(options),
        *((Check("gtid_mode", _gtids, after=("login",)),) if options.reads_tables else ()),
        *advice(options),
    )


def _server(server: CheckedServer) -> str:
    # Who is not let in has reached it.
    return "answers" if server.refusal is not None else server.product


def _login(server: CheckedServer) -> str:
    if server.refusal is not None:
        raise server.refusal
    found = server.connection.one("SELECT CURRENT_USER()")
    return f"{server.options.client.username}, to the server {found[0] if found else 'nobody'}"


def _setting(needed: _Needed, server: CheckedServer) -> str:
    # A server without a setting does as all did before there was one.
    value = server.switch(needed.setting)
    if value is None:
        return "not there, and not needed"
    if value.upper() != needed.value:
        raise UnsupportedFormatError(
            f"{server.where}: {needed.setting} is {value or 'empty'}, and must be {needed.value}: "
            f"{needed.why}. On the server: {needed.mends}"
        )
    return value


def _metadata(server: CheckedServer) -> str | Caution:
    value = server.switch(_METADATA.setting)
    if value is None:
        raise UnsupportedFormatError(
            f"{server.where}: there is no {_METADATA.setting}, and the binlog tells too little of columns without it. "
            "MySQL has it from 8.0.1 on, MariaDB from 10.5"
        )
    if value == "MINIMAL":
        return Caution(
            "MINIMAL: names of columns, labels of ENUM and SET and the primary key are not logged, and are taken to be "
            "what they are when a change is read. Changes from before a table was altered end the query, or come "
            f"under wrong names if its columns kept their number and types. On the server: {_METADATA.mends}"
        )
    return _setting(_METADATA, server)


def _server_id(server: CheckedServer) -> str:
    value = server.settings.get("server_id", "")
    if value == "0":
        raise UnsupportedFormatError(
            f"{server.where}: server_id is 0, and must be another number: a server without an id sends its binlog to "
            "nobody. On the server: SET GLOBAL server_id = 1, or any number that none of its replicas has"
        )
    return value


def _applied(server: CheckedServer) -> str | Caution:
    """Changes that a server applies, and does not execute itself, are in its binlog with this setting alone."""
    setting = next((each for each in _APPLIED if each in server.settings), _APPLIED[0])
    value = server.switch(setting)
    if value is None or value.upper() == "ON":
        return value or "not there, and not needed"
    found = server.sources
    if found.seen:
        raise UnsupportedFormatError(
            f"{server.where}: {setting} is {value}, and must be ON: {found.seen}, and what it applies from there is "
            f"not in its own binlog. Set {setting} = ON in the server's configuration and restart it, or read the "
            "server that the changes are made on"
        )
    if found.traces:
        return Caution(
            f"{value}: {found.traces}. Should it apply changes of another server, they are not in its own binlog, and "
            f"the stream lacks them. Set {setting} = ON in the server's configuration and restart it, or on the "
            f"server: GRANT SLAVE MONITOR ON *.* TO '{server.options.client.username}'@'%', and look again"
        )
    return f"{value}, and no other server is replicated"


def _files(server: CheckedServer) -> str:
    """A binlog in tablespaces of an engine has no files with positions."""
    engine = server.settings.get("binlog_storage_engine", "")
    if engine:
        raise UnsupportedFormatError(
            f"{server.where}: binlog_storage_engine is {engine}, and must be empty: read are positions in binlog "
            "files. Leave binlog_storage_engine out of the server's configuration and restart it"
        )
    return "files"


def _log_status(server: CheckedServer) -> str:
    file, position, *_ = server.log_status
    return f"the binlog ends in {file} at position {position}"


def _log_events(server: CheckedServer) -> str:
    if server.connection.is_mariadb:
        # Its statements about the binlog take other privileges than a dump does.
        check_may_dump(server.options.client)
    else:
        server.connection.rows("SHOW BINLOG EVENTS LIMIT 1")
    return "the binlog may be read"


def _gtids(server: CheckedServer) -> str | Caution:
    """They tell what of the binlog is visible; MariaDB tells by itself."""
    if server.connection.is_mariadb:
        return "not needed with MariaDB"
    mode = server.settings.get("gtid_mode", "not there")
    if mode.upper() == "ON":
        return mode
    return Caution(
        f"{mode}: the server does not tell which transactions of its binlog are visible, so each chunk of a snapshot "
        "reads the last file of the binlog from its beginning (FLUSH BINARY LOGS makes that short), and no query goes "
        f"on with a replica. {GTIDS_ON}"
    )
