"""The order of changes by the columns whose ranges are chunks, with the columns that their table had in the binlog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.collations import Collations, collations_of
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns, described
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn, key_column
from pyspark_mysql_cdc_wm.records.labels_and_blobs import labels_of
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice, Mask
from pyspark_mysql_cdc_wm.records.table_definition import Column, TableMap, key_names, shown_names
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyOrder, KeyRange
from watermark_source.errors import OffsetError


def chunk_names(table: TableMap, choice: ColumnChoice) -> tuple[str, ...]:
    """Return the names of the columns whose ranges are chunks, as the table had them in the binlog."""
    name = f"{TableName(table.database, table.table)}"
    chosen = choice.chunk_column(name, shown_names(table))
    return key_names(table) if chosen is None else (chosen,)


class LoggedOrder:
    """Compares changes with bounds; uses the connection for collations, and to compare text on the server."""

    def __init__(self, connection: MySqlConnection, choice: ColumnChoice) -> None:
        self._connection = connection
        self._choice = choice
        self._collations: Collations | None = None
        self._now: dict[TableName, TableColumns | None] = {}

    def within(self, changes: Changes, wanted: KeyRange) -> Mask:
        """Return which row images are in a range.

        Raises:
            SourceError: the server cannot be reached, or refuses.
            OffsetError: the key column was altered since, or snapshotChunkColumn was changed.
        """
        if self._collations is None:
            self._collations = collations_of(self._connection)
        known = self._collations
        columns = {str(column.name): column for column in changes.table.columns}
        names = chunk_names(changes.table, self._choice)
        keys = [changes.column(name) for name in names]
        key = [_described(columns[name], values, known) for name, values in zip(names, keys, strict=True)]
        try:
            return KeyOrder(key, self._connection).within(keys, wanted)
        except OffsetError:
            if not any(column.labels for column in key):
                raise
            longer = self._with_labels_added_since(TableName(changes.table.database, changes.table.table), key)
            return KeyOrder(longer, self._connection).within(keys, wanted)

    def _with_labels_added_since(self, table: TableName, key: Sequence[KeyColumn]) -> list[KeyColumn]:
        """Return a key with the labels that were added since behind its own; a bound may be one of them.

        The digest in the bound shows whether the labels before it are still the same.
        """
        if table not in self._now:
            self._now[table] = described(self._connection, {table}, self._choice).get(table)
        now = self._now[table]
        labels = {} if now is None else {column.name: column.labels or () for column in now.chunk_columns}
        return [
            replace(column, labels=old + labels.get(column.name, ())[len(old) :]) if (old := column.labels) else column
            for column in key
        ]


def _described(column: Column, values: pa.Array, known: Collations) -> KeyColumn:
    return key_column(column, values.type, known.charsets, known.names, labels_of(column, known.charsets))
