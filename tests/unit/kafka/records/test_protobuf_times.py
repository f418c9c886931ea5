"""Event times of Protobuf values without a column, of which no more is decoded: Protobuf's own library is compared."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.examples_by_day import at_least
from tests.member_times import MemberTimes, protobuf_times
from tests.protobuf_examples import REPEATED, Example, Field, add_field, class_of, examples, file_of, micros_of
from watermark_source.errors import EventTimeError, OptionError


@pytest.fixture(scope="module", autouse=True)
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield _folder.setdefault("descriptors", Path(name))


_folder: dict[str, Path] = {}


def times(path: str, cls: type[Any], *, framed: bool = False, **options: Any) -> MemberTimes:
    """Return event times of a message, numbers in milliseconds."""
    file = descriptor_pb2.FileDescriptorProto()
    cls.DESCRIPTOR.file.CopyToProto(file)
    kind = {"eventTimeFormat": "millis", "valueFraming": "confluent" if framed else "none", **options}
    return protobuf_times(path, file, cls.DESCRIPTOR.full_name, _folder["descriptors"], **kind)


def framed(body: bytes, index: bytes = b"\0", schema: int = 7) -> bytes:
    return struct.pack(">bI", 0, schema) + index + body


def shop() -> Any:
    """Three messages; the second has one within it, and its fields are of all sorts."""
    file = file_of()
    file.message_type.add(name="First")
    order = file.message_type.add(name="Order")
    order.nested_type.add(name="Empty")
    line = order.nested_type.add(name="Line")
    add_field(line, "at", 1, "int64")
    order.oneof_decl.add(name="choice")
    add_field(order, "at", 3, "google.protobuf.Timestamp")
    add_field(order, "line", 4, "shop.Order.Line", oneof=True)
    add_field(order, "note", 5, "string", oneof=True)
    add_field(order, "lines", 6, "shop.Order.Line", label=REPEATED)
    add_field(order, "price", 7, "double")
    add_field(order, "state", 8, "int64")
    order.field[-1].type, order.field[-1].type_name = Field.TYPE_ENUM, ".shop.State"
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    group = order.nested_type.add(name="Old")
    add_field(group, "at", 1, "int64")
    order.field.add(name="old", number=9, type=Field.TYPE_GROUP, label=1, type_name=".shop.Order.Old")
    file.message_type.add(name="Third")
    return file


FILE = shop()
ORDER = class_of(FILE, "shop.Order")


def one_of(kind: str) -> type[Any]:
    """Return a message with one field, with the number 1."""
    file = file_of()
    add_field(file.message_type.add(name="One"), "at", 1, kind)
    return class_of(file, "shop.One")


def as_written(example: Example) -> dict[str, Any]:
    """Return the format of an example's moments: a timestamp has none."""
    return {"eventTimeFormat": {"google.protobuf.Timestamp": "", "string": "auto"}.get(example.kind, "millis")}


@given(examples())
@at_least(100)
def test_the_field_is_what_the_library_reads_whatever_else_there_is(example: Example) -> None:
    expected = [micros_of(example.cls.FromString(body), example.path) for body in example.bodies]
    assert times(example.path, example.cls, **as_written(example))(*example.bodies) == expected
    index = b"\2\2" if "." in example.path else b"\0"
    values = [framed(body, index) for body in example.bodies]
    assert times(example.path, example.cls, framed=True, **as_written(example))(*values) == expected


@given(examples(), st.data())
@at_least(100)
def test_bytes_that_are_damaged_or_cut_short_have_no_time_or_what_the_library_reads(
    example: Example, data: st.DataObject
) -> None:
    whole = example.bodies[0]
    bodies = [whole[:size] for size in range(len(whole))]
    places = st.tuples(st.integers(0, max(0, len(whole) - 1)), st.integers(0, 255))
    for at, byte in data.draw(st.lists(places, max_size=20)):
        bodies.append(whole[:at] + bytes([byte]) + whole[at + 1 :])
    found = times(example.path, example.cls, **as_written(example))(*bodies)
    for body, micros in zip(bodies, found, strict=True):
        try:
            read = example.cls.FromString(body)
        except DecodeError:
            continue
        # Of another type than its field's it is bad, as in from_protobuf. A damaged text may be any moment.
        assert micros in (None, micros_of(read, example.path)) or example.kind == "string"


@given(st.lists(st.none() | st.binary(max_size=60), max_size=20))
@at_least(100)
def test_any_bytes_are_a_moment_or_none(values: list[bytes | None]) -> None:
    for is_framed in (False, True):
        event_times = times("line.at", ORDER, framed=is_framed)
        marked = [None if value is None else b"\0\0\0\0\1" + value for value in values]
        for some in (values, marked):
            assert not some or len(event_times(*some)) == len(some)


