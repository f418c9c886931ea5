"""``verify_copy`` and ``python -m watermark_source verify --mysql``: whether a copy of a table equals the server's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO, cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as in all of Spark's documentation
from pyspark.sql.types import StructType

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, FIRST_OFFSET, file_number, position_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions, wait_until_visible
from pyspark_mysql_cdc_wm.lookup.replicas import MySqlReplica
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns
from pyspark_mysql_cdc_wm.options import mysql_options
from pyspark_mysql_cdc_wm.options.mysql_option_table import FORMAT, OPTION_TABLE
from pyspark_mysql_cdc_wm.options.tables import TableName, TableReading, quoted
from pyspark_mysql_cdc_wm.snapshot.chunk_bounds import rows_now
from pyspark_mysql_cdc_wm.snapshot.consistent_view import ConsistentView
from pyspark_mysql_cdc_wm.source import MySqlSource
from pyspark_mysql_cdc_wm.verifying.comparison import Compared, Difference, Kind, compare, counts, differences
from pyspark_mysql_cdc_wm.verifying.logged_rows import CHANGE_TYPE, logged_rows, states_of
from pyspark_mysql_cdc_wm.verifying.pieces import Pieces, Rows, cut
from pyspark_mysql_cdc_wm.verifying.row_text import RowText
from watermark_source.connector import (
    OffsetError,
    RelocatedRangeReader,
    Relocation,
    SplitRange,
    UnsupportedFormatError,
    UsageError,
    WatermarkSourceError,
)
from watermark_source.errors import reason_of
from watermark_source.monitor.checkpoint import committed_state, planned_state
from watermark_source.planning.snapshot_ranges import completed
from watermark_source.planning.state import SourceState

__all__ = ["ASKED_FOR", "OPTIONS", "Difference", "Kind", "Verdict", "verify", "verify_copy"]

OPTIONS = OPTION_TABLE
ASKED_FOR = "password"
_STATEMENT_SECONDS = 3_600
"""Limit for the fingerprint of one piece."""
_EARLIER_BYTES = 2**30
"""How much of the binlog before the copy's position is read for earlier rows."""
_WHOLE = "whole "
"""The column that is false for a row of a copy with a value that the stream's type does not hold. No column of a server
ends with a space."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a copy equals the server's table."""

    accepted: bool
    differences: tuple[Difference, ...]
    """Rows that differ, by the ranges of keys that have any; of the first twenty ranges."""
    unexamined: tuple[str, ...]
    """The other ranges that differ."""
    summary: str
    """One sentence."""


def verify_copy(load: Callable[[], DataFrame], *, checkpoint: str | Path, options: Mapping[str, str]) -> Verdict:
    """Compare a copy of a table with the server, while the query that writes it may run and the table is written.

    Both sides are compared by the fingerprints of ranges of the primary key, and rows by their keys in ranges that
    differ. A key that changed since the checkpoint's last committed batch must have a row that it had since.

    Args:
        load: loads the copy, after the checkpoint was read: one row for each row of the table, with the primary key.
            Columns are compared in the types of the stream; a value that its type does not hold differs.
        checkpoint: the checkpoint of the query that writes the copy, a local folder.
        options: those of the source. ``tables`` names the one table, ``columns`` the columns to compare (default: all).

    Raises:
        UsageError: the copy lacks a column, or the checkpoint is not one of a query over the table.
        UnsupportedFormatError: a table without a primary key, a column that cannot be compared, MySQL without GTIDs,
            or more rows in the binlog since the checkpoint than are compared in memory.
        DataLossError: the server no longer has the binlog since the checkpoint.
        SourceError: the server cannot be reached, or refuses.
    """
    parsed = mysql_options.parse(options)
    client = replace(parsed.client, answer_seconds=_STATEMENT_SECONDS)
    source = MySqlSource.of(replace(parsed, client=client, fail_on_data_loss=True))
    table = _VerifiedTable.of(source)
    state = committed_state(checkpoint, FORMAT)
    first = [reading.table for reading in map(TableReading.of, completed(state.snapshots)) if reading.label is None]
    if state.snapshots.complete is not None and source.tables.key(table.name) not in map(source.tables.key, first):
        raise UsageError(f"{checkpoint}: the snapshot of {table.name} is not complete. Verify the copy when it is")
    copy = table.selected(load())
    with closing(MySqlConnection(source.options.client)) as connection:
        rows = rows_now(connection, {table.name}).get(table.name, 0)
        pieces = cut(connection, table.name, table.columns.key_columns, table.key, rows)
        # Read once, and kept: the copy may be written meanwhile.
        kept = table.with_fingerprints(copy, pieces, F.expr(f"IF(`{_WHOLE}`, {table.row.spark}, NULL)"))
        kept = kept.localCheckpoint()
        since = _Since.of(connection, state, planned_state(checkpoint, FORMAT), source)
        with closing(ConsistentView(source.options.client)) as view:
            if not view.hold({table.name}):
                raise UsageError(f"{table.name} was dropped")
            end = LogStatus(connection).end()
            log = _Log(copy.sparkSession, source, table, pieces)
            changes = log.rows(SplitRange(BINLOG, since.start, end.number), since.relocation)
            changed = states_of(_keeping_alive(view, changes))
            compared = compare(kept, Rows(table.name, table.key, table.row, view.select), pieces, changed)
        earlier = SplitRange(BINLOG, _earlier(LogStatus(connection)), end.number)
        stale = log.stale(kept, compared, earlier, since.relocation.copy) if compared.wrong else set[str]()
        shown = end.shown(LogStatus(connection).base())
    found = differences(compared.wrong, stale, pieces)
    return Verdict(
        accepted=not found and not compared.unexamined,
        differences=tuple(found),
        unexamined=tuple(map(pieces.name, compared.unexamined)),
        summary=_summary(table.name, compared, found, len(changed), shown),
    )


