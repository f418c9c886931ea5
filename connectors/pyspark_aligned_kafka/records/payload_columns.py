"""The struct column of decoded values: JSON documents to Arrow, as Spark's ``from_json`` reads them.

Compiled code reads the plain documents of a block, and ``payload_exact`` each of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

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
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_aligned_kafka.errors import place
from pyspark_aligned_kafka.records.payload_exact import ExactReader, Reading
from pyspark_aligned_kafka.records.payload_schema import PayloadChoice
from pyspark_aligned_kafka.records.payload_walk import (
    BASE,
    CLOSURE,
    CLOSURE_END,
    FIRST,
    HIGHEST,
    LOWEST,
    MEMBER_COLUMNS,
    MORE,
    NODE_COLUMNS,
    NODE_KIND,
    ROOM,
    STACK,
    Cell,
    Kind,
    gather_base64,
    gather_texts,
    walk_all,
)
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from watermark_source.arrow_columns import bitmap
from watermark_source.errors import PayloadError
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

_KINDS: dict[type[DataType], Kind] = {
    StructType: Kind.STRUCT, ArrayType: Kind.LIST, MapType: Kind.MAP, BooleanType: Kind.BOOLEAN,
    ByteType: Kind.INTEGER, ShortType: Kind.INTEGER, IntegerType: Kind.INTEGER, LongType: Kind.INTEGER,
    FloatType: Kind.FLOAT, DoubleType: Kind.DOUBLE, DecimalType: Kind.DECIMAL, StringType: Kind.STRING,
    BinaryType: Kind.BINARY, DateType: Kind.DATE, TimestampType: Kind.TIMESTAMP,
}  # fmt: skip
_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_WIDE = 10**18
"""Decimals of the compiled walk have fewer digits."""
_SHOWN = 80
"""Bytes of a document that an error contains."""


class _Plan:
    """The tables of a schema: its nodes in the order of the schema, the root first."""

    def __init__(self, schema: StructType, zone: str) -> None:
        self.kinds: list[Kind] = []
        self.types: list[DataType] = []
        self.children: list[list[int]] = []
        self._names = bytearray()
        self._members: list[list[int]] = []
        self._zone_is_utc = zone == "UTC"
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

    def _add(self, kind: DataType) -> int:
        node = len(self.kinds)
        row = [0] * NODE_COLUMNS
        self.kinds.append(_KINDS[type(kind)])
        self.types.append(kind)
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
        inner = self.children[node] if self.kinds[node] is Kind.STRUCT else []
        return [node, *(each for child in inner for each in self._closure(child))]


class Decoded(NamedTuple):
    """The decoded values of a block."""

    column: pa.Array
    """A struct for each value, null where there is none."""
    malformed: int
    """Number of documents that do not fit the schema."""


class PayloadReader:
    """Decodes the values of records. Scratch memory is kept from call to call: it serves one read at a time."""

    def __init__(self, choice: PayloadChoice) -> None:
        self._choice = choice
        whole = choice.schema
        self._corrupt = choice.corrupt_member
        """The member that holds bad documents, ``None`` without one."""
        self._read_schema = StructType([field for field in whole.fields if field.name != self._corrupt])
        (field,) = to_arrow_schema(StructType([StructField("payload", whole)]), timezone="UTC")
        self._type: pa.DataType = field.type
        self._plan = _Plan(self._read_schema, choice.zone)
        self._exact = ExactReader(self._read_schema, choice.zone)
        self._stack = np.zeros(STACK, np.int64)
        self._counts = np.zeros(len(self._plan.kinds), np.int64)
        self._before = np.zeros(len(self._plan.kinds), np.int64)
        self._rooms = np.zeros(len(self._plan.kinds), np.int64)
        self._make_room(1_024)

    def _make_room(self, least: int) -> None:
        self._rooms = np.maximum(self._rooms, least)
        self._plan.nodes[:, ROOM] = self._rooms
        self._plan.nodes[:, BASE] = np.cumsum(self._rooms) - self._rooms
        size = int(self._rooms.sum())
        self._states, self._cells, self._sizes = (
            np.empty(size, np.uint8),
            np.empty(size, np.int64),
            np.empty(size, np.int64),
        )
        self._reals = np.empty(size, np.float64)

    def read(self, split: Split, data: Bytes, starts: Longs, lengths: Longs, offsets: Longs) -> Decoded:
        """Decode documents at places in ``data``; a negative length is a null.

        Raises:
            PayloadError: with the mode FAILFAST, the first bad document.
        """
        rows = len(starts)
        unusual = np.empty(rows, np.uint8)
        if rows > self._rooms[0]:
            self._make_room(rows)
        plan = self._plan
        while True:
            left = walk_all(
                data, starts, lengths, plan.nodes, plan.members, plan.names, plan.closures, self._stack,
                self._before, self._counts, self._states, self._cells, self._sizes, self._reals, unusual,
            )  # fmt: skip
            if left >= 0:
                break
            full = self._counts >= self._rooms
            self._rooms[full] *= 4
            self._make_room(0)
        made = self._struct(data, 0, self._type, lengths)
        return self._with_unusual(split, made, data, starts, lengths, offsets, unusual) if left else Decoded(made, 0)

    # Cells to Arrow.

    def _cells_of(self, node: int) -> tuple[Bytes, Longs, Longs, npt.NDArray[np.float64]]:
        base, count = int(self._plan.nodes[node, BASE]), int(self._counts[node])
        part = slice(base, base + count)
        return self._states[part], self._cells[part], self._sizes[part], self._reals[part]

    def _struct(self, data: Bytes, node: int, kind: pa.DataType, lengths: Longs | None = None) -> pa.Array:
        states = self._cells_of(node)[0]
        inner = iter(self._plan.children[node])
        children = []
        for number in range(kind.num_fields):
            member = kind.field(number)
            if lengths is not None and member.name == self._corrupt:
                children.append(pa.nulls(len(states), member.type))
            else:
                children.append(self._column(data, next(inner), member.type))
        validity, nulls = _validity(states)
        return pa.Array.from_buffers(kind, len(states), [validity], nulls, children=children)

    def _column(self, data: Bytes, node: int, kind: pa.DataType) -> pa.Array:
        what = self._plan.kinds[node]
        if what is Kind.STRUCT:
            return self._struct(data, node, kind)
        states, cells, sizes, reals = self._cells_of(node)
        count = len(states)
        validity, nulls = _validity(states)
        if what in (Kind.LIST, Kind.MAP):
            ends = np.zeros(count + 1, np.int32)
            ends[1:] = cells
            if what is Kind.LIST:
                inside = self._column(data, self._plan.children[node][0], kind.value_type)
            else:
                entries = kind.field(0).type
                keys, values = self._plan.children[node]
                pair = [self._column(data, keys, kind.key_type), self._column(data, values, kind.item_type)]
                inside = pa.Array.from_buffers(entries, len(pair[0]), [None], 0, children=pair)
            return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(ends)], nulls, children=[inside])
        if what in (Kind.STRING, Kind.BINARY):
            gather = gather_texts if what is Kind.STRING else gather_base64
            return _texts(gather, data, states, cells, sizes, kind, validity, nulls)
        if what is Kind.BOOLEAN:
            values = bitmap(cells != 0)
        elif what in (Kind.FLOAT, Kind.DOUBLE):
            values = _reals(data, states, cells, sizes, reals, kind)
        elif what is Kind.DECIMAL:
            wide = np.empty((count, 2), np.int64)
            wide[:, 0] = cells
            wide[:, 1] = cells >> 63
            values = pa.py_buffer(wide)
        else:
            values = pa.py_buffer(cells.astype(f"i{kind.bit_width // 8}", copy=True))
        return pa.Array.from_buffers(kind, count, [validity, values], nulls)

    # Documents that are not plain.

    def _with_unusual(  # noqa: PLR0917 - the block and what is known of it
        self, split: Split, made: pa.Array, data: Bytes, starts: Longs, lengths: Longs, offsets: Longs, unusual: Bytes
    ) -> Decoded:
        rows = np.flatnonzero(unusual)
        documents = [data[starts[row] : starts[row] + lengths[row]].tobytes() for row in rows.tolist()]
        readings = [self._exact.read(document) for document in documents]
        bad = [number for number, reading in enumerate(readings) if reading.wrong is not None]
        if bad:
            self._report(split, documents[bad[0]], readings[bad[0]], int(offsets[rows[bad[0]]]), len(bad))
        values = [
            None
            if reading.row is None
            else {**reading.row, self._corrupt: document if reading.wrong is not None else None}
            for document, reading in zip(documents, readings, strict=True)
        ]
        others = arrow_of(values, self._type)
        order = np.arange(len(made), dtype=np.int64)
        order[rows] = len(made) + np.arange(len(rows))
        indices = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
        return Decoded(pc.take(pa.concat_arrays([made, others]), indices), len(bad))

    def _report(self, split: Split, document: bytes, reading: Reading, offset: int, count: int) -> None:
        begin = f", which begins with {document[:_SHOWN]!r}" if self._choice.shows_records else ""
        what = f"{place(split, offset)}: the value does not fit valueSchema: {reading.wrong}{begin}"
        if self._choice.fail_fast:
            raise PayloadError(
                f"{what}. valueMode is FAILFAST; with PERMISSIVE such members are null, and the text of the document "
                "is in the STRING member _corrupt_record, if valueSchema has it"
            )
        _log.warning("%s. Such members are null; %d of one block of records", what, count)


def _validity(states: Bytes) -> tuple[pa.Buffer | None, int]:
    nulls = len(states) - int(np.count_nonzero(states))
    return (bitmap(states) if nulls else None), nulls


def _texts(  # noqa: PLR0917 - the parts of a column
    gather: Any, data: Bytes, states: Bytes, cells: Longs, sizes: Longs,
    kind: pa.DataType, validity: pa.Buffer | None, nulls: int,
) -> pa.Array:  # fmt: skip
    most = int(np.dot(sizes, states != Cell.NULL))
    offsets, target = np.empty(len(states) + 1, np.int32), pa.allocate_buffer(max(most, 1))
    end = gather(data, states, cells, sizes, offsets, np.frombuffer(target, np.uint8))
    return pa.Array.from_buffers(kind, len(states), [validity, pa.py_buffer(offsets), target.slice(0, end)], nulls)


def _reals(  # noqa: PLR0917 - the parts of a column
    data: Bytes, states: Bytes, cells: Longs, sizes: Longs, reals: npt.NDArray[np.float64], kind: pa.DataType
) -> pa.Buffer:
    with np.errstate(over="ignore", invalid="ignore"):
        # What is not a value is what was there before.
        values = reals.astype(np.float32 if pa.types.is_float32(kind) else np.float64)
    left = np.flatnonzero(states == Cell.TEXT)
    if len(left):
        # Arrow's parser rounds any decimal to the nearest number.
        texts = _texts(gather_texts, data, states[left], cells[left], sizes[left], pa.string(), None, 0)
        parsed = texts.cast(kind)
        values[left] = np.frombuffer(parsed.buffers()[1], values.dtype, count=len(left))
    return pa.py_buffer(values)


def arrow_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of values as ``payload_exact`` has them: dates and timestamps are numbers, structs are dicts."""
    count = len(values)
    present = np.array([value is not None for value in values], np.bool_)
    nulls = count - int(np.count_nonzero(present))
    validity = bitmap(present) if nulls else None
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        children = [
            arrow_of([None if value is None else value.get(field.name) for value in values], field.type)
            for field in fields
        ]
        return pa.Array.from_buffers(kind, count, [validity], nulls, children=children)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        ends = np.zeros(count + 1, np.int32)
        np.cumsum([len(value or ()) for value in values], out=ends[1:])
        inside = [each for value in values for each in value or ()]
        if pa.types.is_list(kind):
            child = arrow_of(inside, kind.value_type)
        else:
            pairs = [
                arrow_of([name for name, _ in inside], kind.key_type),
                arrow_of([value for _, value in inside], kind.item_type),
            ]
            child = pa.Array.from_buffers(kind.field(0).type, len(inside), [None], 0, children=pairs)
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(ends)], nulls, children=[child])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        texts = [b"" if v is None else v if isinstance(v, bytes) else java_bytes(v) for v in values]
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        data = [pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
        return pa.Array.from_buffers(kind, count, [validity, *data], nulls)
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        numbers = np.array([value or 0 for value in values], f"i{kind.bit_width // 8}")
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(numbers)], nulls)
    return pa.array(values, kind)


def java_bytes(text: str) -> bytes:
    """Return UTF-8 in which half of a pair of surrogates is a question mark, as Java writes it."""
    return text.encode("utf-8", "replace")
