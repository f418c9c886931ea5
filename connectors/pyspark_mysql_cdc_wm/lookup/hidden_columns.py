"""Columns that the binlog has of a table and the server does not describe to the user.

MariaDB keeps a hash for each unique key over a TEXT, BLOB or long VARCHAR in a column of its own (``DB_ROW_HASH_1``).
A user who was granted some columns of a table alone is not described the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.minimal_row_metadata import LeastMetadata
from pyspark_mysql_cdc_wm.lookup.table_columns import columns_now, refuse_versioned, versioned_error
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.table_definition import Column, TableMap
from pyspark_mysql_cdc_wm.records.type_codes import ColumnType

_HASH = re.compile(r"DB_ROW_HASH_\d+")
_PERIOD = ("row_start", "row_end")
"""What MariaDB calls the columns of a row's period, the last ones, where the table declares none."""


def as_described(
    connection: MySqlConnection, is_read: Callable[[TableName], bool], *, mariadb: bool, by_grants: bool
) -> Callable[[TableMap], TableMap]:
    """Return what puts on tables that are read what is not logged of them, and marks what is hidden."""
    least = LeastMetadata(connection, is_read)
    hidden = HiddenColumns(connection, mariadb=mariadb, by_grants=by_grants)
    return lambda table: hidden.marked(least.completed(table))


class HiddenColumns:
    """Marks the hidden columns of tables. Asks the server, on its connection, about the few that may have some."""

    def __init__(self, connection: MySqlConnection, *, mariadb: bool, by_grants: bool) -> None:
        """Take the connection; with ``by_grants`` the user may read some columns of a table and not others."""
        self._connection = connection
        self._mariadb = mariadb
        self._by_grants = by_grants

    def marked(self, table: TableMap) -> TableMap:
        """Return a table with its hidden columns marked.

        Raises:
            UnsupportedFormatError: the table keeps former rows (MariaDB, ``WITH SYSTEM VERSIONING``).
            SourceError: the server cannot be reached, or refuses.
        """
        if self._mariadb and _may_be_versioned(table.columns):
            refuse_versioned(self._connection, table.database, [table.table])
        hashes = [column.name for column in table.columns if self._mariadb and _may_be_hash(column)]
        period = self._mariadb and tuple(column.name for column in table.columns[-2:]) == _PERIOD
        if not (hashes or period or self._by_grants):
            return table
        name = TableName(table.database, table.table)
        shown = columns_now(self._connection, name)
        if period and not shown.intersection(_PERIOD):
            raise versioned_error(name)
        # Of a table that is not there any more nothing is described: no column of it was granted.
        suspects: Collection[str | None] = [each.name for each in table.columns] if self._by_grants else hashes
        hidden = {each for each in suspects if each not in shown}
        return replace(
            table, columns=tuple(replace(each, hidden=True) if each.name in hidden else each for each in table.columns)
        )


def _may_be_hash(column: Column) -> bool:
    return column.type is ColumnType.LONGLONG and column.name is not None and bool(_HASH.fullmatch(column.name))


def _may_be_versioned(columns: Collection[Column]) -> bool:
    """Return whether two columns may be a row's period: moments, or numbers of transactions."""
    moments = [each for each in columns if each.type is ColumnType.TIMESTAMP2 and each.precision == 6]
    numbers = [each for each in columns if each.type is ColumnType.LONGLONG and each.unsigned]
    return any(len([each for each in kind if not each.nullable]) > 1 for kind in (moments, numbers))
