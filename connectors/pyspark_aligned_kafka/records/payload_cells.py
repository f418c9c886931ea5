"""Cells of decoded values, which compiled code appends to the nodes of a schema, and the Arrow columns of them.

A decoder of any format appends a cell to each node that has a value, with ``put`` and ``put_null``; ``CellColumns`` has
the memory of the cells, and builds the column. Compiled functions take its arrays, and their helpers ``Cells``.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_aligned_kafka.records.json_strings import unescaped, utf8_byte, utf8_size
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from watermark_source.arrow_columns import bitmap
from watermark_source.errors import PayloadError
from watermark_source.machine_code.native import (
    Word,
    address_of,
    by_byte,
    byte_at,
    compiled,
    copy_bytes,
    inlined,
    long_at,
    put_byte,
    put_long,
)


class CellKind(IntEnum):
    """What a node of the schema is."""

    STRUCT = 0
    LIST = 1
    MAP = 2
    BOOLEAN = 3
    INTEGER = 4
    FLOAT = 5
    """The cell has the bits of a double, and so of the next."""
    DOUBLE = 6
    DECIMAL = 7
    STRING = 8
    BASE64 = 9
    """Binary, in a text."""
    DATE = 10
    TIMESTAMP = 11
    BINARY = 12
    WIDE = 13
    """A decimal of 128 bits: the lower half is the cell, the upper half its size."""


class Cell(IntEnum):
    """What a cell holds."""

    NULL = 0
    VALUE = 1
    ESCAPED = 2
    """A text with escapes: its place is in the document."""
    TEXT = 3
    """A number that is left to Arrow's parser: its place is in the document."""


# Columns of the table of nodes.
NODE_KIND, FIRST, MORE, CLOSURE, CLOSURE_END, BASE, ROOM, LOWEST, HIGHEST = range(9)
"""``FIRST`` and ``MORE``: of a struct the first of its members and their number; of a list its element; of a map its
key and its value. ``CLOSURE``: the nodes that have a cell wherever this one is null. ``BASE`` and ``ROOM``: where its
cells begin, and how many there is room for. ``LOWEST`` and ``HIGHEST``: limits of an integer; digits after the point of
a decimal, and the first number with too many digits; of a timestamp whether it is in UTC without a zone."""
NODE_COLUMNS = 9
MEMBER_NODE, NAME, NAME_END, SEEN = range(4)
"""Columns of the table of members: the node, where its name is, and the struct that had it last."""
MEMBER_COLUMNS = 4
KINDS: dict[type[DataType], CellKind] = {
    StructType: CellKind.STRUCT, ArrayType: CellKind.LIST, MapType: CellKind.MAP, BooleanType: CellKind.BOOLEAN,
    ByteType: CellKind.INTEGER, ShortType: CellKind.INTEGER, IntegerType: CellKind.INTEGER, LongType: CellKind.INTEGER,
    FloatType: CellKind.FLOAT, DoubleType: CellKind.DOUBLE, DecimalType: CellKind.DECIMAL, StringType: CellKind.STRING,
    BinaryType: CellKind.BINARY, DateType: CellKind.DATE, TimestampType: CellKind.TIMESTAMP,
    TimestampNTZType: CellKind.TIMESTAMP, NullType: CellKind.INTEGER,
}  # fmt: skip
_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_MOST_BYTES = 2**31 - 1
"""Limit on the bytes of a column of texts: Arrow's offsets have 32 bits."""
_WIDE = 10**18
"""Decimals of the compiled walk have fewer digits."""
CELL_ARRAYS = "int64[:, ::1], int64[::1], int64[::1], int64[::1], uint8[::1], int64[::1], int64[::1]"
"""The types of ``CellColumns.arrays``, in the signature of a compiled function."""
# The same for compiled code.
_LIST, _MAP = int(CellKind.LIST), int(CellKind.MAP)
_A_NULL, _A_VALUE, _AN_ESCAPED, _A_TEXT = map(int, Cell)


