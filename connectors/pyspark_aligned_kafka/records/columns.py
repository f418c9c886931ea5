"""Arrow columns of located records, with the types of Spark's own Kafka source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.records.headers import headers_array, id_scan
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from pyspark_aligned_kafka.records.record_fields import HEADERS_AT, KEY_AT, VALUE_AT, Located
from watermark_source.arrow_columns import allocated, bitmap, repeated
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.machine_code.native import Word, address_of, compiled, copy_bytes
from watermark_source.planning.split import Split

if TYPE_CHECKING:
    from pyspark_aligned_kafka.records.payload_formats import Decoded, PayloadChoice

# Columns of one value, such as the topic's name: kept from batch to batch, and no more of them than some bytes.


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


TIMESTAMP = pa.timestamp("us", tz="UTC")

_constants = ConstantColumns()


@compiled("void(uint8[::1], int64[::1], int64[::1], int64, int32[::1], uint8[::1])")
def _gather(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, starts: Word, sizes: Word, rows: Word, offsets: Word, target: Word
) -> None:
    data, values = address_of(array), address_of(target)
    end = np.int64(0)
    for row in range(rows):
        offsets[row] = end
        size = sizes[row]
        if size > 0:
            copy_bytes(values + end, data + starts[row], size)
            end += size
    offsets[rows] = end


class PayloadDecoder:
    """Decodes the keys or the values of located records. Scratch memory is kept: it serves one read at a time."""

    __slots__ = ("_field", "_ids", "_reader")

    def __init__(self, choice: PayloadChoice) -> None:
        self._field, self._reader = choice.field, choice.reader()
        self._ids = id_scan(choice.field) if choice.framed else None

    def decode(self, split: Split, data: Bytes, located: Located, offsets: Longs) -> Decoded:
        """Return the decoded keys or values.

        Raises:
            PayloadError: with the mode FAILFAST, the first that is bad.
            CorruptDataError: headers that do not fit their record.
        """
        header = None if self._ids is None else self._ids.find_any(split, data, located, offsets)
        return self._reader.read(split, data, *located.places(self._field), offsets[: located.rows], header)


class ColumnBuilder:
    """Builds the wanted columns, in the wanted order, and behind them those of decoded keys and values."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)

    def build(
        self,
        split: Split,
        data: Bytes,
        located: Located,
        offset: pa.Array,
        timestamp: pa.Array,
        *,
        log_append: bool,
        event_time: pa.Array,
        undated: int,
        marks: pa.Array | None,
        decoded: Sequence[Decoded],
    ) -> ReadBatch:
        """Return the located records as one batch; ``offset``, ``timestamp`` and ``event_time`` are already columns.

        ``undated`` are those in which no event time was found; ``decoded`` are their keys and values.

        Raises:
            CorruptDataError: headers that do not fit their record.
        """
        rows = located.rows
        makers: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: binary_column(
                data, located.fields[KEY_AT:VALUE_AT, :rows], located.key_bytes, located.key_nulls
            ),
            "value": lambda: binary_column(
                data, located.fields[VALUE_AT:HEADERS_AT, :rows], located.value_bytes, located.value_nulls
            ),
            "topic": lambda: _constants.column(split.log, rows),
            "partition": lambda: _constants.column(split.number, rows),
            "offset": lambda: offset,
            "timestamp": lambda: timestamp,
            "timestampType": lambda: _constants.column(int(log_append), rows),
            "headers": lambda: headers_array(split, data, located, offset),
        }
        columns = (*(makers[name]() for name in self._columns), *(each.column for each in decoded))
        malformed = sum(each.malformed for each in decoded)
        return ReadBatch(
            split, rows, columns, event_time, undated=undated, malformed=malformed, positions=offset, marks=marks
        )


def binary_column(data: Bytes, places: Longs, size: int, nulls: int) -> pa.Array:
    """Return the bytes at two rows of places, where each begins and its size, as one column."""
    starts, sizes = places
    rows = len(starts)
    offsets, offsets_view = allocated(rows + 1, np.int32)
    values, values_view = allocated(size, np.uint8)
    _gather(data, starts, sizes, rows, offsets_view, values_view)
    present = bitmap(sizes >= 0) if nulls else None
    return pa.Array.from_buffers(pa.binary(), rows, [present, offsets, values], nulls)
