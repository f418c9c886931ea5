"""Avro as columns: random schemas, values and pairs of writers and readers, against fastavro."""

from __future__ import annotations

import io
import json
import random
from collections import Counter

import fastavro
import pytest
from fastavro.read import SchemaResolutionError

from tests.avro_examples import message
from tests.avro_pairs import Pairs, has_column, in_column, reader_of, without_value
from tests.payload_documents import block_by, values_of
from watermark_source.extractors.schema_registry import RegisteredSchema, SchemaRegistry


class OneSchema(SchemaRegistry):
    """A registry that has one schema, in memory: requests of a real one are tested elsewhere."""

    def schema(self, number: int) -> RegisteredSchema | None:
        return RegisteredSchema("AVRO", self.path, ()) if number == 1 else None


def compare(chance: random.Random, count: int, seen: Counter[str]) -> None:
    """Read values by a pair of schemas; of a pair that does not resolve no value fits."""
    pairs = Pairs(chance)
    writer = pairs.record()
    reader = pairs.evolved(writer) if chance.random() < 0.8 else writer
    if not has_column(reader):
        return
    values = [pairs.value(writer) for _ in range(count)]
    written, parsed = [], fastavro.parse_schema(writer)
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        written.append(out.getvalue())
    registry = OneSchema("registry", None, json.dumps(writer), tls=False, authorization=None, timeout_ms=1)
    try:
        made = reader_of(json.dumps(reader), registry)
    except ValueError:
        seen["refused"] += 1
        return
    found = block_by(made, [message(1, each) for each in written])
    rows, bad = values_of(found.column), 0
    for each, row in zip(written, rows, strict=True):
        try:
            expected = in_column(reader, fastavro.schemaless_reader(io.BytesIO(each), writer, reader))
        except (SchemaResolutionError, UnicodeDecodeError, ValueError):
            expected = without_value(reader)
            bad += 1
        assert row == expected, (writer, reader, each)
    assert found.malformed == bad, (writer, reader)
    seen["values"] += count
    seen["bad"] += bad
    seen["evolved"] += reader != writer


@pytest.mark.parametrize("least", [2_000, pytest.param(200_000, marks=pytest.mark.long("2 000 of them"))])
def test_values_are_read_as_fastavro_reads_them(least: int) -> None:
    chance, seen = random.Random(31), Counter[str]()
    while seen["values"] < least:
        compare(random.Random(chance.random()), 20, seen)
    assert seen["bad"] > least / 50
    assert seen["values"] - seen["bad"] > least / 2
    assert seen["evolved"] > least / 100
