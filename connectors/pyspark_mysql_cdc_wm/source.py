"""The ``mysql-cdc-wm`` source as one query configured it: what the engine opens on the driver and reads in tasks."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, LogPosition
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_bounds import BinlogBounds, BinlogPieces, BinlogRowIndex
from pyspark_mysql_cdc_wm.lookup.binlog_status import BinlogWatch
from pyspark_mysql_cdc_wm.lookup.checked_server import CheckedServer
from pyspark_mysql_cdc_wm.lookup.replicas import MySqlReplica
from pyspark_mysql_cdc_wm.lookup.server_cautions import gaps
from pyspark_mysql_cdc_wm.lookup.server_checks import checks_of
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns
from pyspark_mysql_cdc_wm.lookup.table_list import TableList
from pyspark_mysql_cdc_wm.options.mysql_option_table import FORMAT
from pyspark_mysql_cdc_wm.options.mysql_options import MySqlOptions
from pyspark_mysql_cdc_wm.options.start import StartAfter
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName, TableReading
from pyspark_mysql_cdc_wm.records.layout import CHANGE_COLUMNS, Layout
from pyspark_mysql_cdc_wm.snapshot.chunk_bounds import ChunkBounds, DescribedTables
from watermark_source.checks import CheckVerdict, examine, require
from watermark_source.connector import Connector, RangeReader, SourceDefinition, Split, Words
from watermark_source.errors import shortened

_log = logging.getLogger(__name__)

WORDS: Final = Words(
    split="log",
    limit="maxRowsPerTrigger",
    event_time="eventTimeColumn and timeZone",
    from_start='.option("startingOffsets", "earliest")',
    dated_by='name these times in the source: .option("eventTimeColumn", "{column}")',
    zone='of a DATETIME, name it: .option("timeZone", "Europe/Berlin")',
    reads_first='a snapshot: .option("startingOffsets", "initial")',
    clock='.option("watermarkStrategy", "none")',
)


@dataclass(frozen=True, slots=True)
class MySqlSource(SourceDefinition):
    """The source with its options."""

    options: MySqlOptions
    tables: Selection
    layout: Layout
    known: frozenset[TableName]
    """The tables there are now that the user may SELECT."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)
    """Identifies one start of a query: what a process remembers of a binlog holds until it may have been reset."""
    checked: Mapping[TableName, TableColumns] = field(default_factory=dict, repr=False, compare=False)
    """The tables as they were found when the source was made, in the process that made it: no task gets them."""
    left_out: frozenset[TableName] = frozenset()
    """The tables that match and that the user may not SELECT, in that process."""

    @classmethod
    def of(cls, options: MySqlOptions) -> MySqlSource:
        """Check the server and its tables.

        Raises:
            UserError: options, or columns, that cannot work.
            SourceError: a server that cannot be reached, refuses, or does not log what is needed.
        """
        with closing(CheckedServer(options)) as server:
            for found in (*require(checks_of(options), server), *examine(gaps(options), server)):
                if found.verdict is CheckVerdict.WARNING:
                    _log.warning("%s: %s: %s", server.where, found.name, found.text)
            return cls(
                options, server.selection, server.layout, frozenset(server.tables), checked=server.tables,
                left_out=server.found.left_out,
            )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what tasks need."""
        return MySqlSource, (self.options, self.tables, self.layout, self.known, self.run)

    @property
    def name(self) -> str:
        """The format's name."""
        return FORMAT

    @property
    def event_time(self) -> str | None:
        """The column that the user chose; by default it is the time of the commit."""
        return None if self.layout.event_time is None else str(self.layout.event_time)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The column that the user chose, or the time of the commit."""
        if self.layout.event_time is None:
            return ("_commit_timestamp",)
        chosen = self.layout.event_time.among(self.layout.names)
        return () if chosen is None else (chosen,)

    @property
    def words(self) -> Words:
        """The options of the source; without a column that has event times those of its column mean nothing."""
        return WORDS if self.layout.event_time is not None else replace(WORDS, event_time=None, zone=None)

    @property
    def selection(self) -> str:
        """Which tables are read."""
        return f"tables is {shortened(self.tables)}"

    def selects(self, log: str) -> bool | None:
        """Whether a table is read; the binlog is that of every table."""
        return None if log == BINLOG.log else self.tables.matches(TableReading.of(log).table)

    def position_text(self, split: Split, position: int) -> str:
        """Return the file's number and the position in it; of a snapshot how many chunks are before."""
        return str(LogPosition.of(position)) if split == BINLOG else str(position)

    @property
    def columns(self) -> StructType:
        """The stream's columns before the engine's own."""
        own = zip(self.layout.names, self.layout.types, strict=True)
        return StructType(
            [
                StructField(name, from_arrow_type(kind, prefer_timestamp_ntz=True))
                for name, kind in (*own, *((name, CHANGE_COLUMNS[name]) for name in self.layout.about))
            ]
        )

    @property
    def begins_with_snapshot(self) -> bool:
        """Whether a new query reads the tables first."""
        return self.options.reads_tables

    @property
    def deletion_time_column(self) -> str | None:
        """The time of the commit, where event time is a column of the table: the binlog has it of a deleted row too."""
        return None if self.layout.event_time is None else "_commit_timestamp"

    @property
    def change_columns(self) -> tuple[str, ...]:
        """The kind of change, and what orders changes, also where ``excludeColumns`` leaves a column out."""
        return "_change_type", "_commit_version", "_change_number"

    @property
    def range_reader(self) -> RangeReader:
        """The executor side."""
        return self._reader(self.layout, knows=True)

    @property
    def observing_reader(self) -> RangeReader:
        """The executor side without columns, for event times alone."""
        return self._reader(Layout((), (), event_time=self.layout.event_time, about=()), knows=False)

    def open(self) -> Connector:
        """Return the driver side, connected."""
        connection = MySqlConnection(self.options.client.patient)
        bounds = BinlogBounds.of(connection, self.options)
        status, transactions, start = bounds.status, bounds.transactions, bounds.start
        left_out = str(start.left_out) if isinstance(start, StartAfter) else None
        checked = self.checked if self.options.reads_tables else {}
        return Connector(
            discovery=bounds,
            starts=bounds,
            bounds=bounds,
            watched=BinlogWatch(self.options.client),
            # MariaDB does not log commit times.
            time_index=bounds.times if bounds.by_commit and not connection.is_mariadb else None,
            row_index=BinlogRowIndex(connection, status, transactions, self.tables),
            cutter=BinlogPieces(status),
            snapshots=ChunkBounds(
                connection,
                TableList(connection, self.tables, checked, self.left_out),
                DescribedTables(connection, self.tables, self.layout, self.options.choice, dict(checked), set(checked)),
                self.options,
                by_gtids=transactions is not None,
            ),
            replicas=MySqlReplica(connection, status, transactions, connection.pin_server(), left_out),
        )

    def _reader(self, layout: Layout, *, knows: bool) -> RangeReader:
        # Brings the compiler with it: half a second of a core, which only the processes of tasks need.
        from pyspark_mysql_cdc_wm.reading.range_reader import MySqlRangeReader  # noqa: PLC0415
        from pyspark_mysql_cdc_wm.reading.schema_changes import Known  # noqa: PLC0415
        from pyspark_mysql_cdc_wm.reading.stream_to_read import StreamToRead  # noqa: PLC0415

        options = self.options
        known = Known(self.known, options.choice, layout, options.ignores_new_columns) if knows else None
        return MySqlRangeReader(
            StreamToRead(
                options.client.patient, self.tables, layout, options.choice, known, self.run, options.fail_on_data_loss,
                options.unlogged,
            )
        )  # fmt: skip
