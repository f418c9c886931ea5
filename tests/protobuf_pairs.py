"""Random types and bytes of Protobuf, and what a column of the type holds, by Protobuf's own library."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from pyspark_aligned_kafka.client.schema_registry import SchemaRegistry
from pyspark_aligned_kafka.records.payload import Decoded, Paths, PayloadChoice, PayloadReader
from pyspark_aligned_kafka.records.payload_formats import payload_reader
from pyspark_aligned_kafka.records.protobuf_files import index_in_file
from pyspark_aligned_kafka.records.protobuf_messages import MessageSchema, message_of
from tests.payload_documents import block_by

Descriptor = Any
_FIELD = descriptor_pb2.FieldDescriptorProto
_SIMPLE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18)
_KEYS = (3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 18)
_ENUM, _MESSAGE, _GROUP = 14, 11, 10
_WIRES = (None, 1, 5, 0, 0, 0, 1, 5, 0, 2, 3, 2, 2, 0, 0, 5, 1, 0, 0)
_TEXTS = (b"", b"a", b"text", "zähler \U0001f600".encode(), b"x" * 70, b"longer than a word of eight bytes \xc3\xa9")
_NO_TEXTS = (b"\xff", b"\xed\xa0\x80", b"\xc3", b"\xf4\x90\x80\x80", b"plain text, then \xe2\x82")
_NUMBERS = (0, 1, 2, 127, 128, 300, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 5)


def reader_of(
    descriptor: Descriptor, registry: SchemaRegistry | None = None, paths: Paths = (), **choice: bool
) -> PayloadReader:
    """Return the reader of a message's values, or of some members of them."""
    message = message_of(descriptor, paths)
    schema = MessageSchema(message, index_in_file(descriptor), registry)
    return payload_reader(PayloadChoice(message.column_type, "protobuf", schema, **choice))  # type: ignore[arg-type]


def decoded(descriptor: Descriptor, values: Sequence[bytes | None]) -> Decoded:
    """Decode values of one message."""
    return block_by(reader_of(descriptor), values)


