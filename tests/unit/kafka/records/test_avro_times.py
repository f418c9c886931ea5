"""Event times of Avro values without a column, of which no more is decoded: fastavro writes what is read."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from pyspark_aligned_kafka.records.avro_columns import avro_schema
from pyspark_aligned_kafka.records.payload import PayloadChoice
from pyspark_aligned_kafka.records.payload_formats import payload_reader
from tests.avro_examples import Example, encoded, examples, message
from tests.examples_by_day import at_least
from tests.member_times import MemberTimes, Schemas, avro_times, times_choice
from tests.payload_documents import block_by
from watermark_source.errors import EventTimeError, OptionError

ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}  # fmt: skip
ONE = {"id": "a", "tags": ["x", "y"], "at": 5}


def one_field(kind: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "at", "type": kind}]}


def alone(schema: Any, path: str) -> Any:
    """Return a schema with the fields of a path alone; a union with null stays one."""
    if isinstance(schema, list):
        return [alone(branch, path) if isinstance(branch, dict) and path else branch for branch in schema]
    if not path:
        return schema
    name, _, rest = path.partition(".")
    (field,) = (each for each in schema["fields"] if each["name"] == name)
    return {**schema, "fields": [{**field, "type": alone(field["type"], rest)}]}


@given(examples())
@at_least(100)
def test_the_member_is_found_behind_whatever_lies_before_it_and_nothing_behind_it_counts(example: Example) -> None:
    times = avro_times(example.path, alone(example.schema, example.path), {7: example.schema}, eventTimeFormat="millis")
    bodies = [message(7, encoded(example.schema, value)) for value in example.values]
    assert times(*bodies) == example.micros
    assert times(*(body + b"\xff" for body in bodies)) == example.micros
    try:
        whole = avro_times(example.path, example.schema, {7: example.schema}, eventTimeFormat="millis")
    except OptionError:
        # It has no type of Spark.
        return
    assert whole(*bodies) == example.micros


@given(examples())
def test_a_value_that_is_cut_short_has_no_time_or_the_right_one(example: Example) -> None:
    times = avro_times(example.path, alone(example.schema, example.path), {7: example.schema}, eventTimeFormat="millis")
    whole = message(7, encoded(example.schema, example.values[0]))
    assert set(times(*(whole[:size] for size in range(len(whole))))) <= {None, example.micros[0]}


@pytest.mark.parametrize(
    ("kind", "value", "written", "micros"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_500, "", 1_500_000),
        ({"type": "long", "logicalType": "timestamp-micros"}, -1_500, "", -1_500),
        ({"type": "long", "logicalType": "timestamp-nanos"}, -1, "nanos", -1),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 1_500, "", 1_500_000),
        ({"type": "int", "logicalType": "date"}, 2, "", 2 * 86_400_000_000),
        ("long", 7, "millis", 7_000),
        ("long", 5, "seconds", 5_000_000),
        ("long", 5, "micros", 5),
        ("long", 5, "nanos", 0),
        ("long", 5, "days", 432_000_000_000),
        ("long", 2**62, "millis", None),
        ("long", -(2**63), "millis", None),
        ("string", "1970-01-01T00:00:01.5Z", "auto", 1_500_000),
        ("string", "1970-01-01 02:00:00+02:00", "iso8601", 0),
        ("string", "yesterday", "auto", None),
        ("string", "", "auto", None),
    ],
)
def test_moments_are_what_schema_and_format_say(kind: Any, value: Any, written: str, micros: int | None) -> None:
    plain = json.loads(json.dumps(kind).replace('"logicalType"', '"was"'))
    times = avro_times("at", one_field(kind), eventTimeFormat=written)
    assert times(message(1, encoded(one_field(plain), {"at": value}))) == [micros]


@pytest.mark.parametrize("framing", ["", "none"])
def test_values_without_an_id_are_read_by_the_whole_schema(framing: str) -> None:
    """Of which no more than the member is decoded, but each field is there."""
    with_registry = {"schemaRegistry": "http://registry:8081", "valueFraming": framing} if framing else {}
    choice = times_choice("at", valueFormat="avro", valueSchema=json.dumps(ORDER), **with_registry)
    values = [encoded(ORDER, {**ONE, "at": at}) for at in (5, -6)]
    assert MemberTimes(choice)(*values, b"\n") == [5, -6, None]


def test_two_members_may_be_in_records_of_one_name() -> None:
    row = {"type": "record", "name": "Row", "fields": [{"name": name, "type": "long"} for name in ("id", "made", "at")]}
    fields = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]}]
    schema = {"type": "record", "name": "Change", "namespace": "shop", "fields": fields}
    times = avro_times("after.at or value:$.before.made", schema, eventTimeFormat="seconds")
    found = {"id": 1, "made": 2, "at": 3}
    changes = [{"before": before, "after": after} for before, after in ((None, found), (found, None), (None, None))]
    assert times(*(message(1, encoded(schema, change)) for change in changes)) == [3_000_000, 2_000_000, None]


def test_a_member_may_be_of_several_types() -> None:
    schema = one_field(["null", "string", "long"])
    times = avro_times("at.member0 or value:$.at.member1", schema)
    values = [message(1, encoded(schema, {"at": value})) for value in ("1970-01-02", 3, None)]
    assert times(*values) == [86_400_000_000, 3_000_000, None]


def test_a_batch_may_hold_several_schemas_and_what_is_none() -> None:
    written = {1: ORDER, 258: one_field(["null", "long"], "Order"), 3: one_field("null", "Order")}
    times = avro_times("at", one_field(["null", "long"], "Order"), written, eventTimeFormat="micros")
    values = (
        message(1, encoded(ORDER, ONE)), None, b"", b"\0\0\0", b"\1\0\0\0\1x", message(258, b"\2\4"),
        message(3, b""), message(258, b"\4"), message(258, b"\1"), message(1, encoded(ORDER, {**ONE, "at": 6})),
    )  # fmt: skip
    assert times(*values) == [5, None, None, None, None, 2, None, None, None, 6]
    found = times.read(*values)
    # A value that is null, or not to be read, is not there: it is undated, and no column has it.
    assert (found.undated, found.malformed, found.columns) == (7, 0, ())
    assert times(*values, keys=True) == [None] * len(values)
    keys = avro_times("at", one_field("long", "Order"), written, eventTimeColumn="key:$.at", eventTimeFormat="micros",
                      keyFormat="avro", keySchema=json.dumps(one_field("long", "Order")), keyColumn="none",
                      valueFormat="", valueSchema="", valueColumn="")  # fmt: skip
    assert keys(*values, keys=True) == [5, None, None, None, None, 2, None, None, None, 6]


def test_blocks_that_report_their_size_are_skipped_by_it() -> None:
    # Two items of "x" in a block of minus two items and four bytes, one in a plain block, the end; then the number 1.
    body = b"\2a" + b"\3\x08" + b"\2x\2x" + b"\2\2x" + b"\0" + b"\2"
    times = avro_times("at", ORDER)
    assert times(message(1, body)) == [1]
    for wrong in (b"\2a\3\x0c\2x\2x", b"\2a\3\1", b"\2a\3", b"\2a" + b"\xff" * 9 + b"\1", b"\2a" + b"\xff" * 12):
        assert times(message(1, wrong)) == [None]


def test_items_without_bytes_cost_nothing_however_many_there_are() -> None:
    nothing = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "null"}]}
    schema = {
        "type": "record", "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": nothing}}, {"name": "at", "type": "long"}],
    }  # fmt: skip
    count = b"\xfe" + b"\xff" * 8 + b"\1"  # 2 ** 63 - 1
    assert avro_times("at", one_field("long"), {1: schema}, eventTimeFormat="millis")(message(1, count + b"\0\2")) == [
        1_000
    ]


def doubled(leaf: Any, levels: int) -> Any:
    """A type whose values are 2 ** levels of the leaf's: each record holds the one before twice."""
    inner: Any = leaf
    for level in range(levels):
        name = f"D{level}"
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": inner if level == 0 else f"D{level - 1}"}]
        inner = {"type": "record", "name": name, "fields": fields}
    return inner


