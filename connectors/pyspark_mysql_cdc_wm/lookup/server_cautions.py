"""Cautions: what does not keep a query from starting, but its user should know."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import replace

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG
from pyspark_mysql_cdc_wm.lookup.binlog_bounds import BinlogBounds
from pyspark_mysql_cdc_wm.lookup.binlog_status import version_numbers
from pyspark_mysql_cdc_wm.lookup.checked_server import CheckedServer
from pyspark_mysql_cdc_wm.lookup.rights import grant_select, hidden_from_user, left_out_text, rows_of_tables
from pyspark_mysql_cdc_wm.lookup.table_list import names_of
from pyspark_mysql_cdc_wm.options.mysql_options import MySqlOptions
from pyspark_mysql_cdc_wm.options.start import StartAtTime, StartMode
from watermark_source.checks import Caution, Check
from watermark_source.durations import format_duration

_DAY_SECONDS = 86_400
_RETENTION = {"binlog_expire_logs_seconds": 1, "expire_logs_days": _DAY_SECONDS}
"""Settings of how long the binlog is kept, with the seconds of their unit: MySQL 8.0 refuses both at once."""
_SLOW_BYTES_A_SECOND = 10_000_000
"""Speed of a slow snapshot in bytes per second, over a slow network into a slow sink."""
_ROOM = 3
"""The binlog should be kept for at least this multiple of a slow snapshot's duration."""
_SIZES = "SELECT TABLE_SCHEMA, TABLE_NAME, DATA_LENGTH FROM information_schema.TABLES WHERE"
_CASCADE = re.compile(r"^ +CONSTRAINT `(.+?)` FOREIGN KEY .* ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL)", re.MULTILINE)
_WITH_FOREIGN_KEYS = """
SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_TABLE_NAME IS NOT NULL AND
"""
_CASCADES = """
SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM (
    SELECT CONSTRAINT_SCHEMA TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS
    WHERE DELETE_RULE IN ('CASCADE', 'SET NULL') OR UPDATE_RULE IN ('CASCADE', 'SET NULL')
) cascades WHERE
"""
_BY_ENGINE = "innodb_native_foreign_keys"
_LARGEST_SKEW_MILLIS = 1_000


def advice(options: MySqlOptions) -> Iterable[Check[CheckedServer]]:
    """Yield the doctor's checks beyond those of ``load()``."""
    yield Check("TLS", _tls, after=("login",), at_load=False)
    if not isinstance(options.start, StartMode):
        # It is no check of load(), since a query with a checkpoint no longer begins there.
        option = "startingTimestamp" if isinstance(options.start, StartAtTime) else "startingOffsets"
        yield Check(option, _start, after=("REPLICATION SLAVE",), at_load=False)
    yield Check("binlog kept", _retention, after=("log_bin", "tables"), at_load=False)
    yield from gaps(options)
    yield Check("clock", _clock, after=("login",), at_load=False)
    yield Check("sync_binlog", _crashes, after=("login",), at_load=False)


def gaps(options: MySqlOptions) -> Iterable[Check[CheckedServer]]:
    """Yield the checks for changes that a stream may lack without an error; each query logs their cautions."""
    yield Check("tables left out", _left_out, after=("tables",), at_load=False)
    if options.reads_tables:
        yield Check("engine", _engine, after=("tables",), at_load=False)
    yield Check("column grants", _grants, after=("SELECT",), at_load=False)
    yield Check("foreign keys", cascades, after=("tables",), at_load=False)
    yield Check("binlog_do_db", _one_name, after=("REPLICATION CLIENT",), at_load=False)
    yield Check("binlog_error_action", _write_errors, after=("login",), at_load=False)


def _tls(server: CheckedServer) -> str | Caution:
    shown = {str(name): str(value) for name, value in server.connection.rows("SHOW STATUS LIKE 'Ssl_%'")}
    cipher, mode = shown.get("Ssl_cipher"), server.options.client.tls.mode
    if not cipher:
        return Caution(
            f"not used (sslMode {mode.value}): rows can be read on their way. Set sslMode to required, or to "
            "verify_identity with sslCa; the server offers it with the settings ssl_cert and ssl_key"
        )
    verified = "verified" if mode.verifies else "not verified"
    return f"{shown.get('Ssl_version')} {cipher}; the certificate is {verified} (sslMode {mode.value})"


