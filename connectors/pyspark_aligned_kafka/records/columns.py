"""Arrow columns of located records, with the types of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_aligned_kafka.records.constant_columns import ConstantColumns
from pyspark_aligned_kafka.records.headers import headers_array
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from pyspark_aligned_kafka.records.record_fields import HEADERS_AT, KEY_AT, VALUE_AT, Located
from watermark_source.arrow_columns import bitmap
from watermark_source.machine_code.native import Word, address_of, compiled, copy_bytes
from watermark_source.planning.split import Split
from watermark_source.spark.connector.read_batch import ReadBatch

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


def allocated(count: int, kind: type[np.generic]) -> tuple[pa.Buffer, npt.NDArray[Any]]:
    """Return memory of Arrow's pool, which keeps pages warm between batches, and a view to write it through."""
    buffer = pa.allocate_buffer(max(count, 1) * np.dtype(kind).itemsize)
    return buffer, np.frombuffer(buffer, kind)


class ColumnBuilder:
    """Builds the wanted columns, in the wanted order."""

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
    ) -> ReadBatch:
        """Return the located records as one batch; ``offset``, ``timestamp`` and ``event_time`` are already columns.

        ``undated`` are those in which no event time was found.

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
        columns = tuple(makers[name]() for name in self._columns)
        return ReadBatch(split, rows, columns, event_time, undated=undated, positions=offset, marks=marks)


def binary_column(data: Bytes, places: Longs, size: int, nulls: int) -> pa.Array:
    """Return the bytes at two rows of places, where each begins and its size, as one column."""
    starts, sizes = places
    rows = len(starts)
    offsets, offsets_view = allocated(rows + 1, np.int32)
    values, values_view = allocated(size, np.uint8)
    _gather(data, starts, sizes, rows, offsets_view, values_view)
    present = bitmap(sizes >= 0) if nulls else None
    return pa.Array.from_buffers(pa.binary(), rows, [present, offsets, values], nulls)
