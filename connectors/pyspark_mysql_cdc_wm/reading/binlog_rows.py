"""The rows of a range of the binlog: the changes to the tables that are read, in the order of the binlog."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet, LogPosition
from pyspark_mysql_cdc_wm.binlog.statement_effects import LoggedStatements, Unlogged
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, TransactionStarts, dumped, dumped_without
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.collations import collations_of
from pyspark_mysql_cdc_wm.lookup.rights import Rights, readable_columns
from pyspark_mysql_cdc_wm.lookup.table_columns import as_described
from pyspark_mysql_cdc_wm.lookup.table_list import is_sequence
from pyspark_mysql_cdc_wm.lookup.xa_transactions import with_prepared
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.reading.delivered_tables import EVERYTHING, DeliveredTables, Part
from pyspark_mysql_cdc_wm.reading.schema_changes import (
    Known,
    PresentNames,
    altered_in,
    changes_between,
    check_unpacked,
)
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder, Changes, as_logged
from pyspark_mysql_cdc_wm.records.layout import MOMENT, Layout
from pyspark_mysql_cdc_wm.records.stream_rows import ChangedRows, changed_rows
from pyspark_mysql_cdc_wm.records.table_definition import TableMap, key_names, shown_names
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.contract.stream import Relocation
from watermark_source.errors import DataLossError, UnsupportedFormatError
from watermark_source.planning.split import SplitRange

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BinlogRows:
    """Reads ranges of the binlog."""

    client: ClientSettings
    tables: Selection
    layout: Layout
    known: Known | None
    """``None`` when event times are read again, since the columns were checked when the rows were read."""
    fail_on_data_loss: bool
    unlogged: Unlogged
    """What to do at statements that changed rows without logging them."""
    run: str = ""
    """Identifies the start of the query; see ``changes_between``."""
    relocation: Relocation | None = None
    batch_rows: int = 10_000

    def read(self, wanted: SplitRange, part: Part = EVERYTHING, whole: SplitRange | None = None) -> Iterator[ReadBatch]:
        """Yield the rows of a range; the last batch is empty and has the highest commit time that was reached.

        Both ends of the range are between transactions, or it is a piece of ``whole``, whose ends are. The dump then
        begins where ``whole`` does, and events before the piece are skipped. An event belongs to the piece in which it
        ends. With MariaDB, which may roll back a transaction at its end, it belongs to the piece in which its
        transaction begins.

        Raises:
            DataLossError: part of the range was purged, and ``fail_on_data_loss`` is set.
            SourceError: the server cannot be reached, or refuses, or sent bytes that cannot be read.
        """
        entered, shift, left_out = whole or wanted, 0, None
        if self.relocation is not None:
            shift, left_out = self.relocation.shift, self.relocation.left_out
        with closing(MySqlConnection(self.client)) as connection:
            status = LogStatus(connection)
            base = status.base()
            charsets = collations_of(connection).charsets
            start = entered.start
            # A dump by GTIDs does not depend on where the range begins.
            if not self.fail_on_data_loss and left_out is None:
                start = self._available_start(status, base, entered)
            whole_transactions = connection.is_mariadb
            rights = Rights(connection)
            delivers = DeliveredTables(
                self.tables, part, rights, frozenset() if self.known is None else self.known.tables
            )
            # Commit times need no column names.
            named = self.layout.names or self.layout.event_time is not None or part is not EVERYTHING
            names = PresentNames(
                self.tables, lambda: status.end().number,
                ignores_unfollowed=self.unlogged.statements is LoggedStatements.IGNORED,
            )  # fmt: skip
            described = as_described(connection, lambda name: delivers(*name), names.note_described, rights)
            completed = described if named else as_logged
            altered: dict[tuple[str, str], str] = {}
            needed = partial(self._needed, part, connection, rights, altered)
            decoder = ChangeDecoder(
                charsets,
                needed,
                reads=delivers,
                completed=completed,
                inspect=None if self.known is None else partial(check_unpacked, delivers, self.unlogged),
                batch_rows=self.batch_rows,
            )
            if left_out is None:
                blocks = dumped(self.client, base, start, entered.end)
            else:
                blocks = dumped_without(self.client, base, GtidSet.parse(left_out), wanted.end)
            blocks = with_prepared(
                blocks, self.client, base, start=start if left_out is None else None,
                fail_on_data_loss=self.fail_on_data_loss,
            )  # fmt: skip
            blocks = names.watch(blocks)
            if whole is not None:
                blocks = _of_piece(blocks, wanted, decoder, shift, start if whole_transactions else None)
            try:
                for block in blocks:
                    if self.known is not None:
                        altered |= altered_in(block, delivers, self.unlogged, self.known)
                    places = block.places + shift
                    for changes in decoder.decode(
                        block.memory, block.events, block.file, places, prepared=block.prepared
                    ):
                        rows = self._rows(changes, part, altered)
                        if rows.rows:
                            times = rows.event_time if whole_transactions else self._on_time(rows.event_time)
                            yield ReadBatch(wanted.split, rows.rows, rows.columns, times)
                names.check(partial(changes_between, self.run, self.client, base, entered.end))
            except DataLossError:
                if self.fail_on_data_loss:
                    raise
                _log.warning(
                    "failOnDataLoss=false: skipping the rest of %s, which was purged while it was read",
                    _shown(wanted, base),
                )
            if self.layout.event_time is None:
                yield ReadBatch(wanted.split, 0, (), pa.nulls(0, MOMENT), reached=decoder.reached or None)

    def _on_time(self, times: pa.Array) -> pa.Array:
        """Return commit times raised to the watermark: the clock of a new server may be behind, or was set back.

        It is not used for MariaDB, which logs the start times of statements, and these are in no order.
        """
        floor = None if self.relocation is None or self.layout.event_time is not None else self.relocation.floor
        if floor is None:
            return times
        return pc.max_element_wise(times.view(pa.int64()), floor * 1_000).view(MOMENT)

    def _needed(
        self,
        part: Part,
        connection: MySqlConnection,
        rights: Rights,
        altered: Mapping[tuple[str, str], str],
        table: TableMap,
    ) -> Collection[str] | None:
        """Return the columns to decode of a table that is read; ``None`` for a sequence, which snapshots leave out."""
        if is_sequence(connection, table):
            return None
        name = TableName(table.database, table.table)
        if self.known is not None:
            if part is EVERYTHING:
                self.known.check(table)
            self.known.check_readable(name, {column.name for column in table.columns if column.hidden}, rights)
            self.known.compare_logged(table, partial(readable_columns, connection, name), altered.get(name))
        compared = (*key_names(table), *part.compares(table))
        return self.layout.needed(shown_names(table), compared)

    def _rows(self, changes: Changes, part: Part, altered: Mapping[tuple[str, str], str]) -> ChangedRows:
        try:
            return changed_rows(changes, self.layout, part.keeps(changes))
        except UnsupportedFormatError as problem:
            by = altered.get((changes.table.database, changes.table.table))
            if by is None:
                raise
            raise UnsupportedFormatError(f"{problem}. It was altered by {by}") from problem

    def _available_start(self, status: LogStatus, base: str, wanted: SplitRange) -> int:
        earliest = status.earliest()
        if earliest.number <= wanted.start:
            return wanted.start
        _log.warning(
            "failOnDataLoss=false: of %s, skipping what is before %s, which was purged",
            _shown(wanted, base),
            earliest.shown(base),
        )
        return min(earliest.number, wanted.end)


def _shown(wanted: SplitRange, base: str) -> str:
    return wanted.shown(lambda _, position: LogPosition.of(position).shown(base))


def _of_piece(
    blocks: Iterator[PlacedBlock], piece: SplitRange, decoder: ChangeDecoder, shift: int, entered: int | None
) -> Iterator[PlacedBlock]:
    """Yield the events that end in a piece; the decoder skips the events before it.

    If ``entered``, the position at which the dump begins, is given, yield whole transactions that begin in the piece.
    """
    starts = TransactionStarts(entered or 0)
    for block in blocks:
        places = block.places
        if entered is not None:
            begins, before = starts.of(block)
            begun = np.concatenate((np.array([entered], np.int64), before))
            entered = int(begun[-1])
            places = np.repeat(begun + 1, np.diff(begins, prepend=0, append=len(places)))
        first, last = np.searchsorted(places, (piece.start, piece.end), side="right").tolist()
        if first:
            decoder.pass_over(
                block.memory, block.events[:first], block.file, block.places[:first] + shift, prepared=block.prepared
            )
        if first < last:
            yield block.between(first, last)
        if last < len(block.places):
            return