class RandomTypes:
    """A file with random messages."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names = 0
        self._file = descriptor_pb2.FileDescriptorProto(name="random.proto", package="random")
        self._file.syntax = chance.choice(("proto2", "proto3"))
        self._is_2 = self._file.syntax == "proto2"
        self._file.dependency.extend(("google/protobuf/timestamp.proto", "google/protobuf/duration.proto"))

    def message(self) -> Descriptor:
        """Return the descriptor of a message."""
        name = self._message(0)
        pool = descriptor_pool.DescriptorPool()
        for module in (timestamp_pb2, duration_pb2):
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        pool.Add(self._file)
        return pool.FindMessageTypeByName(name.lstrip("."))

    def _name(self) -> str:
        self._names += 1
        return f"T{self._names}"

    def _message(self, depth: int) -> str:
        chance = self._chance
        made = descriptor_pb2.DescriptorProto(name=self._name())
        count = chance.choice((0, 1, 2, 3, 5, 8)) if depth else chance.randint(1, 8)
        numbers = chance.sample((*range(1, 17), 100, 2047, 2048, 536_870_911), count)
        for place, number in enumerate(numbers):
            field = made.field.add(name=f"f{place}", number=number, label=_FIELD.LABEL_OPTIONAL)
            self._type(made, field, depth)
        self._oneofs(made)
        self._file.message_type.append(made)
        return f".random.{made.name}"

    def _type(self, made: Any, field: Any, depth: int) -> None:
        chance, what = self._chance, self._chance.random()
        if what < 0.1:
            self._map(made, field, depth)
            return
        self._kind(made, field, depth)
        if what < 0.35:
            field.label = _FIELD.LABEL_REPEATED
            if field.type not in (9, _GROUP, _MESSAGE, 12):
                field.options.packed = chance.random() < 0.5
        elif self._is_2 and what < 0.42 and self._has_column(field):
            field.label = _FIELD.LABEL_REQUIRED
        elif self._is_2 and what < 0.6 and field.type not in (_MESSAGE, _GROUP):
            field.default_value = self._default(field)
        elif not self._is_2 and what < 0.5:
            field.proto3_optional = True

    def _has_column(self, field: Any) -> bool:
        if field.type not in (_MESSAGE, _GROUP) or field.type_name.startswith(".google."):
            return True
        # The message that was made last.
        return any(each.type not in (_MESSAGE, _GROUP) for each in self._file.message_type[-1].field)

    def _kind(self, made: Any, field: Any, depth: int) -> None:
        what = self._chance.random()
        if depth < 3 and what < 0.2:
            field.type, field.type_name = _MESSAGE, self._message(depth + 1)
        elif what < 0.26:
            field.type = _MESSAGE
            field.type_name = self._chance.choice((".google.protobuf.Timestamp", ".google.protobuf.Duration"))
        elif self._is_2 and depth < 3 and what < 0.3:
            field.type, field.type_name = _GROUP, self._message(depth + 1)
        elif what < 0.38:
            field.type, field.type_name = _ENUM, self._enum(3 if self._is_2 and field.name != "value" else 0)
        else:
            field.type = self._chance.choice(_SIMPLE)

    def _enum(self, first: int) -> str:
        enum = self._file.enum_type.add(name=self._name())
        enum.options.allow_alias = True
        for place, number in enumerate((first, 1, -1, 300, 1)):
            enum.value.add(name=f"{enum.name}_{place}", number=number)
        return f".random.{enum.name}"

    def _map(self, made: Any, field: Any, depth: int) -> None:
        name = "".join(part.capitalize() for part in field.name.split("_")) + "Entry"
        entry = made.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=self._chance.choice(_KEYS))
        value = entry.field.add(name="value", number=2, label=1)
        self._kind(made, value, depth)
        if value.type == _GROUP:
            value.type = _MESSAGE
        field.label, field.type = _FIELD.LABEL_REPEATED, _MESSAGE
        # The names of messages are those of their order: known when this one is added to the file.
        field.type_name = f".random.{made.name}.{name}"

    def _default(self, field: Any) -> str:
        if field.type in (1, 2):
            return self._chance.choice(("1.5", "-0", "inf", "0"))
        if field.type == 8:
            return self._chance.choice(("true", "false"))
        if field.type in (9, 12):
            return self._chance.choice(("", "text"))
        if field.type == _ENUM:
            return f"{field.type_name.rpartition('.')[2]}_{self._chance.randrange(5)}"
        return self._chance.choice(("0", "7", "100"))

    def _oneofs(self, made: Any) -> None:
        single = [
            each for each in made.field
            if each.label == _FIELD.LABEL_OPTIONAL and not each.proto3_optional
        ]  # fmt: skip
        if len(single) > 1 and self._chance.random() < 0.5:
            made.oneof_decl.add(name="choice")
            for each in single[: self._chance.randint(2, len(single))]:
                each.oneof_index = 0
        for each in made.field:
            if each.proto3_optional:
                each.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{each.name}")


def varint(number: int) -> bytes:
    """Return the bytes of a number of 64 bits."""
    found = bytearray()
    number &= 2**64 - 1
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def tagged(number: int, wire: int, content: bytes = b"") -> bytes:
    """Return a field."""
    size = varint(len(content)) if wire == 2 else b""
    return varint(number << 3 | wire) + size + content + (varint(number << 3 | 4) if wire == 3 else b"")


class RandomBytes:
    """Values of a message: fields in any order, again and again, unknown ones between them; some are bad."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.badness = 0.0
        """Of fields, in the last value."""

    def value(self, descriptor: Descriptor) -> bytes:
        """Return a value."""
        self.badness = self._chance.choice((0, 0, 0, 0, 0.02))
        return self._message(descriptor, 0)

    def _message(self, descriptor: Descriptor, depth: int) -> bytes:
        chance, fields = self._chance, list(descriptor.fields)
        written = [self._field(each, depth) for each in fields if each.is_required]
        for _ in range(chance.choice((0, 1, 2, 4, 8)) if depth < 4 else 1):
            if fields and chance.random() < 0.9:
                written.append(self._field(chance.choice(fields), depth))
            else:
                written.append(self._unknown(depth, descriptor.fields_by_number))
        chance.shuffle(written)
        return b"".join(written)

    def _unknown(self, depth: int, known: Any) -> bytes:
        chance = self._chance
        number = chance.choice([each for each in (17, 99, 3_000, 536_870_910) if each not in known])
        wire = chance.choice((0, 1, 2, 3, 5))
        if wire == 3:
            inside = b"".join(self._unknown(depth + 1, ()) for _ in range(chance.randrange(3) if depth < 5 else 0))
            return tagged(number, 3, inside)
        return tagged(number, wire, self._scalar(wire, 12 if wire == 2 else 4))

    def _field(self, field: Any, depth: int) -> bytes:
        chance, wire = self._chance, _WIRES[field.type]
        assert wire is not None
        is_entry = field.type == _MESSAGE and field.message_type.GetOptions().map_entry
        if chance.random() < self.badness and not is_entry:
            wire = chance.choice([each for each in (0, 1, 2, 5) if each != wire])
            return tagged(field.number, wire, self._scalar(wire, 12 if wire == 2 else 4))
        if is_entry:
            return tagged(field.number, 2, self._entry(field.message_type, depth))
        if field.is_repeated and wire in (0, 1, 5) and chance.random() < 0.5:
            many = [self._of(field) for _ in range(chance.randrange(4))]
            return tagged(field.number, 2, b"".join(many))
        if field.type in (_MESSAGE, _GROUP):
            return tagged(field.number, wire, self._inner(field.message_type, depth))
        return tagged(field.number, wire, self._of(field))

    def _inner(self, descriptor: Descriptor, depth: int) -> bytes:
        if not descriptor.full_name.startswith("google."):
            return self._message(descriptor, depth + 1)
        seconds = self._chance.choice((0, 1, -1, 1_700_000_000, -62_135_596_800, 2**40, 2**62 if self.badness else 0))
        nanos = self._chance.choice((0, 1, 999_999_999, -1, -1_001, 123_456_789))
        parts = [tagged(1, 0, varint(seconds)), tagged(2, 0, varint(nanos)), tagged(9, 2, b"x")]
        return b"".join(self._chance.sample(parts, self._chance.randrange(4)))

    def _entry(self, entry: Descriptor, depth: int) -> bytes:
        key, value = entry.fields_by_number[1], entry.fields_by_number[2]
        parts = [tagged(1, _WIRES[key.type] or 0, self._of(key))]
        if value.type == _MESSAGE:
            parts += [tagged(2, 2, self._inner(value.message_type, depth))]
        else:
            parts += [tagged(2, _WIRES[value.type] or 0, self._of(value))]
        chosen = self._chance.choices(parts, k=self._chance.randrange(4))
        # Libraries differ about fields that are required in a value that an entry does not have.
        return b"".join([*chosen, parts[1]] if value.type == _MESSAGE else chosen)

    def _of(self, field: Any) -> bytes:
        wire = _WIRES[field.type] or 0
        if field.type == _ENUM:
            known = [each.number for each in field.enum_type.values]
            oddness = self.badness if field.enum_type.is_closed else 0.02
            return varint(77 if self._chance.random() < oddness else self._chance.choice(known))
        return self._scalar(wire, field.type)

    def _scalar(self, wire: int, kind: int) -> bytes:
        chance = self._chance
        number = chance.choice(_NUMBERS) if chance.random() < 0.5 else chance.randrange(2 ** chance.choice((8, 31, 64)))
        if wire == 0:
            return varint(number)
        if wire == 5:
            return struct.pack("<f", chance.choice((0.0, -0.0, 1.5, float("inf")))) if kind == 2 else struct.pack(
                "<I", number % 2**32
            )  # fmt: skip
        if wire == 1:
            real = struct.pack("<d", chance.choice((0.0, -0.0, 0.1, float("nan"))))
            return real if kind == 1 else struct.pack("<Q", number)
        texts = _NO_TEXTS if chance.random() < self.badness else _TEXTS
        return chance.choice(texts)


