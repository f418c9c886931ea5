"""Messages of Protobuf that are decoded: their fields, from descriptors, and their types as in ``from_protobuf``.

Descriptors come from a file, or from a schema registry, which has the schemas of writers too.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

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

from pyspark_aligned_kafka.client.kept_schemas import VERSION_NUMBER, version_of
from pyspark_aligned_kafka.client.schema_registry import RegisteredSchema, SchemaRegistry
from pyspark_aligned_kafka.records.payload import Paths, needed_registry
from pyspark_aligned_kafka.records.payload_cells import check_size
from pyspark_aligned_kafka.records.payload_schema import DEEPEST, first_twice
from pyspark_aligned_kafka.records.protobuf_files import file_of, index_in_file, message_in_set, named_message, names_in
from watermark_source.errors import MissingPackageError, SchemaError, UnsupportedFormatError, listed, shortened
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


class Shape(IntEnum):
    """How often a field occurs."""

    SINGLE = 0
    LIST = 1
    MAP = 2


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

    @property
    def member_type(self) -> DataType:
        """The member's type."""
        return ArrayType(self._one) if self.shape is Shape.LIST else self._one

    @property
    def _one(self) -> DataType:
        if self.shape is Shape.MAP:
            assert self.message is not None
            key, value = self.message.fields
            return MapType(key.member_type, value.member_type)
        if self.moment is not None:
            return self.moment
        return _TYPES[self.type] if self.message is None else self.message.column_type


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

    @property
    def column_type(self) -> StructType:
        """The type of the column."""
        return StructType([StructField(each.name, each.member_type) for each in self.members])


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """A message that is decoded, and where the schemas of writers are."""

    message: Message
    index: tuple[int, ...]
    """At each level of its file, how many messages are declared before it."""
    registry: SchemaRegistry | None
    """Used where values are behind the ids of their schemas; without it only their indexes are compared."""


_VERSION = re.compile(rf"(?P<subject>.+):(?P<version>{VERSION_NUMBER}|latest)(?::(?P<message>[A-Za-z_][\w.]*))?")
"""No message is called latest: it stands for a version, which ``version_of`` refuses."""


def message_schema(
    text: str, registry: SchemaRegistry | None = None, paths: Paths = ()
) -> tuple[StructType, MessageSchema]:
    """Return the type of the column, and the message, of ``path:message``, or of ``subject:version`` in a registry.

    The file is a descriptor set, as ``protoc --include_imports --descriptor_set_out`` writes it. The message of a
    version with several follows it, ``subject:version:message``. With ``paths`` it has no more than these members.

    Raises:
        ValueError: the file cannot be read, or the message is not decoded, with the reason.
        RefusedError, UnreachableError, ResponseTimeoutError: the registry returned no schema.
    """
    found = _VERSION.fullmatch(text)
    try:
        # Without a registry a path may have a colon and a number in it.
        if found and (registry is not None or found["message"] is None):
            descriptor = _registered_message(needed_registry(registry), *found.group("subject", "version", "message"))
        else:
            descriptor = _message_in_file(text)
    except ImportError as error:
        raise ValueError(f"{error}; descriptors need protobuf, install it with: {to_install('protobuf')}") from None
    except (SchemaError, UnsupportedFormatError) as error:
        raise ValueError(str(error)) from None
    message = message_of(descriptor, paths)
    return message.column_type, MessageSchema(message, index_in_file(descriptor), registry)


def _message_in_file(text: str) -> Any:
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name.strip():
        raise ValueError("there is no path, colon and name of a message")
    try:
        # A device or a pipe has no end.
        if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
            raise ValueError(f"{path} is not a regular file")
        if (size := Path(path).stat().st_size) > _LARGEST_FILE:
            raise ValueError(f"{path} has {size} bytes, and descriptors have at most {_LARGEST_FILE}")
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ValueError(f"the file cannot be read: {error}") from None
    return message_in_set(name.strip(), content)


