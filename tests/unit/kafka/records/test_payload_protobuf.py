"""Protobuf values as a struct column: what is read, what is bad and why, and that no bytes do anything else."""

from __future__ import annotations

import base64
import pickle
import random
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_aligned_kafka.client.schema_registry import SchemaRegistry
from pyspark_aligned_kafka.options.kafka_options import parse
from pyspark_aligned_kafka.records.payload import Decoded
from pyspark_aligned_kafka.records.payload_cells import NODE_KIND, CellColumns, CellKind
from pyspark_aligned_kafka.records.payload_formats import payload_reader
from pyspark_aligned_kafka.records.protobuf_files import index_in_file
from tests.avro_examples import message
from tests.payload_documents import block_by, values_of
from tests.protobuf_pairs import RandomBytes, RandomTypes, decoded, mutated, reader_of, tagged, varint
from tests.schema_registry import Registry, schema_registry
from watermark_source.errors import (
    OptionError,
    PayloadError,
    RefusedError,
    ResponseTimeoutError,
    UnreachableError,
    UnsupportedFormatError,
)

WELL_KNOWN = (timestamp_pb2, duration_pb2, wrappers_pb2)


def files(syntax: str = "proto3") -> descriptor_pb2.FileDescriptorSet:
    """Return a descriptor set with an order, its lines, and messages that are not decoded."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax=syntax)
    file.dependency.extend(module.DESCRIPTOR.name for module in WELL_KNOWN)
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID", "SENT")):
        state.value.add(name=name, number=number)
    line = file.message_type.add(name="Line")
    line.field.add(name="item", number=1, label=1, type=F.TYPE_STRING)
    line.field.add(name="count", number=2, label=1, type=F.TYPE_INT32)
    file.message_type.add(name="Nothing")
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="next", number=1, label=1, type=F.TYPE_MESSAGE, type_name=".shop.Loop")
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=F.TYPE_STRING)
    entry.field.add(name="value", number=2, label=1, type=F.TYPE_MESSAGE, type_name=".shop.Line")
    order.oneof_decl.add(name="how")
    for number, (name, label, kind, of) in enumerate(
        (
            ("id", 1, F.TYPE_STRING, ""), ("count", 1, F.TYPE_INT32, ""), ("small", 1, F.TYPE_UINT32, ""),
            ("large", 1, F.TYPE_UINT64, ""), ("state", 1, F.TYPE_ENUM, ".shop.State"),
            ("at", 1, F.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
            ("took", 1, F.TYPE_MESSAGE, ".google.protobuf.Duration"),
            ("note", 1, F.TYPE_MESSAGE, ".google.protobuf.StringValue"), ("line", 1, F.TYPE_MESSAGE, ".shop.Line"),
            ("lines", 3, F.TYPE_MESSAGE, ".shop.Line"), ("numbers", 3, F.TYPE_SINT64, ""),
            ("tags", 3, F.TYPE_MESSAGE, ".shop.Order.TagsEntry"), ("card", 1, F.TYPE_STRING, ""),
            ("cash", 1, F.TYPE_MESSAGE, ".shop.Line"), ("nothing", 1, F.TYPE_MESSAGE, ".shop.Nothing"),
            ("price", 1, F.TYPE_DOUBLE, ""), ("raw", 1, F.TYPE_BYTES, ""),
        ), 1,
    ):  # fmt: skip
        field = order.field.add(name=name, number=number, label=label, type=kind, type_name=of or None)
        if name in ("card", "cash", "nothing"):
            field.oneof_index = 0
    whole = descriptor_pb2.FileDescriptorSet()
    for module in WELL_KNOWN:
        whole.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    whole.file.append(file)
    return whole


def order(syntax: str = "proto3", name: str = "shop.Order") -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in files(syntax).file:
        pool.Add(file)
    return pool.FindMessageTypeByName(name)


LISTS: dict[str, Any] = {"lines": [], "numbers": [], "tags": []}
LINE = tagged(1, 2, b"pen") + tagged(2, 0, b"\x03")
PEN = {"item": b"pen", "count": 3}
READ: list[tuple[bytes, dict[str, Any]]] = [
    (b"", {}),
    (tagged(1, 2, b"a") + tagged(1, 2, b"b"), {"id": b"b"}),
    (tagged(2, 0, varint(-5)), {"count": -5}),
    (tagged(2, 0, b"\x05") + tagged(2, 0, b"\x00"), {}),
    (tagged(3, 0, varint(2**32 - 1)), {"small": 2**32 - 1}),
    (tagged(4, 0, varint(2**64 - 1)), {"large": Decimal(2**64 - 1)}),
    (tagged(5, 0, b"\x02"), {"state": b"SENT"}),
    (tagged(5, 0, b"\x07"), {"state": b"UNKNOWN_ENUM_VALUE_State_7"}),
    (tagged(6, 2), {"at": 0}),
    (tagged(6, 2, tagged(1, 0, b"\x02")) + tagged(6, 2, tagged(2, 0, varint(5_000))), {"at": 2_000_005}),
    (tagged(6, 2, tagged(1, 0, varint(-1)) + tagged(2, 0, varint(999))), {"at": -1_000_000}),
    (tagged(7, 2, tagged(2, 0, varint(-1_001))), {"took": -1}),
    (tagged(8, 2, tagged(1, 2, b"n")), {"note": {"value": b"n"}}),
    (tagged(9, 2, tagged(1, 2, b"pen")) + tagged(9, 2, tagged(2, 0, b"\x03")), {"line": PEN}),
    (tagged(10, 2, LINE) + tagged(99, 2, b"?") + tagged(10, 2), {"lines": [PEN, {"item": None, "count": None}]}),
    (tagged(11, 2, b"\x01\x02") + tagged(11, 0, b"\x03"), {"numbers": [-1, 1, -2]}),
    (tagged(12, 2, tagged(1, 2, b"k") + tagged(2, 2, LINE)) + tagged(12, 2, tagged(1, 2, b"k")),
     {"tags": [(b"k", {"item": None, "count": None})]}),
    (tagged(12, 2, tagged(3, 2, b"unknown")), {"tags": [(b"", {"item": None, "count": None})]}),
    (tagged(13, 2, b"visa") + tagged(14, 2, LINE), {"cash": PEN}),
    (tagged(14, 2, LINE) + tagged(13, 2), {"card": b""}),
    (tagged(14, 2, LINE) + tagged(13, 2, b"x") + tagged(14, 2, tagged(2, 0, b"\x01")),
     {"cash": {"item": None, "count": 1}}),
    (tagged(13, 2, b"visa") + tagged(15, 2), {}),
    (tagged(16, 1, struct.pack("<d", -0.0)), {"price": "-0.0"}),
    (tagged(17, 2, b"\xff\x00"), {"raw": b"\xff\x00"}),
    (tagged(99, 3, tagged(98, 3, b"") + tagged(1, 0, b"\x01")) + tagged(2, 0, b"\x01"), {"count": 1}),
]  # fmt: skip
BAD: list[tuple[bytes, str]] = [
    (b"\x0a", "it is corrupt or truncated"),
    (b"\x0a\x05abc", "it is corrupt or truncated"),
    (b"\x0a\xff\xff\xff\xff\x0f", "it is corrupt or truncated"),
    (b"\x00", "it is corrupt or truncated"),
    (b"\x10" + b"\xff" * 10 + b"\x01", "it is corrupt or truncated"),
    (tagged(99, 3)[:-1], "it is corrupt or truncated"),
    (varint(99 << 3 | 4), "it is corrupt or truncated"),
    (varint(99 << 3 | 3) * 101 + varint(99 << 3 | 4) * 101, "it is corrupt or truncated"),
    (tagged(9, 2, b"\x0a\x7f") + tagged(1, 2, b"x" * 200), "it is corrupt or truncated"),
    (tagged(11, 2, b"\x80"), "it is corrupt or truncated"),
    (tagged(15, 2, b"\x0a"), "it is corrupt or truncated"),
    (tagged(1, 0, b"\x01"), "field 1 has another type in it"),
    (tagged(9, 2, tagged(2, 2, b"x")), "field 2 has another type in it"),
    (tagged(1, 2, b"\xed\xa0\x80"), "the string of field 1 is not UTF-8"),
    (tagged(6, 2, tagged(1, 0, varint(2**62))), "the timestamp or duration of field 6 has more microseconds than 64"),
]


@pytest.mark.parametrize(("value", "members"), READ, ids=lambda each: repr(each)[:40])
def test_a_message_is_read_as_protobuf_reads_it(value: bytes, members: dict[str, Any]) -> None:
    (row,) = values_of(decoded(order(), [value]).column)
    assert {name: each for name, each in row.items() if each is not None} == {**LISTS, **members}


@pytest.mark.parametrize(("value", "reason"), BAD, ids=lambda each: repr(each)[:40])
def test_a_bad_message_has_null_members_and_a_reason(value: bytes, reason: str) -> None:
    found = decoded(order(), [tagged(2, 0, b"\x01"), value, None, tagged(2, 0, b"\x02")])
    rows = values_of(found.column)
    assert found.malformed == 1
    assert rows[1] == dict.fromkeys(rows[1])
    assert [row and row["count"] for row in rows] == [1, None, None, 2]
    assert rows[2] is None
    with pytest.raises(
        PayloadError, match=rf"offset 1: the value does not fit valueSchema: it cannot be read as shop.Order: {reason}"
    ):
        block_by(reader_of(order(), fail_fast=True), [b"", value])


def test_an_enum_of_proto2_has_no_other_values_than_its_own() -> None:
    found = decoded(order("proto2"), [tagged(5, 0, b"\x02"), tagged(5, 0, b"\x07")])
    assert [row["state"] for row in values_of(found.column)] == [b"SENT", None]
    assert found.malformed == 1


def test_zero_is_a_value_in_proto2() -> None:
    (row,) = values_of(decoded(order("proto2"), [tagged(2, 0, b"\x00")]).column)
    assert row["count"] == 0


def test_the_type_of_the_column_is_that_of_from_protobuf() -> None:
    kind = decoded(order(), []).column.type
    assert [name for name in ("nothing",) if kind.get_field_index(name) >= 0] == []
    types = {name: kind.field(name).type for name in ("id", "small", "large", "state", "at", "took", "tags")}
    line = pa.struct([("item", pa.string()), ("count", pa.int32())])
    assert types == {
        "id": pa.string(), "small": pa.int64(), "large": pa.decimal128(20, 0), "state": pa.string(),
        "at": pa.timestamp("us", "UTC"), "took": pa.duration("us"), "tags": pa.map_(pa.string(), line),
    }  # fmt: skip


def test_cells_of_a_block_grow_with_the_lists_in_it() -> None:
    many = tagged(11, 2, b"\x02" * 50_000) + tagged(10, 2, LINE) * 5_000
    rows = values_of(decoded(order(), [many, b"", many]).column)
    assert [(len(row["numbers"]), len(row["lines"])) for row in rows] == [(50_000, 5_000), (0, 0), (50_000, 5_000)]


def test_a_long_map_has_each_key_once_and_the_last_value_of_it() -> None:
    entries = [
        tagged(12, 2, tagged(1, 2, b"%d" % (n % 1_000)) + tagged(2, 2, tagged(2, 0, varint(n + 1))))
        for n in range(5_000)
    ]
    rows = values_of(decoded(order(), [b"".join(entries), entries[7]]).column)
    assert {key: line["count"] for key, line in rows[0]["tags"]} == {b"%d" % n: n + 4_001 for n in range(1_000)}
    assert [line["count"] for _, line in rows[1]["tags"]] == [8]


def test_random_bytes_have_no_effect_on_others() -> None:
    chance = random.Random(5)
    reader, good = reader_of(order()), tagged(2, 0, b"\x01") + tagged(10, 2, LINE)
    (expected,) = values_of(block_by(reader, [good]).column)
    for _ in range(60):
        noise = [chance.randbytes(chance.randrange(60)) for _ in range(20)]
        noise += [mutated(chance, b"".join(value for value, _ in chance.sample(READ, 3))) for _ in range(20)]
        values = [value for each in noise for value in (each, good)]
        rows = values_of(block_by(reader, values).column)
        assert rows[1::2] == [expected] * len(noise)


@pytest.mark.long("the same, for two thousand blocks of one type")
def test_random_bytes_of_random_types_do_nothing_else() -> None:
    chance = random.Random(6)
    for _ in range(3_000):
        descriptor = RandomTypes(chance).message()
        try:
            reader = reader_of(descriptor)
        except ValueError:
            continue
        made = RandomBytes(chance)
        values = [mutated(chance, mutated(chance, made.value(descriptor))) for _ in range(20)]
        values += [chance.randbytes(chance.randrange(80)) for _ in range(20)]
        assert len(values_of(block_by(reader, values).column)) == len(values)


@pytest.mark.parametrize("values", [[b""] * 2_048, [tagged(1, 2, bytes(2_048))]], ids=["defaults", "names"])
def test_texts_of_a_schema_that_exceed_the_offsets_of_a_column_end_the_query(values: list[bytes]) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="large.proto", syntax="proto2")
    file.enum_type.add(name="State").value.add(name="N" * (1 << 20), number=0)
    large = file.message_type.add(name="Large")
    large.field.add(name="states", number=1, label=3, type=F.TYPE_ENUM, type_name=".State")
    large.field.add(name="note", number=2, label=1, type=F.TYPE_STRING, default_value="x" * (1 << 20))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    with pytest.raises(PayloadError, match="the texts of one member take 214"):
        decoded(pool.FindMessageTypeByName("Large"), values)


def test_records_in_errors_are_shown_as_chosen() -> None:
    with pytest.raises(PayloadError) as caught:
        block_by(reader_of(order(), fail_fast=True, shows_records=False), [b"\x0a\x05secret"])
    assert "secret" not in str(caught.value)


# The options.


def options(tmp_path: Path, schema: str = "{file}:shop.Order", **others: str) -> Any:
    file = tmp_path / "shop.desc"
    file.write_bytes(files().SerializeToString())
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", "valueFormat": "protobuf"}
    return parse({**given, "valueSchema": schema.format(file=file), **others})


def test_the_schema_is_a_file_and_a_message_in_it(tmp_path: Path) -> None:
    (choice,) = options(tmp_path).payloads
    assert values_of(block_by(payload_reader(choice), [tagged(2, 0, b"\x05")]).column)[0]["count"] == 5


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("shop.Order", "there is no path, colon and name of a message"),
        ("/nowhere/shop.desc:shop.Order", "the file cannot be read: .*No such file"),
        ("{file}:shop.Other", "the descriptors have no message 'shop.Other'; they have .*shop.Order"),
        ("{file}:shop.Loop", "the message shop.Loop contains itself .*recursive.fields.max.depth"),
        ("{file}:shop.Nothing", "the message shop.Nothing has no fields"),
        (f"{__file__}:shop.Order", "descriptors are a serialized FileDescriptorSet"),
    ],
)
def test_a_schema_that_is_not_decoded_is_refused_with_its_reason(tmp_path: Path, schema: str, reason: str) -> None:
    with pytest.raises(OptionError, match=f"path of a descriptor set, a colon, and a message in it.*{reason}"):
        options(tmp_path, schema)


# Behind the ids of schemas.


def registered(file: descriptor_pb2.FileDescriptorProto, **more: Any) -> dict[str, Any]:
    """Return a registry's answer."""
    return {"schema": base64.b64encode(file.SerializeToString()).decode(), "schemaType": "PROTOBUF", **more}


