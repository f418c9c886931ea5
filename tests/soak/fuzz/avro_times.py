"""Any bytes as an Avro value, of a schema that is right or nearly so: a moment, none, or a declared error.

An input: a byte that chooses a schema, one for how many bytes change it, those, then the value as Kafka's.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.hostile_json import document
from tests.soak.fuzz.memory import guarded
from watermark_source.errors import SchemaError
from watermark_source.extractors.avro_plan import NO_TIME, WalkPlan, plan_of
from watermark_source.extractors.avro_walk import walk
from watermark_source.extractors.schema_registry import Framed, _read_ids
from watermark_source.machine_code.iso_8601 import NO_MOMENT

_SCHEMA_ID = 1
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
_KNOWN = {
    n: plan_of(each, ("r", "at") if n == len(_SCHEMAS) - 1 else ("at",), "millis") for n, each in enumerate(_SCHEMAS)
}


def check(data: bytes) -> str:
    """Walk the value; return the moment."""
    bits = Bits(data)
    number = bits.byte() % len(_SCHEMAS)
    changes = bits.some()
    try:
        plan = _changed(changes) if changes else _KNOWN[number]
    except SchemaError as error:
        return f"SchemaError: {error}"
    body = bits.rest()
    array, edges, ids = guarded(body), np.array([0, len(body)], np.int32), np.zeros(1, np.int64)
    _read_ids(array, edges, np.ones(1, np.bool_), ids)
    micros = np.full(1, NO_MOMENT)
    ids[0] = _SCHEMA_ID if ids[0] >= 0 else ids[0]
    if plan.entry != NO_TIME:
        walk(Framed(array, edges, ids), _SCHEMA_ID, plan, micros)
    return repr((plan.entry, int(micros[0])))


def _changed(changes: bytes) -> WalkPlan:
    try:
        schema = json.loads(document(_SCHEMAS, Bits(changes)))
    except (ValueError, RecursionError):
        return _KNOWN[0]
    return plan_of(schema, ("at",), "millis")