def mutated(chance: random.Random, value: bytes) -> bytes:
    """Return bytes that differ a little."""
    at = chance.randrange(len(value) + 1)
    put = bytes(chance.randrange(256) for _ in range(chance.randrange(4)))
    return value[:at] + put + value[at + chance.randrange(4) :]


def in_column(descriptor: Descriptor, value: bytes) -> dict[str, Any] | None:
    """Return what a column holds of a value, ``None`` for one that is bad, an empty one where that is not clear."""
    try:
        found = message_factory.GetMessageClass(descriptor).FromString(value)
        return _row(found) if found.IsInitialized() else None
    except _UnclearError:
        return {}
    except (DecodeError, UnicodeDecodeError, _BadValueError):
        return None


class _BadValueError(Exception):
    """A value that the library reads, and that is bad for a column."""


class _UnclearError(Exception):
    """An entry of a map with unknown fields is an unknown field for Python's library, and is none for others."""


def _row(message: Any) -> dict[str, Any]:
    descriptor = message.DESCRIPTOR
    # The library keeps as unknown what is of another type, and an enum's number without a name (proto2).
    known = [descriptor.fields_by_number.get(each.field_number) for each in UnknownFieldSet(message)]
    if any(field is not None for field in known):
        entries = [field for field in known if field is not None and field.type == _MESSAGE]
        raise _UnclearError if any(each.message_type.GetOptions().map_entry for each in entries) else _BadValueError
    present = {field.number for field, _ in message.ListFields()}
    row = {}
    for field in descriptor.fields:
        value = _member(field, getattr(message, field.name), field.number in present)
        if _is_delivered(field):
            row[field.name] = value
    return row


