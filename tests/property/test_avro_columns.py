"""Avro as columns: random schemas, values and pairs of writers and readers, against fastavro."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from contextlib import suppress

import fastavro
import numpy as np
import pytest
from fastavro.read import SchemaResolutionError

from pyspark_aligned_kafka.records.avro_columns import avro_schema
from pyspark_aligned_kafka.records.payload import Values
from tests.avro_examples import encoded, message
from tests.avro_pairs import OneSchema, Pairs, has_column, in_column, reader_of, without_value
from tests.payload_documents import block_by, values_of
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.hostile_json import document
from tests.soak.fuzz.memory import guarded
from watermark_source.planning.split import Split


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
    registry = OneSchema.of_text(json.dumps(writer))
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


@pytest.mark.parametrize("count", [300, pytest.param(30_000, marks=pytest.mark.long("300 of them"))])
def test_any_bytes_of_any_writer_end_in_a_column_or_a_declared_error(count: int) -> None:
    """The bytes end where memory does that no one may read; writers' schemas are changed at random."""
    chance, resolved = random.Random(5), 0
    for _ in range(count):
        pairs = Pairs(chance)
        writer = pairs.record()
        reader = pairs.evolved(writer)
        if not has_column(reader):
            continue
        changed = document((writer,), Bits(chance.randbytes(chance.choice((0, 0, 4, 40)))))
        content = bytearray(encoded(writer, pairs.value(writer)) if chance.random() < 0.8 else chance.randbytes(60))
        for _ in range(chance.randrange(4) if content else 0):
            content[chance.randrange(len(content))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))
        whole = message(1, bytes(content[: chance.randrange(len(content) + 1)] if chance.random() < 0.3 else content))
        registry = OneSchema.of_text(changed)
        with suppress(ValueError):
            avro_schema(changed, None)
        made, place = reader_of(json.dumps(reader), registry), np.zeros(1, np.int64)
        found = made.read(Values(Split("orders", 0), guarded(whole), place, np.array([len(whole)], np.int64), place))
        found.column.validate(full=True)
        resolved += not found.malformed
    assert resolved > count / 20