def chained(leaf: Any, levels: int) -> Any:
    for level in range(levels):
        leaf = {"type": "record", "name": f"C{level}", "fields": [{"name": "c", "type": leaf}]}
    return leaf


def before_the_time(*kinds: Any) -> Any:
    fields = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)]
    return {"type": "record", "name": "R", "fields": [*fields, {"name": "at", "type": "long"}]}


FIXED_0 = {"type": "fixed", "name": "Z", "size": 0}
MOST = b"\xfe" + b"\xff" * 8 + b"\1"  # 2 ** 63 - 1 items
HOSTILE: dict[str, tuple[Any, bytes, int | None]] = {
    "records of records of null": (before_the_time(doubled("null", 40)), b"\2", 1_000),
    "records of records of no bytes": (before_the_time(doubled(FIXED_0, 40)), b"\2", 1_000),
    "arrays of records of records of null": (before_the_time({"type": "array", "items": doubled("null", 40)}),
                                             MOST + b"\0\2", 1_000),
    "a map of records of records of null": (before_the_time({"type": "map", "values": doubled("null", 40)}),
                                            b"\2\2k\0\2", 1_000),
    "a map of more entries than there are bytes": (before_the_time({"type": "map", "values": "null"}), MOST, None),
    "an array that has no end": (before_the_time({"type": "array", "items": doubled("null", 9)}), MOST * 50, None),
    "a union of records of records of null": (before_the_time(["null", doubled("null", 40)]), b"\2\2", 1_000),
    "fields without bytes for each byte": (
        before_the_time({"type": "array", "items": {"type": "record", "name": "W", "fields": [
            *({"name": f"n{n}", "type": "null"} for n in range(2_000)), {"name": "b", "type": "boolean"}]}}),
        b"\x80\x7d" + b"\1" * 8_000 + b"\0\2", 1_000,
    ),
    "records of records of a byte": (before_the_time(doubled("boolean", 40)), b"\1" * 5_000, None),
    "two hundred records around each byte": (
        before_the_time({"type": "array", "items": chained("boolean", 200)}),
        b"\x80\x7d" + b"\1" * 8_000 + b"\0\2", None,
    ),
    "a record that holds itself": (before_the_time({"type": "record", "name": "S", "fields": [
        {"name": "a", "type": "S"}, {"name": "b", "type": "S"}]}), b"\1" * 50, None),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_no_schema_makes_a_walk_longer_than_its_bytes(case: str) -> None:
    schema, body, micros = HOSTILE[case]
    times = avro_times("at", one_field("long"), {1: schema}, eventTimeFormat="millis")
    took = []
    for _ in range(5):
        began = time.thread_time()
        assert times(message(1, body)) == [micros]
        took.append(time.thread_time() - began)
    # In one of them Python may have looked for garbage.
    assert min(took) < 0.01


def test_a_schema_whose_records_name_each_other_is_resolved_once_each() -> None:
    names = [f"U{level}" for level in range(60)]
    reader: Any = one_field("long", "U")
    inner: Any = {"type": "record", "name": "U", "fields": [{"name": "n", "type": "U"}, {"name": "at", "type": "long"}]}
    for name in names:
        kinds = [{"name": "n", "type": [inner, inner["name"], inner["name"]]}]
        inner = {"type": "record", "name": name, "fields": kinds}
        reader = {"type": "record", "name": name, "fields": [{"name": "n", "type": reader}]}
    began = time.thread_time()
    times = avro_times(".".join(["n"] * 60 + ["at"]), reader, {1: inner})
    assert times(message(1, b"")) == [None]
    assert time.thread_time() - began < 1


def test_a_value_that_goes_too_deep_has_no_time() -> None:
    tree = {"type": "record", "name": "T", "fields": [{"name": "left", "type": ["null", "T"]}]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "t", "type": tree}, {"name": "at", "type": "long"}]}
    times = avro_times("at", one_field("long"), {1: schema}, eventTimeFormat="millis")
    assert times(message(1, b"\2" * 50 + b"\0\2"), message(1, b"\2" * 5_000 + b"\0\2")) == [1_000, None]


