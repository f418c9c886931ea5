"""A stream's columns: those of tables, or a whole row as one JSON text, and behind them those about changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.records.column_choice import ColumnChoice
from pyspark_mysql_cdc_wm.records.event_time_column import MOMENT, EventTimeColumn

CHANGE_COLUMNS: Mapping[str, pa.DataType] = {
    "_change_type": pa.string(),
    "_snapshot": pa.bool_(),
    "_commit_version": pa.int64(),
    "_change_number": pa.int64(),
    "_commit_timestamp": MOMENT,
    "_database": pa.string(),
    "_table": pa.string(),
}
"""What follows a table's own columns, but for those that are left out."""
ROW_COLUMN = "_row"

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

    @classmethod
    def of_json(
        cls,
        choice: ColumnChoice,
        event_time: EventTimeColumn | None = None,
        about: tuple[str, ...] = tuple(CHANGE_COLUMNS),
    ) -> Layout:
        """Return the layout of whole rows."""
        return cls((ROW_COLUMN,), (pa.string(),), choice, event_time, about)

    def delivered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return which of a table's columns, by their names in its order, are delivered."""
        return self.names if self.choice is None else tuple(name for name in names if self.choice.has(name))

    def needed(self, names: Iterable[str], key: Sequence[str]) -> tuple[str, ...]:
        """Return which of a table's columns must be read: event time included, and those that rows are compared by."""
        all_names = tuple(names)
        event_time = None if self.event_time is None else self.event_time.among(all_names)
        others = key if event_time is None else (event_time, *key)
        return tuple(dict.fromkeys((*self.delivered(all_names), *others)))
