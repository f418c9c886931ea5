"""The rows of a table as of a position of the binlog: a later SELECT, with the changes since the position undone.

For a key that was changed after the position, the first row image after it decides: an image before an update or
deletion shows that the row existed, an image after an insert or update that it did not. This does not depend on what
the SELECT sees, so the result is the same on every replay. Where a SELECT may not see all transactions before the
position, the last row image up to the position decides for keys that were not changed after it.

A range may be of another column than the key's, so that rows enter and leave it. Only the images in the range count: a
row that leaves the range has an image before the update in it, like a row that is deleted.

Two keys are equal if their bytes are equal. Where a collation treats 'a' and 'A' as equal, an update from one to the
other ends one key and begins another, as in the binlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.collations import Collations, collations_of
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns, described
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.arrow_types import LONGEST_DECIMAL
from pyspark_mysql_cdc_wm.records.changes import Changes
from pyspark_mysql_cdc_wm.records.key_column import KeyColumn, key_column
from pyspark_mysql_cdc_wm.records.key_set import KeySet
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice, Layout, Mask
from pyspark_mysql_cdc_wm.records.row_events import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from pyspark_mysql_cdc_wm.records.stream_rows import TableRows, integers, table_rows_of
from pyspark_mysql_cdc_wm.records.table_definition import Column, TableMap, key_names, shown_names
from pyspark_mysql_cdc_wm.records.text_columns import labels_of
from pyspark_mysql_cdc_wm.snapshot.key_order import KeyOrder
from watermark_source.errors import OffsetError, UnsupportedFormatError
from watermark_source.planning.snapshot_ranges import Chunk

# The order of changes by the columns whose ranges are chunks, with the columns that their table had in the binlog.


def chunk_names(table: TableMap, choice: ColumnChoice) -> tuple[str, ...]:
    """Return the names of the columns whose ranges are chunks, as the table had them in the binlog."""
    name = f"{TableName(table.database, table.table)}"
    chosen = choice.chunk_column(name, shown_names(table))
    return key_names(table) if chosen is None else (chosen,)


class LoggedOrder:
    """Compares changes with bounds; uses the connection for collations, and to compare text on the server."""

    def __init__(self, connection: MySqlConnection, choice: ColumnChoice) -> None:
        self._connection = connection
        self._choice = choice
        self._now: dict[TableName, TableColumns | None] = {}

    def within(self, changes: Changes, wanted: Chunk) -> Mask:
        """Return which row images are in a range.

        Raises:
            SourceError: the server cannot be reached, or refuses.
            OffsetError: the key column was altered since, or snapshotChunkColumn was changed.
        """
        known = collations_of(self._connection)
        columns = {str(column.name): column for column in changes.table.columns}
        names = chunk_names(changes.table, self._choice)
        keys = [changes.column(name) for name in names]
        key = [_described(columns[name], values, known) for name, values in zip(names, keys, strict=True)]
        try:
            return KeyOrder(key, self._connection).within(keys, wanted)
        except OffsetError:
            if not any(column.labels for column in key):
                raise
            longer = self._with_labels_added_since(TableName(changes.table.database, changes.table.table), key)
            return KeyOrder(longer, self._connection).within(keys, wanted)

    def _with_labels_added_since(self, table: TableName, key: Sequence[KeyColumn]) -> list[KeyColumn]:
        """Return a key with the labels that were added since behind its own; a bound may be one of them.

        The digest in the bound shows whether the labels before it are still the same.
        """
        if table not in self._now:
            self._now[table] = described(self._connection, {table}, self._choice).get(table)
        now = self._now[table]
        labels = {} if now is None else {column.name.lower(): column.labels or () for column in now.chunk_columns}
        return [
            replace(column, labels=old + labels.get(column.name.lower(), ())[len(old) :])
            if (old := column.labels)
            else column
            for column in key
        ]


def _described(column: Column, values: pa.Array, known: Collations) -> KeyColumn:
    return key_column(column, values.type, known.charsets, known.names, labels_of(column, known.charsets))


_SLACK_ROWS = 100_000


class LastImages:
    """The last row image of each key up to a position of the binlog, which a SELECT may not see yet.

    A transaction is written to the binlog before it is committed in the tables. A server without GTIDs does not report
    which transactions are committed; it is only known that those of all files but the last are. A server begins a file
    when all transactions in previous files are committed, because crash recovery reads only the last one.

    Images are added in the order of the binlog. Memory grows with the keys, not with their changes.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Sequence[pa.Array], Mask, TableRows]] = []
        """Keys, whether the row exists after each, and the rows."""
        self._set = KeySet()
        self._images = 0

    @property
    def keys(self) -> KeySet:
        """The keys that were changed."""
        self._drop_earlier()
        return self._set

    def add(self, key: Sequence[pa.Array], exists: Mask, rows: TableRows) -> None:
        """Add row images of keys, and whether the row exists after each."""
        if not len(exists):
            return
        self._parts.append((key, exists, rows))
        self._images += len(exists)
        if self._images > 2 * len(self._set) + _SLACK_ROWS:
            self._drop_earlier()

    def rows_except(self, others: KeySet) -> TableRows | None:
        """Return the existing rows, except those whose keys are in ``others``."""
        self._drop_earlier()
        if not self._parts:
            return None
        ((key, exists, rows),) = self._parts
        return rows.take(integers(np.flatnonzero(exists & ~others.has(key)), pa.int64()))

    def _drop_earlier(self) -> None:
        """Keep only the last image of each key."""
        if self._images == len(self._set):
            return
        keys, exists, rows = zip(*self._parts, strict=True)
        key = [pa.concat_arrays(parts) for parts in zip(*keys, strict=True)]
        backwards = np.arange(self._images)[::-1]
        self._set = KeySet()
        lasts = self._set.add([part.take(integers(backwards, pa.int64())) for part in key])
        last = np.sort(backwards[lasts])
        indices = integers(last, pa.int64())
        whole = [part.take(indices) for part in key], np.concatenate(exists)[last], _concatenated(rows).take(indices)
        self._parts = [whole]
        self._images = len(last)