def test_types_are_found_by_their_names_in_their_namespaces() -> None:
    kind = {"type": "fixed", "name": "other.F", "size": 2}
    inner = {"type": "record", "name": "I", "namespace": "other", "fields": [{"name": "f", "type": "F"}]}
    schema = {
        "type": "record", "name": "some.R",
        "fields": [{"name": "f", "type": kind}, {"name": "i", "type": inner}, {"name": "j", "type": "other.I"},
                   {"name": "r", "type": ["null", "R"]}, {"name": "at", "type": "long"}],
    }  # fmt: skip
    value = {"f": b"ab", "i": {"f": b"cd"}, "j": {"f": b"ef"}, "r": None, "at": 4}
    times = avro_times("at", one_field("long"), {1: schema}, eventTimeFormat="millis")
    assert times(message(1, encoded(schema, value))) == [4_000]
    # Of a member whose type is defined elsewhere in the schema, and has the name of no more than its namespace.
    kind = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    members = [{"name": "x", "type": "int"}, {"name": "at", "type": ["null", "E"]}, {"name": "y", "type": "int"}]
    around = {"type": "record", "name": "O", "fields": members}
    outer: Any = {
        "type": "record", "name": "some.R",
        "fields": [{"name": "e", "type": kind}, {"name": "o", "type": ["null", around]}],
    }  # fmt: skip
    reported = {"e": "A", "o": {"x": 1, "at": "B", "y": 2}}
    with pytest.raises(EventTimeError, match="seen 'B'"):
        avro_times("o.at", outer, eventTimeErrors="fail")(message(1, encoded(outer, reported)))


