"""The options of ``mysql-cdc-wm``, one by one: names of Flink CDC in Spark's spelling, and the engine's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.statement_effects import LoggedStatements
from pyspark_mysql_cdc_wm.client.login_settings import TlsMode
from pyspark_mysql_cdc_wm.options.start import StartAtTime, StartMode, parse_start
from pyspark_mysql_cdc_wm.options.tables import TableName, parse_readings, parse_tables
from pyspark_mysql_cdc_wm.records.layout import EventTimeColumn
from watermark_source.option_table import (
    Option,
    OptionTable,
    Renamed,
    at_least_one,
    host_name,
    integer,
    non_empty,
    one_of,
    point_in_time,
    true_or_false,
    word,
)
from watermark_source.planning.strategy import Abilities
from watermark_source.spark.option_rows import ENGINE_OPTIONS, NOT_NEEDED, RENAMED
from watermark_source.spark.strategy_rows import INGESTION, STRATEGIES, StrategyRow, options_without_strategy

FORMAT: Final = "mysql-cdc-wm"


def _zone(text: str) -> str:
    """Accept what pyarrow knows: names need the zones of the system, or those of the package tzdata."""
    if not text or text != text.strip():
        raise ValueError("is not a time zone")
    try:
        EventTimeColumn("", text).moments(pa.array([0], pa.timestamp("us")))
    except pa.ArrowInvalid as problem:
        raise ValueError("no such time zone is known here") from problem
    return text


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError("names no column")
    if len({name.lower() for name in names}) != len(names):
        raise ValueError("one is there twice")
    return names


def _chunk_columns(text: str) -> tuple[tuple[str | None, str], ...]:
    """Parse a comma list of columns, each of a table that stands before it, or of all."""
    found = []
    for part in (each.strip() for each in text.split(",") if each.strip()):
        table, colon, column = part.rpartition(":")
        if not column.strip() or (colon and not table.strip()):
            raise ValueError(f"{part} is not column or database.table:column")
        found.append((str(TableName.of(table.strip())) if colon else None, column.strip()))
    if not found or len({table for table, _ in found}) != len(found):
        raise ValueError("names no column, or two of one table")
    return tuple(found)


_IGNORED = ("columns", "tables", *(each.value for each in LoggedStatements if each is not LoggedStatements.REFUSED))


def _ignored_changes(text: str) -> frozenset[str]:
    kinds = frozenset(map(word(_IGNORED), filter(None, map(str.strip, text.split(",")))))
    if not kinds:
        raise ValueError("names no change")
    return kinds


MYSQL_OPTIONS: tuple[Option, ...] = (
    Option(
        name="hostname",
        parse=host_name,
        default_text="needed",
        needed=True,
        accepted="must be a host name or an address",
        example="db1.example.org",
        doc="The server; executors connect to it too.",
    ),
    Option(
        name="port",
        parse=partial(integer, minimum=1, maximum=65_535),
        default=3306,
        accepted="must be a port",
        example="3306",
        doc="The server's port.",
    ),
    Option(
        name="username",
        parse=non_empty,
        default_text="needed",
        needed=True,
        accepted="must be a user of the server",
        example="cdc",
        doc="User to log in as. It needs `SELECT` on the tables, `REPLICATION SLAVE` and `REPLICATION CLIENT`.",
    ),
    Option(
        name="password",
        parse=str,
        default="",
        accepted="must be the user's password",
        example="…",
        secret=True,
        doc="Appears in no log, error or checkpoint.",
    ),
    one_of(
        name="sslMode",
        choices=(each.value for each in TlsMode),
        kind=TlsMode,
        default=TlsMode.PREFERRED.value,
        example="verify_identity",
        doc="As `--ssl-mode` of MySQL's own programs: no TLS, TLS where the server offers it, always TLS, TLS with a "
        "certificate that is signed by `sslCa`, and with one for `hostname` too. The first three verify nothing.",
    ),
    Option(
        name="sslCa",
        parse=non_empty,
        default_text="the system's",
        accepted="must be a PEM file",
        example="/etc/mysql/ca.pem",
        doc="Trusted certificates, with `sslMode` `verify_ca` or `verify_identity`. This file and those below must "
        "have the same path on the driver and on every executor.",
    ),
    Option(
        name="sslCert",
        parse=non_empty,
        accepted="must be a PEM file",
        example="/etc/mysql/client.pem",
        doc="The client's certificate, for users that must present one (`REQUIRE X509`).",
    ),
    Option(
        name="sslKey",
        parse=non_empty,
        default_text="in `sslCert`",
        accepted="must be a PEM file",
        example="/etc/mysql/client-key.pem",
        doc="The certificate's private key.",
    ),
    Option(
        name="sslKeyPassword",
        parse=str,
        accepted="must be the key's password",
        example="…",
        secret=True,
        doc="Appears in no log, error or checkpoint.",
    ),
    Option(
        name="tables",
        parse=parse_tables,
        default_text="needed",
        needed=True,
        accepted="must be a comma list of tables, names with asterisks, or regular expressions",
        example="shop.orders,sales.*",
        doc="Tables to read: names (`shop.orders`), names with asterisks (`shop.*`, `shop.order_*`), and regular "
        r"expressions that match a whole name (`shop\.(orders|lines)_\d+`). An entry is a regular expression if it "
        r"contains one of `\ ^ ? + [ ] ( ) { } |`; put a name with special characters in backquotes. Tables that are "
        "created later are read too. System tables never are. See `rowFormat` for tables with different columns.",
    ),
    Option(
        name="startingOffsets",
        parse=parse_start,
        default=StartMode.INITIAL,
        default_text="initial",
        accepted='must be initial, snapshot, earliest, latest, {"file":…,"position":…} or {"gtid":…}',
        example='{"file":"binlog.000003","position":157}',
        doc="Where a new query begins. `initial`: a snapshot of the tables, then the binlog. `snapshot`: the snapshot "
        "and nothing after it. `earliest`: the oldest binlog that the server still has; `latest`: the end of the "
        "binlog. In JSON, a position between two transactions, or a GTID set to leave out, such as "
        "`@@global.gtid_executed` of a backup: the server must still have all other transactions. A query with a "
        "checkpoint resumes from it.",
    ),
    point_in_time(
        name="startingTimestamp",
        kind=StartAtTime,
        doc="Begin a new query with the first transaction that was committed at this time or later, or at the end of "
        "the binlog if there is none; no snapshot is taken. Milliseconds since the epoch, ISO 8601 (UTC without a "
        "zone), or how long before the start of the query by the driver's clock: `10 minutes ago`. "
        "A time before the oldest binlog file that the server "
        "still has is an error, or begins there (`failOnDataLoss`). MariaDB does not log commit times: there it is "
        "the time at which the statement before the commit began, to the second. Takes precedence over "
        "`startingOffsets`.",
    ),
    at_least_one(
        name="maxRowsPerTrigger",
        default_text="no limit",
        example="1000000",
        doc="Approximate maximum number of rows in one batch; an update is two. In the binlog a batch ends after the "
        "last transaction that keeps it within this number, or after the first one if that alone is larger; and after "
        "256 MB of binlog. While a snapshot is read, it limits the chunks of a batch and, separately, the changes "
        "beside them. The trigger Once ignores it and reads everything in one batch, and so does the binlog's part of "
        "the first batch on another server.",
    ),
    Option(
        name="columns",
        parse=_columns,
        default_text="all",
        accepted="must be a comma list of columns of the tables",
        example="id,amount",
        doc="Columns of the tables to deliver, in the tables' order.",
    ),
    Option(
        name="excludeColumns",
        parse=_columns,
        default=(),
        accepted="must be a comma list of columns",
        example="photo,_database,_table",
        doc="Columns to leave out: columns of the tables (not together with `columns`), or columns about changes, "
        "whose names begin with `_`.",
    ),
    one_of(
        name="rowFormat",
        choices=("columns", "json"),
        default="columns",
        example="json",
        doc="`columns`: the stream has the tables' columns, which must be the same in all tables. `json`: each row is "
        "one JSON text in the column `_row`, with the columns of its table by name.",
    ),
    Option(
        name="ignoredChanges",
        parse=_ignored_changes,
        default=(),
        accepted=f"must be a comma list of {', '.join(_IGNORED[:-1])} and {_IGNORED[-1]}",
        example="columns,tables",
        doc="Changes that a stream cannot have, and which are skipped with a warning. By default the query ends before "
        "the first row behind such a change. `columns`: a table gets a column, or a column name, that the stream does "
        "not have; the column is not delivered. (Otherwise, after a restart, the stream has it, and nothing is lost.) "
        "`tables`: a change to a whole table, for which the binlog has no rows: `TRUNCATE`, `RENAME`, partitions "
        "dropped, emptied or exchanged, and another expression of a generated column; rows already delivered stay as "
        "they are. `statements`: a statement that was logged instead of the rows it changed, by a session with a "
        "`binlog_format` other than `ROW`: whichever table it names, a trigger, a function or a view may have changed "
        "one that is read; such changes are not delivered. `otherStatements`: such a statement that names the tables "
        "that it changes, none of which is read; no trigger or function called there may write to one that is.",
    ),
    at_least_one(
        name="snapshotChunkRows",
        default=500_000,
        example="20000",
        doc="Approximate number of rows in one chunk of a table's snapshot. One task reads a chunk. Chunks "
        "already planned keep their size.",
    ),
    at_least_one(
        name="snapshotParallelism",
        default=8,
        example="16",
        doc="Number of chunks in one batch while a snapshot is read; all are as of one point in time. With "
        "`snapshotConsistency` `table` one task reads them all.",
    ),
    Option(
        name="snapshotChunkColumn",
        parse=_chunk_columns,
        default=(),
        default_text="the primary key",
        accepted="must be a column, or a comma list of database.table:column",
        example="shop.clicks:at,shop.orders:customer",
        doc="Column to cut snapshots by instead of the primary key: for tables without a primary key, which are one "
        "chunk otherwise, and for keys that cannot be compared. It must be NOT NULL and should be the first of an "
        "index; rows with the same value are in one chunk. A column without a table applies to all tables that have "
        "it.",
    ),
    one_of(
        name="snapshotConsistency",
        choices=("batch", "table"),
        default="batch",
        example="table",
        doc="The point in time of a snapshot. `batch`: each batch of it is as of its own position in the binlog, and "
        "changes bring the rows read before up to that position. `table`: all tables with which a query begins are, "
        "whole, as of the position at which it began, and all later changes follow. Each batch reads the binlog since "
        "that position again, in one task, so the binlog must be kept until the snapshot is complete.",
    ),
    Option(
        name="rereadTables",
        parse=parse_readings,
        default=(),
        accepted="must be a comma list of database.table:label, with a label of letters, digits, _ and -",
        example="shop.orders:2026-11-29",
        doc="Tables to read again, whole, while all changes continue. Their rows have the `_change_type` `reread`. "
        "Each label is read once for a table, however often the query is restarted with it; another label requests "
        "another reading.",
    ),
    Option(
        name="eventTimeColumn",
        parse=non_empty,
        default_text="the commit's time",
        accepted="must be a TIMESTAMP or DATETIME column of the tables",
        example="created_at",
        doc="Column to use as event time, for rows of the snapshot as well; a DATETIME is in `timeZone`. A row "
        "without a value has the time of its commit. Only rows then advance the watermark: `maxOutOfOrderness` is how "
        "far they may be behind, and the rows before an update are often far behind.",
    ),
    Option(
        name="timeZone",
        parse=_zone,
        default_text="UTC",
        accepted="must be a time zone's name, or a distance from UTC",
        example="Europe/Berlin",
        doc="Time zone of a DATETIME in `eventTimeColumn`; TIMESTAMP columns are absolute and do not use it. In an "
        "hour that clocks show twice, the first is used. The column in the stream is unchanged, without a zone.",
    ),
    true_or_false(
        name="failOnDataLoss",
        default=True,
        example="true",
        doc="Whether the query ends when binlog files were purged before they were read. With `false` they are "
        "skipped, and a warning is logged.",
    ),
)
DATED = Abilities(dates_rows=True)
"""What this source can do for a strategy while the server dates its rows."""
BY_COLUMN = Abilities()
"""The same with ``eventTimeColumn``."""
NOT_BY_COLUMN: Mapping[str, str] = {INGESTION: "is not supported: its rows alone move the watermark"}
"""Strategies that this source refuses with ``eventTimeColumn`` although its abilities would do, and why."""


def _refusal(row: StrategyRow) -> str | None:
    """Return why a strategy is refused both without ``eventTimeColumn`` and with it, ``None`` if it is not."""
    dated, by_column = row.refusal(DATED), NOT_BY_COLUMN.get(row.name, row.refusal(BY_COLUMN))
    if dated is None or by_column is None:
        return None
    return dated if by_column == dated else f"{dated}; with eventTimeColumn it {by_column}"


REFUSED_STRATEGIES: Mapping[str, str] = {row.name: why for row in STRATEGIES if (why := _refusal(row)) is not None}
"""The strategies that this source never accepts, and why."""
NOT_NEEDED_HERE: Mapping[str, str] = {
    "serverId": "a dump of the binlog uses the server id 0: it ends with its batch, and disturbs no replica or "
    "other reader",
    "heartbeatInterval": "a dump of the binlog ends with its batch, and positions advance with all that the "
    "server writes, for other tables too",
}
"""Options of other readers of MySQL that this one does without, and why."""
NO_MEANING: Mapping[str, str] = {
    "maxRecordsPerPartition": "see minPartitions for the binlog and snapshotChunkRows for a snapshot",
    **options_without_strategy(REFUSED_STRATEGIES),
    "whenCaughtUp": "a new query reads the tables first, and has no watermark before",
}
"""Options of the engine that this source cannot honour, and why."""
OPTION_TABLE = OptionTable(
    (*MYSQL_OPTIONS, *ENGINE_OPTIONS),
    not_needed={**NOT_NEEDED, **NOT_NEEDED_HERE},
    no_meaning=NO_MEANING,
    where_all_are="docs/mysql-options.md has all there are",
    renamed=(
        *RENAMED,
        Renamed("snapshotHoldsGroup", "alignmentHold", {"true": None, "false": "nothing"}),
        Renamed("useProcessingTimeDuringBinlog", "watermarkStrategy", {"true": "none", "false": None}),
        Renamed("schemaChangeBehavior", "ignoredChanges", {"ignore": "columns", "exception": None}, joined=","),
        Renamed("unloggedChangeBehavior", "ignoredChanges", {"ignore": "tables", "exception": None}, joined=","),
        Renamed(
            "loggedStatementBehavior",
            "ignoredChanges",
            {"ignore": "statements", "ignoreOtherTables": "otherStatements", "exception": None},
            joined=",",
        ),
        Renamed("serverTimeZone", "timeZone"),
    ),
)
