"""Compiles types of a writer's Avro schema into numbers by which compiled code skips values (``avro_skip``).

A plan is an array of nodes; a node is a code with its arguments, and other nodes refer to it by its index. A named type
is one node however often it is used, and may contain itself. Types whose values take no bytes (``null``, ``fixed`` of
size 0, records of such types) have no nodes, so that each node consumes a byte, or refers to a node that does.
Otherwise a schema of forty records that each contain the previous one twice would take a walk of 2 to the power of 40
steps over no bytes at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeAlias

from watermark_source.errors import SchemaError, shortened


class Node(IntEnum):
    """Codes of nodes. The text states the encoding of a value, then the node's arguments."""

    FIXED = 1
    """Bytes. Argument: their number."""
    VARINT = 2
    SIZED = 3
    """A size, and that many bytes."""
    ARRAY = 4
    """Blocks of items. Argument: the item's node, ``NO_BYTES`` if items take no bytes."""
    MAP = 5
    """Blocks of names and values. Argument: the value's node."""
    UNION = 6
    """The index of a branch, and its value. Arguments: the number of branches, their nodes."""
    RECORD = 7
    """Fields. Arguments: the number of fields, their nodes."""


NO_BYTES: Final = 0
"""Index of the node of every type whose values take no bytes."""
_PRIMITIVE: Final = {
    "null": (Node.FIXED, 0), "boolean": (Node.FIXED, 1), "float": (Node.FIXED, 4), "double": (Node.FIXED, 8),
    "int": (Node.VARINT,), "long": (Node.VARINT,), "bytes": (Node.SIZED,), "string": (Node.SIZED,),
}  # fmt: skip
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
TOO_DEEP: Final = "an Avro schema whose types contain each other too deeply, a thousand of them"
Json: TypeAlias = Any


