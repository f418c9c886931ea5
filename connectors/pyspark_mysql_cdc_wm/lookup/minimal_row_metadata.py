"""What a server leaves out of the binlog with ``binlog_row_metadata = MINIMAL``, as it describes its tables now.

Names of columns, labels of ENUM and SET, the primary key. It is right for a table that was not altered since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.table_columns import DescribedColumn, all_columns, declared_labels
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.arrow_types import INTEGERS, STRINGS
from pyspark_mysql_cdc_wm.records.table_definition import Column, KeyPart, TableMap
from pyspark_mysql_cdc_wm.records.type_codes import ColumnType
from watermark_source.errors import UnsupportedFormatError

_UTF8MB4 = 45
"""A collation that every server has under this number: descriptions are in that character set."""
_NOT_SHOWN = "?"
_MENDS = "On the server: SET GLOBAL binlog_row_metadata = 'FULL'; and begin a new query"
_LABELLED = (ColumnType.ENUM, ColumnType.SET)
_VARIABLE = (ColumnType.VARCHAR, ColumnType.VAR_STRING)


class LeastMetadata:
    """Puts on tables of the binlog what is not logged of them."""

    def __init__(self, connection: MySqlConnection, is_read: Callable[[TableName], bool]) -> None:
        """Take the connection to ask, and whether a table is read: of others nothing is asked."""
        self._connection = connection
        self._is_read = is_read

    def completed(self, table: TableMap) -> TableMap:
        """Return a table with names, labels and key; itself if it has them, or is not read.

        Raises:
            UnsupportedFormatError: the table is not what it was at its place in the binlog.
            SourceError: the server cannot be reached, or refuses.
        """
        name = TableName(table.database, table.table)
        if all(column.name is not None for column in table.columns) or not self._is_read(name):
            return table
        columns, key = all_columns(self._connection, name)
        if not columns:
            raise _altered(name, "it is not there now")
        if len(columns) != len(table.columns):
            raise _altered(name, f"it has {len(table.columns)} columns there, and {len(columns)} now")
        for logged, now in zip(table.columns, columns, strict=True):
            if now.column is None or not _alike(logged, now.column):
                raise _altered(name, f"the column {now.name} was of another type, and is {now.declared} now")
            if logged.type in _LABELLED and _NOT_SHOWN in now.declared:
                raise UnsupportedFormatError(
                    f"table {name} column {now.name}: a label of {now.declared} has a {_NOT_SHOWN}, which the server "
                    f"shows for characters beyond U+FFFF as well, and binlog_row_metadata is MINIMAL. {_MENDS}"
                )
        names = [column.name for column in columns]
        return replace(
            table,
            columns=tuple(_completed(logged, now) for logged, now in zip(table.columns, columns, strict=True)),
            primary_key=tuple(KeyPart(names.index(part.name), part.prefix) for part in key) or None,
        )


def _completed(logged: Column, now: DescribedColumn) -> Column:
    if logged.type not in _LABELLED:
        return replace(logged, name=now.name)
    return replace(logged, name=now.name, labels=declared_labels(now.declared), collation=_UTF8MB4)


def _alike(logged: Column, now: Column) -> bool:
    """Return whether a column's type is what it was, as far as it is logged."""
    kind = ColumnType.VARCHAR if logged.type in _VARIABLE else logged.type
    if kind is not now.type:
        return False
    if kind in INTEGERS:
        return logged.unsigned == now.unsigned
    if kind in STRINGS:
        return logged.collation == now.collation
    bits = kind is not ColumnType.BIT or logged.length == now.length
    return bits and (logged.precision, logged.scale) == (now.precision, now.scale)


def _altered(name: TableName, what: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"table {name} was altered after this place of the binlog: {what}. binlog_row_metadata was MINIMAL there, so "
        f"the binlog does not tell the names of columns. {_MENDS}"
    )
