"""What the last change of each key, up to a place of the binlog, left of it: a SELECT may not see that yet.

A transaction is in the binlog before it is committed in the tables. Where a server does not tell what is committed (it
has no GTIDs), all that is known is that the transactions of all files but the last are: a server begins a file when
everything in those before it is committed, since it looks at the last one alone when it recovers from a crash.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.records.change_columns import integers
from pyspark_mysql_cdc_wm.records.key_set import KeySet
from pyspark_mysql_cdc_wm.records.layout import Mask
from pyspark_mysql_cdc_wm.records.stream_rows import TableRows

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