def _is_delivered(field: Any) -> bool:
    if field.type not in (_MESSAGE, _GROUP) or field.message_type.full_name.startswith("google."):
        return True
    entry = field.message_type
    if entry.GetOptions().map_entry:
        return _is_delivered(entry.fields_by_number[2])
    return any(_is_delivered(each) for each in entry.fields)


def _member(field: Any, value: Any, present: bool) -> Any:
    if field.type == _MESSAGE and field.message_type.GetOptions().map_entry:
        key, inner = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
        return sorted(((_value(key, each), _value(inner, value[each])) for each in value), key=repr)
    if field.is_repeated:
        return [_value(field, each) for each in value]
    if not present and not (field.has_default_value and field.type not in (_MESSAGE, _GROUP)):
        return None
    return _value(field, value)


def _value(field: Any, value: Any) -> Any:
    if field.type in (_MESSAGE, _GROUP):
        if not field.message_type.full_name.startswith("google."):
            return _row(value)
        if abs(value.seconds) > 9_000_000_000_000:
            raise _BadValueError
        return value.seconds * 1_000_000 + int(value.nanos / 1_000)
    if field.type == _ENUM:
        named = [each.name for each in field.enum_type.values if each.number == value]
        return (named[0] if named else f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_{value}").encode()
    if field.type in (1, 2):
        return repr(value)
    if field.type in (4, 6):
        return Decimal(value)
    if field.type == 9 and isinstance(value, bytes):
        raise _BadValueError
    return value.encode() if field.type == 9 else value


def sorted_maps(value: Any) -> Any:
    """Return a value of a column with the entries of its maps in one order."""
    if isinstance(value, dict):
        return {name: sorted_maps(inner) for name, inner in value.items()}
    if isinstance(value, list):
        inner = [tuple(map(sorted_maps, each)) if isinstance(each, tuple) else sorted_maps(each) for each in value]
        return sorted(inner, key=repr) if value and isinstance(value[0], tuple) else inner
    return value