def verify(given: Mapping[str, str], copy: str, checkpoint: str, out: TextIO) -> bool:
    """Verify a copy named as FORMAT:PATH or table:NAME, print what differs and the summary; return whether it equals.

    Raises as ``verify_copy``.
    """
    form, colon, place = copy.partition(":")
    if not colon or not place:
        raise UsageError(
            f"--copy {copy}: expected the copy's format and path, such as parquet:/lake/orders, or table:NAME"
        )
    spark = SparkSession.builder.getOrCreate()
    try:
        verdict = verify_copy(
            lambda: spark.table(place) if form == "table" else spark.read.format(form).load(place),
            checkpoint=checkpoint,
            options=given,
        )
    except PySparkException as error:
        raise UsageError(f"--copy {copy} cannot be read: {reason_of(error)}") from error
    for difference in verdict.differences:
        out.write(f"{difference}\n")
    for piece in verdict.unexamined:
        out.write(f"{piece}: rows differ\n")
    out.write(f"{verdict.summary}\n")
    return verdict.accepted


def _summary(table: TableName, compared: Compared, found: Sequence[Difference], changed: int, position: str) -> str:
    moved = f"; {changed} keys that changed since its checkpoint were each compared with the rows they had since"
    if not found and not compared.unexamined:
        return f"accepted: the copy has the {compared.rows} rows of {table} at {position}{moved if changed else ''}"
    ranges = len(compared.wrong) + len(compared.unexamined)
    rest = [f"no row of {len(compared.unexamined)} of these ranges is named"] if compared.unexamined else []
    return (
        f"rejected: the copy differs from {table} at {position} in {ranges} of {compared.pieces} ranges: "
        f"{'; '.join([counts(found)] * bool(found) + rest)}"
    )


@dataclass(frozen=True, slots=True)
class _VerifiedTable:
    """The table, and the texts of its rows and keys."""

    name: TableName
    columns: TableColumns
    schema: StructType
    """The columns that are compared, as the stream has them."""
    key: RowText
    row: RowText

    @classmethod
    def of(cls, source: MySqlSource) -> _VerifiedTable:
        if len(source.checked) != 1 or source.options.as_json:
            raise UsageError("expected the option tables to name one table, such as shop.orders, and rowFormat columns")
        ((name, columns),) = source.checked.items()
        if not columns.key:
            raise UnsupportedFormatError(f"{name} has no primary key, by which rows could be compared")
        delivered = [each.lower() for each in source.layout.names]
        if lacking := [each for each in columns.key if each.lower() not in delivered]:
            raise UsageError(f"the primary key's column {lacking[0]} is left out; add it to the option columns")
        by_name, types = columns.by_name, columns.type_by_name
        whole = {each: (by_name[each], types[each]) for each in sorted(by_name) if each.lower() in delivered}
        where = f"table {name}"
        key = RowText.of((whole[each] for each in columns.key), where)
        schema = StructType(source.columns.fields[: len(source.layout.names)])
        return cls(name, columns, schema, key, RowText.of(whole.values(), where))

    def selected(self, copy: DataFrame) -> DataFrame:
        """Return the copy's columns in the stream's types, and ``_WHOLE``."""
        kinds = {field.name.lower(): field.dataType for field in copy.schema}
        if lacking := [name for name in self.schema.names if name.lower() not in kinds]:
            raise UsageError(
                f"the copy has no column {lacking[0]}; it has {', '.join(copy.columns)}. Rename its columns as the "
                "table's, or name those to compare by the option columns"
            )
        values: list[Column] = []
        whole = F.expr("true")
        for each in self.schema:
            value, kind = F.col(quoted(each.name)), kinds[each.name.lower()]
            if kind.simpleString() != each.dataType.simpleString():
                given, value = value, value.try_cast(each.dataType)
                whole &= value.try_cast(kind).eqNullSafe(given)
            values.append(value.alias(each.name))
        return copy.select(*values, whole.alias(_WHOLE))

    def with_fingerprints(self, rows: DataFrame, pieces: Pieces, text: Column, *others: str) -> DataFrame:
        """Return ``piece``, ``key``, ``sha`` and ``crc`` of rows with a text, and others of their columns."""
        piece, key = pieces.number.alias("piece"), F.expr(self.key.spark).alias("key")
        texts = rows.select(piece, key, text.alias("row"), *others)
        sha, crc = self.row.spark_parts("row")
        return texts.selectExpr("piece", "key", f"{sha} AS sha", f"{crc} AS crc", *others)


