"""What a table held at a place of the binlog: what its rows were before the first change after that place.

Of a key that was changed since, the first row image after the place tells: a row before an update or deletion was
there, one after an insert or update was not. This holds whatever a SELECT of a later moment sees, so the result is the
same on every replay. Where it may not see yet what lies before the place, the last row image of a key up to there
tells, if it was not changed after.

A range may be of another column than the key's, which rows enter and leave: the images of a key that count are those in
the range, and one that leaves it has an image there before the update, as one that is deleted.

Two keys are the same if their bytes are. Where a collation takes 'a' and 'A' for equal, an update of one to the other
is the end of one key and the beginning of another, which is what the binlog tells of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.records.change_columns import integers, table_rows_of
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.key_column import comparable
from pyspark_mysql_cdc_wm.records.layout import Layout
from pyspark_mysql_cdc_wm.records.rows import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from pyspark_mysql_cdc_wm.records.stream_columns import TableRows
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyRange
from pyspark_mysql_cdc_wm.snapshot.last_images import ROW, LastImages
from pyspark_mysql_cdc_wm.snapshot.logged_order import LoggedOrder
from watermark_source.errors import UnsupportedFormatError


class RollBack:
    """Collects the changes of a range of keys after a place, then undoes them. Memory grows with the keys changed."""

    def __init__(self, layout: Layout, key: Sequence[str], order: LoggedOrder, keys: KeyRange) -> None:
        self._layout = layout
        self._key = tuple(key)
        self._order = order
        self.keys = keys
        """The range."""
        self._changed: pa.Table | None = None
        self._before = LastImages()
        self._altered: UnsupportedFormatError | None = None
        self._rows: list[TableRows] = []

    def add(self, changes: Changes) -> None:
        """Take the next changes in, in the order of the binlog.

        Raises:
            UnsupportedFormatError: the table had another primary key, or other columns, then.
        """
        if (altered := self._other_key(changes)) is not None:
            raise altered
        firsts, names = self._each(changes, "min")
        if self._changed is not None:
            firsts = firsts.join(self._changed, names, join_type="left anti", use_threads=False)
        if not firsts.num_rows:
            return
        new = firsts.drop_columns([ROW])
        self._changed = new if self._changed is None else pa.concat_tables([self._changed, new])
        at = np.sort(firsts[ROW].to_numpy())
        kinds = changes.images.kinds[at]
        was_there = integers(at[(kinds == UPDATE_BEFORE) | (kinds == DELETE)], pa.int64())
        self._rows.append(table_rows_of(changes, self._layout).take(was_there))

    def add_before(self, changes: Changes) -> None:
        """Take changes up to the place in that a SELECT may not see yet, in the order of the binlog."""
        if (altered := self._other_key(changes)) is not None:
            # Of no matter if the statement that altered it comes before the place.
            self._altered = altered
            return
        lasts, _ = self._each(changes, "max")
        at = lasts[ROW].to_numpy()
        kinds = changes.images.kinds[at]
        there = (kinds == INSERT) | (kinds == UPDATE_AFTER)
        rows = table_rows_of(changes, self._layout).take(integers(at, pa.int64()))
        self._before.add(lasts, there, rows)

    def forget_before(self) -> None:
        """Forget the changes up to the place so far: a statement that had to wait for them came after them."""
        self._before.forget()
        self._altered = None

    def untouched(self, key: Sequence[pa.Array]) -> npt.NDArray[np.int64] | None:
        """Return which rows of a SELECT, by their keys, are as they were, ``None`` if all are.

        Raises:
            UnsupportedFormatError: the table had another primary key shortly before the place.
        """
        if self._altered is not None:
            raise self._altered
        changed = [keys for keys in (self._changed, self._before.keys) if keys is not None]
        if not changed:
            return None
        found = kept = _numbered(key, np.arange(len(key[0])))
        for keys in changed:
            kept = kept.join(keys, keys.column_names, join_type="left anti", use_threads=False)
        return None if kept.num_rows == found.num_rows else np.sort(kept[ROW].to_numpy())

    @property
    def rows(self) -> Iterator[TableRows]:
        """Those that were there, of keys that were changed."""
        yield from self._rows
        if (rows := self._before.rows_but(self._changed)) is not None:
            yield rows

    def _each(self, changes: Changes, which: str) -> tuple[pa.Table, list[str]]:
        """Return the keys of the range that were changed, each with the number of its first or last image."""
        parts = [changes.column(name) for name in self._key]
        inside = np.flatnonzero(self._order.within(changes, self.keys))
        touched = _numbered([part.take(integers(inside, pa.int64())) for part in parts], inside)
        names = touched.column_names[:-1]
        found = touched.group_by(names, use_threads=False).aggregate([(ROW, which)])
        return found.select([*names, f"{ROW}_{which}"]).rename_columns([*names, ROW]), names

    def _other_key(self, changes: Changes) -> UnsupportedFormatError | None:
        if changes.key == self._key:
            return None
        return UnsupportedFormatError(
            f"table {changes.table.database}.{changes.table.table} was altered while its snapshot was read: its "
            f"primary key was ({', '.join(changes.key)}) and is ({', '.join(self._key)}). Begin a new query"
        )


def _numbered(key: Sequence[pa.Array], rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return keys, a column a part, and a number for each."""
    parts = {f"part {number}": comparable(part) for number, part in enumerate(key)}
    return pa.table({**parts, ROW: rows})