def _start(server: CheckedServer) -> str:
    BinlogBounds.of(server.connection, server.options).initial_positions(frozenset({BINLOG}))
    return "is in the binlog"


def _grants(server: CheckedServer) -> str | Caution:
    """Check the user's grants: the stream leaves out columns that the user may not read, also from the binlog."""
    if not server.granted_in_part:
        return "of whole tables"
    columns = "; ".join(f"{table}: {', '.join(server.tables[table].names)}" for table in server.granted_in_part)
    table = server.granted_in_part[0]
    return Caution(
        f"the user {server.options.client.username!r} may read these columns alone, and the stream lacks the others. "
        f"{columns}. For all of them, on the server: {grant_select(server.options.client.username, table)}"
    )


def _left_out(server: CheckedServer) -> str | Caution:
    """Check that the option tables finds what it was written for: all tables that match, and one an entry."""
    found, selection = server.found, server.selection
    lines = [left_out_text(server.connection, found.left_out)] if found.left_out else []
    matching = found.read | found.left_out
    alone = {entry.text: replace(selection, entries=(entry,)) for entry in selection.entries}
    idle = [text for text, one in alone.items() if not any(map(one.matches, matching))]
    existing = set(map(selection.key, matching))
    again = dict.fromkeys(table for table, _ in server.options.snapshot.reread if selection.key(table) not in existing)
    if idle := [*idle, *(f"{table} of rereadTables" for table in again)]:
        lines.append(f"no table is like {', '.join(idle)} now. One that is created later is read")
    if unseen := hidden_from_user(server.connection, selection):
        user = server.options.client.username
        lines.append(
            f"the user {user!r} may SELECT single tables of {', '.join(unseen)}, and the server shows it no others: "
            "those that match are left out, and named when the binlog has changes of them. For all of them, on the "
            f"server: GRANT SELECT ON {unseen[0]}.* TO '{user}'@'%'"
        )
    return Caution(". ".join(lines)) if lines else "none"


def _engine(server: CheckedServer) -> str | Caution:
    """Check the tables' engines: only InnoDB has consistent reads."""
    kinds = server.found.kinds
    engines = {table: kinds[table].engine for table in server.table_names}
    others = {str(table): engine for table, engine in engines.items() if engine.upper() != "INNODB"}
    if others:
        shown = ", ".join(f"{table} ({engine})" for table, engine in others.items())
        return Caution(
            f"{shown}: only InnoDB shows a table as of one moment, so rows that are written during the snapshot may be "
            "lost or doubled. Write nothing meanwhile, or ALTER TABLE … ENGINE = InnoDB"
        )
    return "InnoDB"


