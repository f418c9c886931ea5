"""``verify_copy`` and ``python -m watermark_source verify --mysql``: whether a copy of a table equals the server's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as in all of Spark's documentation

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, FIRST_OFFSET, file_number, position_number
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.options.mysql_option_table import FORMAT, OPTION_TABLE
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.server_side import ServerSide
from pyspark_mysql_cdc_wm.verifying.comparison import Compared, Difference, Kind, compare, counts, differences
from pyspark_mysql_cdc_wm.verifying.named_copy import loading
from pyspark_mysql_cdc_wm.verifying.verdict import Verdict
from watermark_source.connector import Relocation, SplitRange, WatermarkSourceError
from watermark_source.monitor.checkpoint import planned_state

__all__ = ["ASKED_FOR", "OPTIONS", "Difference", "Kind", "Verdict", "verify", "verify_copy"]

OPTIONS = OPTION_TABLE
ASKED_FOR = "password"
_EARLIER_BYTES = 2**30
"""How much of the binlog before the copy's position is read for earlier rows."""


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
        UnsupportedFormatError: a table without a primary key, a column that cannot be compared, a row longer than the
            server's ``max_allowed_packet``, MySQL without GTIDs, or more rows in the binlog since the checkpoint than
            are compared in memory.
        DataLossError: the server no longer has the binlog since the checkpoint.
        SourceError: the server cannot be reached, or refuses.
    """
    with ServerSide.of(checkpoint, options) as server:
        # Read once, and kept: the copy may be written meanwhile.
        kept = server.table.fingerprints(load(), server.pieces).localCheckpoint()
        # What was begun before it was read may be in it.
        with server.read(kept.sparkSession, planned_state(checkpoint, FORMAT)) as read:
            compared = compare(kept, read.rows, server.pieces, read.changed)
        status, stale = LogStatus(server.connection), set[str]()
        position = read.end.shown(status.base())
        if compared.wrong:
            stale = _stale(server, kept, compared, SplitRange(BINLOG, _earlier(status), read.end.number))
    found = differences(compared.wrong, stale, server.pieces)
    return Verdict(
        accepted=not found and not compared.unexamined,
        differences=tuple(found),
        unexamined=tuple(map(server.pieces.name, compared.unexamined)),
        summary=_summary(server.table.name, compared, found, len(read.changed), position),
    )


def verify(given: Mapping[str, str], copy: str, checkpoint: str, out: TextIO) -> bool:
    """Verify a copy named as FORMAT:PATH or table:NAME, print what differs and the summary; return whether it equals.

    Raises as ``verify_copy``.
    """
    with loading(copy) as load:
        return verify_copy(load, checkpoint=checkpoint, options=given).report(out)


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


def _stale(server: ServerSide, copy: DataFrame, compared: Compared, wanted: SplitRange) -> set[str]:
    """Return the keys that differ whose row in the copy is one that the server had in a range of the binlog."""
    spark = copy.sparkSession
    keys = spark.createDataFrame([(key,) for of in compared.wrong.values() for key in of], "key string")
    has = set(copy.join(F.broadcast(keys), "key", "left_semi").select("key", "sha").collect())
    found: set[str] = set()
    # Of another shape, or purged meanwhile: these rows are altered, whatever they were earlier.
    with suppress(WatermarkSourceError):
        for row in server.logged(spark, wanted, Relocation(server.connection.pin_server())):
            if (row["key"], row["sha"]) in has:
                found.add(row["key"])
    return found


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