def _registered_message(registry: SchemaRegistry, subject: str, version: str, name: str | None) -> Any:
    file = file_of(version_of(registry, subject, version, serialized=True), registry)
    names = names_in(file.message_types_by_name.values())
    if name is None and len(file.message_types_by_name) != 1:
        raise ValueError(f"it has the messages {listed(names)}: write one of them behind the version, such as "
                         f"{subject}:{version}:{names[0] if names else 'shop.Order'}")  # fmt: skip
    return named_message(file, names[0] if name is None else name)


# Schemas of writers.


_READ_AS: Final = {
    BOOL: (INT32, INT64, UINT32, UINT64), ENUM: (INT32, INT64), INT32: (INT64,), UINT32: (UINT64, INT64),
    SINT32: (SINT64,), STRING: (BYTES,), BYTES: (STRING,),
}  # fmt: skip
"""The other types that have all values of a writer's type, in the same bytes."""


def index_in_schema(message: Message, schema: RegisteredSchema, registry: SchemaRegistry) -> tuple[int, ...]:
    """Return the index of a message in the schema of a writer.

    A field has the same number there, and the same type or one with fewer values: Protobuf would cut off bits of
    others, or take them for other numbers.

    Raises:
        MissingPackageError: protobuf is not installed.
        SchemaError: no value of the schema is read as the message, with the reason.
        UnsupportedFormatError: the registry has no descriptors.
    """
    try:
        file = file_of(schema, registry)
    except ImportError as error:
        raise MissingPackageError(
            f"{error}; schemas of Protobuf in a registry need protobuf on the executors too, install it with: "
            f"{to_install('protobuf')}"
        ) from None
    descriptor = named_message(file, message.name)
    _check_fields(message, descriptor, "")
    return index_in_file(descriptor)


def _check_fields(reader: Message, writer: Any, where: str) -> None:
    written = {field.number: field for field in writer.fields}
    for field in reader.fields:
        other = written.get(field.number)
        if other is None:
            continue
        is_map = other.message_type is not None and other.message_type.GetOptions().map_entry
        shape = Shape.MAP if is_map else Shape.LIST if other.is_repeated else Shape.SINGLE
        fits = field.type == other.type or field.type in _READ_AS.get(other.type, ())
        if field.moment is not None and field.message is not None and fits:
            fits = other.message_type.full_name == field.message.name
        if not fits or shape not in (field.shape, Shape.SINGLE) or (is_map != (field.shape is Shape.MAP)):
            there, here = _shown(shape, other.type), _shown(field.shape, field.type)
            raise SchemaError(f"field {field.number}, {where}{field.name}, is a {there} in it, and not a {here}")
        if field.message is not None and field.moment is None:
            _check_fields(field.message, other.message_type, f"{where}{field.name}.")


def _shown(shape: Shape, kind: int) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto  # noqa: PLC0415 - an extra

    return f"{shape.name} {FieldDescriptorProto.Type.Name(kind).removeprefix('TYPE_')}".lower()


def message_of(descriptor: Any, paths: Paths = ()) -> Message:
    """Return a message from its ``google.protobuf`` descriptor, or with ``paths`` no more of it than these members.

    Raises:
        ValueError: it contains itself, is too deep or too large, or has no field that is decoded.
    """
    found = _Reader().message(descriptor, (), paths)
    if not found.members:
        raise ValueError(f"the message {found.name} has no fields")
    return found