def shop(**types: int) -> descriptor_pb2.FileDescriptorProto:
    """Return the file of an order behind another message; fields of it have other types, or a new name."""
    file = files().file[-1]
    file.ClearField("dependency")
    for module in WELL_KNOWN:
        file.dependency.append(module.DESCRIPTOR.name)
    other = descriptor_pb2.DescriptorProto(name="First")
    messages = list(file.message_type)
    file.ClearField("message_type")
    file.message_type.extend([other, *messages])
    for field in file.message_type[-1].field:
        field.type = types.get(field.name, field.type)
    return file


def with_other(**fields: Any) -> descriptor_pb2.FileDescriptorProto:
    """Return the file of an order in which each of the fields differs."""
    file = shop()
    for field in file.message_type[-1].field:
        for name, value in fields.get(field.name, {}).items():
            setattr(field, name, value)
    return file


GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
IMPORTING = descriptor_pb2.FileDescriptorProto(name="", package="shop", syntax="proto3")
IMPORTING.dependency.extend(["shop/lines.proto", "google/protobuf/timestamp.proto", "options/meta.proto"])
BASKET = IMPORTING.message_type.add(name="Basket")
BASKET.field.add(name="line", number=1, label=1, type=F.TYPE_MESSAGE, type_name=".shop.Line")
BASKET.field.add(name="at", number=2, label=1, type=F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
LINES = descriptor_pb2.FileDescriptorProto(name="other", package="shop", syntax="proto3")
LINES.message_type.add(name="Line").field.add(name="item", number=1, label=1, type=F.TYPE_STRING)
REFERENCE = {"name": "shop/lines.proto", "subject": "lines", "version": 2}
FORM = "?format=serialized"
ANSWERS = {
    f"/subjects/orders-value/versions/3{FORM}": registered(files().file[-1]),
    f"/subjects/baskets-value/versions/1{FORM}": registered(IMPORTING, references=[REFERENCE]),
    f"/subjects/lines/versions/2{FORM}": registered(LINES),
    f"/subjects/text/versions/1{FORM}": {"schema": "message Order {}", "schemaType": "PROTOBUF"},
    f"/subjects/avro/versions/1{FORM}": {"schema": '"string"'},
    f"/subjects/broken/versions/1{FORM}": registered(IMPORTING),
    f"/schemas/ids/1{FORM}": registered(files().file[-1]),
    f"/schemas/ids/2{FORM}": registered(shop()),
    f"/schemas/ids/4{FORM}": registered(LINES),
    f"/schemas/ids/5{FORM}": {"schema": '"string"'},
    f"/schemas/ids/6{FORM}": registered(shop(count=F.TYPE_SINT32)),
    f"/schemas/ids/7{FORM}": registered(with_other(count={"name": "how_many"}, small={"type": F.TYPE_BOOL})),
    f"/schemas/ids/8{FORM}": registered(with_other(count={"label": 3})),
    f"/schemas/ids/9{FORM}": registered(with_other(count={"type": F.TYPE_INT64})),
    f"/schemas/ids/10{FORM}": {"schema": "message Order {}", "schemaType": "PROTOBUF"},
    f"/schemas/ids/11{FORM}": {"schema": "AAAA", "schemaType": "PROTOBUF"},
    f"/schemas/guids/{GUID}{FORM}": registered(shop()),
}
FIVE = tagged(2, 0, b"\x05")


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry(dict(ANSWERS)) as server:
        yield server


def client(registry: Registry) -> SchemaRegistry:
    return SchemaRegistry.of(f"http://127.0.0.1:{registry.port}", login=None, timeout_ms=5_000)


def counts(found: Decoded) -> list[int | None]:
    return [row and row["count"] for row in values_of(found.column)]


def test_a_message_is_found_by_its_index_in_each_schema(registry: Registry) -> None:
    """In schema 1 the order is the fourth message, in schema 2 the fifth."""
    reader = reader_of(order(), client(registry), framed=True)
    assert index_in_file(order()) == (3,)
    values = [message(1, b"\2\6" + FIVE), message(2, b"\2\x08" + FIVE), None, message(7, b"\2\x08" + FIVE)]
    found = block_by(reader, values * 2)
    assert counts(found) == [5, 5, None, 5] * 2
    assert found.malformed == 0
    assert sorted(registry.asked) == [f"/schemas/ids/{number}{FORM}" for number in (1, 2, 7)]


def test_the_first_message_has_the_short_index(registry: Registry) -> None:
    reader = reader_of(order(name="shop.Line"), client(registry), framed=True)
    assert counts(block_by(reader, [message(1, b"\0" + LINE), message(1, b"\2\0" + LINE)])) == [3, 3]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "it does not begin with a zero byte and the id of a schema, and no header has one"),
        (b"plain", "it does not begin with a zero byte and the id of a schema"),
        (message(1, b""), "it has no valid index of a message"),
        (message(1, b"\1" + FIVE), "it has no valid index of a message"),
        (message(1, b"\x08\6"), "it has no valid index of a message"),
        (message(1, b"\0" + FIVE), "by its index it is a message other than shop.Order"),
        (message(2, b"\2\6" + FIVE), "by its index it is a message other than shop.Order"),
        (message(1, b"\2\6\x0a"), "it cannot be read as shop.Order: it is corrupt or truncated"),
        (message(3, b"\2\6" + FIVE), "has no schema of its id"),
        (message(4, b"\0" + FIVE), "schema 4 does not resolve to shop.Order of valueSchema: it has no message shop.O"),
        (message(5, b"\2\6" + FIVE), "schema 5 does not .*its type is AVRO, not PROTOBUF"),
        (message(6, b"\2\x08" + FIVE), "field 2, count, is a single sint32 in it, and not a single int32"),
        (message(8, b"\2\x08" + FIVE), "field 2, count, is a list int32 in it, and not a single int32"),
        (message(9, b"\2\x08" + FIVE), "field 2, count, is a single int64 in it, and not a single int32"),
        (message(11, b"\0"), "its 3 bytes are not a descriptor of a file"),
    ],
)
def test_a_value_whose_schema_has_no_such_message_is_named(registry: Registry, value: bytes, why: str) -> None:
    good = message(1, b"\2\6" + FIVE)
    found = block_by(reader_of(order(), client(registry), framed=True), [good, value, good])
    assert counts(found) == [5, None, 5]
    assert found.malformed == 1
    with pytest.raises(PayloadError, match=rf"offset 1: the value does not fit valueSchema: .*{why}"):
        block_by(reader_of(order(), client(registry), framed=True, fail_fast=True), [good, value])


