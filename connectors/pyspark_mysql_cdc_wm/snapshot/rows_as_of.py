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

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.key_set import KeySet
from pyspark_mysql_cdc_wm.records.layout import Layout, Mask
from pyspark_mysql_cdc_wm.records.row_events import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from pyspark_mysql_cdc_wm.records.stream_rows import TableRows, integers, table_rows_of
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyRange
from pyspark_mysql_cdc_wm.snapshot.logged_key_order import LoggedOrder
from watermark_source.errors import UnsupportedFormatError

# What the last change of each key, up to a place of the binlog, left of it: a SELECT may not see that yet.
#
# A transaction is in the binlog before it is committed in the tables. Where a server does not tell what is committed
# (it has no GTIDs), all that is known is that the transactions of all files but the last are: a server begins a file
# when everything in those before it is committed, since it looks at the last one alone when it recovers from a crash.


_SLACK_ROWS = 100_000


class LastImages:
    """Takes images in, in the order of the binlog. Memory grows with the keys, not with their changes."""

    def __init__(self) -> None:
        self._keys: list[Sequence[pa.Array]] = []
        self._there: list[Mask] = []
        self._rows: list[TableRows] = []
        self._set = KeySet()
        self._images = 0

    @property
    def keys(self) -> KeySet:
        """Those that were changed."""
        self._forget_earlier()
        return self._set

    def add(self, key: Sequence[pa.Array], there: Mask, rows: TableRows) -> None:
        """Take in images of keys: whether the key is there after each, and its row."""
        if not len(there):
            return
        self._keys.append(key)
        self._there.append(there)
        self._rows.append(rows)
        self._images += len(there)
        if self._images > 2 * len(self._set) + _SLACK_ROWS:
            self._forget_earlier()

    def rows_but(self, others: KeySet) -> TableRows | None:
        """Return the rows that are there, but for those of some keys."""
        self._forget_earlier()
        if not self._keys:
            return None
        kept = self._there[0] & ~others.has(self._keys[0])
        return self._rows[0].take(integers(np.flatnonzero(kept), pa.int64()))

    def _forget_earlier(self) -> None:
        """Keep the last image of each key alone."""
        if self._images == len(self._set):
            return
        key = [pa.concat_arrays(parts) for parts in zip(*self._keys, strict=True)]
        backwards = np.arange(self._images)[::-1]
        self._set = KeySet()
        lasts = self._set.add([part.take(integers(backwards, pa.int64())) for part in key])
        at = np.sort(backwards[lasts])
        taken = integers(at, pa.int64())
        self._keys = [[part.take(taken) for part in key]]
        self._there = [np.concatenate(self._there)[at]]
        self._rows = [_together(self._rows).take(taken)]
        self._images = len(at)


def _together(rows: list[TableRows]) -> TableRows:
    columns = tuple(pa.concat_arrays(each) for each in zip(*(some.columns for some in rows), strict=True))
    times = [some.event_time for some in rows if some.event_time is not None]
    return TableRows(columns, pa.concat_arrays(times) if times else None)


class RollBack:
    """Undoes the changes of a range of keys after a place. Holds no rows, but all keys that were changed."""

    def __init__(self, layout: Layout, order: LoggedOrder, keys: KeyRange) -> None:
        self._layout = layout
        self._key: tuple[str, ...] | None = None
        self._order = order
        self.keys = keys
        """The range."""
        self._changed = KeySet()
        self._before = LastImages()
        self._types: tuple[pa.DataType, ...] | None = None

    def undone(self, changes: Changes) -> TableRows | None:
        """Return the rows that were there and have been changed by the next changes, in the order of the binlog.

        Raises:
            UnsupportedFormatError: the table had another primary key, or other columns, then.
        """
        at, key = self._inside(changes)
        if at.size:
            at = at[self._changed.add(key)]
        if not at.size:
            return None
        kinds = changes.images.kinds[at]
        was_there = integers(at[(kinds == UPDATE_BEFORE) | (kinds == DELETE)], pa.int64())
        return table_rows_of(changes, self._layout).take(was_there)

    def add_before(self, changes: Changes) -> None:
        """Take changes up to the place in that a SELECT may not see yet, in the order of the binlog.

        All of them come before any that is undone.

        Raises:
            UnsupportedFormatError: the table had another primary key, or other columns, then.
        """
        at, key = self._inside(changes)
        if not at.size:
            return
        kinds = changes.images.kinds[at]
        there = (kinds == INSERT) | (kinds == UPDATE_AFTER)
        rows = table_rows_of(changes, self._layout).take(integers(at, pa.int64()))
        self._before.add(key, there, rows)

    def untouched(self, key: Sequence[pa.Array]) -> npt.NDArray[np.int64] | None:
        """Return which rows of a SELECT, by their keys, are as they were, ``None`` if all are."""
        changed = [keys for keys in (self._changed, self._before.keys) if len(keys)]
        if not changed:
            return None
        own = self._of_one_type(key)
        kept = ~np.logical_or.reduce([keys.has(own) for keys in changed])
        return None if kept.all() else np.flatnonzero(kept)

    def rows_before(self) -> TableRows | None:
        """Return the rows that a SELECT may not have seen, of keys that were not changed after."""
        return self._before.rows_but(self._changed)

    def keyed_by(self, key: Sequence[str], table: str) -> None:
        """Take the primary key of a table, whose rows this is about, as it is next.

        Raises:
            UnsupportedFormatError: it was another one before.
        """
        if self._key is not None and self._key != tuple(key):
            raise UnsupportedFormatError(
                f"table {table} was altered while its snapshot was read: its primary key was ({', '.join(self._key)}) "
                f"and is ({', '.join(key)}). Begin a new query"
            )
        self._key = tuple(key)

    def _inside(self, changes: Changes) -> tuple[npt.NDArray[np.int64], Sequence[pa.Array]]:
        """Return which images are of keys of the range, and their keys; none without a key to know rows by."""
        self.keyed_by(changes.key, f"{changes.table.database}.{changes.table.table}")
        if not changes.key:
            return np.empty(0, np.int64), ()
        inside = np.flatnonzero(self._order.within(changes, self.keys))
        taken = integers(inside, pa.int64())
        return inside, self._of_one_type([changes.column(name).take(taken) for name in changes.key])

    def _of_one_type(self, key: Sequence[pa.Array]) -> Sequence[pa.Array]:
        """Check that a key is of the types that it had before."""
        types = tuple(part.type for part in key)
        if self._types is None:
            self._types = types
        elif types != self._types:
            raise UnsupportedFormatError(
                "a table was altered while its snapshot was read: its primary key "
                f"({', '.join(self._key or ())}) was of "
                f"({', '.join(map(str, self._types))}) and is of ({', '.join(map(str, types))}). Begin a new query"
            )
        return key