class SkipPlanner:
    """Compiles types of a schema. Nodes are appended to ``code``, which plans of other schemas may share."""

    def __init__(self, schema: Json, others: Iterable[Json], code: list[int] | None = None) -> None:
        self._named: dict[str, tuple[Mapping[str, Json], str]] = {}
        self._places: dict[str, int] = {}
        self._empty: dict[str, bool] = {}
        self.code = [] if code is None else code
        if not self.code:
            self.code += [Node.FIXED, 0]
        try:
            for document in (*others, schema):
                self._collect(document, "")
        except RecursionError:
            raise SchemaError(TOO_DEEP) from None

    def _collect(self, schema: Json, space: str) -> None:
        """Collect the named types: a schema may use a name before it defines it."""
        if isinstance(schema, list):
            for branch in schema:
                self._collect(branch, space)
        elif isinstance(schema, Mapping):
            kind = schema.get("type")
            if isinstance(kind, str) and kind in _NAMED:
                name, space = _full_name(schema, space)
                if self._named.setdefault(name, (schema, space)) != (schema, space):
                    raise SchemaError(f"an Avro schema that defines {shortened(name)} twice")
                fields = fields_of(schema) if kind in ("record", "error") else []
                names = [field["name"] for field in fields]
                if not all(isinstance(each, str) for each in names) or len(set(names)) < len(names):
                    raise SchemaError(f"an Avro record has each field once, by its name; seen {shortened(names)}")
                for field in fields:
                    self._collect(field["type"], space)
            else:
                for inner in (kind, schema.get("items"), schema.get("values")):
                    if not isinstance(inner, str):
                        self._collect(inner, space)

    def resolved(self, schema: Json, space: str) -> tuple[Json, str, str]:
        """Return a schema with references resolved, its full name if it has one, and the namespace inside it."""
        while isinstance(schema, Mapping) and isinstance(schema.get("type"), Mapping | list):
            schema = schema["type"]
        if isinstance(schema, Mapping) and _kind_or_name(schema) in _NAMED:
            name, space = _full_name(schema, space)
            return schema, name, space
        used = _kind_or_name(schema)
        if used and used not in _PRIMITIVE and used not in ("array", "map"):
            for full in (f"{space}.{used}" if space and "." not in used else used, used):
                if full in self._named:
                    return self._named[full][0], full, self._named[full][1]
            raise SchemaError(f"an Avro schema refers to the type {shortened(used)!r}, which it does not define")
        return schema, "", space

    def skip(self, schema: Json, space: str) -> int:  # noqa: PLR0911 - one for each kind
        """Return the node of a type whose values are skipped."""
        if self.takes_no_bytes(schema, space):
            return NO_BYTES
        schema, name, space = self.resolved(schema, space)
        if name in self._places:
            return self._places[name]
        if isinstance(schema, list):
            return self._with_nodes(Node.UNION, [(branch, space) for branch in schema])
        kind = kind_of(schema)
        if kind in ("record", "error"):
            return self._with_nodes(Node.RECORD, self._with_bytes(fields_of(schema), space), name)
        if kind == "array":
            return self._add(Node.ARRAY, self.skip(member_of(schema, "items"), space))
        if kind == "map":
            return self._add(Node.MAP, self.skip(member_of(schema, "values"), space))
        return self._add(*self._plain(schema, kind))

    def _with_bytes(self, fields: Iterable[Mapping[str, Json]], space: str) -> list[tuple[Json, str]]:
        """Return the types of the fields that take bytes, with their namespace."""
        return [(f["type"], space) for f in fields if not self.takes_no_bytes(f["type"], space)]

    def _plain(self, schema: Json, kind: str) -> tuple[int, ...]:
        if kind == "enum":
            return (Node.VARINT,)
        if kind == "fixed":
            size = member_of(schema, "size")
            if type(size) is not int or not 0 <= size < 2**31:
                raise SchemaError(f"an Avro schema with a fixed type of {size!r} bytes")
            return (Node.FIXED, size)
        return _PRIMITIVE[kind]

    def _with_nodes(self, code: Node, inner: list[tuple[Json, str]], name: str = "") -> int:
        place = self._add(code, len(inner), *[NO_BYTES] * len(inner))
        if name:
            # Before its fields are compiled: they may contain the type itself.
            self._places[name] = place
        for index, (schema, space) in enumerate(inner, place + 2):
            self.code[index] = self.skip(schema, space)
        return place

    def _add(self, *numbers: int) -> int:
        """Append a node; return its index."""
        self.code.extend(numbers)
        return len(self.code) - len(numbers)

    def takes_no_bytes(self, schema: Json, space: str, within: frozenset[str] = frozenset()) -> bool:
        """Return whether values of a type have no bytes; ``within``: names of the records around it."""
        schema, name, space = self.resolved(schema, space)
        if isinstance(schema, list) or name in within:
            return False
        kind = kind_of(schema)
        if kind not in ("record", "error"):
            return kind == "null" or (kind == "fixed" and schema.get("size") == 0)
        if name not in self._empty:
            inner = within | {name}
            self._empty[name] = all(self.takes_no_bytes(f["type"], space, inner) for f in fields_of(schema))
        return self._empty[name]


def _kind_or_name(schema: Json) -> str:
    """Return the name of a schema's type, empty if it is no name."""
    word = schema.get("type") if isinstance(schema, Mapping) else schema
    return word if isinstance(word, str) else ""


def kind_of(schema: Json) -> str:
    """Return the kind of a resolved type: a primitive's name, or record, error, enum, fixed, array or map."""
    kind = _kind_or_name(schema)
    if kind in _PRIMITIVE or kind in _NAMED or kind in ("array", "map"):
        return kind
    raise SchemaError(f"not an Avro type: {shortened(schema)}")


def member_of(schema: Json, name: str) -> Json:
    """Return a member that a type must have."""
    if not isinstance(schema, Mapping) or name not in schema:
        raise SchemaError(f"an Avro type without {name}: {shortened(schema)}")
    return schema[name]


def fields_of(schema: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the fields of a record."""
    fields = schema.get("fields")
    if not isinstance(fields, list) or not all(isinstance(f, Mapping) and {"name", "type"} <= f.keys() for f in fields):
        raise SchemaError(f"an Avro record whose fields have no names and types: {shortened(schema)}")
    return fields


def _full_name(schema: Mapping[str, Json], space: str) -> tuple[str, str]:
    """Return a named type's full name, and the namespace inside it."""
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise SchemaError(f"an Avro type without a name: {shortened(schema)}")
    if "." not in name:
        given = schema.get("namespace", space)
        name = f"{given}.{name}" if isinstance(given, str) and given else name
    return name, name.rpartition(".")[0]