def test_a_registry_without_descriptors_ends_the_read_and_makes_no_nulls(registry: Registry) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"as .proto files.*write valueSchema = path:message"):
        block_by(reader_of(order(), client(registry), framed=True), [message(10, b"\0")])


@pytest.mark.parametrize(
    ("answer", "status", "why"),
    [
        (registered(shop()), [500] * 99, "returned no schema within 600 ms"),
        (
            registered(shop()),
            [401],
            r"refuses the login \(status 401\); give schemaRegistryUserInfo",
        ),
        (registered(shop()), [404], "answers status 404 to /schemas/ids/12.*is schemaRegistry its address"),
        (b"{" + b" " * (5 << 20), [], "with more than 4194304 bytes; is schemaRegistry its address"),
        (b'{"schema": 5}', [], r"""does not answer as a schema registry: b'\{"schema": 5\}'"""),
        (b"[" * 99_999, [], "does not answer as a schema registry"),
    ],
)
@pytest.mark.parametrize("fail_fast", [False, True])
def test_a_registry_that_returns_no_schema_ends_the_read_and_makes_no_nulls(
    registry: Registry, answer: object, status: list[int], why: str, *, fail_fast: bool
) -> None:
    registry.answers[f"/schemas/ids/12{FORM}"], registry.statuses = answer, list(status)
    # What is requested again is requested until the time is over.
    there = SchemaRegistry.of(
        f"http://127.0.0.1:{registry.port}", login="me:s3cret",
        timeout_ms=600 if status == [500] * 99 else 60_000,
    )  # fmt: skip
    with pytest.raises((RefusedError, ResponseTimeoutError, UnreachableError), match=why) as ended:
        block_by(reader_of(order(), there, framed=True, fail_fast=fail_fast), [message(12, b"\2\x08" + FIVE)])
    assert not any(secret in str(ended.value) for secret in ("s3cret", "bWU6czNjcmV0"))


