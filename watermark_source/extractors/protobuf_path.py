"""The path of a field in Protobuf's bytes: tags from the message to the field, from a descriptor or from numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from watermark_source.errors import SchemaError, UsageError, shortened

Descriptor: TypeAlias = Any
"""A ``google.protobuf.descriptor.Descriptor`` of any implementation."""


class FieldType(IntEnum):
    """Types of fields, with their numbers in descriptors."""

    INT64 = 3
    UINT64 = 4
    INT32 = 5
    FIXED64 = 6
    FIXED32 = 7
    STRING = 9
    TIMESTAMP = 11
    UINT32 = 13
    SFIXED32 = 15
    SFIXED64 = 16
    SINT32 = 17
    SINT64 = 18


_MESSAGE, _GROUP = 11, 10
_SIZED = 2
_WIRE: Final = {1: 1, 2: 5, 3: 0, 4: 0, 5: 0, 6: 1, 7: 5, 8: 0, 9: 2, 10: 3, 11: 2, 12: 2, 13: 0, 14: 0, 15: 5, 16: 1,
                17: 0, 18: 0}  # fmt: skip
"""The wire type of each type of a descriptor."""
_TIMESTAMP: Final = "google.protobuf.Timestamp"
TYPES: Final = {_TIMESTAMP if kind is FieldType.TIMESTAMP else kind.name.lower(): kind for kind in FieldType}
"""Types of fields that can be timestamps, as in .proto files."""
_MOST_NUMBER = 2**29 - 1


@dataclass(frozen=True, slots=True)
class ProtobufPath:
    """The path of a field. A tag is a field's number times eight plus its wire type."""

    tags: npt.NDArray[np.int64]
    """The tags from the outermost message to the field."""
    clearing: npt.NDArray[np.int64]
    """Rows of level and tag: the other fields of a ``oneof`` with a field on the path, which replace it."""
    kind: FieldType


def path_by_numbers(path: tuple[str, ...], field_type: str) -> ProtobufPath:
    """Return the path by field numbers.

    Raises:
        UsageError: a text is no field number, or the type is no timestamp.
    """
    if not all(number.isascii() and number.isdigit() and 1 <= int(number) <= _MOST_NUMBER for number in path):
        raise UsageError(
            f"protobuf_event_time: field = {'.'.join(path)!r} without message must be field numbers, "
            f"1 to {_MOST_NUMBER}, such as '3.1'; or give message, for example message=Order"
        )
    if field_type not in TYPES:
        raise UsageError(
            f"protobuf_event_time: field_type = {field_type!r}; accepted are {', '.join(TYPES)}, "
            f"for example field_type='{_TIMESTAMP}'"
        )
    kind = TYPES[field_type]
    wires = [_SIZED] * (len(path) - 1) + [_WIRE[kind]]
    return _path([int(number) * 8 + wire for number, wire in zip(path, wires, strict=True)], [], kind)


def path_by_names(message: Descriptor, path: tuple[str, ...]) -> ProtobufPath:
    """Return the path by field names.

    Raises:
        SchemaError: a field does not exist, or the last one's type is no timestamp.
    """
    tags: list[int] = []
    clearing: list[tuple[int, int]] = []
    for level, name in enumerate(path):
        field = message.fields_by_name.get(name)
        if field is None:
            names = sorted(message.fields_by_name)
            raise SchemaError(
                f"the message {message.full_name} has no field {name!r}; its fields are {shortened(', '.join(names))}"
            )
        what = f"field {name!r} of the message {message.full_name}"
        if field.is_repeated:
            raise SchemaError(f"{what} is repeated, and a path cannot name an element: use a function of your own")
        if field.type == _GROUP:
            raise SchemaError(f"{what} is a group (delimited), which is not supported; accepted are other messages")
        tags.append(_tag(field))
        if field.containing_oneof is not None:
            others = [other for other in field.containing_oneof.fields if other.number != field.number]
            clearing += [(level, _tag(other)) for other in others]
        if level < len(path) - 1:
            if field.type != _MESSAGE:
                raise SchemaError(f"{what} is no message, so there is no field {path[level + 1]!r} in it")
            message = field.message_type
    return _path(tags, clearing, _kind(field, what))


def index_in_file(message: Descriptor) -> tuple[int, ...]:
    """Return a message's index in its file: at each level, how many messages are declared before it."""
    index: list[int] = []
    while message.containing_type is not None:
        outer = message.containing_type
        index.insert(0, [nested.full_name for nested in outer.nested_types].index(message.full_name))
        message = outer
    return list(message.file.message_types_by_name).index(message.name), *index


def _kind(field: Any, what: str) -> FieldType:
    if field.type in (*FieldType,) and (field.type != _MESSAGE or field.message_type.full_name == _TIMESTAMP):
        return FieldType(field.type)
    # A descriptor has numbers for types, and no names.
    seen = {1: "double", 2: "float", 8: "bool", 12: "bytes", 14: "an enum"}.get(field.type)
    raise SchemaError(
        f"{what} is {seen or f'the message {field.message_type.full_name}'}, which is no timestamp; accepted are "
        f"{', '.join(TYPES)}, for example google.protobuf.Timestamp {field.name} = {field.number};"
    )


def _tag(field: Any) -> int:
    return int(field.number * 8 + _WIRE[field.type])


def _path(tags: list[int], clearing: list[tuple[int, int]], kind: FieldType) -> ProtobufPath:
    return ProtobufPath(np.array(tags, np.int64), np.array(clearing, np.int64).reshape(-1, 2), kind)
