"""Avro as columns: types as from_avro has them, what bytes are refused and why, and schemas that do not resolve."""

from __future__ import annotations

import decimal
import json
import logging
import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from pyspark_aligned_kafka.client.schema_registry import SchemaRegistry
from pyspark_aligned_kafka.records import avro_columns
from pyspark_aligned_kafka.records.avro_columns import avro_schema
from pyspark_aligned_kafka.records.avro_schema import type_of
from pyspark_aligned_kafka.records.payload import PayloadReader
from tests.avro_examples import encoded, message
from tests.avro_pairs import OneSchema, Pairs, decoded, has_column, reader_of
from tests.payload_documents import block_by, values_of
from tests.schema_registry import Registry, forget_schemas, schema_registry
from watermark_source.errors import PayloadError, ResponseTimeoutError


def record(*fields: Any, name: str = "Order") -> dict[str, Any]:
    """Return a record's schema; a field is its name, its type, and what else it has."""
    made = [{"name": field[0], "type": field[1], **(field[2] if len(field) > 2 else {})} for field in fields]
    return {"type": "record", "name": name, "fields": made}


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    """Return a type with a logical type."""
    return {"type": kind, "logicalType": logical_type, **more}


TYPES: list[tuple[Any, str, bytes, Any]] = [
    (logical("int", "date"), "date", b"\xc2\xc8\x02", 21025),
    (logical("int", "time-millis"), "int", b"\x02", 1),
    (logical("long", "time-micros"), "bigint", b"\x02", 1),
    (logical("long", "timestamp-millis"), "timestamp", b"\x02", 1_000),
    (logical("long", "timestamp-micros"), "timestamp", b"\x01", -1),
    (logical("long", "timestamp-nanos"), "bigint", b"\x02", 1),
    (logical("long", "local-timestamp-millis"), "timestamp_ntz", b"\x02", 1_000),
    (logical("long", "local-timestamp-micros"), "timestamp_ntz", b"\x02", 1),
    (logical("string", "uuid"), "string", b"\x02a", b"a"),
    (logical("bytes", "decimal", precision=5, scale=2), "decimal(5,2)", b"\x04\xff\x85", decimal.Decimal("-1.23")),
    (logical("bytes", "decimal", precision=38), "decimal(38,0)", b"\x20\x4b" + b"\x3b" * 15,
     decimal.Decimal(int.from_bytes(b"\x4b" + b"\x3b" * 15, "big"))),
    (logical("bytes", "decimal", precision=2), "decimal(2,0)", b"\x28" + b"\xff" * 20, decimal.Decimal(-1)),
    (logical("fixed", "decimal", name="F", size=2, precision=4, scale=4), "decimal(4,4)", b"\x00\x7b",
     decimal.Decimal("0.0123")),
    # A logical type that is not valid is ignored.
    (logical("fixed", "decimal", name="F", size=1, precision=4), "binary", b"\x7b", b"\x7b"),
    (logical("bytes", "decimal", precision=2, scale=3), "binary", b"\x02a", b"a"),
    (logical("long", "date"), "bigint", b"\x02", 1),
    (logical("bytes", "big-decimal"), "binary", b"\x02a", b"a"),
    (logical("fixed", "duration", name="F", size=1), "binary", b"a", b"a"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", b"\x02", b"B"),
    (["null", "long"], "bigint", b"\x00", None),
    (["int", "long"], "bigint", b"\x00\x02", 1),
    (["float", "null", "double"], "double", b"\x00\x00\x00\xc0\x3f", "1.5"),
    (["string"], "string", b"\x00\x02a", b"a"),
    (["null", "int", "string"], "struct<member0:int,member1:string>", b"\x04\x02a", {"member0": None, "member1": b"a"}),
    ({"type": "map", "values": "int"}, "map<string,int>", b"\x01\x06\x02a\x02\x00", [(b"a", 1)]),
    ({"type": "array", "items": ["null", "int"]}, "array<int>", b"\x04\x00\x02\x04\x00", [None, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "kind", "content", "value"), TYPES, ids=lambda each: str(each)[:40])
def test_a_type_is_that_of_from_avro(schema: Any, kind: str, content: bytes, value: Any) -> None:
    assert avro_schema(json.dumps(schema), None).type.simpleString() == kind
    found = decoded(json.dumps(record(("a", schema), ("b", "int"))), [content + b"\x0a", None])
    assert values_of(found.column) == [{"a": value, "b": 5}, None]
    assert found.malformed == 0


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "an Avro schema is JSON"),
        ('{"type":"no_such_type"}', "refers to the type"),
        (json.dumps(record(("a", "null"))), "a is null alone"),
        (json.dumps(record()), "has no fields"),
        (json.dumps(record(("next", ["null", "Order"]))), "contains itself"),
        (json.dumps(record(("a", logical("bytes", "decimal", precision=39)))), "a is a decimal of 39 digits"),
        (json.dumps(record(("a", ["int", ["int"]]))), "a union has no union in it"),
        (json.dumps(record(("a", "int", {"default": "x"}))), "the default .* is none of int"),
        (json.dumps(record(("a", {"type": "int", "spark.sql.catalyst.type": "interval year"}))), "Spark's own writer"),
        (json.dumps({"type": "enum", "name": "E", "symbols": ["\ud800"]}), "an Avro schema is JSON"),
        ('{"type":"array","items":' * 65 + '"int"' + "}" * 65, "more than 64 types in each other"),
        (json.dumps(record(*((f"f{place}", "int") for place in range(10_000)))), "more than 10000 columns"),
        ("orders-value:3", "needs the option schemaRegistry"),
        (json.dumps(record(("a", {"type": "fixed", "name": "F", "size": -1}), ("b", "int"))), "fixed type of -1"),
        (json.dumps({**record(("a", "int")), "aliases": 5}), "aliases are not all texts"),
        ('{"type":"enum","name":"E","symbols":["A"],"aliases":"x"}', "aliases are not all texts"),
        ('["null",{"type":"fixed","name":"F","size":1,"aliases":[1]}]', "aliases are not all texts"),
        (json.dumps(record(("a", "int", {"aliases": [["b"]]}))), "aliases are not all texts"),
        ('{"type":"enum","name":"E","symbols":["A","B","A"]}', "has each symbol once"),
        ('{"type":"enum","name":"E","symbols":["A","B"],"default":"C"}', "default of an Avro enum is one of its"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":null}', "default of an Avro enum is one of its"),
        (json.dumps(record(("a", "int"), ("a", "int"))), "has each field once"),
        (json.dumps(record(("a", logical("bytes", "decimal", precision=2), {"default": ""}))), "is none of bytes"),
        (json.dumps(record(("a", logical("bytes", "decimal", precision=2), {"default": "d"}))), "is none of bytes"),
    ],
)
def test_another_schema_is_refused(schema: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        avro_schema(schema, None)


BAD: list[tuple[Any, bytes, str]] = [
    ("string", b"", "cut short"),
    ("string", b"\x04a", "cut short"),
    ("string", b"\x03", "cut short"),
    ("string", b"\x04\xc3\x28", "not UTF-8"),
    ("string", b"\x06\xed\xa0\x80", "not UTF-8"),
    ("int", b"\x80\x80\x80\x80\x10", "no value of its schema"),
    ("int", b"\x02\x02", "bytes left behind"),
    ("long", b"\xff" * 11, "cut short"),
    ("boolean", b"\x02", "no value"),
    ("double", b"\0" * 7, "cut short"),
    (["null", "int"], b"\x04", "no value"),
    (["null", "int"], b"\x01", "no value"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no value"),
    ({"type": "fixed", "name": "F", "size": 4}, b"\0\0\0", "cut short"),
    ({"type": "array", "items": "int"}, b"\x02\x02", "cut short"),
    ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "no value"),
    ({"type": "array", "items": "int"}, b"\x01\x7f\x02\x00", "no value"),
    ({"type": "array", "items": record(("a", ["null", "int"]), name="I")}, b"\xfe\xff\xff\xff\xff\x01" + b"\0" * 9,
     "no value"),
    ({"type": "map", "values": "int"}, b"\x02\x02\xff\x02\x00", "not UTF-8"),
    (logical("bytes", "decimal", precision=2), b"\x02\x64", "too many digits"),
    (logical("bytes", "decimal", precision=2), b"\x00", "no value"),
    (logical("bytes", "decimal", precision=38), b"\x22\x00" + b"\xff" * 16, "too many digits"),
    (logical("long", "timestamp-millis"), b"\xfe" + b"\xff" * 8 + b"\x01", "too many digits"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "content", "why"), BAD, ids=lambda each: str(each)[:40])
def test_a_bad_value_is_null_counted_and_named_and_spoils_no_other(
    schema: Any, content: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = json.dumps(record(("id", "int"), ("a", ["null", "int"]), ("b", schema)))
    short = json.dumps(record(("b", schema)))
    with caplog.at_level(logging.WARNING):
        found = decoded(short, [content])
    assert values_of(found.column) == [{"b": None}]
    assert found.malformed == 1
    assert why in caplog.text
    with pytest.raises(PayloadError, match=f"orders partition 0 offset 0: the value does not fit valueSchema: .*{why}"):
        block_by(reader_of(short, fail_fast=True), [content])
    # Of the bad one nothing is left, though its first fields were read.
    good = decoded(whole, [b"\x02\x00" + content])
    assert values_of(good.column) == [{"id": None, "a": None, "b": None}]


def test_a_record_is_shown_only_where_the_user_lets_it() -> None:
    with pytest.raises(PayloadError) as raised:
        block_by(reader_of('"string"', fail_fast=True, shows_records=False), [b"\x20secret"])
    assert "secret" not in str(raised.value)


def test_items_without_bytes_have_a_limit_on_their_cells() -> None:
    wide = record(*((f"f{place}", "int") for place in range(100)), name="Wide")
    reader = {"type": "array", "items": record(("w", ["null", wide], {"default": None}), name="Item")}
    answers = {"/schemas/ids/1": {"schema": json.dumps({"type": "array", "items": record(name="Item")})}}
    many, few = encoded("long", 1_000), encoded("long", 10)
    with schema_registry(answers) as registry:
        client = SchemaRegistry.of(f"http://127.0.0.1:{registry.port}", login=None, timeout_ms=60_000)
        found = block_by(reader_of(json.dumps(reader), client), [message(1, many + b"\x00"), message(1, few + b"\x00")])
    assert values_of(found.column) == [None, [{"w": None}] * 10]
    assert found.malformed == 1


def test_a_precision_with_any_number_of_digits_is_compared_and_not_computed() -> None:
    number = {"type": "fixed", "name": "F", "size": 2**31 - 1, "logicalType": "decimal", "precision": 2**62}
    assert avro_schema(json.dumps(number), None).type.simpleString() == "binary"
    last = {**number, "size": 16, "precision": 38}
    assert avro_schema(json.dumps(last), None).type.simpleString() == "decimal(38,0)"
    assert avro_schema(json.dumps({**last, "size": 15}), None).type.simpleString() == "binary"


@pytest.mark.parametrize("seed", range(10))
def test_hostile_bytes_give_nulls_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    pairs = Pairs(chance)
    schema = pairs.record()
    while not has_column(schema):
        schema = pairs.record()
    reader = reader_of(json.dumps(schema))
    values = []
    for _ in range(300):
        content = bytearray(encoded(schema, pairs.value(schema)) if chance.random() < 0.7 else chance.randbytes(40))
        for _ in range(chance.randrange(3)):
            if content:
                content[chance.randrange(len(content))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        values.append(bytes(content[: chance.randrange(len(content) + 1)] if chance.random() < 0.3 else content))
    column = block_by(reader, values).column
    column.validate(full=True)
    assert len(column) == 300


# With a registry.

OLD = record(("id", "string"), ("amount", "int"), ("gone", "string"), ("was", "long"))
NEW = record(
    ("now", "long", {"aliases": ["was"]}), ("amount", "double"), ("id", "string"), ("tag", "string", {"default": "é"}),
    name="shop.Order",
)  # fmt: skip
ITEM = record(("n", "int"), name="shop.Item")
WITH_ITEM = record(("item", "shop.Item"), name="shop.Basket")
ANSWERS = {
    "/schemas/ids/1": {"schema": json.dumps(OLD)},
    "/schemas/ids/2": {"schema": json.dumps(NEW)},
    "/schemas/ids/3": {"schema": json.dumps(record(("id", "int")))},
    "/schemas/ids/4": {"schema": "message A {}", "schemaType": "PROTOBUF"},
    "/schemas/ids/5": {"schema": json.dumps(WITH_ITEM), "references": [{"subject": "item", "version": 1}]},
    "/subjects/item/versions/1": {"schema": json.dumps(ITEM)},
    "/subjects/orders-value/versions/2": {"schema": json.dumps(NEW)},
    "/subjects/baskets-value/versions/1": {
        "schema": json.dumps(WITH_ITEM), "references": [{"subject": "item", "version": 1}],
    },
    "/subjects/proto/versions/1": {"schema": "message A {}", "schemaType": "PROTOBUF"},
}  # fmt: skip


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry(dict(ANSWERS)) as server:
        yield server


def client(registry: Registry, timeout_ms: int = 5_000) -> SchemaRegistry:
    return SchemaRegistry.of(f"http://127.0.0.1:{registry.port}", login=None, timeout_ms=timeout_ms)


def orders(registry: Registry, **choice: Any) -> PayloadReader:
    return reader_of("orders-value:2", client(registry), **choice)


def test_values_of_every_writer_have_the_columns_of_the_readers_schema(registry: Registry) -> None:
    old = message(1, encoded(OLD, {"id": "a", "amount": 3, "gone": "x", "was": 7}))
    new = message(2, encoded(NEW, {"id": "b", "amount": 0.5, "now": 8, "tag": "t"}))
    found = block_by(orders(registry), [old, new, None, old])
    first = {"now": 7, "amount": "3.0", "id": b"a", "tag": "é".encode()}
    assert values_of(found.column) == [first, {"now": 8, "amount": "0.5", "id": b"b", "tag": b"t"}, None, first]
    assert registry.asked.count("/schemas/ids/1") == 1


TRIP = record(("driver", "string"), ("fare", "double"), ("stop", ["null", "Trip"]), name="Trip")
RIDE = record(("id", "string"), ("trip", ["null", TRIP]), name="Ride")
DEFAULTED = [("driver", ["null", "string"], {"default": None}), ("fare", "double", {"default": 0.5})]
OTHER_LEVELS: dict[str, tuple[list[Any], bool]] = {
    "no field of the writer": (DEFAULTED, True),
    "one": ([*DEFAULTED, ("id", "string", {"default": ""})], False),
    "one by an alias": ([*DEFAULTED, ("ride", "string", {"default": "", "aliases": ["id"]})], False),
}


@pytest.mark.parametrize("reader", OTHER_LEVELS)
def test_a_schema_whose_fields_no_writer_has_is_named_with_where_they_are(
    registry: Registry, caplog: pytest.LogCaptureFixture, reader: str
) -> None:
    """All of it has defaults, so that it resolves, and each row has them."""
    fields, is_named = OTHER_LEVELS[reader]
    registry.answers["/schemas/ids/6"] = {"schema": json.dumps(RIDE)}
    value = message(6, encoded(RIDE, {"id": "a", "trip": ("Trip", {"driver": "d", "fare": 1.5, "stop": None})}))
    found = reader_of(json.dumps(record(*fields, name="Ride")), client(registry))
    for _ in range(2):
        assert block_by(found, [value]).malformed == 0
    logged = [r.getMessage() for r in caplog.records if "which valueSchema names" in r.getMessage()]
    assert len(logged) == is_named
    if is_named:
        assert "have no driver, fare, which valueSchema names: the defaults in every row" in logged[0]
        assert "they were written are id, trip, trip.driver, trip.fare" in logged[0]


def test_a_reader_s_schema_and_a_writer_s_refer_to_others(registry: Registry) -> None:
    found = block_by(reader_of("baskets-value:1", client(registry)), [message(5, b"\x0a")])
    assert values_of(found.column) == [{"item": {"n": 5}}]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            message(3, b"\x02"),
            r"writer's schema 3, .*Order.* does not resolve to valueSchema, .*shop.Order.*: the ",
        ),
        (message(4, b""), "the type of schema 4 is PROTOBUF, not AVRO"),
        (message(9, b""), "has no schema of its id"),
        (b"\x00\x00\x00\x00", "does not begin with a zero byte and the id"),
        (b"plain", "does not begin with a zero byte and the id"),
        (b"", "does not begin with a zero byte and the id"),
    ],
)
def test_a_value_whose_schema_does_not_fit_is_named_with_both(registry: Registry, value: bytes, why: str) -> None:
    good = message(2, encoded(NEW, {"id": "b", "amount": 0.5, "now": 8, "tag": "t"}))
    found = block_by(orders(registry), [good, value, good])
    assert [row["now"] for row in values_of(found.column)] == [8, None, 8]
    assert found.malformed == 1
    with pytest.raises(PayloadError, match=rf"offset 1: .*{why}"):
        block_by(orders(registry, fail_fast=True), [good, value])