@pytest.mark.parametrize(
    ("body", "micros"),
    [
        (b"\x08\x05", 5_000),
        (b"\x08\x05\x08\x06", 6_000),
        (b"\x88\x80\x80\x80\x00\x05", 5_000),  # a tag of five bytes
        (b"\x88\x80\x80\x80\x80\x00\x05", None),  # of six
        (b"\x88\x80\x80\x80\x10\x05", None),  # beyond 32 bits
        (b"\x08" + b"\xff" * 9 + b"\x7f", -1_000),
        (b"\x08" + b"\xff" * 10 + b"\x01", None),
        (b"\x08\x05\x08", None),
        (b"\x08\x05\x0d\1\2\3\4", None),  # another wire type is bad
        (b"\x08\x05\x0a\1x", None),
        (b"\x08\x05\x0a\2x", None),
        (b"\x08\x05\x12\xff\xff\xff\xff\x0f", None),
        (b"\x08\x05\x12\x81\x80\x80\x80\x00x", 5_000),
        (b"\x08\x05\x12\x81\x80\x80\x80\x80\x00x", None),
        (b"\x08\x05\x13\x08\x07\x14", 5_000),  # what is in a group is the group's
        (b"\x08\x05\x13\x1b\x1c\x14", 5_000),
        (b"\x08\x05\x13\x1b\x14\x1c", None),
        (b"\x08\x05\x13", None),
        (b"\x08\x05\x14", None),
        (b"\x08\x05\x16", None),
        (b"\x08\x05\x00\x01", None),
        (b"\x08\x05" + b"\x13" * 100 + b"\x14" * 100, 5_000),
        (b"\x08\x05" + b"\x13" * 101 + b"\x14" * 101, None),
        (b"", None),
        (None, None),
    ],
)
def test_what_is_not_on_the_way_is_skipped_by_its_wire_type(body: bytes | None, micros: int | None) -> None:
    assert times("at", one_of("int64"))(body) == [micros]


@pytest.mark.parametrize(
    ("kind", "unit", "body", "micros"),
    [
        ("int64", "seconds", b"\x08\x05", 5_000_000),
        ("int64", "nanos", b"\x08" + b"\xff" * 9 + b"\1", -1),
        ("uint64", "micros", b"\x08" + b"\xff" * 9 + b"\1", None),
        ("int64", "micros", b"\x08" + b"\x80" * 9 + b"\1", None),
        ("int32", "days", b"\x08\x02", 172_800_000_000),
        ("string", "auto", b"\x0a\x0a1970-01-02", 86_400_000_000),
        ("google.protobuf.Timestamp", "", b"\x0a\0", 0),
        # The parts of a Timestamp that comes twice are merged.
        ("google.protobuf.Timestamp", "", b"\x0a\2\x08\5\x0a\3\x10\xe8\7", 5_000_001),
        ("google.protobuf.Timestamp", "", b"\x0a\2\x08\5\x0a\2\x08\6", 6_000_000),
    ],
)
def test_moments_are_what_type_and_unit_say(kind: str, unit: str, body: bytes, micros: int | None) -> None:
    assert times("at", one_of(kind), eventTimeFormat=unit)(body) == [micros]


def test_a_number_beyond_64_bits_is_shown_as_it_is() -> None:
    event_times = times("at", one_of("uint64"), eventTimeFormat="micros", eventTimeErrors="fail")
    with pytest.raises(EventTimeError, match="seen 18446744073709551615 of type decimal"):
        event_times(b"\x08" + b"\xff" * 9 + b"\1")


def test_a_field_that_takes_the_place_of_another_of_its_oneof_takes_its_time() -> None:
    event_times = times("line.at", ORDER)
    line, note = ORDER(line={"at": 5}).SerializeToString(), ORDER(note="x").SerializeToString()
    empty = ORDER(line={}).SerializeToString()
    bodies = [line, line + note, note + line, line + empty, line + note + empty]
    assert event_times(*bodies) == [5_000, None, 5_000, 5_000, None]
    assert event_times(*bodies) == [micros_of(ORDER.FromString(b), "line.at") for b in bodies]
    # The other one is checked for what it is by its type on the wire alone: no more of it is decoded.
    assert event_times(line + b"\x2a\1\xff", b"\x2a\1\xff" + line) == [None, 5_000]


@pytest.mark.parametrize(
    ("name", "path", "index", "given", "micros"),
    [
        ("shop.Order", "at", b"\2\2", {"at": {"seconds": 5}}, 5_000_000),
        ("shop.Order", "at", b"\2\0", {"at": {"seconds": 5}}, None),
        ("shop.Order", "at", b"\0", {"at": {"seconds": 5}}, None),
        ("shop.Order", "at", b"\4\2\0", {"at": {"seconds": 5}}, None),
        ("shop.Order", "at", b"\4\2", {}, None),
        ("shop.Order", "at", b"\1\2", {}, None),
        ("shop.Order.Line", "at", b"\4\2\2", {"at": 5}, 5_000),
        ("shop.Order.Line", "at", b"\4\2\1", {"at": 5}, None),
    ],
)
def test_a_record_is_of_the_message_that_its_index_says(
    name: str, path: str, index: bytes, given: dict[str, Any], micros: int | None
) -> None:
    cls = class_of(FILE, name)
    value = framed(cls(**given).SerializeToString(), index)
    options = {"eventTimeFormat": ""} if name == "shop.Order" else {}
    assert times(path, cls, framed=True, **options)(value) == [micros]


def test_why_a_record_has_no_event_time_is_reported() -> None:
    body = ORDER(at={"seconds": 5}).SerializeToString()
    event_times = times("at", ORDER, framed=True, eventTimeFormat="", eventTimeErrors="fail")
    assert event_times(framed(body, b"\2\2")) == [5_000_000]
    cases = (
        (framed(body, b"\2\4"), r"by its index it is a message other than shop\.Order"),
        (b"\1", "does not begin with"),
        (framed(body[:-1], b"\2\2"), r"it cannot be read as shop\.Order: it is corrupt or truncated"),
    )
    for value, why in cases:
        with pytest.raises(EventTimeError, match=rf"no event time at value:\$\.at .*{why}"):
            event_times(value)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("on", r"names no member of valueSchema: \$ of valueSchema has at, line"),
        ("note.at", r"\$\.note of valueSchema is STRING, no struct"),
        ("lines.at", r"\$\.lines of valueSchema is ARRAY<"),
        ("price", "is DOUBLE in valueSchema"),
        ("line", "is STRUCT<AT: *BIGINT> in valueSchema"),
    ],
)
def test_a_mistake_is_named(path: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        times(path, ORDER)