class _Reader:
    def __init__(self) -> None:
        self._fields = 0

    def message(self, descriptor: Any, within: tuple[str, ...], paths: Paths) -> Message:
        name = descriptor.full_name
        if name in within and not paths:
            circle = reversed((*within[within.index(name) :], name))
            raise ValueError(
                f"the message {name} contains itself ({shortened(' in '.join(circle))}), and Spark has no such type: "
                "read the column value, and call from_protobuf with recursive.fields.max.depth"
            )
        if len(within) >= DEEPEST:
            raise ValueError(f"the message {within[0]} has more than {DEEPEST} messages in each other")
        fields = _fields_on(descriptor, paths)
        self._fields += len(fields)
        if self._fields > _MOST_FIELDS:
            raise ValueError(f"the message {(*within, name)[0]} has more than {_MOST_FIELDS} fields with those in it")
        names = [each.name.lower() for each, _ in fields]
        if (twice := first_twice(names)) is not None:
            raise ValueError(
                f"the message {name} has fields whose names differ in upper and lower case alone ({twice}), and "
                "columns of Spark cannot"
            )
        oneofs = {each.full_name: number for number, each in enumerate(descriptor.oneofs)}
        inner = (*within, name)
        return Message(name, tuple(self._field(each, inner, oneofs, rest) for each, rest in fields))

    def _field(self, field: Any, within: tuple[str, ...], oneofs: dict[str, int], paths: Paths | None) -> Field:
        shape = Shape.LIST if field.is_repeated else Shape.SINGLE
        message = moment = None
        if field.type in (MESSAGE, GROUP):
            inner = field.message_type
            moment = _WELL_KNOWN.get(inner.full_name)
            message = Message(inner.full_name, ())
            if moment is None and paths is not None:
                message = self.message(inner, within, paths)
            if inner.GetOptions().map_entry:
                shape = Shape.MAP
        enum = _names(field.enum_type) if field.type == ENUM else None
        of_entry = field.containing_type is not None and field.containing_type.GetOptions().map_entry
        required = field.is_required
        single = shape is Shape.SINGLE and message is None
        default: int | bytes | None = None
        if single and not required and (of_entry or field.has_default_value):
            default = _bits(field.type, field.default_value)
        if paths is None:
            # It is read for what it replaces, and has no member, as a message without fields.
            message, moment, enum, default = Message(field.name, ()), None, None, None
        return Field(
            name=field.name, number=field.number, type=field.type, shape=shape, message=message, moment=moment,
            enum=enum, required=required, implicit=single and not field.has_presence and not of_entry, default=default,
            oneof=None if field.containing_oneof is None else oneofs[field.containing_oneof.full_name],
        )  # fmt: skip


def _fields_on(descriptor: Any, paths: Paths) -> list[tuple[Any, Paths | None]]:
    """Return the fields of a message that are on paths, each with the rest of these; without paths all of them.

    The others of a ``oneof`` replace the one that is: they are there with ``None``.
    """
    rests = {path[0]: tuple(each[1:] for each in paths if each[:1] == path[:1]) for path in paths if path}
    on_path = [each for each in descriptor.fields if each.name in rests]
    if () in paths or len(on_path) < len(rests):
        # A path that ends here, or names nothing here, is refused with all there is.
        on_path = []
    if not on_path:
        return [(each, ()) for each in descriptor.fields]
    groups = {each.containing_oneof.full_name for each in on_path if each.containing_oneof is not None}
    return [
        (each, rests.get(each.name))
        for each in descriptor.fields
        if each.name in rests or (each.containing_oneof is not None and each.containing_oneof.full_name in groups)
    ]


def _names(enum: Any) -> Names:
    # Of several names the first one stays.
    first = {value.number: value.name for value in reversed(list(enum.values))}
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


# Members as they are delivered: names of enums, and defaults that are texts.


def enum_names(enum: Names, column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the names of an enum's numbers; a number without one is named as Java's library names it."""
    if not len(column):
        return pa.array([], kind)
    numbers = np.frombuffer(column.buffers()[1], np.int32, len(column))
    known = np.array(enum.numbers, np.int32)
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    names = list(enum.names)
    other = np.flatnonzero(known[at] != numbers)
    if len(other):
        unknown, places = np.unique(numbers[other], return_inverse=True)
        at[other] = len(names) + places
        names += [f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}" for number in unknown.tolist()]
    sizes = np.array([len(name.encode()) for name in names], np.int64)
    check_size(int(np.bincount(at, minlength=len(names)) @ sizes))
    indices = pa.Array.from_buffers(
        pa.int64(), len(column), [column.buffers()[0], pa.py_buffer(at.astype(np.int64))], column.null_count
    )
    return pa.array(names, kind).take(indices)


def with_default(default: bytes, column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column of texts, or of bytes, with the default of their field where there are none."""
    check_size(column.nbytes + column.null_count * len(default))
    return pc.fill_null(column, pa.scalar(default.decode() if pa.types.is_string(kind) else default, kind))
