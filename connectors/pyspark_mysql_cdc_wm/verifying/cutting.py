"""Cuts a table into pieces by its primary key: the server returns the keys at which ranges end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.arrow_types import WHOLE_NUMBERS
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn
from pyspark_mysql_cdc_wm.records.table_definition import ColumnType
from pyspark_mysql_cdc_wm.snapshot.chunk_bounds import key_after
from pyspark_mysql_cdc_wm.verifying.pieces import SIXTEENTHS, KeyHashes, KeyRanges, Pieces
from pyspark_mysql_cdc_wm.verifying.row_text import RowText

_PIECE_ROWS = 10_000
_MOST_PIECES = 2_048
_MOST_DIGITS = 3


def cut(connection: MySqlConnection, table: TableName, key: Sequence[KeyColumn], text: RowText, rows: int) -> Pieces:
    """Return a table with about so many rows in pieces, by its primary key."""
    size = max(_PIECE_ROWS, rows // _MOST_PIECES)
    if not _sorts_alike(key[0]):
        digits = next(n for n in range(_MOST_DIGITS + 1) if SIXTEENTHS**n * size >= rows or n == _MOST_DIGITS)
        return KeyHashes(text, tuple(column.name for column in key), digits)
    if not all(map(_sorts_alike, key)):
        # By the first column, whose values rows may share.
        key = [replace(key[0], chosen=True)]
    slow = (
        f"The statement looks up where a piece of {size} rows of {table} ends: repeat it when the server has less to do"
    )
    bounds: list[tuple[int | str, ...]] = []
    while upper := key_after(connection, table, key, bounds[-1] if bounds else None, size, if_slow=slow):
        bounds.append(upper)
    return KeyRanges(tuple(key), tuple(bounds))


def _sorts_alike(column: KeyColumn) -> bool:
    return (
        column.type in WHOLE_NUMBERS
        or column.is_binary
        or (column.type is ColumnType.NEWDECIMAL and column.can_be_ordered)
    )
