"""Arrow columns of located records, with the types of Spark's own Kafka source; headers among them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.records.record_batches import Bytes, Fault, Longs, fault_error, varint_at
from pyspark_aligned_kafka.records.record_fields import HEADERS_AT, KEY_AT, RECORD_END, VALUE_AT, Located
from watermark_source.arrow_columns import allocated, bitmap, column, repeated
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, copy_bytes, inlined, same_bytes
from watermark_source.planning.split import Split

if TYPE_CHECKING:
    from pyspark_aligned_kafka.records.payload import Decoded

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


# The headers: ``list<struct<key: string, value: binary>>``, null for a record without headers.


HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(HEADER_TYPE)

_SMALLEST_HEADER = 2
_COUNT, _KEY_BYTES, _VALUE_BYTES, _VALUE_NULLS, _BAD_ROW, _NOT_ASCII = range(6)


@inlined
def header_field(data: Word, at: Word, stop: Word, smallest: Word) -> tuple[Word, Word]:
    """Length and start of a key or value; start -1 if it does not fit."""
    size, at = varint_at(data, at, stop)
    if at < 0 or size < smallest or size > stop - at:
        return size, np.int64(-1)
    return size, at


@compiled("int64(uint8[::1], int64[:, ::1], int64, int64[::1])")
def _measure(array: Word, fields: Word, rows: Word, totals: Word) -> Word:
    """Check the headers of all rows and add up what they hold."""
    data = address_of(array)
    for row in range(rows):
        at, stop = fields[HEADERS_AT, row], fields[RECORD_END, row]
        totals[_BAD_ROW] = row
        count, at = varint_at(data, at, stop)
        if at < 0 or count < 0 or count > (stop - at) // _SMALLEST_HEADER:
            return np.int64(Fault.HEADERS)
        for _ in range(count):
            size, at = header_field(data, at, stop, 0)
            if at < 0:
                return np.int64(Fault.HEADERS)
            for i in range(at, at + size):
                totals[_NOT_ASCII] |= byte_at(data, i) & 0x80
            totals[_KEY_BYTES] += size
            at += size
            size, at = header_field(data, at, stop, -1)
            if at < 0:
                return np.int64(Fault.HEADERS)
            if size < 0:
                totals[_VALUE_NULLS] += 1
            else:
                totals[_VALUE_BYTES] += size
                at += size
        if at != stop:
            return np.int64(Fault.HEADERS)
        totals[_COUNT] += count
    return np.int64(Fault.NONE)


@compiled(
    "void(uint8[::1], int64[:, ::1], int64, int32[::1], uint8[::1], int32[::1], uint8[::1], int32[::1], uint8[::1],"
    " uint8[::1])"
)
def _fill(  # noqa: PLR0917 - arrays in, arrays out
    array: Word,
    fields: Word,
    rows: Word,
    lists: Word,
    has_list: Word,
    key_offsets: Word,
    keys: Word,
    value_offsets: Word,
    values: Word,
    has_value: Word,
) -> None:
    """Copy what has been measured."""
    data, key_data, value_data = address_of(array), address_of(keys), address_of(values)
    total = 0
    key_end = value_end = np.int64(0)
    lists[0] = key_offsets[0] = value_offsets[0] = 0
    for row in range(rows):
        at, stop = fields[HEADERS_AT, row], fields[RECORD_END, row]
        count, at = varint_at(data, at, stop)
        for _ in range(count):
            size, at = header_field(data, at, stop, 0)
            copy_bytes(key_data + key_end, data + at, size)
            key_end += size
            at += size
            size, at = header_field(data, at, stop, -1)
            if size > 0:
                copy_bytes(value_data + value_end, data + at, size)
                value_end += size
                at += size
            has_value[total] = size >= 0
            total += 1
            key_offsets[total] = key_end
            value_offsets[total] = value_end
        has_list[row] = count > 0
        lists[row + 1] = total


def headers_array(split: Split, data: Bytes, located: Located, offsets: pa.Array) -> pa.Array:
    """Return the headers of located records.

    A key that is not UTF-8 gets replacement characters, as in Kafka's own client.

    Raises:
        CorruptDataError: headers that do not fit their record.
    """
    rows, fields = located.rows, located.fields
    if located.with_headers == 0:
        return pa.nulls(rows, HEADERS_TYPE)
    totals = np.zeros(6, np.int64)
    fault = _measure(data, fields, rows, totals)
    if fault:
        raise fault_error(Fault(fault), split, offsets[int(totals[_BAD_ROW])].as_py())
    count, key_bytes, value_bytes, value_nulls, _, not_ascii = totals.tolist()
    lists, has_list = np.empty(rows + 1, np.int32), np.empty(rows, np.uint8)
    key_offsets, keys = np.empty(count + 1, np.int32), np.empty(key_bytes, np.uint8)
    value_offsets, values = np.empty(count + 1, np.int32), np.empty(value_bytes, np.uint8)
    has_value = np.empty(count, np.uint8)
    _fill(data, fields, rows, lists, has_list, key_offsets, keys, value_offsets, values, has_value)
    key_array = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(key_offsets), pa.py_buffer(keys)])
    if not_ascii:
        key_array = _as_utf8(key_array)
    value_array = pa.Array.from_buffers(
        pa.binary(),
        count,
        [bitmap(has_value) if value_nulls else None, pa.py_buffer(value_offsets), pa.py_buffer(values)],
        value_nulls,
    )
    entries = pa.StructArray.from_arrays([key_array, value_array], fields=list(HEADER_TYPE))
    nulls = rows - int(np.count_nonzero(has_list))
    return pa.Array.from_buffers(
        HEADERS_TYPE, rows, [bitmap(has_list) if nulls else None, pa.py_buffer(lists)], nulls, children=[entries]
    )


def _as_utf8(keys: pa.Array) -> pa.Array:
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return column([key.decode("utf-8", "replace") for key in keys.cast(pa.binary()).to_pylist()], pa.string())
    return keys


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
            size, at = header_field(data, at, stop, 0)
            if at < 0:
                return row
            is_it = size == name_size and same_bytes(data, at, wanted, np.int64(0), size)
            size, at = header_field(data, at + size, stop, -1)
            if at < 0:
                return row
            if is_it:
                starts[row], sizes[row] = at, size
            at += max(size, 0)
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

    def find_any(self, split: Split, data: Bytes, located: Located, offsets: Longs) -> tuple[Longs, Longs] | None:
        """Return the same as ``find``, or ``None`` if no record has headers."""
        return self.find(split, data, located, offsets) if located.with_headers else None

    def find(self, split: Split, data: Bytes, located: Located, offsets: Longs) -> tuple[Longs, Longs]:
        """Return where the value of each record's last header of the name begins, and its size, -1 if there is none.

        Raises:
            CorruptDataError: headers that do not fit their record.
        """
        rows = located.rows
        starts, sizes = np.empty(rows, np.int64), np.empty(rows, np.int64)
        wrong = _find(data, located.fields, rows, self._name, self._size, starts, sizes)
        if wrong >= 0:
            raise fault_error(Fault.HEADERS, split, int(offsets[wrong]))
        return starts, sizes


# All columns of a batch.


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
