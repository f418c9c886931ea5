"""The ``mysql-cdc-wm`` source as one query configured it: what the engine opens on the driver and reads in tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.bounds import BINLOG, BinlogBounds
from pyspark_mysql_cdc_wm.lookup.copies import MySqlCopy
from pyspark_mysql_cdc_wm.lookup.log_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.schema import TableColumns, chosen_columns, table_columns
from pyspark_mysql_cdc_wm.lookup.server_checks import check_server, check_snapshot, check_tables, has_gtids
from pyspark_mysql_cdc_wm.lookup.transactions import Transactions
from pyspark_mysql_cdc_wm.options import mysql_options as options
from pyspark_mysql_cdc_wm.options.mysql_options import MySqlOptions
from pyspark_mysql_cdc_wm.options.start import StartAfter, StartMode
from pyspark_mysql_cdc_wm.reading.binlog_rows import BinlogRows
from pyspark_mysql_cdc_wm.reading.range_reader import MySqlRangeReader
from pyspark_mysql_cdc_wm.reading.snapshot_rows import SnapshotRows
from pyspark_mysql_cdc_wm.records.change_columns import CHANGE_COLUMNS, Layout
from pyspark_mysql_cdc_wm.snapshot.chunk_bounds import ChunkBounds
from watermark_source.planning.loss import LossKind
from watermark_source.planning.split import Split
from watermark_source.spark.connector import Connector, RangeReader

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MySqlSource:
    """``SourceDefinition`` of connector.py."""

    options: MySqlOptions
    table: TableColumns
    layout: Layout

    @classmethod
    def of(cls, given: Mapping[str, str]) -> MySqlSource:
        """Check the user's options, and the server and its tables.

        Raises:
            UserError: options, or columns, that cannot work.
            SourceError: a server that cannot be reached, refuses, or does not log what is needed.
        """
        parsed = options.parse(given)
        with closing(MySqlConnection(parsed.client)) as connection:
            check_server(connection)
            table = table_columns(connection, parsed.tables)
            check_tables(connection, parsed.tables)
            if isinstance(parsed.start, StartMode) and parsed.start.reads_tables:
                check_snapshot(connection, table)
        names = chosen_columns(table, parsed.columns)
        return cls(parsed, table, Layout(names, tuple(table.type_of(name) for name in names), table.key))

    @property
    def name(self) -> str:
        """The format's name."""
        return options.FORMAT

    @property
    def loss_conditions(self) -> Mapping[LossKind, str]:
        """None: Spark has no such source."""
        return {}

    @property
    def columns(self) -> StructType:
        """The stream's columns before the engine's own."""
        own = zip(self.layout.names, self.layout.types, strict=True)
        return StructType(
            [
                StructField(name, from_arrow_type(kind, prefer_timestamp_ntz=True))
                for name, kind in (*own, *CHANGE_COLUMNS.items())
            ]
        )

    @property
    def range_reader(self) -> RangeReader:
        """The executor side."""
        return self._reader(self.layout)

    @property
    def observing_reader(self) -> RangeReader:
        """The executor side without columns, for event times alone."""
        return self._reader(Layout((), (), ()))

    def open(self) -> Connector:
        """Return the driver side, connected."""
        connection = MySqlConnection(self.options.client.patient)
        status = LogStatus(connection)
        transactions = Transactions(connection, status) if has_gtids(connection) else None
        bounds = BinlogBounds(status, transactions, self.options.start)
        start = self.options.start
        left_out = start.left_out if isinstance(start, StartAfter) else None
        return Connector(
            discovery=bounds,
            starts=bounds,
            bounds=bounds,
            time_index=None,
            positions_are_rows=False,
            snapshots=self._snapshots(connection),
            clock=bounds,
            copies=MySqlCopy(connection, status, transactions, connection.stay(), left_out),
        )

    def _snapshots(self, connection: MySqlConnection) -> ChunkBounds | None:
        start = self.options.start
        if not isinstance(start, StartMode) or not start.reads_tables:
            return None
        if not self.table.key:
            _log.warning(
                "%s has no primary key: its snapshot is one chunk, and what is written while that is read is delivered "
                "twice, as part of the snapshot and as a change", " and ".join(map(str, self.options.tables)),
            )  # fmt: skip
        return ChunkBounds(
            connection,
            self.options.tables,
            self.table.key_columns,
            rows=self.options.chunk_rows,
            chunks=self.options.chunks,
            nothing_follows=start is StartMode.SNAPSHOT,
        )

    def foreign_positions(self, offset: Mapping[str, Any]) -> Mapping[Split, int] | None:
        """Return ``None``: Spark has no source of its own for this."""
        return None

    def _reader(self, layout: Layout) -> MySqlRangeReader:
        client = self.options.client.patient
        return MySqlRangeReader(
            BinlogRows(client, frozenset(self.options.tables), layout, self.options.fail_on_data_loss),
            SnapshotRows(client, self.table, layout),
            BINLOG,
        )