@dataclass(frozen=True, slots=True)
class _Since:
    """Where the binlog goes on behind what a copy has."""

    start: int
    relocation: Relocation

    @classmethod
    def of(cls, connection: MySqlConnection, state: SourceState, planned: SourceState, source: MySqlSource) -> _Since:
        """Return where to read behind a state; all before it is visible in a SELECT.

        The server has what is before ``planned`` too: a copy that was read before this may have rows of it.

        Raises:
            OffsetError: the checkpoint is of another server, and there are no GTIDs to tell what it has read, or the
                server lacks transactions that the query has read.
            UnsupportedFormatError: MySQL without GTIDs does not report what is visible.
            DataLossError: transactions that come next were purged.
        """
        status, system, origin = LogStatus(connection), connection.pin_server(), state.origin
        transactions = Transactions.of(connection, status)
        if transactions is not None and origin is not None and origin.done is not None:
            replica = MySqlReplica(connection, status, transactions, system, None)
            replica.begin(None if planned.origin is None else planned.origin.done)
            return cls(replica.begin(origin.done), Relocation(system, left_out=origin.done))
        if not connection.is_mariadb:
            raise UnsupportedFormatError(
                f"{connection.settings.where} and the checkpoint need GTIDs (gtid_mode = ON): without them MySQL does "
                "not report which transactions a SELECT sees"
            )
        if origin is not None and origin.copy != system:
            raise OffsetError(f"the checkpoint is of another server ({origin.copy}) than {system}")
        wait_until_visible(connection)
        return cls(state.splits[BINLOG].position - (0 if origin is None else origin.shift), Relocation(system))


@dataclass(frozen=True, slots=True)
class _Log:
    """The binlog's rows of a table, with their fingerprints."""

    spark: SparkSession
    source: MySqlSource
    table: _VerifiedTable
    pieces: Pieces

    def rows(self, wanted: SplitRange, relocation: Relocation) -> Iterator[Row]:
        """Yield the key, piece and fingerprint of each row that a range of the binlog has."""
        layout = replace(self.source.layout, about=(CHANGE_TYPE,))
        reader = cast("RelocatedRangeReader", replace(self.source, layout=layout).range_reader)
        return logged_rows(
            self.spark,
            reader.relocated(relocation).read([wanted]),
            self.table.schema,
            lambda rows: self.table.with_fingerprints(rows, self.pieces, F.expr(self.table.row.spark), CHANGE_TYPE),
        )

    def stale(self, copy: DataFrame, compared: Compared, wanted: SplitRange, system: str) -> set[str]:
        """Return the keys that differ whose row in the copy is one that the server had in a range of the binlog."""
        keys = self.spark.createDataFrame([(key,) for of in compared.wrong.values() for key in of], "key string")
        has = set(copy.join(F.broadcast(keys), "key", "left_semi").select("key", "sha", "crc").collect())
        found: set[str] = set()
        # Of another shape, or purged meanwhile: these rows are altered, whatever they were earlier.
        with suppress(WatermarkSourceError):
            for row in self.rows(wanted, Relocation(system)):
                if (row["key"], row["sha"], row["crc"]) in has:
                    found.add(row["key"])
        return found


def _keeping_alive(view: ConsistentView, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield rows, and keep the view's connection open meanwhile."""
    for row in rows:
        view.keep_alive()
        yield row


def _earlier(status: LogStatus) -> int:
    """Return where the last gibibyte of the binlog begins, at the beginning of a file."""
    sizes = status.sizes()
    begin, left = next(reversed(sizes)), _EARLIER_BYTES
    for file in reversed(sizes):
        left -= sizes[file]
        if left < 0:
            break
        begin = file
    return position_number(file_number(begin), FIRST_OFFSET)
