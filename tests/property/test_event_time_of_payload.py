"""Event time that the pass over decoded values finds: the same as a pass of its own, and as the text of a number."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from pyspark_aligned_kafka.options.kafka_options import parse
from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.event_time_choice import (
    EventTimeChoice,
    FirstOf,
    Format,
    InColumn,
    InJson,
    WithoutTime,
)
from pyspark_aligned_kafka.records.json_path import parse_path
from pyspark_aligned_kafka.records.json_scan import JsonScan
from pyspark_aligned_kafka.records.payload import PayloadChoice
from pyspark_aligned_kafka.records.payload_schema import parse_schema
from pyspark_aligned_kafka.records.time_texts import MomentReader
from tests.avro_examples import Example, encoded, examples, message
from tests.avro_pairs import OneSchema
from tests.payload_documents import Documents, values_of
from tests.unit.kafka.batches import Rec, batch
from watermark_source.errors import WatermarkSourceError
from watermark_source.planning.split import Split, SplitRange

_TYPES = (
    "BIGINT", "BIGINT", "INT", "DOUBLE", "FLOAT", "DECIMAL(20,3)", "STRING", "STRING", "TIMESTAMP", "DATE", "BOOLEAN",
    "BINARY", "STRUCT<x: INT>", "ARRAY<BIGINT>", "MAP<STRING, BIGINT>",
)  # fmt: skip
_MOMENTS = (
    "1764244800123", "1764244800", "1764244800123456789", "-5", "0", "-0", "1.5e9", "1764244800.25", "1E3",
    '"1764244800123"', '"2026-11-27T12:00:00Z"', '"2026-11-27"', '"2026-11-27 12:00:00,5+01"', '"24:00"', '""',
    '"2026\\u002d11-27T12:00"', "20240507", '"20240507"', "020240507", "20240507103015", "999999999999999999",
    "9223372036854775807", "12345678901234567890", "452321001199353856", "null", "true", "NaN", "-Infinity", "{}", "[]",
    '{"at":1}', '"QUJD"', '"\\ud83d"',
)  # fmt: skip
_PATHS = ("$.at", "$.at", "$.at", "$.o.at", "$.o.at", "$.o", "$.at.x", "$", "$.none", "$.o.none")
_HEAD = b"\x00\x00\x00\x01\x02"


class Blocks:
    """A schema, a place of event time in or beside it, and documents."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        first, second = chance.choice(_TYPES), chance.choice(_TYPES)
        schema = f"id STRING, at {first}, o STRUCT<n: INT, at: {second}>, _corrupt_record STRING"
        framed = chance.random() < 0.2
        self.payload = PayloadChoice(
            parse_schema(schema), framed=framed, fail_fast=chance.random() < 0.2, zone=chance.choice(("UTC", "+01:00"))
        )
        one, other = (InJson("value", parse_path(path), framed) for path in chance.choices(_PATHS, k=2))
        self.choice = EventTimeChoice(
            FirstOf((one, other)) if chance.random() < 0.2 else one,
            chance.choice((Format.AUTO, *Format)),
            chance.choice(list(WithoutTime)),
        )
        self._documents = Documents(schema, chance)

    def record(self, delta: int) -> Rec:
        chance = self._chance
        value: bytes | None
        if chance.random() < 0.3:
            value = self._documents.one()
        else:
            value = '{{"id":"a","at":{},"o":{{"n":1,"at":{}}}}}'.format(*chance.choices(_MOMENTS, k=2)).encode()
            value += chance.choice((b"", b"", b"", b" \n", b"x"))
        if value is not None and self.payload.framed and chance.random() < 0.8:
            value = _HEAD + value
        return Rec(delta, value, millis=delta)


def read(recs: list[Rec], choice: EventTimeChoice | None, *payloads: PayloadChoice) -> Any:
    """Return the event times and the decoded values, or the error."""
    decoder = RecordDecoder(
        (), batch_rows=100, batch_bytes=1 << 20, decompressed_limit=1 << 20, event_time=choice, payloads=payloads
    )
    data = np.frombuffer(bytearray(batch(0, recs)), np.uint8)
    try:
        (found,) = decoder.decode(SplitRange(Split("orders", 3), 0, 1000), data, 0, 1, None)
    except WatermarkSourceError as error:
        return type(error), str(error)
    found.event_time.validate(full=True)
    times = found.event_time.cast(pa.int64()).to_pylist(), found.undated
    return times, [values_of(column) for column in found.columns], found.malformed


