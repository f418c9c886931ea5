"""Random messages of Protobuf, by descriptors made for each, with the moment that Protobuf's own library reads."""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import strategies as st

Message = Any
Field = descriptor_pb2.FieldDescriptorProto
OPTIONAL, REPEATED = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
TIMESTAMP = ".google.protobuf.Timestamp"
INTEGERS: dict[str, tuple[int, int]] = {
    "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1), "sint64": (-(2**63), 2**63 - 1),
    "fixed64": (0, 2**64 - 1), "sfixed64": (-(2**63), 2**63 - 1), "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1), "sint32": (-(2**31), 2**31 - 1), "fixed32": (0, 2**32 - 1),
    "sfixed32": (-(2**31), 2**31 - 1),
}  # fmt: skip
TEXTS = {"1970-01-01T00:00:01.5Z": 1_500_000, "1970-01-02": 86_400_000_000, "": None, "yesterday": None}
KINDS = (*INTEGERS, "string", "google.protobuf.Timestamp")
SEVERAL = st.lists(st.integers(0, 3), max_size=3)
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""Seconds: the years 1 to 9999."""


class Example(NamedTuple):
    kind: str
    path: str
    numbers: str
    in_oneof: bool
    cls: type[Message]
    bodies: list[bytes]
    """Each is messages one after another, which a parser merges."""


def number_of(kind: str) -> int:
    return Field.TYPE_MESSAGE if "." in kind else int(Field.Type.Value(f"TYPE_{kind.upper()}"))


def file_of(package: str = "shop", syntax: str = "proto2") -> Any:
    return descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax=syntax, dependency=["google/protobuf/timestamp.proto"]
    )


def add_field(message: Any, name: str, number: int, kind: str, *, label: int = OPTIONAL, oneof: bool = False) -> None:
    field = message.field.add(name=name, number=number, type=number_of(kind), label=label)
    if "." in kind:
        field.type_name = f".{kind.lstrip('.')}"
    if oneof:
        field.oneof_index = 0


def descriptor_set(file: Any) -> bytes:
    found = descriptor_pb2.FileDescriptorSet()
    found.file.add().ParseFromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    found.file.append(file)
    return bytes(found.SerializeToString())


def class_of(file: Any, name: str) -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set(file)).file:
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def micros_of(message: Message, path: str) -> int | None:
    """Return the moment of a message that the library has read, numbers in milliseconds."""
    *outer, name = path.split(".")
    for each in outer:
        if not message.HasField(each):
            return None
        message = getattr(message, each)
    if not message.HasField(name):
        return None
    value = getattr(message, name)
    if isinstance(value, str | bytes):  # bytes that are not UTF-8
        return TEXTS.get(str(value))
    if isinstance(value, int):
        return value * 1_000 if _FIRST * 1_000 <= value < (_LAST + 1) * 1_000 else None
    if not _FIRST <= value.seconds <= _LAST:
        return None
    # Damaged bytes may have any nanoseconds. They are rounded to zero, as Spark's from_protobuf does.
    return value.seconds * 1_000_000 + int(value.nanos / 1_000)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """A field among others, in a message or in one within it, perhaps in a oneof."""
    kind, in_oneof = draw(st.sampled_from(KINDS)), draw(st.booleans())
    nested = draw(st.booleans())
    file = file_of()
    inner_number = _record(draw, file, "Inner", "at", kind, in_oneof=in_oneof)
    outer_number = _record(draw, file, "Outer", "order", "shop.Inner", in_oneof=in_oneof)
    cls = class_of(file, "shop.Outer" if nested else "shop.Inner")
    bodies = [
        b"".join(_filled(draw, cls).SerializeToString() for _ in range(draw(st.integers(1, 3))))
        for _ in range(draw(st.integers(1, 3)))
    ]
    if nested:
        return Example(kind, "order.at", f"{outer_number}.{inner_number}", in_oneof, cls, bodies)
    return Example(kind, "at", str(inner_number), in_oneof, cls, bodies)


def _record(draw: st.DrawFn, file: Any, name: str, wanted: str, kind: str, *, in_oneof: bool) -> int:
    numbers = draw(st.lists(st.integers(1, 40) | st.sampled_from([2_047, 2_048, 2**29 - 1]),
                            min_size=9, max_size=9, unique=True))  # fmt: skip
    message = file.message_type.add(name=name)
    if in_oneof:
        message.oneof_decl.add(name="choice")
    add_field(message, wanted, numbers[0], kind, oneof=in_oneof)
    add_field(message, "other", numbers[1], draw(st.sampled_from(["double", "string", "sint32", "fixed32"])),
              oneof=in_oneof)  # fmt: skip
    add_field(message, "text", numbers[2], "bytes")
    add_field(message, "flag", numbers[3], "bool")
    add_field(message, "many", numbers[4], "sint64", label=REPEATED)
    add_field(message, "packed", numbers[5], "int32", label=REPEATED)
    message.field[-1].options.packed = True
    add_field(message, "self", numbers[6], f"shop.{name}", label=REPEATED)
    add_field(message, "ratio", numbers[7], "float")
    message.nested_type.add(name="Grouped").field.add(name="x", number=numbers[0], type=Field.TYPE_INT64, label=1)
    message.field.add(name="grouped", number=numbers[8], type=Field.TYPE_GROUP, label=REPEATED,
                      type_name=f".shop.{name}.Grouped")  # fmt: skip
    return int(numbers[0])


def _filled(draw: st.DrawFn, cls: type[Message], depth: int = 2) -> Message:
    """Return a message some of whose fields are set; of a oneof the last one that is."""
    message = cls()
    for field in draw(st.permutations(list(cls.DESCRIPTOR.fields))):
        if not draw(st.booleans()):
            continue
        if field.name == "self":
            for _ in range(draw(st.integers(1, 2)) if depth else 0):
                message.self.add().CopyFrom(_filled(draw, cls, depth - 1))
        elif field.name == "grouped":
            for number in draw(SEVERAL):
                message.grouped.add().x = number
        elif field.is_repeated:
            getattr(message, field.name).extend(draw(SEVERAL))
        elif field.type == Field.TYPE_MESSAGE and field.message_type.full_name == "google.protobuf.Timestamp":
            found = getattr(message, field.name)
            found.SetInParent()
            found.MergeFromString(draw(_timestamps()))
        elif field.type == Field.TYPE_MESSAGE:
            inner = _filled(draw, message_factory.GetMessageClass(field.message_type), 0)
            getattr(message, field.name).CopyFrom(inner)
        else:
            setattr(message, field.name, draw(_values(field.type)))
    return message


@st.composite
def _timestamps(draw: st.DrawFn) -> bytes:
    message = timestamp_pb2.Timestamp()
    if draw(st.booleans()):
        message.seconds = draw(st.integers(-(2**40), 2**40))
    if draw(st.booleans()):
        message.nanos = draw(st.integers(-1, 10**9))
    return bytes(message.SerializeToString())


def _values(kind: int) -> st.SearchStrategy[Any]:
    name = Field.Type.Name(kind).removeprefix("TYPE_").lower()
    if name in INTEGERS:
        least, most = INTEGERS[name]
        return st.integers(least, most) | st.integers(max(least, -9), 9)
    return {
        "string": st.sampled_from(list(TEXTS)), "bytes": st.binary(max_size=200), "bool": st.booleans(),
        "float": st.floats(width=32), "double": st.floats(),
    }[name]  # fmt: skip