def test_without_a_registry_the_index_is_that_of_the_file() -> None:
    found = block_by(reader_of(order(), framed=True), [message(99, b"\2\6" + FIVE), message(1, b"\0"), b"", None])
    assert counts(found) == [5, None, None, None]
    assert found.malformed == 2


def test_an_id_in_a_header_counts_and_its_value_is_the_message_alone(registry: Registry) -> None:
    reader, in_value = reader_of(order(), client(registry), framed=True), message(1, b"\2\6" + FIVE)
    headers = [b"\1" + GUID.bytes + b"\2\x08", message(2, b"\2\x08"), None, b"\1" + GUID.bytes[1:], b"", b"\2" * 17]
    found = block_by(reader, [FIVE, FIVE, in_value, FIVE, FIVE, in_value], headers)
    assert counts(found) == [5, 5, 5, None, None, None]
    assert found.malformed == 3
    assert registry.asked.count(f"/schemas/guids/{GUID}{FORM}") == 1


@pytest.mark.parametrize(
    ("schema", "members"),
    [("orders-value:3:shop.Order", 16), ("orders-value:3:shop.Line", 2), ("baskets-value:1", 2)],
)
def test_the_schema_is_a_version_in_a_registry(registry: Registry, tmp_path: Path, schema: str, members: int) -> None:
    (choice,) = options(tmp_path, schema, schemaRegistry=f"http://127.0.0.1:{registry.port}").payloads
    assert len(choice.schema.fields) == members
    assert choice.framed
    assert pickle.loads(pickle.dumps(choice)) == choice


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("orders-value:3", "it has the messages shop.Line, .*: write one of them.*such as orders-value:3:shop.Line"),
        ("orders-value:3:shop.Missing", "it has no message shop.Missing; it has shop.Line"),
        ("orders-value:latest", '"latest" is not a version, which is a number from 1 to 2147483647'),
        ("orders-value:latest:shop.Order", '"latest" is not a version'),
        ("orders-value:7", "has no such version"),
        ("orders-value:9999999999", "is not a version, which is a number from 1 to 2147483647"),
        ("orders-value:3:shop.Loop", "contains itself"),
        ("avro:1", "its type is AVRO, not PROTOBUF"),
        ("text:1", "returns schemas of Protobuf as .proto files"),
        ("broken:1", "its files do not fit together: .*shop.Line"),
    ],
)
def test_a_version_that_is_not_decoded_is_refused_with_its_reason(
    registry: Registry, tmp_path: Path, schema: str, reason: str
) -> None:
    with pytest.raises(OptionError, match=f"with schemaRegistry a version of a subject there.*{reason}"):
        options(tmp_path, schema, schemaRegistry=f"http://127.0.0.1:{registry.port}")


