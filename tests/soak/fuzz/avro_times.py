"""Any bytes as an Avro value, of a schema that is right or nearly so: a moment, none, or a declared error.

An input: a byte that chooses a schema, one for how many bytes change it, those, then the value as Kafka's.
"""

from __future__ import annotations

import json
from typing import Any

from tests.avro_examples import message
from tests.avro_pairs import OneSchema, reader_of
from tests.schema_registry import forget_schemas
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.column_outcomes import decoded
from tests.soak.fuzz.hostile_json import document

_TREE = {"type": "record", "name": "T", "fields": [{"name": "l", "type": ["null", "T"]}, {"name": "n", "type": "int"}]}
_NOTHING = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "null"}]}
_TWICE = {"type": "record", "name": "D", "fields": [{"name": "a", "type": _NOTHING}, {"name": "b", "type": "N"}]}
_ONE = {"type": "record", "name": "C", "fields": [{"name": "c", "type": ["null", "C"]}, {"name": "d", "type": "D"}]}


def _record(*types: Any, at: Any = "long") -> Any:
    fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]
    return {"type": "record", "name": "some.R", "fields": [*fields, {"name": "at", "type": at}]}


_SCHEMAS = (
    _record("string", "bytes", "double", "float", "boolean", "int"),
    _record({"type": "array", "items": "string"}, {"type": "map", "values": ["null", "long"]}, at=["null", "string"]),
    _record(_TREE, {"type": "fixed", "name": "F", "size": 3}, {"type": "enum", "name": "E", "symbols": ["A"]}),
    _record({"type": "array", "items": _NOTHING}, {"type": "array", "items": {"type": "map", "values": "N"}}),
    _record(at={"type": "long", "logicalType": "timestamp-nanos"}),
    _record({"type": "array", "items": _TWICE}, {"type": "map", "values": "D"}, {"type": "array", "items": _ONE}),
    {"type": "record", "name": "O", "fields": [{"name": "r", "type": ["null", _record("string", at="string")]}]},
)
_AT = {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}, "string"], "default": None}
_READ = {"type": "record", "name": "R", "fields": [_AT]}
_OUTER = {"type": "record", "name": "O", "fields": [{"name": "r", "type": ["null", _READ]}]}


def check(data: bytes) -> str:
    """Read the member of the value, behind the id of its schema or behind other bytes; return it."""
    bits = Bits(data)
    number = bits.byte() % len(_SCHEMAS)
    changes = bits.some()
    writer = json.dumps(_SCHEMAS[number])
    if changes:
        forget_schemas()
        writer = document(_SCHEMAS, Bits(changes))
    reader, path = (_OUTER, ("r", "at")) if number == len(_SCHEMAS) - 1 else (_READ, ("at",))
    times = reader_of(json.dumps(reader), OneSchema.of_text(writer), paths=(path,))
    body = bits.rest()
    return decoded(times, body) + decoded(times, message(1, body))
