"""Arrow columns of located records, with the types of Spark's own Kafka source; headers among them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.records.record_batches import Bytes, Fault, Longs, fault_error, varint_at
from pyspark_aligned_kafka.records.record_fields import HEADERS_AT, RECORD_END, Located, field_at
from watermark_source.arrow_columns import allocated, bitmap, column, repeated
from watermark_source.machine_code.native import Word, address_of, compiled, copy_bytes, inlined, same_bytes

# Columns of one value, such as the topic's name: those used last are kept from batch to batch.


_STRING, _INT = pa.string(), pa.int32()
_MOST_KEPT: Final = 8
"""Topic, partition and kind of timestamp, of batches of two sizes and more. The longest name there can be, in each row
of the largest batch, takes 4 MB."""
_ROWS_BEHIND: Final = 64
"""At least so many more are kept than are asked for. Arrow's IPC sends what is cut from a longer buffer padded to 64
bytes with what follows there, and a buffer that is not longer than that as a whole: with 64 rows behind what is cut, a
batch is the same bytes whatever was asked for before."""


def constant_column(value: str | int, rows: int) -> pa.Array:
    """Return a column of strings or of 32-bit integers with ``value`` in each row, cut from one that is kept."""
    # Batches of about one size are cut from the same column, which is twice as long as it must be at most.
    return _kept(value, 1 << (rows + _ROWS_BEHIND - 1).bit_length())[:rows]


@lru_cache(maxsize=_MOST_KEPT)
def _kept(value: str | int, rows: int) -> pa.Array:
    return repeated(value, _STRING if isinstance(value, str) else _INT, rows)


# The headers: ``list<struct<key: string, value: binary>>``, null for a record without headers.


HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(HEADER_TYPE)

_SMALLEST_HEADER = 2
_FEW_HEADERS = 4
"""For so many in each record that has some there are places at once."""


@inlined
def _header(data: Word, at: Word, stop: Word) -> tuple[Word, Word, Word, Word, Word]:
    """Return start and size of a header's key and of its value, and its end; end -1 if it does not fit."""
    key_at, key_size, at = field_at(data, at, stop)
    if at < 0 or key_size < 0:
        return key_at, key_size, key_at, key_size, np.int64(-1)
    value_at, value_size, at = field_at(data, at, stop)
    return key_at, key_size, value_at, value_size, at


@compiled("int64(uint8[::1], int64[:, ::1], int64, int32[::1], int64[:, ::1])")
def _locate(array: Word, fields: Word, rows: Word, ends: Word, places: Word) -> Word:
    """Write how many headers there are up to each row, and where their keys and values lie.

    Those behind the last place are counted alone. Returns -1, or the row whose headers do not fit their record.
    """
    data = address_of(array)
    total = 0
    ends[0] = 0
    for row in range(rows):
        at, stop = fields[HEADERS_AT, row], fields[RECORD_END, row]
        count, at = varint_at(data, at, stop)
        if at < 0 or count < 0 or count > (stop - at) // _SMALLEST_HEADER:
            return row
        for _ in range(count):
            key_at, key_size, value_at, value_size, at = _header(data, at, stop)
            if at < 0:
                return row
            if total < places.shape[1]:
                places[0, total], places[1, total] = key_at, key_size
                places[2, total], places[3, total] = value_at, value_size
            total += 1
        if at != stop:
            return row
        ends[row + 1] = total
    return np.int64(-1)


