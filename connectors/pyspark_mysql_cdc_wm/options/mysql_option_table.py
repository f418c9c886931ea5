"""The options of ``mysql-cdc-wm``, one by one: names of Flink CDC in Spark's spelling, and the engine's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.statement_effects import LoggedStatements
from pyspark_mysql_cdc_wm.client.tls import TlsMode
from pyspark_mysql_cdc_wm.options.start import StartAtTime, StartMode, parse_start
from pyspark_mysql_cdc_wm.options.tables import TableName, parse_tables
from pyspark_mysql_cdc_wm.records.layout import EventTimeColumn
from watermark_source.option_table import (
    Option,
    OptionTable,
    at_least_one,
    host_name,
    integer,
    non_empty,
    one_of,
    true_or_false,
)
from watermark_source.spark.option_rows import ENGINE_OPTIONS, INGESTION, LOOKAHEAD, NOT_NEEDED, PERCENTILE, PUNCTUATED

FORMAT: Final = "mysql-cdc-wm"
ON_CLOCK: Final = "useProcessingTimeDuringBinlog"


def _port(text: str) -> int:
    return integer(text, minimum=1, maximum=65_535)


def _moment(text: str) -> StartAtTime:
    return StartAtTime(integer(text, minimum=0))


def _zone(text: str) -> str:
    """Accept what pyarrow knows: names need the zones of the system, or those of the package tzdata."""
    if not text or text != text.strip():
        raise ValueError("is no time zone")
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
        parse=_port,
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
        doc="Who logs in. The user needs `SELECT` on the tables, `REPLICATION SLAVE` and `REPLICATION CLIENT`.",
    ),
    Option(
        name="password",
        parse=str,
        default="",
        default_text="none",
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
        doc="As `--ssl-mode` of MySQL's own programs: TLS never, where the server offers it, always, with a "
        "certificate that is signed by `sslCa`, and with one for `hostname`. The first three verify nothing.",
    ),
    Option(
        name="sslCa",
        parse=non_empty,
        default_text="what the system trusts",
        accepted="must be a PEM file",
        example="/etc/mysql/ca.pem",
        doc="Whom to trust, with `sslMode` `verify_ca` or `verify_identity`. This and the files below must be at the "
        "same path on the driver and on every executor.",
    ),
    Option(
        name="sslCert",
        parse=non_empty,
        default_text="none",
        accepted="must be a PEM file",
        example="/etc/mysql/client.pem",
        doc="The certificate to show, for users that must have one (`REQUIRE X509`).",
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
        default_text="none",
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
        doc=r"What to read. Names (`shop.orders`), names with asterisks (`shop.*`, `shop.order_*`), and regular "
        r"expressions for the whole of a name (`shop\.(orders|lines)_\d+`), told apart by having one of "
        r"`\ ^ ? + [ ] ( ) { } |`; a name with special characters goes in backquotes. Tables that are created later "
        "are read too. Those of the system never are. See `rowFormat` for tables with different columns.",
    ),
    Option(
        name="startingOffsets",
        parse=parse_start,
        default=StartMode.INITIAL,
        default_text="initial",
        accepted='must be initial, snapshot, earliest, latest, {"file":…,"position":…} or {"gtid":…}',
        example='{"file":"binlog.000003","position":157}',
        doc="Where a new query begins. `initial`: with what the tables hold, then the binlog. `snapshot`: what the "
        "tables hold and nothing after it. `earliest` and `latest`: the binlog that the server still has, or from "
        "now on. In JSON, a place between two transactions; or a GTID set to leave out, such as "
        "`@@global.gtid_executed` of a backup: all others the server must still have. A query with a checkpoint goes "
        "on from there.",
    ),
    Option(
        name="startingTimestamp",
        parse=_moment,
        default_text="none",
        accepted="must be milliseconds since the epoch",
        example="1735689600000",
        doc="Begin a new query with the first transaction that was committed at this moment or later, or at the end of "
        "the binlog if there is none; no snapshot is taken. A moment before the oldest binlog file that the server "
        "still has is an error, or begins there (`failOnDataLoss`). MariaDB does not log commit times: there it is "
        "when the statement before the commit began, to the second. Wins over `startingOffsets`.",
    ),
    at_least_one(
        name="maxRowsPerTrigger",
        default_text="no limit",
        example="1000000",
        doc="About the most rows of one batch; an update is two. Of the binlog a batch ends after the last transaction "
        "with which it has no more, or after the first one if that alone is larger; and after 256 MB of binlog. "
        "While a snapshot is read, it limits the chunks of a batch and, by itself, the changes beside them. The "
        "trigger Once reads everything in one batch all the same, and so does the first batch on another server.",
    ),
    Option(
        name="columns",
        parse=_columns,
        default_text="all",
        accepted="must be a comma list of columns of the tables",
        example="id,amount",
        doc="Which of the tables' columns to deliver, in the tables' order.",
    ),
    Option(
        name="excludeColumns",
        parse=_columns,
        default=(),
        default_text="none",
        accepted="must be a comma list of columns",
        example="photo,_database,_table",
        doc="Which columns to leave out: of the tables, but not together with `columns`, or of those about changes, "
        "whose names begin with `_`.",
    ),
    one_of(
        name="rowFormat",
        choices=("columns", "json"),
        default="columns",
        example="json",
        doc="`columns`: the tables' columns are the stream's, and must be the same ones. `json`: each row is one text, "
        "the column `_row`, of any table's columns by name.",
    ),
    one_of(
        name="schemaChangeBehavior",
        choices=("exception", "ignore"),
        default="exception",
        example="ignore",
        doc="What happens when a table gets a column, or a name for one, that the stream has not. `exception`: the "
        "query ends before the first row with it; once it is loaded again its stream has the column, and nothing is "
        "lost. `ignore`: what is in the column does not come, and a warning says so.",
    ),
    one_of(
        name="unloggedChangeBehavior",
        choices=("exception", "ignore"),
        default="exception",
        example="ignore",
        doc="What happens when a table is changed as a whole, of which the binlog has no row: `TRUNCATE`, `RENAME`, "
        "and partitions dropped, emptied or exchanged. `exception`: the query ends there. `ignore`: it goes on, what "
        "was delivered of the table stays as it is, and a warning says so.",
    ),
    one_of(
        name="loggedStatementBehavior",
        choices=(each.value for each in LoggedStatements),
        default=LoggedStatements.REFUSED.value,
        example=LoggedStatements.OTHERS_IGNORED.value,
        doc="What happens at a statement that was logged in place of the rows it changed: some session has another "
        "`binlog_format` than `ROW`. `exception`: the query ends there, whichever table the statement names, because "
        "a trigger, a function or a view may have changed a table that is read. `ignoreOtherTables`: it goes on if "
        "the statement says which tables it changes and none of them is read; no trigger or function called there may "
        "write to one that is. `ignore`: it goes on, and what any such statement changed does not come. A warning "
        "names the statements passed over.",
    ),
    at_least_one(
        name="snapshotChunkRows",
        default=500_000,
        example="20000",
        doc="About so many rows of a table are one chunk of its snapshot, which one task reads.",
    ),
    at_least_one(
        name="snapshotParallelism",
        default=8,
        example="16",
        doc="So many chunks are in one batch while a snapshot is read; all are as of one point in time. With "
        "`snapshotConsistency` `table` one task reads them all.",
    ),
    Option(
        name="snapshotChunkColumn",
        parse=_chunk_columns,
        default=(),
        default_text="the primary key",
        accepted="must be a column, or a comma list of database.table:column",
        example="shop.clicks:at,shop.orders:customer",
        doc="Which column to cut snapshots by instead of the primary key: for tables without one, which are one chunk "
        "otherwise, and for keys that cannot be compared. It must be NOT NULL and should be the first of an index; "
        "rows of one value are in one chunk. A column without a table is that of all tables that have it.",
    ),
    one_of(
        name="snapshotConsistency",
        choices=("batch", "table"),
        default="batch",
        example="table",
        doc="Of which moment a snapshot is. `batch`: each batch of it is as of a place of the binlog of its own, and "
        "what was read before is brought there by its changes. `table`: all tables that a query begins with are, "
        "whole, as of the place at which it began, and all changes since come after them. The binlog since that place "
        "is read again for each batch, in one task, and must be kept until the snapshot is complete.",
    ),
    true_or_false(
        name="snapshotHoldsGroup",
        default=True,
        example="false",
        doc="Whether the other sources of the alignment group read nothing until the snapshot is complete. Needs "
        "`alignmentGroup`.",
    ),
    Option(
        name="eventTimeColumn",
        parse=non_empty,
        default_text="the commit's time",
        accepted="must be a TIMESTAMP or DATETIME column of the tables",
        example="created_at",
        doc="Which column is event time, for rows of the snapshot as well; DATETIME is of `serverTimeZone`. A row "
        "without a value has its commit's time. Watermarks then follow rows alone: `maxOutOfOrderness` says how far "
        "they may be behind, and rows before an update are often far behind.",
    ),
    Option(
        name="serverTimeZone",
        parse=_zone,
        default_text="UTC",
        accepted="must be a time zone's name, or a distance from UTC",
        example="Europe/Berlin",
        doc="Whose clocks a DATETIME in `eventTimeColumn` is of; TIMESTAMP columns are moments without it. Of an hour "
        "that clocks show twice the first is meant. The stream's own column stays as it is, without a zone.",
    ),
    true_or_false(
        name=ON_CLOCK,
        default=False,
        example="true",
        doc="No watermark while the snapshot is read; from the beginning of the binlog on event time is the clock "
        "(FLIP-326). Needs `watermarkStrategy` `none`, which needs it.",
    ),
    true_or_false(
        name="failOnDataLoss",
        default=True,
        example="true",
        doc="Whether binlog files that were purged before they were read end the query. With false they are skipped, "
        "and a warning says so.",
    ),
)
NOT_NEEDED_HERE: Mapping[str, str] = {
    "serverId": "a dump of the binlog asks with the id 0: it ends with its batch, and disturbs no replica or other "
    "reader",
    "heartbeatInterval": "a dump of the binlog ends with its batch, and positions move with all that the server "
    "writes, be it of other tables",
}
"""Options of other readers of MySQL that this one does without, and why."""
NO_MEANING: Mapping[str, str] = {
    "maxRecordsPerPartition": "see minPartitions for the binlog and snapshotChunkRows for a snapshot",
    **dict.fromkeys(
        ("watermarkPercentile", "percentileRows", "lookaheadRows", "lookaheadTime"),
        "the server dates its rows, in order: there is no disorder to learn from or to look ahead for",
    ),
    **dict.fromkeys(
        ("maxWatermarkLag", "maxEventTimeLag"),
        "while nothing is written the watermark follows the server's own clock",
    ),
}
"""Options of the engine that this source cannot honour, and why."""
OPTION_TABLE = OptionTable(
    (*MYSQL_OPTIONS, *ENGINE_OPTIONS),
    not_needed={**NOT_NEEDED, **NOT_NEEDED_HERE},
    no_meaning=NO_MEANING,
    where_all_are="docs/mysql-options.md has all there are",
)
_BYTES = "needs positions that count rows, and those of the binlog count bytes"
NOT_SERVED: Mapping[str, str] = {
    PERCENTILE: _BYTES,
    PUNCTUATED: "needs records that carry watermarks, and rows of a table carry none",
}
"""Watermark strategies that this source does not have, and why."""
NOT_BY_COLUMN: Mapping[str, str] = {
    INGESTION: "is not supported with eventTimeColumn: its rows alone move the watermark",
    LOOKAHEAD: _BYTES,
    **NOT_SERVED,
}
"""Those that it does not have with ``eventTimeColumn`` either, where without it they are not needed."""
