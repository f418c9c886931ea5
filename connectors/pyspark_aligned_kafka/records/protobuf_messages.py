"""Messages of Protobuf that are decoded: their fields, from descriptors, and their types as in ``from_protobuf``."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_aligned_kafka.records.payload_schema import DEEPEST, first_twice
from watermark_source.errors import SchemaError
from watermark_source.installation import to_install

_MOST_FIELDS = 20_000
_LARGEST_FILE = 64 << 20
"""Limit on the bytes of descriptors: Protobuf's own limit on a message is its default of 64 MiB."""
DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING, GROUP, MESSAGE, BYTES, UINT32, ENUM = range(1, 15)
SFIXED32, SFIXED64, SINT32, SINT64 = range(15, 19)
"""Types of fields, with their numbers in descriptors."""
_TYPES: dict[int, DataType] = {
    DOUBLE: DoubleType(), FLOAT: FloatType(), INT64: LongType(), UINT64: DecimalType(20, 0), INT32: IntegerType(),
    FIXED64: DecimalType(20, 0), FIXED32: LongType(), BOOL: BooleanType(), STRING: StringType(), BYTES: BinaryType(),
    UINT32: LongType(), ENUM: StringType(), SFIXED32: IntegerType(), SFIXED64: LongType(), SINT32: IntegerType(),
    SINT64: LongType(),
}  # fmt: skip
_WELL_KNOWN: dict[str, DataType] = {
    "google.protobuf.Timestamp": TimestampType(), "google.protobuf.Duration": DayTimeIntervalType()
}  # fmt: skip


class Shape(Enum):
    """How often a field occurs."""

    SINGLE = "single"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class Names:
    """The values of an enum: numbers in their order, with the name that is declared first."""

    name: str
    numbers: tuple[int, ...]
    names: tuple[str, ...]
    closed: bool
    """Whether no other number can be a value (proto2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a message."""

    name: str
    number: int
    type: int
    shape: Shape
    message: Message | None
    """Of a message or a group; the entry of a map."""
    moment: DataType | None
    """The type of a message that is delivered as one value."""
    enum: Names | None
    required: bool
    implicit: bool
    """Whether the default means absence, as for most fields of proto3."""
    default: int | bytes | None
    """What is delivered where the field is absent: the bits of a number, or a text; ``None``: null."""
    oneof: int | None
    """Which ``oneof`` of its message it is in."""

    @property
    def decoded(self) -> bool:
        """Whether there is a member for it: not for a message without fields, as Spark has no such type."""
        if self.message is None or self.moment is not None:
            return True
        return len(self.message.members) >= (2 if self.shape is Shape.MAP else 1)

    def type_of(self, enum: DataType) -> DataType:
        """Return the member's type; ``enum`` is that of an enum."""
        kind = self._one(enum)
        return ArrayType(kind) if self.shape is Shape.LIST else kind

    def _one(self, enum: DataType) -> DataType:
        if self.shape is Shape.MAP:
            assert self.message is not None
            key, value = self.message.fields
            return MapType(key.type_of(enum), value.type_of(enum))
        if self.moment is not None:
            return self.moment
        if self.message is not None:
            return self.message.type_of(enum)
        return enum if self.enum is not None else _TYPES[self.type]


@dataclass(frozen=True, slots=True)
class Message:
    """A message."""

    name: str
    fields: tuple[Field, ...]
    """All fields, in the order of the .proto file."""

    @property
    def members(self) -> tuple[Field, ...]:
        """The fields that are decoded."""
        return tuple(each for each in self.fields if each.decoded)

    def type_of(self, enum: DataType) -> StructType:
        """Return the type of the column; ``enum`` is that of an enum."""
        return StructType([StructField(each.name, each.type_of(enum)) for each in self.members])