TWO = '{"type":"fixed","name":"F","size":%d}'


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        # Each field of a value would be one of the next value's.
        (json.dumps(record(("id", "int"), ("id", "int"))), "has each field once, by its name"),
        (json.dumps(record(("id", "int"), ("z", "int"), ("z", "int"))), "has each field once, by its name"),
        (
            '{"type":"record","name":"Order","fields":[{"name":["id"],"type":"int"}]}',
            "has each field once, by its name",
        ),
        (json.dumps(record(("id", json.loads(TWO % 1)), ("z", json.loads(TWO % 2)))), "defines F twice"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_schema_of_a_writer_that_is_none_is_named_and_ends_no_query(schema: str, why: str) -> None:
    reader = json.dumps(record(("id", "int")))
    with (
        schema_registry({"/schemas/ids/30": {"schema": schema}}) as server,
        pytest.raises(PayloadError, match=rf"offset 0: .*schema 30.*{why}"),
    ):
        block_by(reader_of(reader, client(server), fail_fast=True), [message(30, b"\x02\x04")])


def test_a_writer_s_schema_of_any_depth_ends_no_query() -> None:
    """Python's limit is met while the JSON is read, or while its types are."""
    deep = {
        f"/schemas/ids/{depth}": {"schema": '{"type":"array","items":' * depth + '"int"' + "}" * depth}
        for depth in range(900, 1_000)
    }
    with schema_registry(deep) as server:
        found = block_by(reader_of('"int"', client(server)), [message(depth, b"\x02") for depth in range(900, 1_000)])
    assert found.malformed == 100


def test_a_type_may_be_defined_twice_alike() -> None:
    pair = [json.loads(TWO % 1), json.loads(TWO % 1)]
    found = decoded(json.dumps(record(("a", pair[0]), ("b", pair[1]))), [b"ab"])
    assert values_of(found.column) == [{"a": b"a", "b": b"b"}]


def test_an_id_that_no_registry_can_have_is_bad_without_a_request(registry: Registry) -> None:
    found = block_by(orders(registry), [message(2**32 - 1, b""), message(2**31, b"")])
    assert found.malformed == 2
    assert not any("/schemas/ids" in each for each in registry.asked)


def test_defaults_count_for_no_limit_on_small_items() -> None:
    added = [(f"f{place}", ["null", "string"], {"default": None}) for place in range(60)]
    written = {"type": "array", "items": record(("b", "boolean"), name="Item")}
    read = {"type": "array", "items": record(("b", "boolean"), *added, name="Item")}
    with schema_registry({"/schemas/ids/31": {"schema": json.dumps(written)}}) as server:
        value = message(31, encoded("long", 1_000) + b"\x01" * 1_000 + b"\x00")
        found = block_by(reader_of(json.dumps(read), client(server)), [value])
    assert found.malformed == 0
    assert len(found.column[0]) == 1_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("orders-value:latest", '"latest" is not a version, which is a number'),
        ("orders-value:7", "has no such version"),
        ("proto:1", "its type is PROTOBUF"),
    ],
)
def test_a_reader_s_schema_is_one_version_for_ever(registry: Registry, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        avro_schema(text, client(registry))


def test_an_id_that_the_registry_does_not_have_is_requested_once_in_a_minute(registry: Registry) -> None:
    reader = orders(registry)
    assert [block_by(reader, [message(9, b""), message(9, b"a")]).malformed for _ in range(3)] == [2, 2, 2]
    assert registry.asked.count("/schemas/ids/9") == 1


def test_the_reads_of_a_process_request_a_schema_once(registry: Registry) -> None:
    value = message(1, encoded(OLD, {"id": "a", "amount": 3, "gone": "x", "was": 7}))
    for _ in range(3):
        assert block_by(orders(registry), [value, message(9, b"")]).malformed == 1
    assert registry.asked.count("/schemas/ids/1") == registry.asked.count("/schemas/ids/9") == 1


def test_the_reads_of_a_process_resolve_a_schema_once(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    old = message(1, encoded(OLD, {"id": "a", "amount": 3, "gone": "x", "was": 7}))
    new = message(2, encoded(NEW, {"id": "b", "amount": 0.5, "now": 8, "tag": "t"}))
    first, second = orders(registry), orders(registry)
    texts: list[str] = []
    monkeypatch.setattr(avro_columns, "type_of", lambda text, others: texts.append(text) or type_of(text, others))
    for blocks in ((first, [old]), (second, [new, old]), (first, [new, message(3, b"")]), (second, [old, new])):
        found = values_of(block_by(*blocks).column)
        assert [row["now"] for row in found] == [{1: 7, 2: 8}.get(value[4]) for value in blocks[1]]
    assert len(texts) == len(set(texts)) == 3


def test_a_schema_whose_references_were_not_there_is_read_when_they_are(registry: Registry) -> None:
    schema = registry.answers["/schemas/ids/5"]
    reference = {"name": "x", "subject": "late", "version": 1}
    registry.answers = {**registry.answers, "/schemas/ids/5": {**schema, "references": [reference]}}
    for answers, malformed in (({}, 1), ({"/subjects/late/versions/1": {"schema": json.dumps(ITEM)}}, 0)):
        registry.answers = {**registry.answers, **answers}
        assert block_by(reader_of("baskets-value:1", client(registry)), [message(5, b"\x0a")]).malformed == malformed


def test_a_version_of_a_subject_is_requested_once_in_a_process(registry: Registry) -> None:
    for _ in range(3):
        avro_schema("orders-value:2", client(registry))
    assert registry.asked.count("/subjects/orders-value/versions/2") == 1


def test_an_id_in_a_header_counts_and_its_value_is_read_as_it_is(registry: Registry) -> None:
    guid = UUID("00112233-4455-6677-8899-aabbccddeeff")
    registry.answers[f"/schemas/guids/{guid}"] = registry.answers["/schemas/ids/1"]
    old = encoded(OLD, {"id": "a", "amount": 3, "gone": "x", "was": 7})
    new = encoded(NEW, {"id": "b", "amount": 0.5, "now": 8, "tag": "t"})
    values: list[bytes | None] = [old, new, message(2, new), message(2, new), None, old]
    headers = [b"\1" + guid.bytes, b"\0\0\0\0\2", None, b"?", b"\1" + guid.bytes, b"\1" + bytes(16)]
    found = block_by(orders(registry), values, headers)
    assert [row and row["now"] for row in values_of(found.column)] == [7, 8, 8, None, None, None]
    assert found.malformed == 2
    with pytest.raises(PayloadError, match=r"offset 0: .* has no schema of its id"):
        block_by(orders(registry, fail_fast=True), [old], [b"\1" + bytes(16)])


class Nothing(SchemaRegistry):
    """A registry without schemas."""

    def schema(self, number: int | UUID, *, serialized: bool = False) -> None:
        requested.append(number)


requested: list[int | UUID] = []


def test_ids_by_chance_are_a_thousand_requests_in_a_minute_and_then_an_error() -> None:
    forget_schemas()
    nothing = Nothing("registry", None, "", tls=False, authorization=None, timeout_ms=1)
    values = [message(number, b"") for number in range(100, 1_200)]
    with pytest.raises(PayloadError, match=r"schemas of 1000 ids within 60 s.* the last one is 1100.*valueFraming = n"):
        block_by(reader_of('"string"', nothing), values)
    assert requested == list(range(100, 1_100))
    with pytest.raises(PayloadError):
        block_by(reader_of('"string"', nothing), values[-1:])
    assert block_by(reader_of('"string"', nothing), values[:1]).malformed == 1
    assert len(requested) == 1_000
    forget_schemas()


def test_the_last_entry_of_a_key_in_a_map_counts() -> None:
    schema = json.dumps({"type": "array", "items": {"type": "map", "values": "int"}})
    maps = b"\x06" + b"\x06\x02a\x02\x02b\x04\x02a\x06\x00" + b"\x00" + b"\x02\x02a\x08\x00" + b"\x00"
    found = decoded(schema, [maps, None, maps])
    assert values_of(found.column) == [
        [[(b"b", 2), (b"a", 3)], [], [(b"a", 4)]],
        None,
        [[(b"b", 2), (b"a", 3)], [], [(b"a", 4)]],
    ]


def test_defaults_that_exceed_the_offsets_of_a_column_end_the_query(registry: Registry) -> None:
    reader = reader_of(
        json.dumps(record(("id", "int"), ("note", "string", {"default": "x" * (1 << 20)}))), client(registry)
    )
    with pytest.raises(PayloadError, match="the texts of one member take 2147483648 bytes"):
        block_by(reader, [message(3, b"\x02")] * 2_048)


def test_a_registry_that_is_away_ends_the_read_and_makes_no_nulls(registry: Registry) -> None:
    reader = reader_of("orders-value:2", client(registry, timeout_ms=300))
    registry.statuses = [500] * 9
    with pytest.raises(ResponseTimeoutError, match=r"the schema registry .* returned no schema"):
        block_by(reader, [message(1, b"")])


@pytest.mark.parametrize(
    ("unit", "scale", "row"),
    [
        ("timestamp-millis", 2, {"at": 5_000, "d": decimal.Decimal("0.01")}),
        ("timestamp-micros", 3, {"at": None, "d": None}),
        ("local-timestamp-millis", 2, {"at": None, "d": None}),
    ],
)
def test_a_moment_has_the_unit_of_its_writer_and_a_decimal_its_scale(
    unit: str, scale: int, row: dict[str, Any]
) -> None:
    read = record(("at", logical("long", "timestamp-micros")), ("d", logical("bytes", "decimal", precision=9, scale=2)))
    written = record(("at", logical("long", unit)), ("d", logical("bytes", "decimal", precision=4, scale=scale)))
    with schema_registry({"/schemas/ids/20": {"schema": json.dumps(written)}}) as server:
        found = block_by(reader_of(json.dumps(read), client(server)), [message(20, b"\x0a\x02\x01")])
    assert values_of(found.column) == [row]


def test_an_integer_in_a_union_of_float_and_double_is_the_first_of_them() -> None:
    for read, value in ((["float", "double"], "16777216.0"), (["double", "null", "float"], "16777217.0")):
        registry = OneSchema.of_text(json.dumps(record(("a", "int"))))
        found = block_by(reader_of(json.dumps(record(("a", read))), registry), [message(1, b"\x82\x80\x80\x10")])
        assert values_of(found.column) == [{"a": value}]


TIMES = [
    logical("int", "date"), logical("int", "time-millis"), logical("long", "time-micros"),
    logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), logical("long", "timestamp-nanos"),
    logical("long", "local-timestamp-micros"),
]  # fmt: skip


def test_a_time_is_read_as_itself_or_as_a_number_and_a_moment_in_any_unit() -> None:
    ids = {f"/schemas/ids/{number}": {"schema": json.dumps(record(("at", each)))} for number, each in enumerate(TIMES)}
    moments = {"timestamp-millis", "timestamp-micros", "timestamp-nanos"}
    with schema_registry(ids) as server:
        for read in [*TIMES, {"type": "long"}]:
            reader = reader_of(json.dumps(record(("at", read))), client(server))
            for number, written in enumerate(TIMES):
                name, wanted = written["logicalType"], read.get("logicalType", "")
                is_read = wanted in {name, ""} or (name in moments and wanted in moments - {"timestamp-nanos"})
                assert block_by(reader, [message(number, b"\x02")]).malformed == (not is_read), (name, wanted)
