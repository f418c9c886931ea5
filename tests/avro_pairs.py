"""Random writers' and readers' schemas of Avro, values of them, and what a column of the reader's schema holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np

from pyspark_aligned_kafka.client.schema_registry import RegisteredSchema, SchemaRegistry
from pyspark_aligned_kafka.records.avro_columns import avro_schema
from pyspark_aligned_kafka.records.payload import Decoded, Paths, PayloadChoice, PayloadReader
from pyspark_aligned_kafka.records.payload_formats import payload_reader
from tests.payload_documents import block_by

Json = Any
_SIMPLE = ("boolean", "int", "long", "float", "double", "string", "bytes")
_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
          "string": ("bytes",), "bytes": ("string",)}  # fmt: skip
_GROUPS = (("boolean",), ("int", "long", "float", "double"), ("string", "bytes", "enum", "fixed"), ("array",),
           ("map", "record"))  # fmt: skip
"""Of each a union has one: otherwise fastavro does not state which branch a value is of."""


def reader_of(
    schema: str,
    registry: SchemaRegistry | None = None,
    *,
    fail_fast: bool = False,
    shows_records: bool = True,
    paths: Paths = (),
) -> PayloadReader:
    """Return the reader of a schema's values."""
    found = avro_schema(schema, registry, paths)
    return payload_reader(
        PayloadChoice(
            found.type,
            "avro",
            found.definition,
            fail_fast=fail_fast,
            shows_records=shows_records,
            framed=registry is not None,
        )
    )


def decoded(schema: str, values: Sequence[bytes | None]) -> Decoded:
    """Decode values of one schema."""
    return block_by(reader_of(schema), values)


class OneSchema(SchemaRegistry):
    """A registry that has one schema, in memory: requests of a real one are tested elsewhere."""

    @classmethod
    def of_text(cls, schema: str) -> OneSchema:
        """Return a registry whose schema 1 has a text."""
        return cls("registry", None, schema, tls=False, authorization=None, timeout_ms=1)

    def schema(self, number: int | UUID, *, serialized: bool = False) -> RegisteredSchema | None:
        return RegisteredSchema("AVRO", self.path, ()) if number == 1 else None


class Pairs:
    """Writers' schemas and values, and readers' schemas that they mostly resolve to."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names = 0

    def record(self, depth: int = 0) -> Json:
        """Return a writer's schema."""
        fields = [{"name": f"f{place}", "type": self._type(depth + 1)} for place in range(self._chance.randint(1, 5))]
        return {"type": "record", "name": self._name(), "fields": fields}

    def _name(self) -> str:
        self._names += 1
        return f"T{self._names}"

    def _type(self, depth: int, kind: str | None = None) -> Json:
        chance = self._chance
        if kind is None:
            kinds = [*_SIMPLE, "enum", "fixed", "null"]
            kinds += ["array", "map", "record", "union", "union"] if depth < 4 else []
            kind = chance.choice(kinds)
        if kind == "enum":
            return {"type": "enum", "name": self._name(), "symbols": list("ABCD")[: chance.randint(1, 4)]}
        if kind == "fixed":
            return {"type": "fixed", "name": self._name(), "size": chance.randrange(5)}
        if kind == "array":
            return {"type": "array", "items": self._type(depth + 1)}
        if kind == "map":
            return {"type": "map", "values": self._type(depth + 1)}
        if kind == "record":
            return self.record(depth)
        if kind == "union":
            groups = chance.sample(_GROUPS, chance.randint(1, 3))
            branches = [self._type(depth + 1, chance.choice(group)) for group in groups]
            branches += ["null"] if chance.random() < 0.6 else []
            chance.shuffle(branches)
            return branches
        return kind

    def evolved(self, schema: Json, *, of_items: bool = False) -> Json:
        """Return a reader's schema for a writer's.

        Items fit: where they do not, fastavro refuses some lists without items, and the column, as Java, none.
        """
        chance = self._chance
        if chance.random() < 0.03 and not of_items:
            return self._type(9)
        if isinstance(schema, list):
            others = [self.evolved(branch, of_items=of_items) for branch in schema]
            branches = [old if isinstance(new, list) or "null" in (old, new) else new
                        for old, new in zip(schema, others, strict=True)]  # fmt: skip
            if len(branches) > 1 and chance.random() < 0.1 and not of_items:
                branches.remove(chance.choice(branches))
            kinds = [self._group(branch) for branch in branches]
            return branches if len(set(kinds)) == len(kinds) else schema
        if isinstance(schema, str):
            changed = chance.choice(_WIDER[schema]) if schema in _WIDER and chance.random() < 0.2 else schema
            return ["null", changed] if changed != "null" and chance.random() < 0.1 else changed
        made = dict(schema)
        if "name" in made and chance.random() < 0.2:
            made.update(name=self._name(), aliases=[schema["name"]])
        if made["type"] == "record":
            made["fields"] = self._fields(schema["fields"])
        elif made["type"] == "enum" and chance.random() < 0.3:
            made["symbols"] = ["E", *schema["symbols"][1:]]
            if chance.random() < 0.5:
                made["default"] = "E"
        elif made["type"] in ("array", "map"):
            inner = "items" if made["type"] == "array" else "values"
            made[inner] = self.evolved(schema[inner], of_items=True)
        return made

    def _group(self, branch: Json) -> int:
        kind = branch if isinstance(branch, str) else branch["type"] if isinstance(branch, dict) else "union"
        if kind == "union":
            return -1
        return next((place for place, group in enumerate(_GROUPS) if kind in group), 9)

    def _fields(self, fields: Sequence[Json]) -> list[Json]:
        chance = self._chance
        kept = []
        for field in fields:
            if chance.random() < 0.15:
                continue
            made = {**field, "type": self.evolved(field["type"])}
            if chance.random() < 0.15:
                made.update(name=f"{field['name']}_new", aliases=["never", field["name"]])
            kept.append(made)
        if chance.random() < 0.3 or not kept:
            kind = self._type(3)
            added = {"name": "added", "type": kind}
            if chance.random() < 0.9:
                added["default"] = self.default(kind)
            kept.append(added)
        chance.shuffle(kept)
        return kept

    def default(self, schema: Json) -> Json:
        """Return a default of a schema: JSON, of a union's first branch."""
        return self._as_default(schema, self.value(schema[0] if isinstance(schema, list) else schema))

    def _as_default(self, schema: Json, value: Any) -> Json:
        schema = schema[0] if isinstance(schema, list) else schema
        if isinstance(value, bytes):
            return value.decode("iso-8859-1")
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "array":
            inner = schema["items"]
            return [self.default(inner) for _ in value]
        if kind == "map":
            return {name: self.default(schema["values"]) for name in value}
        if kind == "record":
            return {field["name"]: self.default(field["type"]) for field in schema["fields"]}
        # JSON has no NaN and no infinity.
        return value if value == value and abs(value if isinstance(value, float) else 0) < 1e300 else 0.5

    def value(self, schema: Json) -> Any:
        """Return a value of a writer's schema."""
        chance = self._chance
        if isinstance(schema, list):
            return self.value(chance.choice(schema))
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "null":
            return None
        if kind == "boolean":
            return chance.random() < 0.5
        if kind in ("int", "long"):
            bits = 31 if kind == "int" else 63
            return chance.choice((0, -1, 2**bits - 1, -(2**bits), chance.randint(-(2**bits), 2**bits - 1), 64))
        if kind == "float":
            return float(np.float32(chance.choice((0.0, -0.0, 1.5, chance.uniform(-1e3, 1e3), float("nan")))))
        if kind == "double":
            return chance.choice((0.0, -0.0, 1.5, chance.uniform(-1e9, 1e9), float("inf"), 5e-324))
        if kind == "string":
            return chance.choice(("", "a", "text that is longer than a word", "é\U0001f600", "ü" * 9))
        if kind == "bytes":
            return chance.choice((b"", b"a", b"\xff\xfe", "é".encode(), bytes(20)))
        if kind == "enum":
            return chance.choice(schema["symbols"])
        if kind == "fixed":
            return chance.randbytes(schema["size"])
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(chance.choice((0, 1, 3)))]
        if kind == "map":
            return {name: self.value(schema["values"]) for name in chance.sample(("", "k", "é", "key"), 2)}
        return {field["name"]: self.value(field["type"]) for field in schema["fields"]}