def _retention(server: CheckedServer) -> str | Caution:
    setting, kept = _kept(server)
    size = 0
    if server.options.reads_tables:
        size = sum(int(each or 0) for _, (each,) in rows_of_tables(server.connection, _SIZES, server.table_names))
    seconds = size // _SLOW_BYTES_A_SECOND
    snapshot = (
        f"; a snapshot of {size // 1_000_000} MB takes up to {format_duration(1_000 * seconds)}" if seconds >= 1 else ""
    )
    if not kept:
        return f"until an administrator purges it{snapshot}"
    needed = max(_DAY_SECONDS, _ROOM * seconds)
    if kept >= needed:
        return format_duration(1_000 * kept) + snapshot
    return Caution(
        f"for {format_duration(1_000 * kept)}{snapshot}. A query that is stopped for longer cannot resume. On the "
        "server: " + server.lasting({setting: -(-max(7 * _DAY_SECONDS, needed) // _RETENTION[setting])})
    )


def _kept(server: CheckedServer) -> tuple[str, int]:
    """Return which setting purges binlog files, and how long in seconds they are kept; 0 if the server purges none."""
    setting = next((each for each in _RETENTION if float(server.settings.get(each, 0))), "")
    if not setting or server.switch("binlog_expire_logs_auto_purge") == "OFF":
        return setting, 0
    return setting, round(float(server.settings[setting]) * _RETENTION[setting])


def cascades(server: CheckedServer) -> str | Caution:
    """Check for cascading foreign keys: MySQL logs their changes since 9.6, unless InnoDB executes them."""
    by_engine = server.switch(_BY_ENGINE) == "ON"
    if not server.connection.is_mariadb and version_numbers(server.connection) >= (9, 6) and not by_engine:
        return "their changes are logged"
    keys = (
        _cascading_keys(server)
        if server.connection.is_mariadb
        else [f"{table} {name}" for table, (name,) in rows_of_tables(server.connection, _CASCADES, server.table_names)]
    )
    if keys:
        return Caution(
            f"{', '.join(keys)}: what ON DELETE or ON UPDATE changes in a table is not in the binlog "
            + (f"with {_BY_ENGINE} = ON" if by_engine else "before MySQL 9.6")
            + ", so the stream misses it. Make these changes in statements, or with triggers"
        )
    return "none that change rows"


def _cascading_keys(server: CheckedServer) -> list[str]:
    """Return keys on MariaDB, whose information_schema shows what one does only to users who may write."""
    keys: list[str] = []
    referring = rows_of_tables(server.connection, _WITH_FOREIGN_KEYS, server.table_names)
    for table in sorted({table for table, _ in referring}):
        definition = server.connection.one(f"SHOW CREATE TABLE {table.quoted}")
        keys += [f"{table} {name}" for name in _CASCADE.findall(str(definition[1]) if definition else "")]
    return keys


def _one_name(server: CheckedServer) -> str | Caution:
    """Check binlog_do_db, of which a server shows one name that has commas like several names, and binlog_ignore_db."""
    shown = dict(zip(("binlog_do_db", "binlog_ignore_db"), server.log_status[2:4], strict=False))
    if not any(shown.values()):
        return "not set"
    several = (
        ". If binlog_do_db is one line of the server's configuration, the server reads it as the name of one database, "
        "and logs no change of any of these: give binlog_do_db once for each database"
    )
    named = " and ".join(f"{name} is {value}" for name, value in shown.items() if value)
    return Caution(
        f"{named}: the server logs statements that "
        "define or empty tables by the session's database, not the table's. After USE of a database that is left out, "
        "TRUNCATE, ALTER or DROP of a table that is read may not be logged, and the stream then misses it without an "
        "error. Leave the setting out of the server's configuration and restart it, or USE the table's database first"
        + (several if len(names_of(shown["binlog_do_db"])) > 1 else "")
    )


def _write_errors(server: CheckedServer) -> str | Caution:
    value = server.settings.get("binlog_error_action", "")
    if value.upper() != "IGNORE_ERROR":
        return value or "not set, and not needed"
    return Caution(
        f"{value}: a server that cannot write its binlog (a full disk) continues without it, and the stream lacks all "
        "changes until it is restarted. On the server: SET PERSIST binlog_error_action = 'ABORT_SERVER'"
    )


def _crashes(server: CheckedServer) -> str | Caution:
    """Check that each commit writes both binlog and tables to disk, so that they agree after a crash of the machine."""
    wanted = {"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1"}
    others = {name: value for name in wanted if (value := server.settings.get(name, "1")) != wanted[name]}
    if not others:
        return "1"
    shown = ", ".join(f"{name} is {value}" for name, value in others.items())
    return Caution(
        f"{shown}: after a crash of the machine (not of the server alone) the binlog may lack changes that the tables "
        "have, or have some that they lack. On the server: " + server.lasting(dict.fromkeys(others, 1))
    )


def _clock(server: CheckedServer) -> str | Caution:
    """Check the server's clock: lags compare event times, which the server's clock sets, with this machine's clock."""
    sent = time.time()
    row = server.connection.one("SELECT UNIX_TIMESTAMP(NOW(6))")
    received = time.time()
    skew = round(1_000 * (float(row[0] if row else sent) - (sent + received) / 2))
    least_skew = max(0, abs(skew) - round(500 * (received - sent)))
    if least_skew > _LARGEST_SKEW_MILLIS:
        return Caution(
            f"the server's is {format_duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this machine's, and "
            "lags are wrong by as much. Synchronise both with NTP"
        )
    return f"{format_duration(abs(skew))} from this machine's"
