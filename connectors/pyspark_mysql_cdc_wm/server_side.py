"""The server's table, and what changed in it since the last committed batch of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as in all of Spark's documentation
from pyspark.sql.types import StringType, StructType

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, LogPosition
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions, wait_until_visible
from pyspark_mysql_cdc_wm.lookup.replicas import MySqlReplica
from pyspark_mysql_cdc_wm.options import mysql_options
from pyspark_mysql_cdc_wm.options.mysql_option_table import FORMAT
from pyspark_mysql_cdc_wm.options.tables import TableReading
from pyspark_mysql_cdc_wm.snapshot.chunk_bounds import rows_now
from pyspark_mysql_cdc_wm.snapshot.consistent_view import ConsistentView
from pyspark_mysql_cdc_wm.source import MySqlSource
from pyspark_mysql_cdc_wm.verifying.compared_table import ComparedTable
from pyspark_mysql_cdc_wm.verifying.cutting import cut
from pyspark_mysql_cdc_wm.verifying.logged_rows import CHANGE_TYPE, KeyStates, states_of, tables_of
from pyspark_mysql_cdc_wm.verifying.pieces import Pieces, Rows
from watermark_source.connector import (
    OffsetError,
    RelocatedRangeReader,
    Relocation,
    SplitRange,
    UnsupportedFormatError,
    UsageError,
)
from watermark_source.monitor.checkpoint import committed_state
from watermark_source.planning.snapshot_ranges import completed
from watermark_source.planning.state import SourceState

_STATEMENT_SECONDS = 3_600
"""Limit for the fingerprint of one piece."""


@dataclass(frozen=True, slots=True)
class ReadSince:
    """One consistent read of the table, and what changed in it before."""

    rows: Rows
    changed: Mapping[str, KeyStates]
    """By key, what changed since the checkpoint's last committed batch."""
    end: LogPosition
    """The position up to which the binlog was read, behind all that the read sees."""


@dataclass(frozen=True, slots=True)
class ServerSide:
    """A table in pieces, the state of the query that copies it, and a connection to the server."""

    connection: MySqlConnection
    source: MySqlSource
    table: ComparedTable
    pieces: Pieces
    batch: int
    """The last committed batch."""
    state: SourceState
    """After it."""

    @classmethod
    @contextmanager
    def of(cls, checkpoint: str | Path, options: Mapping[str, str]) -> Iterator[ServerSide]:
        """Describe the table on the server, and read the checkpoint.

        Raises:
            UsageError: the options name another number of tables, or the checkpoint is not one of a query over the
                table whose snapshot is complete.
            UnsupportedFormatError: the table has no primary key.
            SourceError: the server cannot be reached, or refuses.
        """
        parsed = mysql_options.parse(options)
        client = replace(parsed.client, answer_seconds=_STATEMENT_SECONDS)
        source = MySqlSource.of(replace(parsed, client=client, fail_on_data_loss=True))
        if len(source.checked) != 1 or source.options.as_json:
            raise UsageError("expected the option tables to name one table, such as shop.orders, and rowFormat columns")
        ((name, columns),) = source.checked.items()
        if not columns.key:
            raise UnsupportedFormatError(f"{name} has no primary key, by which rows could be compared")
        delivered = [each.lower() for each in source.layout.names]
        if lacking := [each for each in columns.key if each.lower() not in delivered]:
            raise UsageError(f"the primary key's column {lacking[0]} is left out; add it to the option columns")
        compared = tuple(each for each in columns.columns if str(each.name).lower() in delivered)
        schema = StructType(source.columns.fields[: len(source.layout.names)])
        batch, state = committed_state(checkpoint, FORMAT)
        read = [each.table for each in map(TableReading.of, completed(state.snapshots)) if each.label is None]
        if state.snapshots.complete is not None and source.tables.key(name) not in map(source.tables.key, read):
            raise UsageError(f"{checkpoint}: the snapshot of {name} is not complete. Verify the copy when it is")
        table = ComparedTable(name, columns.key, compared, schema)
        with closing(MySqlConnection(client)) as connection:
            rows = rows_now(connection, {name}).get(name, 0)
            yield cls(
                connection, source, table, cut(connection, name, columns.key_columns, table.key, rows), batch, state
            )

    @property
    def of_the_past(self) -> ServerSide:
        """The same, which refuses changes of which the binlog has no earlier rows."""
        options = self.source.options
        wanted = replace(options, unlogged=options.unlogged._replace(wants_past=True))
        return replace(self, source=replace(self.source, options=wanted))

    def _since(self, planned: SourceState) -> tuple[int, Relocation]:
        """Return where and how to read behind the last committed batch; all before it is visible in a SELECT."""
        connection, origin = self.connection, self.state.origin
        status, system = LogStatus(connection), connection.pin_server()
        transactions = Transactions.of(connection, status)
        if transactions is not None and origin is not None and origin.done is not None:
            replica = MySqlReplica(connection, status, transactions, system, None)
            replica.begin(None if planned.origin is None else planned.origin.done)
            return replica.begin(origin.done), Relocation(system, left_out=origin.done)
        if not connection.is_mariadb:
            raise UnsupportedFormatError(
                f"{connection.settings.where} and the checkpoint need GTIDs (gtid_mode = ON): without them MySQL does "
                "not report which transactions a SELECT sees"
            )
        if origin is not None and origin.copy != system:
            raise OffsetError(f"the checkpoint is of another server ({origin.copy}) than {system}")
        wait_until_visible(connection)
        return self.state.splits[BINLOG].position - (0 if origin is None else origin.shift), Relocation(system)

    def logged(self, spark: SparkSession, wanted: SplitRange, relocation: Relocation) -> Iterator[Row]:
        """Yield the key, piece and fingerprint of each row of the table that a range of the binlog has."""
        layout = replace(self.source.layout, about=(CHANGE_TYPE,))
        reader = cast("RelocatedRangeReader", replace(self.source, layout=layout).range_reader)
        schema = StructType([*self.table.schema.fields]).add(CHANGE_TYPE, StringType())
        text = F.expr(self.table.row.spark)
        for table in tables_of(reader.relocated(relocation).read([wanted]), schema.names):
            rows = spark.createDataFrame(table, schema)
            yield from self.table.of_rows(rows, self.pieces, text, CHANGE_TYPE).collect()

    @contextmanager
    def read(self, spark: SparkSession, planned: SourceState) -> Iterator[ReadSince]:
        """Hold the table in one consistent read, and read what was logged before its end; raises as the source.

        The server has what is before ``planned`` too: a copy that was read before this may have rows of it.

        Raises:
            OffsetError: the checkpoint is of another server, and there are no GTIDs to tell what it has read, or the
                server lacks transactions that the query has read.
            UnsupportedFormatError: MySQL without GTIDs does not report what is visible.
            DataLossError: transactions that come next were purged.
        """
        start, relocation = self._since(planned)
        table = self.table
        with closing(ConsistentView(self.source.options.client)) as view:
            if not view.hold({table.name}):
                raise UsageError(f"{table.name} was dropped")
            # Spark may work for long between two statements. A process that froze holds the table as long.
            view.select("SET SESSION wait_timeout = 14400")
            end = LogStatus(self.connection).end()
            changes = self.logged(spark, SplitRange(BINLOG, start, end.number), relocation)
            changed = states_of(view.kept_alive(changes))
            yield ReadSince(Rows(table.name, table.key, table.row, view.select), changed, end)
