"""Fields of Avro values, found without decoding them: fastavro writes what is read."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from tests.avro_examples import Example, encoded, examples, found, message, records
from tests.examples_by_day import at_least
from watermark_source.errors import SchemaError, UsageError
from watermark_source.extractors import avro_event_time

ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}  # fmt: skip
ONE = {"id": "a", "tags": ["x", "y"], "at": 5}


def one_field(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "at", "type": kind}]}


@given(examples())
@at_least(100)
def test_the_field_is_found_behind_whatever_lies_before_it(example: Example) -> None:
    event_time = avro_event_time(example.path, schemas={7: example.schema})
    bodies = [message(7, encoded(example.schema, value)) for value in example.values]
    assert found(event_time(records(*bodies))) == example.micros
    # A slice of a batch begins in the middle of its buffers.
    some = records(b"x", *bodies, b"y").slice(1, len(bodies))
    assert found(event_time(some)) == example.micros
    # The source gives a function records that are read-only.
    assert found(event_time(pa.record_batch(some))) == example.micros


@given(examples())
def test_a_value_that_is_cut_short_has_no_time_or_the_right_one(example: Example) -> None:
    event_time = avro_event_time(example.path, schemas={7: example.schema})
    whole = message(7, encoded(example.schema, example.values[0]))
    cuts = [whole[:size] for size in range(len(whole))]
    assert set(found(event_time(records(*cuts)))) <= {None, example.micros[0]}


@pytest.mark.parametrize(
    ("kind", "value", "micros"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_500, 1_500_000),
        ({"type": "long", "logicalType": "timestamp-micros"}, -1_500, -1_500),
        ({"type": "long", "logicalType": "timestamp-nanos"}, -1, -1),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 1_500, 1_500_000),
        ({"type": "int", "logicalType": "date"}, 2, 2 * 86_400_000_000),
        ("long", 7, 7_000),
        ("long", 2**62, None),
        ("long", -(2**63), None),
        ("string", "1970-01-01T00:00:01.5Z", 1_500_000),
        ("string", "1970-01-01 02:00:00+02:00", 0),
        ("string", "yesterday", None),
        ("string", "", None),
        (["null", "string", "long"], "1970-01-02", 86_400_000_000),
        (["null", "string", "long"], 3, 3_000),
        (["null", "string", "long"], None, None),
    ],
)
def test_moments_are_what_the_schema_says(kind: Any, value: Any, micros: int | None) -> None:
    plain = json.loads(json.dumps(kind).replace('"logicalType"', '"was"'))
    event_time = avro_event_time("at", schemas={1: one_field(kind)})
    assert found(event_time(records(message(1, encoded(one_field(plain), {"at": value}))))) == [micros]


@pytest.mark.parametrize(
    ("unit", "micros"), [("seconds", 5_000_000), ("micros", 5), ("nanos", 0), ("days", 432_000_000_000)]
)
def test_a_number_without_a_logical_type_is_in_the_users_unit(unit: str, micros: int) -> None:
    event_time = avro_event_time("at", schemas={1: one_field("long")}, unit=unit)
    assert found(event_time(records(message(1, encoded(one_field("long"), {"at": 5}))))) == [micros]


def test_a_batch_may_hold_several_schemas_and_what_is_none(caplog: pytest.LogCaptureFixture) -> None:
    event_time = avro_event_time("at", schemas={1: ORDER, 258: one_field(["null", "long"]), 3: one_field("null")})
    with caplog.at_level(logging.WARNING):
        answer = event_time(
            records(
                message(1, encoded(ORDER, ONE)), None, b"", b"\0\0\0", b"\1\0\0\0\1x", message(258, b"\2\4"),
                message(3, b""), message(258, b"\4"), message(258, b"\1"), message(1, encoded(ORDER, {**ONE, "at": 6})),
            )
        )  # fmt: skip
    assert found(answer) == [5, None, None, None, None, 2_000, None, None, None, 6]
    assert answer.type == pa.timestamp("us", tz="UTC")
    assert found(event_time(records())) == []


def test_blocks_that_tell_their_size_are_skipped_by_it() -> None:
    # Two items of "x" in a block of minus two items and four bytes, one in a plain block, the end; then the number 1.
    body = b"\2a" + b"\3\x08" + b"\2x\2x" + b"\2\2x" + b"\0" + b"\2"
    event_time = avro_event_time("at", schemas={1: ORDER})
    assert found(event_time(records(message(1, body)))) == [1]
    for wrong in (b"\2a\3\x0c\2x\2x", b"\2a\3\1", b"\2a\3", b"\2a" + b"\xff" * 9 + b"\1", b"\2a" + b"\xff" * 12):
        assert found(event_time(records(message(1, wrong)))) == [None]


def test_items_without_bytes_cost_nothing_however_many_there_are() -> None:
    nothing = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "null"}]}
    schema = {
        "type": "record", "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": nothing}}, {"name": "at", "type": "long"}],
    }  # fmt: skip
    count = b"\xfe" + b"\xff" * 8 + b"\1"  # 2 ** 63 - 1
    assert found(avro_event_time("at", schemas={1: schema})(records(message(1, count + b"\0\2")))) == [1_000]


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
    event_time = avro_event_time("at", schemas={1: schema})
    batch = records(message(1, body))
    took = []
    for _ in range(5):
        began = time.thread_time()
        assert found(event_time(batch)) == [micros]
        took.append(time.thread_time() - began)
    # In one of them Python may have looked for garbage.
    assert min(took) < 0.01


def test_a_schema_whose_records_name_each_other_is_planned_once_each() -> None:
    names = [f"U{level}" for level in range(60)]
    inner: Any = {"type": "record", "name": "U", "fields": [{"name": "n", "type": "U"}, {"name": "at", "type": "long"}]}
    for name in names:
        kinds = [{"name": "n", "type": [inner, inner["name"], inner["name"]]}]
        inner = {"type": "record", "name": name, "fields": kinds}
    began = time.thread_time()
    event_time = avro_event_time(".".join(["n"] * 60 + ["at"]), schemas={1: inner})
    assert found(event_time(records(message(1, b"")))) == [None]
    assert time.thread_time() - began < 1


def test_a_value_that_goes_too_deep_has_no_time() -> None:
    tree = {"type": "record", "name": "T", "fields": [{"name": "left", "type": ["null", "T"]}]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "t", "type": tree}, {"name": "at", "type": "long"}]}
    event_time = avro_event_time("at", schemas={1: schema})
    assert found(event_time(records(message(1, b"\2" * 50 + b"\0\2")))) == [1_000]
    assert found(event_time(records(message(1, b"\2" * 5_000 + b"\0\2")))) == [None]


def test_types_are_found_by_their_names_in_their_namespaces() -> None:
    kind = {"type": "fixed", "name": "other.F", "size": 2}
    inner = {"type": "record", "name": "I", "namespace": "other", "fields": [{"name": "f", "type": "F"}]}
    schema = {
        "type": "record", "name": "some.R",
        "fields": [{"name": "f", "type": kind}, {"name": "i", "type": inner}, {"name": "j", "type": "other.I"},
                   {"name": "r", "type": ["null", "R"]}, {"name": "at", "type": "long"}],
    }  # fmt: skip
    value = {"f": b"ab", "i": {"f": b"cd"}, "j": {"f": b"ef"}, "r": None, "at": 4}
    answer = avro_event_time("at", schemas={1: schema})(records(message(1, encoded(schema, value))))
    assert found(answer) == [4_000]


def test_a_type_may_be_written_within_a_type() -> None:
    nested = {"type": {"type": "record", "name": "R", "fields": [{"name": "at", "type": {"type": {"type": "long"}}}]}}
    assert found(avro_event_time("at", schemas={1: nested})(records(message(1, b"\2")))) == [1_000]


def test_schemas_may_be_texts_and_files(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    event_time = avro_event_time("at", schemas={1: json.dumps(ORDER), 2: file})
    assert found(event_time(records(*(message(n, encoded(ORDER, ONE)) for n in (1, 2))))) == [5, 5]


@pytest.mark.parametrize("path", ["created", "id.at", "at.ms"])
def test_a_schema_without_the_field_is_logged_once(path: str, caplog: pytest.LogCaptureFixture) -> None:
    event_time = avro_event_time(path, schemas={1: ORDER})
    for _ in range(3):
        assert found(event_time(records(message(1, encoded(ORDER, ONE))))) == [None]
    assert caplog.messages == [f"records of schema 1 have no event time: it has no field {path}"]


def test_a_value_that_begins_with_a_zero_byte_by_chance_has_no_time_and_the_others_have_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    event_time = avro_event_time("at", schemas={7: ORDER})
    for number in range(20):
        foreign = message(90 + number, b"no Avro")
        assert found(event_time(records(message(7, encoded(ORDER, ONE)), foreign))) == [5, None]
    (line,) = caplog.messages
    assert line.startswith("records of schemas such as 90 have no event time: schemas has the ids 7 (at most one")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "a value that is null, or does not begin with a zero byte and the id of a schema"),
        (b'{"at": 5}', "a value that is null, or does not begin with a zero byte and the id of a schema"),
        (message(9, b""), "a value of schema 9: schemas has the ids 1, 2"),
        (message(1, b"\2"), "a value of schema 1 that is cut short, or whose field at is null or no moment"),
        (message(2, b""), "a value of schema 2: it has no field at"),
    ],
)
def test_why_a_record_has_no_event_time_can_be_asked(value: bytes | None, says: str) -> None:
    event_time = avro_event_time("at", schemas={1: ORDER, 2: "string"})
    assert event_time.explain(records(value)) == says  # type: ignore[attr-defined]


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "nothing to know schemas by": (lambda: avro_event_time("at"), UsageError, "give schema_registry, or schemas"),
    "both": (lambda: avro_event_time("at", schemas={}, schema_registry="http://r"), UsageError, "and not both"),
    "an empty name": (lambda: avro_event_time("a..b", schemas={}), UsageError, "'a..b' is no name"),
    "a unit": (lambda: avro_event_time("at", schemas={}, unit="hours"), UsageError, "accepted are seconds, millis"),
    "a column": (lambda: avro_event_time("at", schemas={}, column="headers"), UsageError, "accepted are value and key"),
    "a timeout": (lambda: avro_event_time("at", schemas={}, timeout="soon"), UsageError, "is not a duration"),
    "an address": (lambda: avro_event_time("at", schema_registry="r:8081"), UsageError, "such as \"https://registry"),
    "a token": (
        lambda: avro_event_time("at", schema_registry="http://r", token="s3cret\nhidden"), UsageError,
        "^token must be of ASCII characters without line breaks; seen one with others$",
    ),
    "a port": (lambda: avro_event_time("at", schema_registry="http://u:pw@r:x"), UsageError, "cannot be parsed"),
    "a file": (lambda: avro_event_time("at", schemas={1: Path("/none.avsc")}), UsageError, "cannot be read: No such"),
    "no JSON": (lambda: avro_event_time("at", schemas={1: "{"}), SchemaError, "an Avro schema is JSON; seen '{'"),
    "no type": (lambda: avro_event_time("at", schemas={1: {"type": "list"}}), SchemaError, "'list', which it"),
    "no moment": (lambda: avro_event_time("tags", schemas={1: ORDER}), SchemaError, "is no timestamp; accepted are"),
    "no fields": (lambda: avro_event_time("at", schemas={1: {"type": "record", "name": "R"}}), SchemaError, "whose"),
    "no name": (lambda: avro_event_time("at", schemas={1: {"type": "fixed", "size": 1}}), SchemaError, "a name"),
    "too deep": (lambda: avro_event_time("at", schemas={1: _deep()}), SchemaError, "contain each other too deeply"),
}  # fmt: skip


def _deep() -> Any:
    schema: Any = "int"
    for _ in range(5_000):
        schema = {"type": "array", "items": schema}
    return one_field(schema)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_mistake_is_named(wrong: str) -> None:
    call, error, says = WRONG[wrong]
    with pytest.raises(error, match=says) as raised:
        call()
    assert "pw" not in str(raised.value)
