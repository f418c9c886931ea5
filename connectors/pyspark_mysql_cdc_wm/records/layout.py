"""The columns of a stream: which of a table's are delivered, and what follows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MOMENT = pa.timestamp("us", tz="UTC")
CHANGE_COLUMNS: Mapping[str, pa.DataType] = {
    "_change_type": pa.string(),
    "_commit_version": pa.int64(),
    "_change_number": pa.int64(),
    "_commit_timestamp": MOMENT,
    "_database": pa.string(),
    "_table": pa.string(),
}
"""What follows a table's own columns."""

Mask = npt.NDArray[np.bool_]


class Layout(NamedTuple):
    """Which columns of a table are delivered, and by which it is known that a row is the same as before."""

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    """Of the names."""
    key: tuple[str, ...]
    """Of the primary key; empty without one."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns to decode."""
        return tuple(dict.fromkeys((*self.names, *self.key)))
