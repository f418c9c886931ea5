"""What the last change of each key, up to a place of the binlog, left of it: a SELECT may not see that yet.

A transaction is in the binlog before it is committed in the tables. Where a server does not tell what is committed (it
has no GTIDs), all that is known is that the transactions of all files but the last are: a server begins a file when
everything in those before it is committed, since it looks at the last one alone when it recovers from a crash.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.records.change_columns import integers
from pyspark_mysql_cdc_wm.records.layout import Mask
from pyspark_mysql_cdc_wm.records.stream_columns import TableRows

ROW = "row"
"""The column beside those of a key that numbers it."""
_SLACK_ROWS = 100_000


class LastImages:
    """Takes images in, in the order of the binlog. Memory grows with the keys, not with their changes."""

    def __init__(self) -> None:
        self._keys: list[pa.Table] = []
        self._there: list[Mask] = []
        self._rows: list[TableRows] = []
        self._count = self._distinct = 0

    def add(self, keys: pa.Table, there: Mask, rows: TableRows) -> None:
        """Take in images of keys, each of which is among them once: whether the key is there after it, and its row."""
        if not keys.num_rows:
            return
        numbers = integers(np.arange(keys.num_rows) + self._count, pa.int64())
        self._keys.append(keys.drop_columns([ROW]).append_column(ROW, numbers))
        self._there.append(there)
        self._rows.append(rows)
        self._count += keys.num_rows
        if self._count > 2 * self._distinct + _SLACK_ROWS:
            self._forget_earlier()

    def forget(self) -> None:
        """Forget all: what was changed up to now is committed."""
        self.__init__()  # type: ignore[misc]

    @property
    def keys(self) -> pa.Table | None:
        """Those that were changed, ``None`` if none was."""
        self._forget_earlier()
        return self._keys[0].drop_columns([ROW]) if self._keys else None

    def rows_but(self, others: pa.Table | None) -> TableRows | None:
        """Return the rows that are there, but for those of some keys."""
        self._forget_earlier()
        if not self._keys:
            return None
        kept = self._keys[0]
        if others is not None:
            kept = kept.join(others, others.column_names, join_type="left anti", use_threads=False)
        at = np.sort(kept[ROW].to_numpy())
        return self._rows[0].take(integers(at[self._there[0][at]], pa.int64()))

    def _forget_earlier(self) -> None:
        """Keep the last image of each key alone."""
        if len(self._keys) > 1:
            keys = pa.concat_tables(self._keys)
            names = keys.column_names[:-1]
            lasts = keys.group_by(names, use_threads=False).aggregate([(ROW, "max")])
            lasts = lasts.select([*names, f"{ROW}_max"]).rename_columns([*names, ROW]).sort_by(ROW)
            at = lasts[ROW].to_numpy()
            self._rows = [_together(self._rows).take(integers(at, pa.int64()))]
            self._there = [np.concatenate(self._there)[at]]
            self._count = lasts.num_rows
            numbers = integers(np.arange(self._count), pa.int64())
            self._keys = [lasts.drop_columns([ROW]).append_column(ROW, numbers)]
        self._distinct = self._count


def _together(rows: list[TableRows]) -> TableRows:
    columns = tuple(pa.concat_arrays(each) for each in zip(*(some.columns for some in rows), strict=True))
    times = [some.event_time for some in rows if some.event_time is not None]
    return TableRows(columns, pa.concat_arrays(times) if times else None)
