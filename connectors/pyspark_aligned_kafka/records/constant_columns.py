"""Columns of one value, such as the topic's name: kept from batch to batch, and no more of them than some bytes."""

from __future__ import annotations

import threading
from typing import Final

import pyarrow as pa

from watermark_source.arrow_columns import repeated

_STRING, _INT = pa.string(), pa.int32()
_KEPT_BYTES: Final = 16 << 20
"""Four columns of the longest topic name there can be, seventy of one of ten characters."""
_OBJECTS_BYTES: Final = 1024
"""About what the Python and Arrow objects around a column take, more than a short one itself."""
_ROWS_BEHIND: Final = 64
"""At least so many more are kept than are asked for. Arrow's IPC sends what is cut from a longer buffer padded to 64
bytes with what follows there, and a buffer that is not longer than that as a whole: with 64 rows behind what is cut, a
batch is the same bytes whatever was asked for before."""


class ConstantColumns:
    """The columns used last, up to ``most_bytes`` of them, and always the last one."""

    __slots__ = ("_kept", "_lock", "_most_bytes", "kept_bytes")

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: dict[str | int, pa.Array] = {}
        self.kept_bytes = 0

    def column(self, value: str | int, rows: int) -> pa.Array:
        """Return a column of strings or of 32-bit integers with ``value`` in each row, cut from one that is kept."""
        with self._lock:
            made = self._kept.pop(value, None)
            least = rows + _ROWS_BEHIND
            if made is None or len(made) < least:
                if made is not None:
                    self.kept_bytes -= _size(made)
                # Twice as long at most: many topics with few rows each take little.
                made = repeated(value, _STRING if isinstance(value, str) else _INT, 1 << (least - 1).bit_length())
                self.kept_bytes += _size(made)
            # The last place is that of the column used last.
            self._kept[value] = made
            while self.kept_bytes > self._most_bytes and len(self._kept) > 1:
                self.kept_bytes -= _size(self._kept.pop(next(iter(self._kept))))
        return made[:rows]


def _size(made: pa.Array) -> int:
    return int(made.nbytes) + _OBJECTS_BYTES
