"""Random schemas of Avro, and values of them, with the moment that a value holds."""

from __future__ import annotations

import io
import struct
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

Json = Any
Typed = tuple[Json, st.SearchStrategy[Any]]
"""A schema, and values of it as fastavro takes them."""


class Example(NamedTuple):
    schema: Json
    path: str
    values: list[dict[str, Any]]
    micros: list[int | None]


def message(schema: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema) + body


def encoded(schema: Json, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def records(*values: bytes | None) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def found(answer: pa.Array) -> list[int | None]:
    micros: list[int | None] = answer.cast(pa.int64()).to_pylist()
    return micros


class _Names:
    def __init__(self) -> None:
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"T{self.count}"


PRIMITIVES: list[Typed] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("bytes", st.binary(max_size=80)),
    ("string", st.text(max_size=40)),
]
MOMENTS: list[tuple[Json, st.SearchStrategy[Any], int]] = [
    ("long", st.integers(-(2**40), 2**45), 1_000),
    ("int", st.integers(-(2**31), 2**31 - 1), 1_000),
    ({"type": "long", "logicalType": "unknown"}, st.integers(0, 2**40), 1_000),
]
"""Schema, values, and microseconds of one."""


@st.composite
def types(draw: st.DrawFn, names: _Names, depth: int) -> Typed:
    kinds = ["plain", "enum", "fixed"] + (["array", "map", "union", "record", "tree"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "plain":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "enum":
        return {"type": "enum", "name": names.next(), "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")
    if kind == "fixed":
        size = draw(st.integers(0, 70))
        return {"type": "fixed", "name": names.next(), "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "array":
        schema, values = draw(types(names, depth - 1))
        return {"type": "array", "items": schema}, st.lists(values, max_size=3)
    if kind == "map":
        schema, values = draw(types(names, depth - 1))
        return {"type": "map", "values": schema}, st.dictionaries(st.text(max_size=5), values, max_size=3)
    if kind == "union":
        chosen = draw(st.lists(st.sampled_from([0, 1, 3, 6, 7]), min_size=1, max_size=4, unique=True))
        branches = [PRIMITIVES[i] for i in chosen]
        return [schema for schema, _ in branches], st.one_of([values for _, values in branches])
    if kind == "tree":
        name = names.next()
        fields = [{"name": "left", "type": ["null", name]}, {"name": "n", "type": "long"}]
        leaf = st.fixed_dictionaries({"left": st.none(), "n": st.integers(0, 9)})
        trees = st.recursive(
            leaf, lambda inner: st.fixed_dictionaries({"left": inner, "n": st.integers(0, 9)}), max_leaves=4
        )
        return {"type": "record", "name": name, "fields": fields}, trees
    inner = [draw(types(names, depth - 1)) for _ in range(draw(st.integers(0, 3)))]
    fields = [{"name": f"f{i}", "type": schema} for i, (schema, _) in enumerate(inner)]
    values = st.fixed_dictionaries({f"f{i}": values for i, (_, values) in enumerate(inner)})
    return {"type": "record", "name": names.next(), "namespace": "some.where", "fields": fields}, values


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """A record, with the field in it or in a record in it, perhaps in a union, and a few values."""
    names = _Names()
    moment, numbers, factor = draw(st.sampled_from(MOMENTS))
    optional = draw(st.booleans())
    schema: Json = draw(st.sampled_from([["null", moment], [moment, "null"]])) if optional else moment
    wanted = st.none() | numbers if optional else numbers
    path = "at"
    schema, values = draw(_around(names, "at", schema, wanted.map(lambda v: (v, v))))
    if draw(st.booleans()):
        path = "order.at"
        schema = ["null", schema] if draw(st.booleans()) else schema
        schema, values = draw(_around(names, "order", schema, values))
    pairs = draw(st.lists(values, min_size=1, max_size=4))
    micros = [None if found is None else found * factor for _, found in pairs]
    return Example(schema, path, [value for value, _ in pairs], micros)


@st.composite
def _around(draw: st.DrawFn, names: _Names, name: str, schema: Json, values: Any) -> tuple[Json, Any]:
    """Put a field of values, each with the moment in it, among other fields of a record."""
    others = [draw(types(names, 2)) for _ in range(draw(st.integers(0, 4)))]
    at = draw(st.integers(0, len(others)))
    fields = [{"name": f"o{i}", "type": other} for i, (other, _) in enumerate(others)]
    fields.insert(at, {"name": name, "type": schema})
    rest = st.fixed_dictionaries({f"o{i}": other for i, (_, other) in enumerate(others)})
    both = st.tuples(rest, values).map(lambda pair: ({**pair[0], name: pair[1][0]}, pair[1][1]))
    return {"type": "record", "name": names.next(), "fields": fields}, both