def test_a_member_that_is_read_as_another_kind_is_so_for_compiled_code_too() -> None:
    columns = CellColumns(StructType([StructField("state", StringType())]), {})
    columns.deliver(1, lambda column, _: column, (CellKind.INTEGER, pa.int32()))
    assert columns.kinds[1] is CellKind.INTEGER
    assert columns.nodes[1, NODE_KIND] == CellKind.INTEGER


def test_a_version_needs_a_registry_and_its_values_need_no_ids(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a version of a subject needs the option schemaRegistry"):
        options(tmp_path, "orders-value:3")
    there = f"http://127.0.0.1:{registry.port}"
    (choice,) = options(tmp_path, "baskets-value:1", schemaRegistry=there, valueFraming="none").payloads
    assert values_of(block_by(payload_reader(choice), [tagged(2, 2)]).column) == [{"line": None, "at": 0}]


def test_a_format_that_a_registry_does_not_have_is_requested_as_text(registry: Registry) -> None:
    registry.statuses = [501]
    registry.answers.update((f"/schemas/ids/12{form}", {"schema": '"string"'}) for form in ("", FORM))
    assert client(registry).schema(12, serialized=True) == ("AVRO", '"string"', (), ())
    assert registry.asked == [f"/schemas/ids/12{FORM}", "/schemas/ids/12"]