class Cells(NamedTuple):
    """Addresses of the arrays of ``CellColumns``, and the bytes of its counts, for compiled code."""

    nodes: Word
    closures: Word
    before: Word
    counts: Word
    states: Word
    values: Word
    sizes: Word
    bytes_of_counts: Word


@inlined
def no_cells(  # noqa: PLR0917 - arrays in
    nodes: Word, closures: Word, before: Word, counts: Word, states: Word, values: Word, sizes: Word
) -> Word:
    """Return the addresses of arrays, and begin with no cells in them.

    By their addresses: to count references of arrays at each call was most of the time.
    """
    counts[:] = 0
    return Cells(
        address_of(nodes), address_of(closures), address_of(before), address_of(counts), address_of(states),
        address_of(values), address_of(sizes), counts.nbytes,
    )  # fmt: skip


@inlined
def keep_counts(to: Word) -> None:
    """Remember how many cells there are before a value is read."""
    copy_bytes(to.before, to.counts, to.bytes_of_counts)


@inlined
def forget_value(to: Word) -> None:
    """Remove the cells of the value that was read last."""
    copy_bytes(to.counts, to.before, to.bytes_of_counts)


@inlined
def node_value(to: Word, node: Word, column: Word) -> Word:
    """Return a value of the table of nodes."""
    return long_at(to.nodes, node * NODE_COLUMNS + column)


@inlined
def member_value(members: Word, member: Word, column: Word) -> Word:
    """Return a value of the table of members, which is at the address ``members``."""
    return long_at(members, member * MEMBER_COLUMNS + column)


@inlined
def bits_of(real: Word) -> Word:
    """Return the cell of a FLOAT or DOUBLE."""
    return np.float64(real).view(np.int64)


@inlined
def put(to: Word, node: Word, state: Word, cell: Word, size: Word) -> Word:
    """Append a cell; return whether there was room."""
    at = long_at(to.counts, node)
    if at >= node_value(to, node, ROOM):
        return False
    at += node_value(to, node, BASE)
    put_byte(to.states, at, state)
    put_long(to.values, at, cell)
    put_long(to.sizes, at, size)
    put_long(to.counts, node, long_at(to.counts, node) + 1)
    return True


@inlined
def put_null(to: Word, node: Word) -> Word:
    """Append a null to a node, and to all within it that have a cell wherever it has one."""
    for place in range(node_value(to, node, CLOSURE), node_value(to, node, CLOSURE_END)):
        inner = long_at(to.closures, place)
        kind = node_value(to, inner, NODE_KIND)
        end = long_at(to.counts, node_value(to, inner, FIRST)) if kind in (_LIST, _MAP) else np.int64(0)
        if not put(to, inner, _A_NULL, end, np.int64(0)):
            return False
    return True


SIX_BITS = by_byte(f"{string.ascii_uppercase}{string.ascii_lowercase}{string.digits}+/".encode(), range(64))
"""What a character of Base64 stands for, -1 for another one."""


@compiled("int64(uint8[::1], uint8[::1], int64[::1], int64[::1], int32[::1], uint8[::1])")
def gather_texts(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, states: Word, starts: Word, sizes: Word, offsets: Word, target: Word
) -> Word:
    """Copy the texts of cells, without their escapes; return their bytes."""
    data, values = address_of(array), address_of(target)
    end = np.int64(0)
    offsets[0] = 0
    for row in range(states.shape[0]):
        state = states[row]
        if state in (_A_VALUE, _A_TEXT):
            copy_bytes(values + end, data + starts[row], sizes[row])
            end += sizes[row]
        elif state == _AN_ESCAPED:
            at, stop = starts[row], starts[row] + sizes[row]
            while at < stop:
                if byte_at(data, at) != 0x5C:
                    target[end] = byte_at(data, at)
                    end += 1
                    at += 1
                    continue
                character, at = unescaped(data, at, stop)
                many = utf8_size(character)
                for i in range(many):
                    target[end + i] = utf8_byte(character, many, i)
                end += many
        offsets[row + 1] = end
    return end


