"""A range of the binlog to rows: what changed in the tables that are read, in the order of the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.binlog.gtid_set import GtidSet
from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.log_dump import PlacedBlock, dumped, dumped_without
from pyspark_mysql_cdc_wm.client.settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.collations import collations_of
from pyspark_mysql_cdc_wm.lookup.least_metadata import LeastMetadata
from pyspark_mysql_cdc_wm.lookup.log_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.schema import columns_now
from pyspark_mysql_cdc_wm.lookup.stream_layout import without_event_time
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.records.change_columns import ChangedRows, changed_rows
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder, Changes, as_logged
from pyspark_mysql_cdc_wm.records.column import TableMap, key_names
from pyspark_mysql_cdc_wm.records.column_choice import ColumnChoice
from pyspark_mysql_cdc_wm.records.event_time_column import MOMENT
from pyspark_mysql_cdc_wm.records.layout import Layout, Mask
from pyspark_mysql_cdc_wm.records.statements import look_at_statements
from watermark_source.errors import DataLossError, SchemaError, UnsupportedFormatError
from watermark_source.planning.split import SplitRange
from watermark_source.spark.connector import ReadBatch, Relocation

_log = logging.getLogger(__name__)


class Part(Protocol):
    """What of the binlog is delivered, of the tables that are read at all."""

    def has(self, table: TableName) -> bool:
        """Return whether anything of a table is."""
        ...

    def has_any(self, database: str) -> bool:
        """Return whether anything of a database's tables may be."""
        ...

    def compares(self, table: TableMap) -> tuple[str, ...]:
        """Return the columns that ``keeps`` looks at."""
        ...

    def keeps(self, changes: Changes) -> Mask | None:
        """Return which of a table's images are; ``None`` is all."""
        ...


class Everything:
    """``Part`` that is all."""

    def has(self, table: TableName) -> bool:
        """Return that it is."""
        return True

    def has_any(self, database: str) -> bool:
        """Return that it is."""
        return True

    def compares(self, table: TableMap) -> tuple[str, ...]:
        """Return that it looks at none."""
        return ()

    def keeps(self, changes: Changes) -> None:
        """Return that all are."""


_EVERYTHING = Everything()


@dataclass(frozen=True, slots=True)
class Known:
    """The tables whose columns were found to fit the stream when the query began."""

    tables: frozenset[TableName]
    choice: ColumnChoice
    layout: Layout
    ignores_new_columns: bool

    def check(self, table: TableMap) -> None:
        """Check that a table which came later, and has no snapshot, has the stream's columns.

        Raises:
            SchemaError: it has others.
        """
        name = TableName(table.database, table.table)
        all_names = [str(column.name) for column in table.columns]
        if self.layout.event_time is not None and self.layout.event_time_of(all_names) is None:
            raise without_event_time(self.layout.event_time, name, None)
        names = set(filter(self.choice.has, all_names))
        if self.layout.choice is None and name not in self.tables and names != set(self.layout.names):
            raise SchemaError(
                f"the table {name}, which came after the query began, has the columns {', '.join(sorted(names))}, and "
                f"the stream {', '.join(self.layout.names)}. Set rowFormat to json, which takes any, choose columns "
                "they share by the option columns, or leave the table out of the option tables"
            )

    def compare(self, table: TableMap, has_now: Callable[[], Set[str]], altered_by: str | None) -> None:
        """Compare the columns of a table that was altered with the stream's.

        ``has_now`` asks the server which columns the table has. What is in one that it has no more nobody can have; a
        warning tells of it, once a process.

        Raises:
            SchemaError: the table has got columns that the stream has not, and they are not to be ignored.
        """
        name = TableName(table.database, table.table)
        if self.layout.choice is not None or name not in self.tables:
            return
        here, stream = set(filter(self.choice.has, (str(column.name) for column in table.columns))), self.layout.names
        if more := here.difference(stream):
            shown = f"{name} was altered{'' if altered_by is None else f' by {altered_by}'}: where the binlog is read "
            if not self.ignores_new_columns and (new := more & has_now()):
                raise SchemaError(
                    f"{shown}it has columns that the stream has not: {', '.join(sorted(new))}. Load the stream again "
                    "and start the query with its checkpoint: it goes on here, with the columns that the table has "
                    "now. Or set schemaChangeBehavior to ignore, to go on without them, or rowFormat to json in a new "
                    "query, which takes any"
                )
            _warn_once(
                f"{shown}it has columns that the stream has not: {', '.join(sorted(more))}. What is in them does not "
                "come"
            )
        if less := [each for each in stream if each not in here]:
            _warn_once(
                f"{name} was altered: where the binlog is read it lacks columns of the stream, which are null: "
                f"{', '.join(less)}"
            )


@lru_cache(maxsize=1_000)
def _warn_once(text: str) -> None:
    _log.warning("%s", text)


