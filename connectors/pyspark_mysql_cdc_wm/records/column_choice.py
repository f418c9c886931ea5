"""Which columns of tables the user wants, and for what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark_mysql_cdc_wm.records.event_time_column import EventTimeColumn


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The columns that the user wants, by names in any case."""

    only: tuple[str, ...] | None = None
    """``None`` is all."""
    without: tuple[str, ...] = ()
    event_time: EventTimeColumn | None = None
    """``None``: rows have the time of their commit."""
    chunked_by: tuple[tuple[str | None, str], ...] = ()
    """By which column snapshots are cut, of a table (``database.table``) or, with ``None``, of all that have it."""

    def chunk_column(self, table: str, columns: Iterable[str]) -> str | None:
        """Return the column that a table's snapshot is cut by, of those it has; ``None``: by its primary key."""
        spelled = {name.lower(): name for name in columns}
        by_table = {None if of is None else of.lower(): name for of, name in self.chunked_by}
        wanted = by_table.get(table.lower(), by_table.get(None))
        return None if wanted is None else spelled.get(wanted.lower())

    def has(self, name: str) -> bool:
        """Return whether a column is wanted."""
        lowered = name.lower()
        wanted = self.only is None or lowered in map(str.lower, self.only)
        return wanted and lowered not in map(str.lower, self.without)

    def tells(self, name: str) -> bool:
        """Return whether a column about changes is wanted: all are that are not named to be left out."""
        return name not in map(str.lower, self.without)

    def reads(self, name: str) -> bool:
        """Return whether a column is wanted, or is event time."""
        return self.has(name) or (self.event_time is not None and self.event_time.among([name]) is not None)
