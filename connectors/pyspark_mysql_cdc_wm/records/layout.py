"""A stream's columns: those of tables, or a whole row as one JSON text, and behind them those about changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# The column of tables that is event time, and the moments that its values are.


MOMENT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class EventTimeColumn:
    """A TIMESTAMP or DATETIME column, by its name in any case."""

    name: str
    zone: str = "UTC"
    """Whose clocks a DATETIME is of."""

    def __str__(self) -> str:
        zone = "" if self.zone == "UTC" else f" ({self.zone})"
        return f"eventTimeColumn = {self.name.lower()}{zone}"

    def among(self, names: Iterable[str]) -> str | None:
        """Return which of the names is this column's, as it is spelled there."""
        return next((name for name in names if name.lower() == self.name.lower()), None)

    def moments(self, values: pa.Array) -> pa.Array:
        """Return the column's values as ``MOMENT``.

        Of an hour that clocks show twice the first is meant; an hour that they leave out is the moment it is left out.

        Raises:
            pyarrow.ArrowInvalid: there is no such zone here.
        """
        if values.type.tz is None:
            values = pc.assume_timezone(values, self.zone, ambiguous="earliest", nonexistent="latest")
        return values.cast(MOMENT)


# Which columns of tables the user wants, and for what.


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

    def has_change_column(self, name: str) -> bool:
        """Return whether a column about changes is wanted: all are that are not named to be left out."""
        return name not in map(str.lower, self.without)

    def reads(self, name: str) -> bool:
        """Return whether a column is wanted, or is event time."""
        return self.has(name) or (self.event_time is not None and self.event_time.among([name]) is not None)


CHANGE_COLUMNS: Mapping[str, pa.DataType] = {
    "_change_type": pa.string(),
    "_snapshot": pa.bool_(),
    "_commit_version": pa.int64(),
    "_change_number": pa.int64(),
    "_commit_timestamp": MOMENT,
    "_database": pa.string(),
    "_table": pa.string(),
}
"""The stream's columns behind the table's own, without those that are left out."""
WHOLE_ROWS = (("_row",), (pa.string(),))
"""The name and the type of the only column where it is a row's JSON text."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Layout:
    """The stream's columns that come of tables' own."""

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    choice: ColumnChoice | None = None
    """Which columns are in the JSON text that is the only column; ``None`` where tables' columns are the stream's."""
    event_time: EventTimeColumn | None = None
    """``None``: commit times are event time."""
    about: tuple[str, ...] = tuple(CHANGE_COLUMNS)
    """Which of ``CHANGE_COLUMNS`` there are."""

    def delivered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return which of a table's columns, by their names in its order, are delivered.

        The stream's columns come in its order, each as the table spells it: names of columns have no case.
        """
        if self.choice is not None:
            return tuple(name for name in names if self.choice.has(name))
        spelled = {name.lower(): name for name in names}
        return tuple(spelled.get(name.lower(), name) for name in self.names)

    def needed(self, names: Iterable[str], key: Sequence[str]) -> tuple[str, ...]:
        """Return which of a table's columns must be read: event time included, and those that rows are compared by."""
        all_names = tuple(names)
        event_time = None if self.event_time is None else self.event_time.among(all_names)
        others = key if event_time is None else (event_time, *key)
        return tuple(dict.fromkeys((*self.delivered(all_names), *others)))
