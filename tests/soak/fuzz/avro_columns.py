"""Any bytes as an Avro value, of a writer's schema that is right or nearly so: columns, or a declared error.

An input: a byte that chooses writer and reader, one for how many bytes change the writer's schema, those, the value.
"""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

from pyspark_aligned_kafka.records.payload import PayloadReader
from tests.avro_pairs import OneSchema, Pairs, has_column, reader_of
from tests.schema_registry import forget_schemas
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.column_outcomes import outcome
from tests.soak.fuzz.hostile_json import document


def _pairs() -> list[tuple[Any, Any]]:
    """Return writers' and readers' schemas that have columns."""
    found: list[tuple[Any, Any]] = []
    for seed in itertools.count():
        pairs = Pairs(random.Random(seed))
        writer = pairs.record()
        reader = pairs.evolved(writer)
        if has_column(reader):
            found.append((writer, reader))
        if len(found) == 24:
            return found
    raise AssertionError


def _reader(writer: str, reader: Any) -> PayloadReader:
    return reader_of(json.dumps(reader), OneSchema.of_text(writer))


_PAIRS = _pairs()
_KNOWN = [_reader(json.dumps(writer), reader) for writer, reader in _PAIRS]
_OWN = [reader_of(json.dumps(reader)) for _, reader in _PAIRS]


def check(data: bytes) -> str:
    """Decode the value; return its column."""
    bits = Bits(data)
    number = bits.byte()
    place, changes = number % len(_PAIRS), bits.some()
    if changes:
        forget_schemas()
        writer, reader = _PAIRS[place]
        return outcome(_reader(document((writer,), Bits(changes)), reader), bits)
    return outcome((_OWN if number >= 128 else _KNOWN)[place], bits)
