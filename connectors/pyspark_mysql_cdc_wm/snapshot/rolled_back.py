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
from pyspark_mysql_cdc_wm.records.key_column import comparable
from pyspark_mysql_cdc_wm.records.layout import Layout
from pyspark_mysql_cdc_wm.records.rows import DELETE, UPDATE_BEFORE
from pyspark_mysql_cdc_wm.records.stream_columns import TableRows
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyRange
from pyspark_mysql_cdc_wm.snapshot.logged_order import LoggedOrder
from watermark_source.errors import UnsupportedFormatError

_ROW = "row"


class RollBack:
    """Collects the changes of a range of keys after a place, then undoes them. Memory grows with the keys changed."""

    def __init__(self, layout: Layout, key: Sequence[str], order: LoggedOrder, keys: KeyRange) -> None:
        self._layout = layout
        self._key = tuple(key)
        self._order = order
        self.keys = keys
        """The range."""
        self._changed: pa.Table | None = None
        self.rows: list[TableRows] = []
        """Those that were there and have been changed since."""

    def add(self, changes: Changes) -> None:
        """Take the next changes in, in the order of the binlog.

        Raises:
            UnsupportedFormatError: the table had another primary key, or other columns, then.
        """
        if changes.key != self._key:
            raise UnsupportedFormatError(
                f"table {changes.table.database}.{changes.table.table} was altered while its snapshot was read: its "
                f"primary key was ({', '.join(changes.key)}) and is ({', '.join(self._key)}). Begin a new query"
            )
        parts = [changes.column(name) for name in self._key]
        inside = np.flatnonzero(self._order.within(changes, self.keys))
        touched = _numbered([part.take(integers(inside, pa.int64())) for part in parts], inside)
        names = touched.column_names[:-1]
        firsts = touched.group_by(names, use_threads=False).aggregate([(_ROW, "min")])
        firsts = firsts.select([*names, f"{_ROW}_min"]).rename_columns([*names, _ROW])
        if self._changed is not None:
            firsts = firsts.join(self._changed, names, join_type="left anti", use_threads=False)
        if not firsts.num_rows:
            return
        new = firsts.drop_columns([_ROW])
        self._changed = new if self._changed is None else pa.concat_tables([self._changed, new])
        at = np.sort(firsts[_ROW].to_numpy())
        kinds = changes.images.kinds[at]
        was_there = integers(at[(kinds == UPDATE_BEFORE) | (kinds == DELETE)], pa.int64())
        self.rows.append(table_rows_of(changes, self._layout).take(was_there))

    def untouched(self, key: Sequence[pa.Array]) -> npt.NDArray[np.int64] | None:
        """Return which rows of a SELECT, by their keys, have not been changed since, ``None`` if none have."""
        if self._changed is None:
            return None
        found = _numbered(key, np.arange(len(key[0])))
        kept = found.join(self._changed, found.column_names[:-1], join_type="left anti", use_threads=False)
        return None if kept.num_rows == found.num_rows else np.sort(kept[_ROW].to_numpy())


def _numbered(key: Sequence[pa.Array], rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return keys, a column a part, and a number for each."""
    parts = {f"part {number}": comparable(part) for number, part in enumerate(key)}
    return pa.table({**parts, _ROW: rows})