@compiled("int64(uint8[::1], uint8[::1], int64[::1], int64[::1], int32[::1], uint8[::1])")
def gather_base64(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, states: Word, starts: Word, sizes: Word, offsets: Word, target: Word
) -> Word:
    """Decode the Base64 of cells; return their bytes."""
    data = address_of(array)
    end = np.int64(0)
    offsets[0] = 0
    for row in range(states.shape[0]):
        if states[row] == _A_VALUE:
            kept, bits = np.int64(0), np.int64(0)
            for at in range(starts[row], starts[row] + sizes[row]):
                six = SIX_BITS[byte_at(data, at)]
                if six < 0:
                    break
                kept = (kept << 6 | six) & 0xFFFF
                bits += 6
                if bits >= 8:
                    bits -= 8
                    target[end] = kept >> bits & 0xFF
                    end += 1
        offsets[row + 1] = end
    return end


Delivered: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]
"""Makes a column of a type of the one that was read."""


class CellColumns:
    """The nodes of a schema in its order, the root first, and the cells of each.

    ``kinds`` are what types are in the format, where it differs from ``KINDS``. With ``unique_keys`` the last entry of
    a key in a map counts.
    """

    def __init__(
        self,
        schema: DataType,
        kinds: Mapping[type[DataType], CellKind],
        *,
        zone_is_utc: bool = True,
        unique_keys: bool = False,
    ) -> None:
        self.kinds: list[CellKind] = []
        self.children: list[list[int]] = []
        self._kind_of = {**KINDS, **kinds}
        self._names = bytearray()
        self._members: list[list[int]] = []
        self._zone_is_utc = zone_is_utc
        self._unique_keys = unique_keys
        self._rows: list[list[int]] = []
        self._add(schema)
        self.nodes = np.array(self._rows, np.int64)
        self.members = np.array(self._members, np.int64).reshape(-1, MEMBER_COLUMNS)
        self.names = np.frombuffer(self._names or bytearray(1), np.uint8)
        closures: list[int] = []
        for node in range(len(self.kinds)):
            self.nodes[node, CLOSURE] = len(closures)
            closures += self._closure(node)
            self.nodes[node, CLOSURE_END] = len(closures)
        self.closures = np.array(closures, np.int64)
        self._delivered: dict[int, tuple[pa.DataType | None, Delivered]] = {}
        self.counts = np.zeros(len(self.kinds), np.int64)
        """Cells of each node."""
        self.before = np.zeros(len(self.kinds), np.int64)
        """The same, before the value that is read."""
        self._rooms = np.full(len(self.kinds), 1_024, np.int64)
        self._allocate()

    def node_at(self, schema: DataType, steps: Sequence[str | int]) -> int:
        """Return the node of a member of structs within each other; -1: it has none, or more than one cell."""
        node = 0
        for name in steps:
            if not isinstance(schema, StructType) or not isinstance(name, str) or name not in schema.names:
                return -1
            node = self.children[node][schema.names.index(name)]
            schema = schema[name].dataType
        return -1 if self.children[node] else node

    def deliver(self, node: int, delivered: Delivered, read_as: tuple[CellKind, pa.DataType] | None = None) -> None:
        """Have ``delivered`` make the column of a leaf of what is read: as ``read_as``, or as what the leaf is."""
        if read_as is not None:
            self.kinds[node] = self.nodes[node, NODE_KIND] = read_as[0]
        self._delivered[node] = None if read_as is None else read_as[1], delivered

    def fill(self, rows: int, walk: Callable[[], int]) -> None:
        """Call a walk over so many values until the cells have room.

        A walk begins with no cells, takes the arrays as they are at each call, and returns whether there was room.
        """
        if rows > self._rooms.min():
            self._rooms = np.maximum(self._rooms, rows)
            self._allocate()
        while not walk():
            self._rooms[self.counts >= self._rooms] *= 4
            self._allocate()

    def _allocate(self) -> None:
        self.nodes[:, ROOM] = self._rooms
        self.nodes[:, BASE] = np.cumsum(self._rooms) - self._rooms
        size = int(self._rooms.sum())
        self.states = np.empty(size, np.uint8)
        self.cells, self.sizes = np.empty(size, np.int64), np.empty(size, np.int64)
        self.arrays = (self.nodes, self.closures, self.before, self.counts, self.states, self.cells, self.sizes)
        """As ``no_cells`` takes them; others after each call of ``fill``."""

    def _add(self, kind: DataType) -> int:
        node = len(self.kinds)
        row = [0] * NODE_COLUMNS
        self.kinds.append(self._kind_of[type(kind)])
        self.children.append([])
        self._rows.append(row)
        row[NODE_KIND] = self.kinds[node]
        if isinstance(kind, StructType):
            places = []
            for field in kind.fields:
                places.append(len(self._names))
                self._names += field.name.encode()
            ends = [*places[1:], len(self._names)]
            inner = [self._add(field.dataType) for field in kind.fields]
            row[FIRST], row[MORE] = len(self._members), len(inner)
            self._members += [[n, p, e, -1] for n, p, e in zip(inner, places, ends, strict=True)]
            self.children[node] = inner
        elif isinstance(kind, ArrayType):
            row[FIRST] = self._add(kind.elementType)
            self.children[node] = [row[FIRST]]
        elif isinstance(kind, MapType):
            row[FIRST], row[MORE] = self._add(kind.keyType), self._add(kind.valueType)
            self.children[node] = [row[FIRST], row[MORE]]
        elif type(kind) in _BITS:
            row[LOWEST], row[HIGHEST] = -(1 << _BITS[type(kind)] - 1), (1 << _BITS[type(kind)] - 1) - 1
        elif isinstance(kind, DecimalType):
            row[LOWEST], row[HIGHEST] = kind.scale, min(10**kind.precision, _WIDE)
        elif isinstance(kind, TimestampType):
            row[LOWEST] = self._zone_is_utc
        return node

    def _closure(self, node: int) -> list[int]:
        inner = self.children[node] if self.kinds[node] is CellKind.STRUCT else []
        return [node, *(each for child in inner for each in self._closure(child))]

    def column(self, data: Bytes, kind: pa.DataType, node: int = 0) -> pa.Array:
        """Return the column of the root, or of another node."""
        if (other := self._delivered.get(node)) is None:
            return self._read(data, node, kind)
        read_as, delivered = other
        return delivered(self._read(data, node, read_as or kind), kind)

    def _read(self, data: Bytes, node: int, kind: pa.DataType) -> pa.Array:
        what, inner = self.kinds[node], self.children[node]
        base, count = int(self.nodes[node, BASE]), int(self.counts[node])
        part = slice(base, base + count)
        states, cells, sizes = self.states[part], self.cells[part], self.sizes[part]
        if pa.types.is_null(kind):
            return pa.nulls(count)
        nulls = count - int(np.count_nonzero(states))
        validity = bitmap(states) if nulls else None
        if what is CellKind.STRUCT:
            members = [self.column(data, field.type, each) for field, each in zip(kind, inner, strict=True)]
            return pa.Array.from_buffers(kind, count, [validity], nulls, children=members)
        if what in (CellKind.LIST, CellKind.MAP):
            ends = np.zeros(count + 1, np.int32)
            ends[1:] = cells
            if what is CellKind.LIST:
                inside = self.column(data, kind.value_type, inner[0])
            else:
                entries = kind.field(0).type
                pair = [self.column(data, field.type, each) for field, each in zip(entries, inner, strict=True)]
                if self._unique_keys and (kept := _last_of_keys(pair[0], ends)) is not None:
                    row = np.searchsorted(ends, kept, side="right") - 1
                    ends[1:] = np.cumsum(np.bincount(row, minlength=count))
                    pair = [each.take(pa.array(kept)) for each in pair]
                inside = pa.Array.from_buffers(entries, len(pair[0]), [None], 0, children=pair)
            return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(ends)], nulls, children=[inside])
        if what in (CellKind.STRING, CellKind.BINARY, CellKind.BASE64):
            gather = gather_base64 if what is CellKind.BASE64 else gather_texts
            return _texts(gather, data, states, cells, sizes, kind, validity, nulls)
        if what is CellKind.BOOLEAN:
            values = bitmap(cells != 0)
        elif what in (CellKind.FLOAT, CellKind.DOUBLE):
            values = _reals(data, states, cells, sizes, kind)
        elif what in (CellKind.DECIMAL, CellKind.WIDE):
            wide = np.empty((count, 2), np.int64)
            wide[:, 0] = cells
            wide[:, 1] = sizes if what is CellKind.WIDE else cells >> 63
            values = pa.py_buffer(wide)
        else:
            values = pa.py_buffer(cells.astype(f"i{kind.bit_width // 8}", copy=True))
        return pa.Array.from_buffers(kind, count, [validity, values], nulls)


