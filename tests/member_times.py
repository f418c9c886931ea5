"""Event times of Avro and Protobuf values without a column, by the options of a query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.client.schema_registry import RegisteredSchema, SchemaRegistry
from pyspark_aligned_kafka.options.kafka_options import parse
from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.event_time_choice import EventTimeChoice, FirstOf, InColumn, Place
from tests.protobuf_examples import descriptor_set
from tests.unit.kafka.batches import Rec, batch
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.split import Split, SplitRange


class Schemas(SchemaRegistry):
    """A registry with some schemas of Avro in memory: requests of a real one are tested elsewhere."""

    @classmethod
    def of_ids(cls, schemas: Mapping[int, Any]) -> Schemas:
        """Return a registry with schemas by their ids, as JSON."""
        texts = json.dumps({number: json.dumps(each) for number, each in schemas.items()})
        return cls("registry", None, texts, tls=False, authorization=None, timeout_ms=1)

    def schema(self, number: int | UUID, *, serialized: bool = False) -> RegisteredSchema | None:
        text = json.loads(self.path).get(str(number))
        return None if text is None else RegisteredSchema("AVRO", text, ())


class MemberTimes:
    """Reads records for their event times."""

    def __init__(self, choice: EventTimeChoice) -> None:
        self._decoder = RecordDecoder(
            (), batch_rows=10_000, batch_bytes=1 << 24, decompressed_limit=1 << 24, event_time=choice
        )

    def __call__(self, *values: bytes | None, keys: bool = False) -> list[int | None]:
        """Return the microseconds of each value, ``None`` without an event time."""
        if not values:
            return []
        micros: list[int | None] = self.read(*values, keys=keys).event_time.cast(pa.int64()).to_pylist()
        return micros

    def read(self, *values: bytes | None, keys: bool = False) -> ReadBatch:
        """Return the batch of values, or of keys."""
        recs = [Rec(n, None if keys else value, value if keys else None, n) for n, value in enumerate(values)]
        data = np.frombuffer(bytearray(batch(0, recs)), np.uint8)
        (found,) = self._decoder.decode(SplitRange(Split("orders", 3), 0, len(recs)), data, 0, 1, None)
        return found


def times_choice(path: str, **options: str) -> EventTimeChoice:
    """Return what options of values without a column mean."""
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders", "valueColumn": "none", "eventTimeErrors": "null",
             "eventTimeColumn": f"value:$.{path}", **options}  # fmt: skip
    parsed = parse({name: text for name, text in given.items() if text})
    assert parsed.payloads == ()
    choice = parsed.event_time
    assert choice is not None
    return choice


def avro_times(
    path: str, schema: Any, written: Mapping[int, Any] | SchemaRegistry | None = None, /, **options: str
) -> MemberTimes:
    """Return event times by the reader's ``schema``, of ``written`` schemas by their ids (its own, with id 1)."""
    given = {"valueFormat": "avro", "valueSchema": json.dumps(schema), "schemaRegistry": "http://registry:8081"}
    choice = times_choice(path, **{**given, **options})
    known = written if isinstance(written, SchemaRegistry) else Schemas.of_ids(written or {1: schema})
    places = choice.place.places if isinstance(choice.place, FirstOf) else (choice.place,)
    return MemberTimes(replace(choice, place=FirstOf(tuple(_with_registry(each, known) for each in places))))


def _with_registry(place: Place, registry: SchemaRegistry) -> InColumn:
    assert isinstance(place, InColumn)
    definition = replace(place.payload.definition, registry=registry)
    return replace(place, payload=replace(place.payload, definition=definition))


def protobuf_times(path: str, file: Any, message: str, folder: Path, **options: str) -> MemberTimes:
    """Return event times of a message of a file, whose descriptors are written to the folder."""
    descriptors = folder / "times.desc"
    descriptors.write_bytes(descriptor_set(file))
    return MemberTimes(times_choice(path, valueFormat="protobuf", valueSchema=f"{descriptors}:{message}", **options))
