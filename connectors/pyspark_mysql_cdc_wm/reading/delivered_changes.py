"""Which changes of a range of the binlog are delivered: all, or during a snapshot those of chunks that were read."""

from __future__ import annotations

from typing import Protocol

from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.layout import Mask
from pyspark_mysql_cdc_wm.records.table_definition import TableMap


class Part(Protocol):
    """The part of the changes to tables that are read which is delivered."""

    def has(self, table: TableName) -> bool:
        """Return whether any change to a table is delivered."""
        ...

    def has_any(self, database: str) -> bool:
        """Return whether any change to a database's tables may be delivered."""
        ...

    def compares(self, table: TableMap) -> tuple[str, ...]:
        """Return the names of the columns that ``keeps`` reads."""
        ...

    def keeps(self, changes: Changes) -> Mask | None:
        """Return which row images are delivered; ``None`` for all."""
        ...


class Everything:
    """The ``Part`` that delivers all changes."""

    def has(self, table: TableName) -> bool:
        """Return true."""
        return True

    def has_any(self, database: str) -> bool:
        """Return true."""
        return True

    def compares(self, table: TableMap) -> tuple[str, ...]:
        """Return no columns."""
        return ()

    def keeps(self, changes: Changes) -> None:
        """Return ``None``, which keeps all images."""


EVERYTHING = Everything()


def is_read(tables: Selection, part: Part, name: TableName) -> bool:
    """Return whether a table is read, and any of its changes is delivered."""
    return tables.matches(name) and part.has(name)
