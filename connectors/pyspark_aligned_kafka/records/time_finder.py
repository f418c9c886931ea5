"""The finder of event times in one place of each record: what it is given, and what it finds."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from pyspark_aligned_kafka.records.record_fields import Located
from watermark_source.planning.split import Split

_SHOWN = 80
"""Bytes."""


class Records(NamedTuple):
    """Located records of one partition, and what is known of them already."""

    split: Split
    data: Bytes
    located: Located
    offsets: Longs
    timestamps: pa.Array


class Found(NamedTuple):
    """Event times: microseconds, and 1 where there is none; ``missing`` of those."""

    micros: Longs
    wrong: npt.NDArray[np.uint8]
    missing: int


class TimeFinder(Protocol):
    """Finds event times in one place of each record."""

    def find(self, records: Records) -> Found:
        """Return the event times of all records."""
        ...

    def absent(self, records: Records) -> npt.NDArray[np.bool_]:
        """Return which records have nothing in that place, of those that were looked at last."""
        ...

    def seen(self, records: Records, row: int) -> str:
        """Return what is in the place of a row's event time, for a message."""
        ...


def shown(data: Bytes, start: int, size: int, *, with_content: bool) -> str:
    """Return a record's text for a message, its beginning if it is long; without its content only how long it is."""
    if not with_content:
        return f"{size} bytes (recordsInErrors=true shows the first {_SHOWN})"
    text = data[start : start + min(size, _SHOWN)].tobytes().decode("utf-8", "replace")
    return repr(text) + ("…" if size > _SHOWN else "")