def message_schema(text: str) -> tuple[StructType, Message]:
    """Return the type of the column, and the message, of ``path:message``.

    The file is a descriptor set, as ``protoc --include_imports --descriptor_set_out`` writes it.

    Raises:
        ValueError: the file cannot be read, or the message is not decoded, with the reason.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name.strip():
        raise ValueError("there is no path, colon and name of a message")
    try:
        # A device or a pipe has no end.
        if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
            raise ValueError(f"{path} is no regular file")
        if (size := Path(path).stat().st_size) > _LARGEST_FILE:
            raise ValueError(f"{path} has {size} bytes, and descriptors have at most {_LARGEST_FILE}")
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ValueError(f"the file cannot be read: {error}") from None
    try:
        from watermark_source.extractors.protobuf import message_in_set  # noqa: PLC0415 - an extra

        descriptor = message_in_set(name.strip(), content)
    except ImportError as error:
        raise ValueError(f"{error}; descriptors need protobuf, install it with: {to_install('protobuf')}") from None
    except SchemaError as error:
        raise ValueError(str(error)) from None
    message = message_of(descriptor)
    return message.type_of(StringType()), message


def message_of(descriptor: Any) -> Message:
    """Return a message from its ``google.protobuf`` descriptor.

    Raises:
        ValueError: it contains itself, is too deep or too large, or has no field that is decoded.
    """
    found = _Reader().message(descriptor, ())
    if not found.members:
        raise ValueError(f"the message {found.name} has no fields")
    return found


class _Reader:
    def __init__(self) -> None:
        self._fields = 0

    def message(self, descriptor: Any, within: tuple[str, ...]) -> Message:
        name = descriptor.full_name
        if name in within:
            raise ValueError(
                f"the message {name} contains itself ({' in '.join(reversed((*within, name)))}), and Spark has no such "
                "type: read the column value, and call from_protobuf with recursive.fields.max.depth"
            )
        if len(within) >= DEEPEST:
            raise ValueError(f"the message {within[0]} has more than {DEEPEST} messages in each other")
        self._fields += len(descriptor.fields)
        if self._fields > _MOST_FIELDS:
            raise ValueError(f"the message {(*within, name)[0]} has more than {_MOST_FIELDS} fields with those in it")
        names = [each.name.lower() for each in descriptor.fields]
        if (twice := first_twice(names)) is not None:
            raise ValueError(
                f"the message {name} has fields whose names differ in upper and lower case alone ({twice}), and "
                "columns of Spark cannot"
            )
        oneofs = {each.full_name: number for number, each in enumerate(descriptor.oneofs)}
        inner = (*within, name)
        return Message(name, tuple(self._field(each, inner, oneofs) for each in descriptor.fields))

    def _field(self, field: Any, within: tuple[str, ...], oneofs: dict[str, int]) -> Field:
        shape = Shape.LIST if field.is_repeated else Shape.SINGLE
        message = moment = None
        if field.type in (MESSAGE, GROUP):
            inner = field.message_type
            moment = _WELL_KNOWN.get(inner.full_name)
            message = self.message(inner, within) if moment is None else Message(inner.full_name, ())
            if inner.GetOptions().map_entry:
                shape = Shape.MAP
        enum = _names(field.enum_type) if field.type == ENUM else None
        of_entry = field.containing_type is not None and field.containing_type.GetOptions().map_entry
        required = field.is_required
        single = shape is Shape.SINGLE and message is None
        default: int | bytes | None = None
        if single and not required and (of_entry or field.has_default_value):
            default = _bits(field.type, field.default_value)
        return Field(
            name=field.name, number=field.number, type=field.type, shape=shape, message=message, moment=moment,
            enum=enum, required=required, implicit=single and not field.has_presence and not of_entry, default=default,
            oneof=None if field.containing_oneof is None else oneofs[field.containing_oneof.full_name],
        )  # fmt: skip


def _names(enum: Any) -> Names:
    first: dict[int, str] = {}
    for value in enum.values:
        first.setdefault(value.number, value.name)
    numbers = tuple(sorted(first))
    return Names(enum.name, numbers, tuple(first[number] for number in numbers), bool(enum.is_closed))


def _bits(kind: int, value: Any) -> int | bytes:
    if kind == DOUBLE:
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    if kind == FLOAT:
        return int(struct.unpack("<i", struct.pack("<f", value))[0])
    if kind == STRING:
        return str(value).encode()
    return bytes(value) if kind == BYTES else int(value) - (int(value) >> 63 << 64 if int(value) >= 2**63 else 0)


# Columns as they are delivered: names of enums, and defaults that are texts.


def delivered(column: pa.Array, message: Message, kind: pa.DataType) -> pa.Array:
    """Return a column of a message that was read with numbers for enums."""
    children = [_member_of(column.field(at), each, kind.field(at).type) for at, each in enumerate(message.members)]
    return pa.Array.from_buffers(kind, len(column), [column.buffers()[0]], column.null_count, children=children)


def _member_of(column: pa.Array, field: Field, kind: pa.DataType) -> pa.Array:
    if field.shape is Shape.LIST:
        elements = _value_of(column.values, field, kind.value_type)
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, children=[elements])
    if field.shape is Shape.MAP:
        return _map_of(column, field, kind)
    return _value_of(column, field, kind)


def _value_of(column: pa.Array, field: Field, kind: pa.DataType) -> pa.Array:
    if field.enum is not None:
        return _named(column, field.enum)
    if isinstance(field.default, bytes):
        text = field.default.decode() if pa.types.is_string(kind) else field.default
        return pc.fill_null(column, pa.scalar(text, kind))
    if field.message is not None and field.moment is None:
        return delivered(column, field.message, kind)
    return column


def _named(column: pa.Array, enum: Names) -> pa.Array:
    """Return the names of an enum's numbers; a number without one is named as Java's library names it."""
    if not len(column):
        return pa.array([], pa.string())
    numbers = np.frombuffer(column.buffers()[1], np.int32, len(column))
    known = np.array(enum.numbers, np.int32)
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    names = list(enum.names)
    other = np.flatnonzero(known[at] != numbers)
    if len(other):
        unknown, places = np.unique(numbers[other], return_inverse=True)
        at[other] = len(names) + places
        names += [f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}" for number in unknown.tolist()]
    indices = pa.Array.from_buffers(
        pa.int64(), len(column), [column.buffers()[0], pa.py_buffer(at.astype(np.int64))], column.null_count
    )
    return pa.array(names, pa.string()).take(indices)


def _map_of(column: pa.Array, field: Field, kind: pa.DataType) -> pa.Array:
    assert field.message is not None
    pair = [
        _value_of(each, of, inner)
        for each, of, inner in zip(
            (column.keys, column.items), field.message.fields, (kind.key_type, kind.item_type), strict=True
        )
    ]
    entries = pa.Array.from_buffers(kind.field(0).type, len(column.keys), [None], 0, children=pair)
    return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], column.null_count, children=[entries])