def headers_array(located: Located) -> pa.Array:
    """Return the headers of located records.

    A key that is not UTF-8 gets replacement characters, as in Kafka's own client.

    Raises:
        CorruptDataError: headers that do not fit their record.
    """
    data, rows, lists = located.data, located.rows, np.empty(located.rows + 1, np.int32)
    if located.with_headers == 0:
        return pa.nulls(rows, HEADERS_TYPE)
    places = np.empty((4, _FEW_HEADERS * located.with_headers), np.int64)
    wrong = _locate(data, located.fields, rows, lists, places)
    if wrong >= 0:
        raise fault_error(Fault.HEADERS, located.split, int(located.offsets[wrong]))
    if lists[-1] > places.shape[1]:
        places = np.empty((4, lists[-1]), np.int64)
        _locate(data, located.fields, rows, lists, places)
    places = places[:, : lists[-1]]
    key_sizes, value_sizes = places[1], places[3]
    keys = binary_column(data, places[:2], int(key_sizes.sum()), 0)
    value_nulls = int(np.count_nonzero(value_sizes < 0))
    values = binary_column(data, places[2:], int(value_sizes.sum()) + value_nulls, value_nulls)
    entries = pa.StructArray.from_arrays([_as_utf8(keys), values], fields=list(HEADER_TYPE))
    has_list = np.diff(lists) > 0
    nulls = rows - int(np.count_nonzero(has_list))
    return pa.Array.from_buffers(
        HEADERS_TYPE, rows, [bitmap(has_list) if nulls else None, pa.py_buffer(lists)], nulls, children=[entries]
    )


def _as_utf8(keys: pa.Array) -> pa.Array:
    if np.frombuffer(keys.buffers()[2], np.uint8).max(initial=0) < 0x80:
        return keys.view(pa.string())
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return column([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


# Where the value of one header lies in located records, one compiled pass.


@compiled("int64(uint8[::1], int64[:, ::1], int64, uint8[::1], int64, int64[::1], int64[::1])")
def _find(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, fields: Word, rows: Word, name: Word, name_size: Word, starts: Word, sizes: Word
) -> Word:
    """Return -1, or the row whose headers do not fit their record."""
    data, wanted = address_of(array), address_of(name)
    for row in range(rows):
        at, stop = fields[HEADERS_AT, row], fields[RECORD_END, row]
        starts[row], sizes[row] = at, -1
        count, at = varint_at(data, at, stop)
        if at < 0 or count < 0:
            return row
        for _ in range(count):
            key_at, key_size, value_at, value_size, at = _header(data, at, stop)
            if at < 0:
                return row
            if key_size == name_size and same_bytes(data, key_at, wanted, np.int64(0), key_size):
                starts[row], sizes[row] = value_at, value_size
        if at != stop:
            return row
    return np.int64(-1)


def id_scan(field: str) -> HeaderScan:
    """Return the scan for the header with the id of the schema of ``key`` or ``value``, as Confluent's serializers name
    it."""
    return HeaderScan(f"__{field}_schema_id")


class HeaderScan:
    """Finds one header by its name."""

    __slots__ = ("_name", "_size")

    def __init__(self, name: str) -> None:
        encoded = name.encode()
        self._name, self._size = np.frombuffer(bytearray(encoded or b"\0"), np.uint8), len(encoded)

    def find_any(self, located: Located) -> tuple[Longs, Longs] | None:
        """Return the same as ``find``, or ``None`` if no record has headers."""
        return self.find(located) if located.with_headers else None

    def find(self, located: Located) -> tuple[Longs, Longs]:
        """Return where the value of each record's last header of the name begins, and its size, -1 if there is none.

        Raises:
            CorruptDataError: headers that do not fit their record.
        """
        rows = located.rows
        starts, sizes = np.empty(rows, np.int64), np.empty(rows, np.int64)
        wrong = _find(located.data, located.fields, rows, self._name, self._size, starts, sizes)
        if wrong >= 0:
            raise fault_error(Fault.HEADERS, located.split, int(located.offsets[wrong]))
        return starts, sizes


# Columns of keys and values.


TIMESTAMP = pa.timestamp("us", tz="UTC")


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


def binary_column(data: Bytes, places: Longs, size: int, nulls: int) -> pa.Array:
    """Return the bytes at two rows of places, where each begins and its size, as one column."""
    starts, sizes = places
    rows = len(starts)
    offsets, offsets_view = allocated(rows + 1, np.int32)
    values, values_view = allocated(size, np.uint8)
    _gather(data, starts, sizes, rows, offsets_view, values_view)
    present = bitmap(sizes >= 0) if nulls else None
    return pa.Array.from_buffers(pa.binary(), rows, [present, offsets, values], nulls)