@pytest.mark.parametrize("blocks", [400, pytest.param(20_000, marks=pytest.mark.long("400 of them"))])
def test_one_pass_over_documents_finds_what_two_passes_find(blocks: int) -> None:
    chance, seen = random.Random(38), Counter[str]()
    for _ in range(blocks):
        made = Blocks(chance)
        recs = [made.record(delta) for delta in range(chance.choice((1, 2, 20)))]
        both = read(recs, made.choice, made.payload)
        times, decoded = read(recs, made.choice), read(recs, None, made.payload)
        if isinstance(times[0], type):
            assert both == times
            seen["without event time"] += 1
        elif isinstance(decoded[0], type):
            assert both == decoded
            seen["bad"] += 1
        else:
            assert both == (times[0], *decoded[1:])
            seen["dated"] += len(recs) - times[0][1]
            seen["undated"] += times[0][1]
    assert seen["dated"] > blocks / 4
    assert seen["undated"] > blocks
    assert seen["bad"] > blocks / 100
    assert seen["without event time"] > blocks / 10


def test_only_documents_without_the_first_of_several_places_are_scanned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[int] = []
    scan = JsonScan.find

    def counted(self: JsonScan, data: Any, starts: Any, lengths: Any) -> Any:
        scanned.append(len(starts))
        return scan(self, data, starts, lengths)

    monkeypatch.setattr(JsonScan, "find", counted)
    payload = PayloadChoice(parse_schema("at BIGINT, o STRUCT<at: BIGINT>"))
    places = tuple(InJson("value", parse_path(path)) for path in ("$.at", "$.o.at"))
    texts = ('{"at":%d}', '{"at":%d,"o":{"at":7}}', '{"at":null,"o":{"at":%d}}')
    recs = [Rec(n, (texts[n % 3] % (n + 1)).encode(), millis=n) for n in range(30)]
    times, _, malformed = read(recs, EventTimeChoice(FirstOf(places), Format.MILLIS), payload)
    assert (times, malformed) == (([1_000 * (n + 1) for n in range(30)], 0), 0)
    assert scanned == [10]


@given(examples())
def test_a_member_of_decoded_avro_is_the_time_that_the_walk_to_its_field_finds(made: Example) -> None:
    """The reader's schema has the field alone, so that every type of Avro is around it."""
    around: Any = made.schema
    values = [encoded(made.schema, value) for value in made.values]
    options = {
        "kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", "valueFormat": "avro",
        "valueSchema": json.dumps(_alone(around, made.path.split("."))), "eventTimeColumn": f"value:$.{made.path}",
        "eventTimeFormat": "millis", "eventTimeErrors": "null", "schemaRegistry": "http://registry:8081",
    }  # fmt: skip
    parsed = parse(options)
    registry = OneSchema("registry", None, json.dumps(made.schema), tls=False, authorization=None, timeout_ms=1)
    (payload,) = parsed.payloads
    payload = replace(payload, definition=replace(payload.definition, registry=registry))
    choice = parsed.event_time
    assert choice is not None
    assert isinstance(choice.place, InColumn)
    choice = replace(choice, place=replace(choice.place, payload=payload))
    recs = [Rec(delta, message(1, value)) for delta, value in enumerate(values)]
    for payloads in ((payload,), ()):
        times, _, malformed = read(recs, choice, *payloads)
        assert (times, malformed) == ((made.micros, made.micros.count(None)), 0)


def _alone(schema: Any, path: list[str]) -> Any:
    """Return a schema with the fields of a path alone; a union with null stays one."""
    if isinstance(schema, list):
        return [_alone(branch, path) if isinstance(branch, dict) and path else branch for branch in schema]
    if not path:
        return schema
    (field,) = (each for each in schema["fields"] if each["name"] == path[0])
    return {**schema, "fields": [{**field, "type": _alone(field["type"], path[1:])}]}


@pytest.mark.parametrize("written", Format)
def test_a_number_is_the_moment_that_its_digits_are(written: Format) -> None:
    chance, bounds = random.Random(7), (0, 1, 9, 10**17, 10**18, 10**18 - 1, 2**63 - 1, 20240507, 1900010100)
    numbers = [sign * each for each in bounds for sign in (1, -1)] + [-(2**63)]
    numbers += [chance.randint(-(10**digits), 10**digits) for digits in range(1, 19) for _ in range(200)]
    numbers += [chance.randrange(1800, 2200) * 10**4 + chance.randrange(1300) for _ in range(500)]
    texts = [b"%d" % number for number in numbers]
    sizes = np.array([len(text) for text in texts], np.int64)
    reader = MomentReader(written)
    by_text = reader.read(np.frombuffer(bytearray(b"".join(texts)), np.uint8), np.cumsum(sizes) - sizes, sizes)
    by_number = reader.of_numbers(np.array(numbers, np.int64), np.ones(len(numbers), np.bool_))
    for text, number in zip(by_text, by_number, strict=True):
        np.testing.assert_array_equal(text, number)