def test_a_type_may_be_written_within_a_type() -> None:
    nested = {"type": {"type": "record", "name": "R", "fields": [{"name": "at", "type": {"type": {"type": "long"}}}]}}
    assert avro_times("at", nested, eventTimeFormat="millis")(message(1, b"\2")) == [1_000]


def test_a_value_that_begins_with_a_zero_byte_by_chance_has_no_time_and_the_others_have_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = avro_times("at", ORDER)
    for number in range(3):
        assert times(message(1, encoded(ORDER, ONE)), message(90 + number, b"no Avro")) == [5, None]
    assert all("has no schema of its id" in each and "records have no event time" in each for each in caplog.messages)
    assert len(caplog.messages) == 3


def test_a_column_of_the_same_schema_is_read_to_its_end() -> None:
    """A process resolves a writer's schema once for each reader's: here for two, of one text."""
    text = json.dumps({**one_field("long"), "namespace": ""})
    found = avro_schema(text, None)
    whole = Schemas.of_ids({1: one_field("long")})
    definitions = [replace(found.definition, registry=whole, paths=paths) for paths in ((("at",),), ())]
    both = [payload_reader(PayloadChoice(found.type, "avro", each, framed=True)) for each in definitions]
    value = message(1, b"\2and more")
    assert [block_by(each, [value]).malformed for each in both] == [0, 1]


DEFAULTED = {**one_field("long", "Order"), "fields": [{"name": "at", "type": "long", "default": 7}]}


def test_a_writer_without_the_member_has_the_default_of_the_reader() -> None:
    written = {1: ORDER, 2: {**ORDER, "fields": ORDER["fields"][:2]}}
    times = avro_times("at", DEFAULTED, written, eventTimeFormat="micros")
    assert times(message(2, b"\2a"), message(1, encoded(ORDER, ONE)), message(2, b"")) == [7, 5, 7]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "null in place of a value"),
        (b'{"at": 5}', "does not begin with a zero byte and the id of a schema, and no header has one"),
        (message(9, b""), "the schema registry .* has no schema of its id"),
        (message(1, b"\2"), "it is cut short, or no value of its schema"),
        (message(2, b""), "its writer's schema 2, \"string\".*the writer's string does not resolve to Order"),
        (message(3, b""), "its writer's schema 3, .*the writer has no field at, and it has no default"),
    ],
)
def test_why_a_record_has_no_event_time_is_reported(value: bytes | None, why: str) -> None:
    written = {1: ORDER, 2: "string", 3: {**ORDER, "fields": ORDER["fields"][:2]}}
    times = avro_times("at", one_field("long", "Order"), written, eventTimeErrors="fail")
    with pytest.raises(EventTimeError, match=r"offset 0: no event time at value:\$\.at") as failed:
        times(value)
    assert re.search(why, str(failed.value))


@pytest.mark.parametrize(
    ("path", "options", "why"),
    [
        ("at", {"eventTimeColumn": "timestamp"}, "leaves nothing to decode: eventTimeColumn must name"),
        ("tags", {}, "is ARRAY<STRING> in valueSchema"),
        ("id.at", {}, r"\$\.id of valueSchema is STRING, no struct"),
        (
            "at",
            {"valueMode": "FAILFAST"},
            "has no meaning where there is no column of decoded keys or values: eventTimeE",
        ),
        (
            "at",
            {"valueFormat": "json", "valueSchema": "at BIGINT", "schemaRegistry": ""},
            "has no meaning with json, .*leave valueFormat out",
        ),
        ("at", {"columns": "value,payload"}, '"payload" is none of them'),
    ],
)
def test_a_mistake_is_named(path: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        avro_times(path, ORDER, **options)