def _last_of_keys(keys: pa.Array, ends: npt.NDArray[np.int32]) -> Longs | None:
    """Return the places of the last entry of each key in each map; ``None``: no key occurs twice."""
    counts = np.diff(ends)
    if not len(counts) or counts.max() < 2:
        return None
    words = keys.dictionary_encode()
    codes = np.asarray(words.indices).astype(np.int64)
    both = np.repeat(np.arange(len(counts)), counts) * len(words.dictionary) + codes
    _, last = np.unique(both[::-1], return_index=True)
    if len(last) == len(both):
        return None
    found: Longs = np.sort(len(both) - 1 - last)
    return found


def check_size(size: int) -> None:
    """Raise ``PayloadError`` for more bytes of texts than a column can have.

    Defaults and symbols of a schema may take more in the column than in the values.
    """
    if size > _MOST_BYTES:
        raise PayloadError(
            f"the texts of one member take {size} bytes in the column of one block of records, more than the "
            f"{_MOST_BYTES} that it can have: leave the member out of the schema, or shorten its default or symbols"
        )


def _texts(  # noqa: PLR0917 - the parts of a column
    gather: Any, data: Bytes, states: Bytes, cells: Longs, sizes: Longs,
    kind: pa.DataType, validity: pa.Buffer | None, nulls: int,
) -> pa.Array:  # fmt: skip
    most = int(np.dot(sizes, states != Cell.NULL))
    check_size(most)
    offsets, target = np.empty(len(states) + 1, np.int32), pa.allocate_buffer(max(most, 1))
    end = gather(data, states, cells, sizes, offsets, np.frombuffer(target, np.uint8))
    return pa.Array.from_buffers(kind, len(states), [validity, pa.py_buffer(offsets), target.slice(0, end)], nulls)


