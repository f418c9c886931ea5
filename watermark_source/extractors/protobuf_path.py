"""Where a field is in Protobuf's bytes: the numbers on the way to it, found by names in a descriptor or given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from watermark_source.errors import SchemaError, UsageError, shortened

Descriptor: TypeAlias = Any
"""A ``google.protobuf.descriptor.Descriptor``, whichever implementation made it."""


class Kind(IntEnum):
    """How the field is written, by the numbers that descriptors have for types."""

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
TYPES: Final = {_TIMESTAMP if kind is Kind.TIMESTAMP else kind.name.lower(): kind for kind in Kind}
"""Types of a field that may hold a moment, as .proto files write them."""
_MOST_NUMBER = 2**29 - 1


@dataclass(frozen=True, slots=True)
class ProtobufPath:
    """The way to a field; tags are a field's number times eight and its wire type."""

    tags: npt.NDArray[np.int64]
    """From the outermost message to the field."""
    clearing: npt.NDArray[np.int64]
    """Rows of level and tag: another field of a ``oneof`` with the one on the path, which takes its place."""
    kind: Kind


def path_by_numbers(path: tuple[str, ...], field_type: str) -> ProtobufPath:
    """Return the way by the numbers of fields.

    Raises:
        UsageError: they are no numbers of fields, or the type can be no moment.
    """
    if not all(each.isascii() and each.isdigit() and 1 <= int(each) <= _MOST_NUMBER for each in path):
        raise UsageError(
            f"protobuf_event_time: field = {'.'.join(path)!r} without message must be numbers of fields, "
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
    """Return the way by the names of fields.

    Raises:
        SchemaError: there is no such field, or it can be no moment.
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
            raise SchemaError(f"{what} is repeated, and which of its elements is meant cannot be said: use a function")
        if field.type == _GROUP:
            raise SchemaError(f"{what} is a group (delimited), which is not looked into; accepted are other messages")
        tags.append(_tag(field))
        if field.containing_oneof is not None:
            clearing += [(level, _tag(each)) for each in field.containing_oneof.fields if each.number != field.number]
        if level < len(path) - 1:
            if field.type != _MESSAGE:
                raise SchemaError(f"{what} is no message, so there is no field {path[level + 1]!r} in it")
            message = field.message_type
    return _path(tags, clearing, _kind(field, what))


def index_in_file(message: Descriptor) -> tuple[int, ...]:
    """Return which message of its file it is: at each level, how many are declared before it."""
    index: list[int] = []
    while message.containing_type is not None:
        outer = message.containing_type
        index.insert(0, [each.full_name for each in outer.nested_types].index(message.full_name))
        message = outer
    return list(message.file.message_types_by_name).index(message.name), *index


def _kind(field: Any, what: str) -> Kind:
    if field.type in (*Kind,) and (field.type != _MESSAGE or field.message_type.full_name == _TIMESTAMP):
        return Kind(field.type)
    # A descriptor knows the names of types by their numbers alone.
    seen = {1: "double", 2: "float", 8: "bool", 12: "bytes", 14: "an enum"}.get(field.type)
    raise SchemaError(
        f"{what} is {seen or f'the message {field.message_type.full_name}'}, which is no moment; accepted are "
        f"{', '.join(TYPES)}, for example google.protobuf.Timestamp {field.name} = {field.number};"
    )


def _tag(field: Any) -> int:
    return int(field.number * 8 + _WIRE[field.type])


def _path(tags: list[int], clearing: list[tuple[int, int]], kind: Kind) -> ProtobufPath:
    return ProtobufPath(np.array(tags, np.int64), np.array(clearing, np.int64).reshape(-1, 2), kind)
