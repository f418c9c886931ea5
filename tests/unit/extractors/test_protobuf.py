"""Fields of Protobuf values, found without decoding them: Protobuf's own library writes and reads what is compared."""

from __future__ import annotations

import logging
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.avro_examples import found, records
from tests.examples_by_day import at_least
from tests.protobuf_examples import (
    REPEATED,
    Example,
    Field,
    add_field,
    class_of,
    descriptor_set,
    examples,
    file_of,
    micros_of,
)
from watermark_source.errors import EventTimeError, SchemaError, UsageError
from watermark_source.extractors import protobuf_event_time


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


@given(examples())
@at_least(100)
def test_the_field_is_what_the_library_reads_whatever_else_there_is(example: Example) -> None:
    expected = [micros_of(example.cls.FromString(body), example.path) for body in example.bodies]
    plain = protobuf_event_time(example.path, message=example.cls, wire_format="plain")
    assert found(plain(records(*example.bodies))) == expected
    # A slice of a batch begins in the middle of its buffers.
    some = records(b"x", *example.bodies, b"y").slice(1, len(expected))
    assert found(plain(some)) == expected
    # The source gives a function records that are read-only.
    assert found(plain(pa.record_batch(some))) == expected
    index = b"\2\2" if "." in example.path else b"\0"
    values = records(*(framed(body, index) for body in example.bodies))
    assert found(protobuf_event_time(example.path, message=example.cls)(values)) == expected
    if not example.in_oneof:
        assert found(protobuf_event_time(example.numbers, field_type=example.kind)(values)) == expected


@given(examples(), st.data())
@at_least(100)
def test_bytes_that_are_damaged_or_cut_short_have_no_time_or_what_the_library_reads(
    example: Example, data: st.DataObject
) -> None:
    event_time = protobuf_event_time(example.path, message=example.cls, wire_format="plain")
    whole = example.bodies[0]
    bodies = [whole[:size] for size in range(len(whole))]
    places = st.tuples(st.integers(0, max(0, len(whole) - 1)), st.integers(0, 255))
    for at, byte in data.draw(st.lists(places, max_size=20)):
        bodies.append(whole[:at] + bytes([byte]) + whole[at + 1 :])
    for body, micros in zip(bodies, found(event_time(records(*bodies))), strict=True):
        try:
            read = example.cls.FromString(body)
        except DecodeError:
            continue
        # A damaged text may be a moment that the examples do not know.
        assert micros == micros_of(read, example.path) or example.kind == "string"


@given(st.lists(st.none() | st.binary(max_size=60), max_size=20))
@at_least(100)
def test_any_bytes_are_a_moment_or_none(values: list[bytes | None]) -> None:
    for wire_format in ("plain", "confluent"):
        event_time = protobuf_event_time("at", message=ORDER, wire_format=wire_format)
        assert len(event_time(records(*values))) == len(values)
        marked = records(*(None if value is None else b"\0\0\0\0\1" + value for value in values))
        assert len(event_time(marked)) == len(values)


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
        (b"\x08\x05\x0d\1\2\3\4", 5_000),  # another wire type is an unknown field
        (b"\x08\x05\x0a\1x", 5_000),
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
    assert found(protobuf_event_time("1", field_type="int64", wire_format="plain")(records(body))) == [micros]


@pytest.mark.parametrize(
    ("kind", "unit", "body", "micros"),
    [
        ("int64", "seconds", b"\x08\x05", 5_000_000),
        ("int64", "nanos", b"\x08" + b"\xff" * 9 + b"\1", -1),
        ("uint64", "micros", b"\x08" + b"\xff" * 9 + b"\1", None),
        ("int64", "micros", b"\x08" + b"\x80" * 9 + b"\1", None),
        ("int32", "days", b"\x08\x02", 172_800_000_000),
        ("string", "millis", b"\x0a\x0a1970-01-02", 86_400_000_000),
        ("google.protobuf.Timestamp", "days", b"\x0a\0", 0),
        # The parts of a Timestamp that comes twice are merged.
        ("google.protobuf.Timestamp", "millis", b"\x0a\2\x08\5\x0a\3\x10\xe8\7", 5_000_001),
        ("google.protobuf.Timestamp", "millis", b"\x0a\2\x08\5\x0a\2\x08\6", 6_000_000),
    ],
)
def test_moments_are_what_type_and_unit_say(kind: str, unit: str, body: bytes, micros: int | None) -> None:
    event_time = protobuf_event_time("1", field_type=kind, unit=unit, wire_format="plain")
    assert found(event_time(records(body))) == [micros]


def test_a_field_that_takes_the_place_of_another_of_its_oneof_takes_its_time() -> None:
    event_time = protobuf_event_time("line.at", message=ORDER, wire_format="plain")
    line, note = ORDER(line={"at": 5}).SerializeToString(), ORDER(note="x").SerializeToString()
    empty = ORDER(line={}).SerializeToString()
    bodies = [line, line + note, note + line, line + empty, line + note + empty]
    assert found(event_time(records(*bodies))) == [5_000, None, 5_000, 5_000, None]
    assert found(event_time(records(*bodies))) == [micros_of(ORDER.FromString(b), "line.at") for b in bodies]