def _reals(data: Bytes, states: Bytes, cells: Longs, sizes: Longs, kind: pa.DataType) -> pa.Buffer:
    with np.errstate(over="ignore", invalid="ignore"):
        # What is not a value has other bits.
        values = cells.view(np.float64).astype(np.float32 if pa.types.is_float32(kind) else np.float64)
    left = np.flatnonzero(states == Cell.TEXT)
    if len(left):
        # Arrow's parser rounds any decimal to the nearest number.
        texts = _texts(gather_texts, data, states[left], cells[left], sizes[left], pa.string(), None, 0)
        parsed = texts.cast(kind)
        values[left] = np.frombuffer(parsed.buffers()[1], values.dtype, count=len(left))
    return pa.py_buffer(values)


def arrow_type(schema: DataType) -> pa.DataType:
    """Return Arrow's type of the column."""
    (field,) = to_arrow_schema(StructType([StructField("payload", schema)]), timezone="UTC")
    return field.type


def replaced(column: pa.Array, rows: Longs, others: pa.Array) -> pa.Array:
    """Return a column with other values in some rows: ``others`` has one for each of these, or one for all."""
    places = np.arange(len(column), dtype=np.int64)
    places[rows] = len(column) + np.arange(len(others))
    indices = pa.Array.from_buffers(pa.int64(), len(places), [None, pa.py_buffer(places)])
    return pc.take(pa.concat_arrays([column, others]), indices)
