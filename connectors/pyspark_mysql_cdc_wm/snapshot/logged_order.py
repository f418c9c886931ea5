"""The order of changes by the primary key, whose columns are those that their table had in the binlog."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pyspark_mysql_cdc_wm.client.charsets import charsets_of, collations_of
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.column import Column
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn, key_column
from pyspark_mysql_cdc_wm.records.labels import labels_of
from pyspark_mysql_cdc_wm.records.layout import Mask
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyOrder, KeyRange


class LoggedOrder:
    """Compares changes with bounds. Asks the server on its connection where its character sets or its order matter."""

    def __init__(self, connection: MySqlConnection) -> None:
        self._connection = connection
        self._charsets: Mapping[int, str] = {}
        self._collations: Mapping[int, str] = {}

    def within(self, changes: Changes, wanted: KeyRange) -> Mask:
        """Return which images are of keys in a range.

        Raises:
            SourceError: the server cannot be reached, or refuses.
            OffsetError: the table's primary key was altered since.
        """
        if not self._collations:
            self._charsets, self._collations = charsets_of(self._connection), collations_of(self._connection)
        columns = {str(column.name): column for column in changes.table.columns}
        keys = [changes.column(name) for name in changes.key]
        key = [self._described(columns[name], values) for name, values in zip(changes.key, keys, strict=True)]
        return KeyOrder(key, self._connection).within(keys, wanted)

    def _described(self, column: Column, values: pa.Array) -> KeyColumn:
        return key_column(column, values.type, self._charsets, self._collations, labels_of(column, self._charsets))
