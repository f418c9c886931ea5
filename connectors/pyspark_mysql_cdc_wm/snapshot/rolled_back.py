"""What a table held at a place of the binlog: what its rows were before the first change after that place.

Of a key that was changed since, the first row image after the place tells: a row before an update or deletion was
there, one after an insert or update was not. This holds whatever a SELECT of a later moment sees, so the result is the
same on every replay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.records.change_columns import Layout, integers, table_columns_of
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.key_numbers import Keys, key_numbers, within
from pyspark_mysql_cdc_wm.records.rows import DELETE, UPDATE_BEFORE


class KeyRange(NamedTuple):
    """Keys from ``lower`` on and below ``upper``; ``None`` is no limit."""

    lower: int | None
    upper: int | None


class RollBack:
    """Collects the changes of a range of keys after a place, then undoes them. Memory grows with the keys changed."""

    def __init__(self, layout: Layout, keys: KeyRange) -> None:
        self._layout = layout
        self._keys = keys
        self._changed: Keys | None = None
        self.rows: list[tuple[pa.Array, ...]] = []
        """The table's columns of rows that were there and have been changed since."""

    def add(self, changes: Changes) -> None:
        """Take the next changes in, in the order of the binlog."""
        keys = key_numbers(changes.columns[changes.names.index(self._layout.key[0])])
        inside = np.flatnonzero(within(keys, *self._keys))
        found, first = np.unique(keys[inside], return_index=True)
        if self._changed is not None:
            new = ~np.isin(found, self._changed)
            found, first = found[new], first[new]
        if not found.size:
            return
        self._changed = found if self._changed is None else np.sort(np.concatenate((self._changed, found)))
        at = inside[first]
        kinds = changes.images.kinds[at]
        was_there = integers(at[(kinds == UPDATE_BEFORE) | (kinds == DELETE)], pa.int64())
        self.rows.append(tuple(each.take(was_there) for each in table_columns_of(changes, self._layout)))

    def untouched(self, key: pa.Array) -> npt.NDArray[np.int64] | None:
        """Return which rows of a SELECT have not been changed since, ``None`` if none have."""
        if self._changed is None:
            return None
        changed = np.isin(key_numbers(key), self._changed)
        return np.flatnonzero(~changed) if changed.any() else None