@dataclass(frozen=True, slots=True)
class BinlogRows:
    """Reads ranges of the binlog."""

    client: ClientSettings
    tables: Selection
    layout: Layout
    known: Known | None
    """``None`` to look at event times again, and at nothing that was checked when the rows were read."""
    fail_on_data_loss: bool
    relocation: Relocation | None = None
    batch_rows: int = 10_000

    def read(
        self, wanted: SplitRange, part: Part = _EVERYTHING, whole: SplitRange | None = None
    ) -> Iterator[ReadBatch]:
        """Yield the rows of a range; the last batch has none, and tells how far the log's time has come.

        Both its ends are between transactions, or else those of the ``whole`` that it is a piece of are; the log is
        then passed over from there on. An event is of the piece in which it ends.

        Raises:
            DataLossError: part of the range was purged, and ``fail_on_data_loss`` is set.
            SourceError: the server, the way to it, or the bytes it sent.
        """
        entered, shift, left_out = whole or wanted, 0, None
        if self.relocation is not None:
            shift, left_out = self.relocation.shift, self.relocation.left_out
        with closing(MySqlConnection(self.client)) as connection:
            status = LogStatus(connection)
            base = status.base()
            charsets = collations_of(connection).charsets
            start = entered.start
            if not self.fail_on_data_loss:
                start = self._still_there(status, base, entered)
            # Opened again if something is asked while the range is read.
            connection.close()
            # Commit times of all tables need no names.
            named = self.layout.names or self.layout.event_time is not None or part is not _EVERYTHING
            completed = LeastMetadata(connection, partial(self._reads, part)).completed if named else as_logged
            altered: dict[tuple[str, str], str] = {}
            needed = partial(self._needed, part, partial(columns_now, connection), altered)
            decoder = ChangeDecoder(charsets, needed, completed=completed, batch_rows=self.batch_rows)
            if left_out is None:
                blocks = dumped(self.client, base, start, entered.end)
            else:
                blocks = dumped_without(self.client, GtidSet.parse(left_out), wanted.end)
            if whole is not None:
                blocks = _of_piece(blocks, wanted, decoder, shift)
            try:
                for block in blocks:
                    if self.known is not None:
                        altered |= self._altered(block, part)
                    places = block.places + shift
                    for changes in decoder.decode(block.memory, block.events, block.file, places):
                        rows = self._rows(changes, part, altered)
                        if rows.rows:
                            yield ReadBatch(wanted.split, rows.rows, rows.columns, self._on_time(rows.event_time))
            except DataLossError:
                if self.fail_on_data_loss:
                    raise
                _log.warning(
                    "failOnDataLoss is false: the rest of %s was purged while it was read", _shown(wanted, base)
                )
            if self.layout.event_time is None:
                yield ReadBatch(wanted.split, 0, (), pa.nulls(0, MOMENT), reached=decoder.reached or None)

    def _on_time(self, times: pa.Array) -> pa.Array:
        """Return commit times of a new server, whose clock may be behind, as not before the watermark."""
        floor = None if self.relocation is None or self.layout.event_time is not None else self.relocation.floor
        if floor is None:
            return times
        return pc.max_element_wise(times.view(pa.int64()), floor * 1_000).view(MOMENT)

    def _needed(
        self,
        part: Part,
        columns: Callable[[TableName], Set[str]],
        altered: Mapping[tuple[str, str], str],
        table: TableMap,
    ) -> Collection[str] | None:
        """Return the columns of a table to decode, ``None`` if nobody reads it."""
        name = TableName(table.database, table.table)
        if not self._reads(part, name):
            return None
        if self.known is not None:
            if part is _EVERYTHING:
                self.known.check(table)
            self.known.compare(table, partial(columns, name), altered.get(name))
        looked_at = (*key_names(table), *part.compares(table))
        return self.layout.needed((str(column.name) for column in table.columns), looked_at)

    def _is_read(self, part: Part, database: str, table: str) -> bool:
        return self._reads(part, TableName(database, table))

    def _reads(self, part: Part, name: TableName) -> bool:
        return self.tables.matches(name) and part.has(name)

    def _rows(self, changes: Changes, part: Part, altered: Mapping[tuple[str, str], str]) -> ChangedRows:
        try:
            return changed_rows(changes, self.layout, part.keeps(changes))
        except UnsupportedFormatError as problem:
            by = altered.get((changes.table.database, changes.table.table))
            if by is None:
                raise
            raise UnsupportedFormatError(f"{problem}. It was altered by {by}") from problem

    def _altered(self, block: PlacedBlock, part: Part) -> Mapping[tuple[str, str], str]:
        """Return by which statements tables that are read were altered in a block."""
        concerns = partial(self._is_read, part)
        told = look_at_statements(block.memory, block.events, block.file, concerns)
        for database, table in sorted(told.dropped):
            _log.warning(
                "binlog %s: the table %s.%s was dropped; of the rows that were delivered of it no deletion comes",
                block.file, database, table,
            )  # fmt: skip
        for database in sorted(told.databases):
            if self.tables.may_be_in(database) and part.has_any(database):
                _log.warning(
                    "binlog %s: the database %s was dropped; of the rows that were delivered of its tables no deletion "
                    "comes", block.file, database,
                )  # fmt: skip
        return told.altered

    def _still_there(self, status: LogStatus, base: str, wanted: SplitRange) -> int:
        earliest = status.earliest()
        if earliest.number <= wanted.start:
            return wanted.start
        _log.warning(
            "failOnDataLoss is false: of %s, what is before %s was purged", _shown(wanted, base), earliest.shown(base)
        )
        return min(earliest.number, wanted.end)


def _shown(wanted: SplitRange, base: str) -> str:
    return wanted.shown(lambda _, position: LogPosition.of(position).shown(base))


def _of_piece(
    blocks: Iterator[PlacedBlock], piece: SplitRange, decoder: ChangeDecoder, shift: int
) -> Iterator[PlacedBlock]:
    """Yield the blocks of a piece, in which an event ends; those before it the decoder passes over."""
    for block in blocks:
        first, last = np.searchsorted(block.places, (piece.start, piece.end), side="right").tolist()
        if first:
            decoder.pass_over(block.memory, block.events[:first], block.file, block.places[:first] + shift)
        if first < last:
            yield block.between(first, last)
        if last < len(block.places):
            return
