"""``protobuf_event_time``: returns a function for ``eventTimeColumn`` that reads a field of Protobuf values."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from watermark_source.errors import SchemaError, UsageError, listed, shortened
from watermark_source.extractors.protobuf_path import (
    Descriptor,
    ProtobufPath,
    index_in_file,
    path_by_names,
    path_by_numbers,
)
from watermark_source.extractors.protobuf_walk import walk
from watermark_source.extractors.schema_registry import (
    UNITS,
    Extractor,
    checked_path,
    framed,
    moments_array,
    unframed,
)
from watermark_source.installation import to_install
from watermark_source.machine_code.native import PREFIX

_log = logging.getLogger(__name__)
_EXAMPLE = (
    "protobuf_event_time('created_at', message=Order) with the class that protoc generated, or by numbers "
    "protobuf_event_time('3.1', field_type='int64')"
)


def protobuf_event_time(
    field: str,
    *,
    message: type[Any] | Descriptor | str | None = None,
    descriptors: bytes | Path | None = None,
    field_type: str | None = None,
    message_index: tuple[int, ...] | None = None,
    wire_format: Literal["confluent", "plain"] = "confluent",
    unit: str = "millis",
    column: str = "value",
) -> Extractor:
    """Return a function that reads the event time of Protobuf records.

    Compiled code reads each value once and decodes no other field. A value has no event time if it is null, not in the
    wire format, of another message, corrupt or truncated, or if the field is absent: ``eventTimeErrors`` decides about
    its record. It needs no schema registry: field numbers and types are the same in all versions of a schema.

    Args:
        field: the field's name, ``outer.inner`` for a field of a nested message; or with ``field_type`` its number,
            ``3.1``. Its type is ``google.protobuf.Timestamp``, any integer, or ``string`` with ISO 8601.
        message: the class that protoc generated for the message, its descriptor, or with ``descriptors`` its full name.
        descriptors: a serialized ``FileDescriptorSet``, or the path of its file, as ``protoc --include_imports
            --descriptor_set_out`` writes it.
        field_type: instead of ``message``: the type as in a .proto file, ``int64`` for example.
        message_index: the message's index in its file: at each level, how many messages are declared before it. By
            default the index of ``message``; without a message, any index is accepted.
        wire_format: ``confluent``, or ``plain`` for values that consist of the message alone.
        unit: unit of numbers: ``seconds``, ``millis``, ``micros``, ``nanos`` or ``days``.
        column: ``value`` or ``key``.

    Raises:
        UsageError: the arguments do not fit together.
        SchemaError: the message or field does not exist, or the field's type is no timestamp.
    """
    names = checked_path("protobuf_event_time", field, unit, column)
    if (message is None) == (field_type is None):
        raise UsageError(f"protobuf_event_time: give message, or field_type, and not both; for example {_EXAMPLE}")
    if isinstance(message, str) != (descriptors is not None):
        raise UsageError(
            "protobuf_event_time: descriptors come with the message's full name, and its name with them, for example "
            "message='shop.Order', descriptors=Path('orders.desc')"
        )
    if wire_format not in ("confluent", "plain"):
        raise UsageError(f"protobuf_event_time: wire_format = {wire_format!r}; accepted are confluent and plain")
    index = _checked_index(message_index)
    if field_type is not None:
        return _ProtobufTimes(
            "", path_by_numbers(names, field_type), index, wire_format=wire_format, unit=unit, column=column
        )
    descriptor = _descriptor(message, descriptors)
    path = path_by_names(descriptor, names)
    return _ProtobufTimes(
        descriptor.full_name, path, index or index_in_file(descriptor), wire_format=wire_format, unit=unit,
        column=column,
    )  # fmt: skip


class _ProtobufTimes:
    """The function."""

    def __init__(
        self, name: str, path: ProtobufPath, index: tuple[int, ...], *, wire_format: str, unit: str, column: str
    ) -> None:
        self._name = name
        self._path = path
        self._index = index
        self._framed = wire_format == "confluent"
        self._unit = UNITS[unit]
        self._column = column
        self._logged = False

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        values = (framed if self._framed else unframed)(records, self._column)
        micros, other = walk(values, PREFIX if self._framed else 0, self._index, self._path, self._unit)
        if other >= 0 and not self._logged:
            self._logged = True
            _log.warning(
                "a record of schema %d is of another message than %s with the index %s: such records have no event "
                "time; set message_index to read another message",
                values.ids[other], self._name or "that", list(self._index),
            )  # fmt: skip
        return moments_array(micros)


def _checked_index(given: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the index, empty by default."""
    if given is None:
        return ()
    if not isinstance(given, tuple | list) or not given or not all(type(n) is int and 0 <= n < 2**31 for n in given):
        raise UsageError(
            f"protobuf_event_time: message_index = {given!r}; it is a tuple of numbers from 0 on, for example (1,) for "
            "the second message of a file"
        )
    return tuple(given)


def _descriptor(message: Any, descriptors: bytes | Path | None) -> Descriptor:
    if isinstance(message, str):
        assert descriptors is not None
        return _from_file_set(message, descriptors)
    descriptor = getattr(message, "DESCRIPTOR", message)
    if not hasattr(descriptor, "fields_by_name") or not hasattr(descriptor, "containing_type"):
        raise UsageError(
            f"protobuf_event_time: message = {shortened(message)}; accepted are a class that protoc generated, a "
            f"descriptor, or with descriptors a name; for example {_EXAMPLE}"
        )
    return descriptor


def _from_file_set(name: str, given: bytes | Path) -> Descriptor:
    try:
        return message_in_set(name, given.read_bytes() if isinstance(given, Path) else given)
    except ImportError as error:
        raise UsageError(
            f"protobuf_event_time: {error}; descriptors need protobuf, install it with: {to_install('protobuf')}"
        ) from None
    except OSError as error:
        raise UsageError(f"protobuf_event_time: the descriptors cannot be read: {error}") from None


def message_in_set(name: str, content: bytes) -> Descriptor:
    """Return the descriptor of a message in a serialized ``FileDescriptorSet``.

    Raises:
        ImportError: protobuf is not installed.
        SchemaError: the bytes are no such set, or it has no such message.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message  # noqa: PLC0415 - an extra

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content).file
    except (message.DecodeError, TypeError):
        # Not the bytes: they may be those of any file that the driver can read.
        seen = f"{len(content)} bytes that are none" if isinstance(content, bytes) else shortened(content)
        raise SchemaError(
            f"descriptors are a serialized FileDescriptorSet, as protoc --descriptor_set_out writes it; seen {seen}"
        ) from None
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"descriptors that do not fit together: {error}; was it protoc --include_imports?") from None
    try:
        return pool.FindMessageTypeByName(name)
    except (KeyError, TypeError, UnicodeError):
        names = [f"{file.package}.{m.name}".lstrip(".") for file in files for m in file.message_type]
        raise SchemaError(f"the descriptors have no message {name!r}; they have {listed(names)}") from None
