"""What a table held at a place of the binlog: what its rows were before the first change after that place.

Of a key that was changed since, the first row image after the place tells: a row before an update or deletion was
there, one after an insert or update was not. This holds whatever a SELECT of a later moment sees, so the result is the
same on every replay.

Two keys are the same if their bytes are. Where a collation takes 'a' and 'A' for equal, an update of one to the other
is the end of one key and the beginning of another, which is what the binlog tells of both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.records.change_columns import integers, table_rows_of
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.key_set import KeySet
from pyspark_mysql_cdc_wm.records.layout import Layout
from pyspark_mysql_cdc_wm.records.rows import DELETE, UPDATE_BEFORE
from pyspark_mysql_cdc_wm.records.stream_columns import TableRows
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyOrder, KeyRange
from watermark_source.errors import UnsupportedFormatError


class RollBack:
    """Undoes the changes of a range of keys after a place. Holds no rows, but all keys that were changed."""

    def __init__(self, layout: Layout, key: Sequence[str], order: KeyOrder, keys: KeyRange) -> None:
        self._layout = layout
        self._key = tuple(key)
        self._order = order
        self.keys = keys
        """The range."""
        self._changed = KeySet()
        self._types: tuple[pa.DataType, ...] | None = None

    def undone(self, changes: Changes) -> TableRows | None:
        """Return the rows that were there and have been changed by the next changes, in the order of the binlog.

        Raises:
            UnsupportedFormatError: the table had another primary key, or other columns, then.
        """
        if changes.key != self._key:
            raise UnsupportedFormatError(
                f"table {changes.table.database}.{changes.table.table} was altered while its snapshot was read: its "
                f"primary key was ({', '.join(changes.key)}) and is ({', '.join(self._key)}). Begin a new query"
            )
        parts = self._of_one_type([changes.column(name) for name in self._key])
        inside = np.flatnonzero(self._order.within(parts, self.keys))
        at = inside[self._changed.add([part.take(integers(inside, pa.int64())) for part in parts])]
        if not at.size:
            return None
        kinds = changes.images.kinds[at]
        was_there = integers(at[(kinds == UPDATE_BEFORE) | (kinds == DELETE)], pa.int64())
        return table_rows_of(changes, self._layout).take(was_there)

    def untouched(self, key: Sequence[pa.Array]) -> npt.NDArray[np.int64] | None:
        """Return which rows of a SELECT, by their keys, have not been changed since, ``None`` if none have."""
        if not len(self._changed):
            return None
        changed = self._changed.has(self._of_one_type(key))
        return np.flatnonzero(~changed) if changed.any() else None

    def _of_one_type(self, key: Sequence[pa.Array]) -> Sequence[pa.Array]:
        """Check that a key is of the types that it had before."""
        types = tuple(part.type for part in key)
        if self._types is None:
            self._types = types
        elif types != self._types:
            raise UnsupportedFormatError(
                f"a table was altered while its snapshot was read: its primary key ({', '.join(self._key)}) was of "
                f"({', '.join(map(str, self._types))}) and is of ({', '.join(map(str, types))}). Begin a new query"
            )
        return key
