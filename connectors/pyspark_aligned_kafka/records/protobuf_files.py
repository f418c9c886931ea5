"""Descriptors of Protobuf's messages: from a descriptor set, or from the files of a schema registry."""

from __future__ import annotations

import base64
import importlib
from typing import Any, Final

from pyspark_aligned_kafka.client.schema_registry import RegisteredSchema, SchemaRegistry
from watermark_source.errors import SchemaError, UnsupportedFormatError, listed, shortened

_WELL_KNOWN_FILES: Final = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip


def message_in_set(name: str, content: bytes) -> Any:
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


def index_in_file(message: Any) -> tuple[int, ...]:
    """Return a message's index in its file: at each level, how many messages are declared before it."""
    index: list[int] = []
    while message.containing_type is not None:
        outer = message.containing_type
        index.insert(0, [nested.full_name for nested in outer.nested_types].index(message.full_name))
        message = outer
    return list(message.file.message_types_by_name).index(message.name), *index


def names_in(messages: Any) -> list[str]:
    """Return the full names of messages and of those declared in them, entries of maps aside."""
    found: list[str] = []
    for each in messages:
        if not each.GetOptions().map_entry:
            found += [each.full_name, *names_in(each.nested_types)]
    return found


def named_message(file: Any, name: str) -> Any:
    """Return the descriptor of a message in a file; raises ``SchemaError`` if it has no such message."""
    if name not in (names := names_in(file.message_types_by_name.values())):
        raise SchemaError(f"it has no message {name}; it has {listed(names)}")
    return file.pool.FindMessageTypeByName(name)


def file_of(schema: RegisteredSchema, registry: SchemaRegistry) -> Any:
    """Return the ``FileDescriptor`` of a schema, in a pool with the files that it imports.

    Raises:
        ImportError: protobuf is not installed.
        SchemaError: it is no schema of Protobuf, or not whole.
        UnsupportedFormatError: the registry has no descriptors.
    """
    from google.protobuf import descriptor_pool  # noqa: PLC0415 - an extra

    if schema.kind != "PROTOBUF":
        raise SchemaError(f"its type is {shortened(schema.kind)}, not PROTOBUF")
    pool = descriptor_pool.DescriptorPool()
    imported = {name: _file_proto(text, registry) for name, text in zip(schema.names, schema.references, strict=True)}
    file = _file_proto(schema.text, registry)
    # Registries give it a name that one of the others may have.
    file.name = "the schema"
    try:
        _add(pool, file, imported, set())
        return pool.FindFileByName(file.name)
    except (TypeError, ValueError, KeyError) as error:
        raise SchemaError(f"its files do not fit together: {shortened(error)}") from None
    except RecursionError:
        raise SchemaError("its files import each other too deeply") from None


def _file_proto(text: str, registry: SchemaRegistry) -> Any:
    from google.protobuf import descriptor_pb2, message  # noqa: PLC0415 - an extra

    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        raise UnsupportedFormatError(
            f"the schema registry {registry} returns schemas of Protobuf as .proto files, and not as descriptors "
            "(format=serialized), which are read here: write valueSchema = path:message (for keys keySchema) with a "
            "descriptor set, and valueFraming = confluent without schemaRegistry"
        ) from None
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(content)
    except message.DecodeError:
        raise SchemaError(f"its {len(content)} bytes are not a descriptor of a file") from None


def _add(pool: Any, file: Any, imported: dict[str, Any], added: set[str]) -> None:
    """Add a file behind those that it imports."""
    from google.protobuf import descriptor_pb2  # noqa: PLC0415 - an extra

    known: list[str] = []
    for name in file.dependency:
        stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
        if name in imported:
            inner = imported[name]
            inner.name = name
        elif name == f"google/protobuf/{stem}.proto" and stem in _WELL_KNOWN_FILES:
            module = importlib.import_module(f"google.protobuf.{stem}_pb2")
            inner = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        else:
            # It may have options alone; the pool refuses the file if one of its types is in there.
            continue
        known.append(name)
        if name not in added:
            added.add(name)
            _add(pool, inner, imported, added)
    public = [file.dependency[place] for place in file.public_dependency if place < len(file.dependency)]
    for field in ("dependency", "public_dependency", "weak_dependency"):
        file.ClearField(field)
    file.dependency.extend(known)
    file.public_dependency.extend(known.index(name) for name in public if name in known)
    pool.Add(file)
