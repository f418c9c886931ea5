"""The named types of an Avro schema, to which it refers by their names, and the members that types have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from watermark_source.errors import SchemaError, shortened

_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
TOO_DEEP: Final = "an Avro schema whose types contain each other too deeply, a thousand of them"
Json: TypeAlias = Any


class NamedTypes:
    """Those of a schema, and of others that it refers to."""

    def __init__(self, schema: Json, others: Iterable[Json]) -> None:
        self._named: dict[str, tuple[Mapping[str, Json], str]] = {}
        self.empty: dict[str, bool] = {}
        """Whether the values of a record take no bytes, by its name."""
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