def has_column(schema: Json) -> bool:
    """Return whether every type of a reader's schema has one."""
    if isinstance(schema, list):
        return ([each for each in schema if each != "null"] != [] and all(map(has_column, schema))) or (
            len(schema) > 1 and all(each == "null" or has_column(each) for each in schema)
        )
    if isinstance(schema, str):
        return schema != "null"
    if schema["type"] == "record":
        return all(has_column(field["type"]) for field in schema["fields"])
    return has_column(schema["items"] if schema["type"] == "array" else schema.get("values", "int"))


def in_column(schema: Json, value: Any) -> Any:
    """Return what a column holds for a value that fastavro has read by a reader's schema."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if value is None:
            return None
        if len(branches) == 1:
            return in_column(branches[0], value)
        found = next(place for place, branch in enumerate(branches) if _is_of(branch, value))
        return {
            f"member{place}": in_column(branch, value) if place == found else None
            for place, branch in enumerate(branches)
        }
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("float", "double"):
        with np.errstate(over="ignore"):
            return repr(float(np.float32(value)) if kind == "float" else float(value))
    if kind in ("string", "enum", "bytes", "fixed"):
        # A default of bytes is left as JSON has it.
        return value.encode("utf-8" if kind in ("string", "enum") else "latin-1") if isinstance(value, str) else value
    if kind == "array":
        return [in_column(schema["items"], each) for each in value]
    if kind == "map":
        return [(name.encode(), in_column(schema["values"], each)) for name, each in value.items()]
    if kind == "record":
        return {field["name"]: in_column(field["type"], value[field["name"]]) for field in schema["fields"]}
    return value


def _is_of(branch: Json, value: Any) -> bool:
    kind = branch if isinstance(branch, str) else branch["type"]
    kinds: dict[type, tuple[str, ...]] = {
        bool: ("boolean",), int: ("int", "long", "float", "double"), float: ("float", "double"),
        str: ("string", "enum", "bytes", "fixed"), bytes: ("bytes", "fixed"), list: ("array",), dict: ("map", "record"),
    }  # fmt: skip
    return kind in kinds[type(value)]


def without_value(schema: Json) -> Any:
    """Return what a column holds for a value that does not fit: a struct has nulls."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        members = {f"member{place}": None for place in range(len(branches))}
        return members if len(branches) > 1 else without_value(branches[0])
    if isinstance(schema, dict) and schema["type"] == "record":
        return {field["name"]: None for field in schema["fields"]}
    return None