@pytest.mark.parametrize(
    ("name", "path", "index", "given", "micros"),
    [
        ("shop.Order", "at.seconds", b"\2\2", {"at": {"seconds": 5}}, 5_000),
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
    assert found(protobuf_event_time(path, message=cls)(records(value))) == [micros]


def test_records_of_other_messages_have_no_time_and_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    event_time = protobuf_event_time("1", field_type="int64", message_index=(0,))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            values = framed(b"\x08\x05"), framed(b"\x08\x05", b"\2\0"), framed(b"\x08\x05", b"\2\2", 9), None, b"\1"
            assert found(event_time(records(*values))) == [5_000, 5_000, None, None, None]
    assert [each.getMessage() for each in caplog.records if "schema 9" in each.getMessage()] == [caplog.messages[0]]
    assert len(caplog.records) == 1
    whichever = protobuf_event_time("1", field_type="int64")
    assert found(whichever(records(*values))) == [5_000, 5_000, 5_000, None, None]
    assert whichever(records()).type == pa.timestamp("us", tz="UTC")
    another = protobuf_event_time("at.seconds", message=ORDER, message_index=(2,))
    body = ORDER(at={"seconds": 5}).SerializeToString()
    assert found(another(records(framed(body, b"\2\4"), framed(body, b"\2\2")))) == [5_000, None]


def test_a_message_may_be_a_class_a_descriptor_or_a_name_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "orders.desc"
    file.write_bytes(descriptor_set(FILE))
    value = framed(ORDER(at={"seconds": 5, "nanos": 1_000}).SerializeToString(), b"\2\2")
    for event_time in (
        protobuf_event_time("at", message=ORDER),
        protobuf_event_time("at", message=ORDER.DESCRIPTOR),
        protobuf_event_time("at", message="shop.Order", descriptors=file),
        protobuf_event_time("at", message="shop.Order", descriptors=file.read_bytes()),
    ):
        assert found(event_time(records(value))) == [5_000_001]
    by_key = protobuf_event_time("at", message=ORDER, column="key")
    assert found(by_key(pa.record_batch({"key": pa.array([value], pa.binary())}))) == [5_000_001]
    with pytest.raises(EventTimeError, match="a binary column key is needed"):
        by_key(records(value))


def test_numbers_need_no_library() -> None:
    code = (
        "import sys; sys.modules['google.protobuf'] = None\n"
        "from watermark_source.extractors import protobuf_event_time\n"
        "protobuf_event_time('3.1', field_type='int64')\n"
        "try: protobuf_event_time('at', message='A', descriptors=b'')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("UsageError")
    assert "pip install 'protobuf" in done.stdout


def times(field: str, **given: Any) -> Callable[[], object]:
    return lambda: protobuf_event_time(field, **given)


SET = descriptor_set(FILE)
WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "nothing to know fields by": (times("at"), UsageError, "give message, or field_type"),
    "both": (times("at", message=ORDER, field_type="int64"), UsageError, "and not both"),
    "an empty name": (times("a..b", message=ORDER), UsageError, "'a..b' is no name"),
    "a unit": (times("at", message=ORDER, unit="hours"), UsageError, "accepted are seconds, millis"),
    "a column": (times("at", message=ORDER, column="headers"), UsageError, "accepted are value and key"),
    "a format": (times("at", message=ORDER, wire_format="raw"), UsageError, "accepted are confluent and plain"),
    "an index": (times("at", message=ORDER, message_index=(-1,)), UsageError, r"for example \(1,\)"),
    "an empty index": (times("at", message=ORDER, message_index=()), UsageError, r"message_index = \(\)"),
    "names as numbers": (times("at", field_type="int64"), UsageError, "must be field numbers"),
    "number 0": (times("0", field_type="int64"), UsageError, "such as '3.1'"),
    "a number too high": (times(str(2**29), field_type="int64"), UsageError, "1 to 536870911"),
    "a type": (times("1", field_type="double"), UsageError, "'double'; accepted are int64"),
    "a name alone": (times("at", message="shop.Order"), UsageError, "descriptors come with the message's full name"),
    "descriptors alone": (times("at", message=ORDER, descriptors=SET), UsageError, "and its name with them"),
    "no message": (times("at", message=7), UsageError, "message = 7; accepted are a class that protoc generated"),
    "no descriptors": (times("at", message="A", descriptors=b"xxx"), SchemaError, "Set, .*seen 3 bytes that are none"),
    "no bytes": (times("at", message="A", descriptors=3), SchemaError, "serialized FileDescriptorSet.*seen 3"),
    "no file": (times("at", message="A", descriptors=Path("/none.desc")), UsageError, "cannot be read: .*No such file"),
    "no imports": (
        times("at", message="A", descriptors=b"\x0a" + bytes([FILE.ByteSize() & 127 | 128, FILE.ByteSize() >> 7])
              + FILE.SerializeToString()),
        SchemaError, "protoc --include_imports",
    ),
    "another name": (times("at", message="Order", descriptors=SET), SchemaError, "no message 'Order'.*shop.Order"),
    "no such field": (times("on", message=ORDER), SchemaError, "has no field 'on'; its fields are at, line, lines"),
    "no message in a message": (times("note.at", message=ORDER), SchemaError, "is no message, so there is no"),
    "many": (times("lines.at", message=ORDER), SchemaError, "'lines' of the message shop.Order is repeated"),
    "a group": (times("old.at", message=ORDER), SchemaError, "is a group"),
    "no moment": (times("price", message=ORDER), SchemaError, "is double, which is no timestamp; accepted are int64"),
    "an enum": (times("state", message=ORDER), SchemaError, "is an enum, which is no timestamp"),
    "a message": (times("line", message=ORDER), SchemaError, "is the message shop.Order.Line, which is no timestamp"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_mistake_is_named(wrong: str) -> None:
    call, error, says = WRONG[wrong]
    with pytest.raises(error, match=says):
        call()
