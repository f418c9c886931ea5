"""The order of changes by what chunks are ranges of, with the columns that their table had in the binlog."""

from __future__ import annotations

import pyarrow as pa

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.collations import Collations, collations_of
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.column import Column, TableMap, key_names
from pyspark_mysql_cdc_wm.records.column_choice import ColumnChoice
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn, key_column
from pyspark_mysql_cdc_wm.records.labels import labels_of
from pyspark_mysql_cdc_wm.records.layout import Mask
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyOrder, KeyRange


def chunk_names(table: TableMap, choice: ColumnChoice) -> tuple[str, ...]:
    """Return the columns that chunks of a table are ranges of, of those it had in the binlog."""
    name = f"{TableName(table.database, table.table)}"
    chosen = choice.chunk_column(name, (str(column.name) for column in table.columns))
    return key_names(table) if chosen is None else (chosen,)


class LoggedOrder:
    """Compares changes with bounds. Asks the server on its connection where its character sets or its order matter."""

    def __init__(self, connection: MySqlConnection, choice: ColumnChoice) -> None:
        self._connection = connection
        self._choice = choice
        self._collations: Collations | None = None

    def within(self, changes: Changes, wanted: KeyRange) -> Mask:
        """Return which images are in a range.

        Raises:
            SourceError: the server cannot be reached, or refuses.
            OffsetError: what the table's chunks are ranges of was altered since, or chosen anew.
        """
        if self._collations is None:
            self._collations = collations_of(self._connection)
        known = self._collations
        columns = {str(column.name): column for column in changes.table.columns}
        names = chunk_names(changes.table, self._choice)
        keys = [changes.column(name) for name in names]
        key = [_described(columns[name], values, known) for name, values in zip(names, keys, strict=True)]
        return KeyOrder(key, self._connection).within(keys, wanted)


def _described(column: Column, values: pa.Array, known: Collations) -> KeyColumn:
    return key_column(column, values.type, known.charsets, known.names, labels_of(column, known.charsets))
