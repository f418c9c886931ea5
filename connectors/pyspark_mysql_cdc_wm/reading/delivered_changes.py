"""What of a range of the binlog is delivered: all, or what a reader of chunks chooses."""

from __future__ import annotations

from typing import Protocol

from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.layout import Mask
from pyspark_mysql_cdc_wm.records.table_definition import TableMap


class Part(Protocol):
    """What of the binlog is delivered, of the tables that are read at all."""

    def has(self, table: TableName) -> bool:
        """Return whether anything of a table is."""
        ...

    def has_any(self, database: str) -> bool:
        """Return whether anything of a database's tables may be."""
        ...

    def compares(self, table: TableMap) -> tuple[str, ...]:
        """Return the columns that ``keeps`` looks at."""
        ...

    def keeps(self, changes: Changes) -> Mask | None:
        """Return which of a table's images are; ``None`` is all."""
        ...


class Everything:
    """``Part`` that is all."""

    def has(self, table: TableName) -> bool:
        """Return that it is."""
        return True

    def has_any(self, database: str) -> bool:
        """Return that it is."""
        return True

    def compares(self, table: TableMap) -> tuple[str, ...]:
        """Return that it looks at none."""
        return ()

    def keeps(self, changes: Changes) -> None:
        """Return that all are."""


EVERYTHING = Everything()


def is_read(tables: Selection, part: Part, name: TableName) -> bool:
    """Return whether anything of a table is delivered."""
    return tables.matches(name) and part.has(name)