def _concatenated(rows: Sequence[TableRows]) -> TableRows:
    columns = tuple(pa.concat_arrays(arrays) for arrays in zip(*(part.columns for part in rows), strict=True))
    times = [part.event_time for part in rows if part.event_time is not None]
    return TableRows(columns, pa.concat_arrays(times) if times else None)


class RollBack:
    """Undoes the changes after a position to a range of keys. It stores no rows, but all keys that were changed."""

    def __init__(self, table: TableName, layout: Layout, order: LoggedOrder, keys: Chunk) -> None:
        self._table = table
        self._layout = layout
        self._key: tuple[str, ...] | None = None
        self._order = order
        self.keys = keys
        """The range of keys."""
        self._changed = KeySet()
        self._before = LastImages()
        self._types: tuple[pa.DataType, ...] | None = None

    def undone(self, changes: Changes) -> TableRows | None:
        """Return the rows that existed at the position and that the next changes, in binlog order, change first.

        Raises:
            UnsupportedFormatError: the table had another primary key, or other columns, at these changes.
        """
        images, key = self._inside(changes)
        if images.size:
            images = images[self._changed.add(key)]
        if not images.size:
            return None
        kinds = changes.images.kinds[images]
        existed = integers(images[(kinds == UPDATE_BEFORE) | (kinds == DELETE)], pa.int64())
        return table_rows_of(changes, self._layout).take(existed)

    def add_before(self, changes: Changes) -> None:
        """Add, in binlog order and before ``undone``, changes up to the position that a SELECT may not see yet.

        Raises:
            UnsupportedFormatError: the table had another primary key, or other columns, at these changes.
        """
        images, key = self._inside(changes)
        if not images.size:
            return
        kinds = changes.images.kinds[images]
        exists = (kinds == INSERT) | (kinds == UPDATE_AFTER)
        rows = table_rows_of(changes, self._layout).take(integers(images, pa.int64()))
        self._before.add(key, exists, rows)

    def untouched(self, key: Sequence[pa.Array]) -> npt.NDArray[np.int64] | None:
        """Return the indices of rows of a SELECT whose keys were not changed, ``None`` if none was changed."""
        changed = [keys for keys in (self._changed, self._before.keys) if len(keys)]
        if not changed:
            return None
        own = self._of_one_type(key)
        kept = ~np.logical_or.reduce([keys.has(own) for keys in changed])
        return None if kept.all() else np.flatnonzero(kept)

    def rows_before(self) -> TableRows | None:
        """Return the rows that a SELECT may not have seen, for keys that were not changed after the position."""
        return self._before.rows_except(self._changed)

    def check_key(self, key: Sequence[str]) -> None:
        """Check that the table's primary key is still the same.

        Raises:
            UnsupportedFormatError: it differs from the previous one.
        """
        if self._key is not None and [*map(str.lower, self._key)] != [*map(str.lower, key)]:
            raise UnsupportedFormatError(
                f"table {self._table} was altered while its snapshot was read: its primary key was "
                f"({', '.join(self._key)}) and is ({', '.join(key)}). Begin a new query"
            )
        self._key = tuple(key)

    def _inside(self, changes: Changes) -> tuple[npt.NDArray[np.int64], Sequence[pa.Array]]:
        """Return the indices of images in the range, and their keys; none for a table without a primary key."""
        self.check_key(changes.key)
        if not changes.key:
            return np.empty(0, np.int64), ()
        inside = np.flatnonzero(self._order.within(changes, self.keys))
        indices = integers(inside, pa.int64())
        return inside, self._of_one_type([changes.column(name).take(indices) for name in changes.key])

    def _of_one_type(self, key: Sequence[pa.Array]) -> Sequence[pa.Array]:
        """Return the key, of the widest types, after checking that these are the previous ones."""
        key = [part.cast(_widest(part.type)) for part in key]
        types = tuple(part.type for part in key)
        if self._types is None:
            self._types = types
        elif types != self._types:
            raise UnsupportedFormatError(
                f"table {self._table} was altered while its snapshot was read: its primary key "
                f"({', '.join(self._key or ())}) was of ({', '.join(map(str, self._types))}) and is of "
                f"({', '.join(map(str, types))}). Begin a new query"
            )
        return key


def _widest(kind: pa.DataType) -> pa.DataType:
    """Return a type in which a key is the same value after its column was widened, as INT is to BIGINT UNSIGNED."""
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return pa.decimal128(LONGEST_DECIMAL, kind.scale if pa.types.is_decimal(kind) else 0)
    return pa.float64() if pa.types.is_floating(kind) else kind
