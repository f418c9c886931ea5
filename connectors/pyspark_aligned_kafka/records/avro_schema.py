"""Avro schemas as columns: the types that they have in Spark, those of ``from_avro`` (``SchemaConverters``), and
defaults."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_aligned_kafka.records.avro_names import Json, NamedTypes, fields_of, kind_of, member_of
from pyspark_aligned_kafka.records.payload import Paths
from pyspark_aligned_kafka.records.payload_schema import DEEPEST, MOST_COLUMNS
from watermark_source.errors import SchemaError, shortened

UNITS: Final = {"millis": (1_000, 1), "micros": (1, 1), "nanos": (1, 1_000)}
"""Multiplier and divisor to microseconds."""
MOMENTS: Final = {"timestamp-millis": TimestampType, "timestamp-micros": TimestampType,
                   "local-timestamp-millis": TimestampNTZType, "local-timestamp-micros": TimestampNTZType}  # fmt: skip
_TIMES: Final = {"date": "int", "time-millis": "int", "time-micros": "long"}
_SIMPLE: Final = {
    "boolean": BooleanType, "int": IntegerType, "long": LongType, "float": FloatType, "double": DoubleType,
    "bytes": BinaryType, "string": StringType, "fixed": BinaryType, "enum": StringType,
}  # fmt: skip
NAMED = ("record", "enum", "fixed")


class AvroType:
    """A type of a schema, with references resolved."""

    __slots__ = ("json", "kind", "name", "named", "space")

    def __init__(self, named: NamedTypes, schema: Json, space: str) -> None:
        self.named = named
        self.json, self.name, self.space = named.resolved(schema, space)
        kind = "union" if isinstance(self.json, list) else kind_of(self.json)
        self.kind = "record" if kind == "error" else kind

    def inner(self, schema: Json) -> AvroType:
        """Return a type within this one."""
        return AvroType(self.named, schema, self.space)

    @property
    def branches(self) -> list[AvroType]:
        """The branches of a union."""
        return [self.inner(branch) for branch in self.json]

    @property
    def values(self) -> list[AvroType]:
        """The branches of a union but null."""
        return [branch for branch in self.branches if branch.kind != "null"]

    @property
    def element(self) -> AvroType:
        """The type of an array's items, or of a map's values."""
        return self.inner(member_of(self.json, "items" if self.kind == "array" else "values"))

    @property
    def logical(self) -> str:
        """The logical type, empty without one."""
        return str(self.json.get("logicalType", "")) if isinstance(self.json, dict) else ""

    @property
    def size(self) -> int:
        """The bytes of a fixed type."""
        size = member_of(self.json, "size")
        if type(size) is not int or not 0 <= size < 2**31:
            raise SchemaError(f"an Avro schema with a fixed type of {size!r} bytes")
        return size

    @property
    def decimal(self) -> tuple[int, int] | None:
        """Precision and scale; ``None`` without a valid logical type decimal, which Avro then ignores."""
        if self.logical != "decimal" or self.kind not in ("bytes", "fixed"):
            return None
        precision, scale = self.json.get("precision"), self.json.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
            return None
        # The number itself may have any number of digits: schemas come from writers.
        if self.kind == "fixed" and precision > (8 * self.size - 1) * math.log10(2):
            return None
        return precision, scale

    @property
    def moment(self) -> str:
        """The unit of a moment and its kind, such as ``timestamp-millis``; empty for another type."""
        prefix, _, unit = self.logical.rpartition("-")
        return (
            self.logical if self.kind == "long" and prefix in ("timestamp", "local-timestamp") and unit in UNITS else ""
        )

    @property
    def time(self) -> str:
        """The logical type of a day, a time of day or a moment; empty for another type."""
        return self.logical if self.moment or _TIMES.get(self.logical) == self.kind else ""

    @property
    def symbols(self) -> list[str]:
        """The symbols of an enum."""
        symbols = member_of(self.json, "symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise SchemaError(f"an Avro enum whose symbols are not all names: {shortened(self.json)}")
        if len(set(symbols)) < len(symbols):
            raise SchemaError(f"an Avro enum has each symbol once; seen {shortened(self.json)}")
        if "default" in self.json and self.json["default"] not in symbols:
            raise SchemaError(f"the default of an Avro enum is one of its symbols; seen {shortened(self.json)}")
        return symbols

    def takes_no_bytes(self, within: frozenset[str] = frozenset()) -> bool:
        """Return whether values have no bytes; ``within``: names of the records around it."""
        if self.kind != "record":
            return self.kind == "null" or (self.kind == "fixed" and self.json.get("size") == 0)
        if self.name in within:
            return False
        known = self.named.empty
        if self.name not in known:
            inner = within | {self.name}
            known[self.name] = all(self.inner(f["type"]).takes_no_bytes(inner) for f in fields_of(self.json))
        return known[self.name]

    def has_name_of(self, writer: AvroType) -> bool:
        """Return whether a named type of the writer is this one, by its name or an alias."""
        names = {self.name, *(aliases_of(self.json) if isinstance(self.json, dict) else ())}
        return writer.name.rpartition(".")[2] in {name.rpartition(".")[2] for name in names}

    def __str__(self) -> str:
        return self.name or (self.kind if self.kind != "union" else shortened(json.dumps(self.json)))


def aliases_of(named: Mapping[str, Json]) -> list[str]:
    """Return the aliases of a named type or a field, whose name and aliases are texts."""
    aliases = named.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(name, str) for name in [named.get("name"), *aliases]):
        raise SchemaError(f"an Avro schema whose name and aliases are not all texts: {shortened(named)}")
    return aliases


def _parsed(text: str) -> Json:
    """Return a schema's text as JSON; the name of a primitive type is a schema too. Raises ``SchemaError``."""
    try:
        schema = json.loads(text)
        # Half of a pair of surrogates can be in JSON, and in no name.
        json.dumps(schema, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        if text.isalpha():
            return text
        raise SchemaError(f"an Avro schema is JSON; seen {text[:80]!r}") from None
    return schema


def members_alone(schema: AvroType, paths: Paths) -> AvroType:
    """Return a schema with no more than the members at some paths, or itself if it is to be read as a whole.

    That is without paths, and where one ends before or behind a member with one value, or goes through a union of
    several types.
    """
    alone = _members_alone(schema, paths) if paths else None
    # Each type is where it is used: one may be in two places, with other members.
    return schema if alone is None else AvroType(NamedTypes(None, ()), alone, "")


def _members_alone(schema: AvroType, paths: Paths) -> Json | None:
    if schema.kind == "union":
        inner = _members_alone(schema.values[0], paths) if len(schema.values) == 1 else None
        return None if inner is None else ["null" if each.kind == "null" else inner for each in schema.branches]
    # Types have their full names: what is around them is left out.
    named = {**schema.json, "name": schema.name, "namespace": ""} if schema.name else schema.json
    if schema.kind != "record":
        return named if paths == ((),) and schema.kind not in ("array", "map") else None
    fields = [field for field in fields_of(schema.json) if any(path[:1] == (field["name"],) for path in paths)]
    if len(fields) < len({path[:1] for path in paths}):
        return None
    kinds = [
        _members_alone(schema.inner(field["type"]), tuple(path[1:] for path in paths if path[0] == field["name"]))
        for field in fields
    ]
    if None in kinds:
        return None
    return {**named, "fields": [{**field, "type": kind} for field, kind in zip(fields, kinds, strict=True)]}


def type_of(text: str, references: Sequence[str] = ()) -> AvroType:
    """Return the type of a schema's text, which may refer to types of others; raises ``SchemaError``."""
    schema = _parsed(text)
    return AvroType(NamedTypes(schema, map(_parsed, references)), schema, "")


def spark_type(schema: AvroType) -> DataType:
    """Return the type that ``from_avro`` has, with everything in it nullable.

    Raises:
        SchemaError: a type without a column: null alone, an empty record, one that contains itself; or a field whose
            default is none of its type.
    """
    return _Columns().of(schema, "", frozenset())


class _Columns:
    def __init__(self) -> None:
        self._count = 0

    def of(  # noqa: PLR0911, PLR0912 - one for each kind
        self, schema: AvroType, where: str, within: frozenset[str], depth: int = 0
    ) -> DataType:
        self._count += 1
        if self._count > MOST_COLUMNS:
            raise SchemaError(f"the schema has more than {MOST_COLUMNS} columns")
        if depth > DEEPEST:
            raise SchemaError(f"the schema has more than {DEEPEST} types in each other")
        depth += 1
        named = where or "the schema"
        if schema.kind in NAMED:
            aliases_of(schema.json)
        if schema.kind == "union":
            kinds = [branch.name or branch.kind for branch in schema.branches]
            if "union" in kinds or len(set(kinds)) < len(kinds):
                raise SchemaError(f"{named}: a union has no union in it, and no type twice: {shortened(kinds)}")
            values = schema.values
            if len(values) == 1:
                return self.of(values[0], where, within, depth)
            if (number := number_of(values)) is not None:
                return _SIMPLE[number]()
            members = [(f"member{place}", value) for place, value in enumerate(values)]
            return self._struct(members, named, where, within, depth)
        if schema.kind == "record":
            if schema.name in within:
                raise SchemaError(f"{named}: the record {schema.name} contains itself, which no type of Spark can")
            fields = fields_of(schema.json)
            for field in fields:
                aliases_of(field)
            members = [(str(field["name"]), schema.inner(field["type"])) for field in fields]
            found = self._struct(members, named, where, within | {schema.name}, depth)
            for field, (_, kind) in zip(fields, members, strict=True):
                if "default" in field:
                    encoded(kind, field["default"])
            return found
        if schema.kind == "array":
            return ArrayType(self.of(schema.element, where, within, depth))
        if schema.kind == "map":
            return MapType(StringType(), self.of(schema.element, where, within, depth))
        if schema.kind == "null":
            raise SchemaError(f"{named} is null alone, and has no column: leave it out of the schema")
        return _plain_type(schema, named)

    def _struct(
        self, members: list[tuple[str, AvroType]], named: str, where: str, within: frozenset[str], depth: int
    ) -> StructType:
        if not members:
            raise SchemaError(f"{named} has no fields, and no column: leave it out of the schema")
        prefix = f"{where}." if where else ""
        return StructType(
            [StructField(name, self.of(inner, f"{prefix}{name}", within, depth)) for name, inner in members]
        )


def _plain_type(schema: AvroType, named: str) -> DataType:
    properties = schema.json if isinstance(schema.json, dict) else {}
    if schema.logical == "custom-decimal" or "spark.sql.catalyst.type" in properties:
        raise SchemaError(f"{named}: {shortened(properties)} is a type of Spark's own writer, which is not decoded")
    if (decimal := schema.decimal) is not None:
        if decimal[0] > 38:
            raise SchemaError(f"{named} is a decimal of {decimal[0]} digits; DECIMAL has up to 38")
        return DecimalType(*decimal)
    if schema.kind == "int" and schema.logical == "date":
        return DateType()
    if schema.moment in MOMENTS:
        return MOMENTS[schema.moment]()
    if (schema.kind == "fixed" and schema.size < 0) or (schema.kind == "enum" and not schema.symbols):
        raise SchemaError(f"{named}: {shortened(properties)} has no values")
    return _SIMPLE[schema.kind]()


def number_of(values: Sequence[AvroType]) -> str | None:
    """Return the one type that a union of two numbers has in Spark."""
    kinds = {value.kind for value in values}
    if len(values) == 2 and kinds in ({"int", "long"}, {"float", "double"}):
        return "long" if "long" in kinds else "double"
    return None


def encoded(schema: AvroType, value: Any) -> bytes:
    """Return a default of a schema, which is JSON, as Avro.

    Raises:
        SchemaError: it is none of its type.
    """
    out = io.BytesIO()
    try:
        _encode(out, schema, value)
    except (TypeError, ValueError, OverflowError, KeyError, AttributeError, struct.error):
        raise SchemaError(f"the default {shortened(json.dumps(value))} is none of {schema}") from None
    return out.getvalue()


def _varint(number: int) -> bytes:
    number = number << 1 ^ number >> 63
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _encode(out: io.BytesIO, schema: AvroType, value: Any) -> None:  # noqa: PLR0912 - one for each kind
    kind = schema.kind
    if kind == "union":
        # Of its first branch, and since Avro 1.12 of any.
        for place, branch in enumerate(schema.branches):
            try:
                content = encoded(branch, value)
            except SchemaError:
                continue
            out.write(_varint(place) + content)
            return
        raise ValueError
    if kind == "null" and value is None:
        return
    if kind == "boolean" and isinstance(value, bool):
        out.write(bytes([value]))
    elif kind in ("int", "long") and type(value) is int and -(1 << 63) <= value < 1 << 63:
        if kind == "int" and not -(1 << 31) <= value < 1 << 31:
            raise ValueError
        out.write(_varint(value))
    elif kind in ("float", "double") and type(value) in (int, float):
        out.write(struct.pack("<f" if kind == "float" else "<d", value))
    elif kind in ("bytes", "string", "fixed") and isinstance(value, str):
        content = value.encode("utf-8" if kind == "string" else "iso-8859-1")
        if kind == "fixed" and len(content) != schema.size:
            raise ValueError
        digits = abs(int.from_bytes(content, "big", signed=True)) if schema.decimal is not None else 0
        if schema.decimal is not None and (not content or digits >= 10 ** schema.decimal[0]):
            raise ValueError
        out.write(content if kind == "fixed" else _varint(len(content)) + content)
    elif kind == "enum":
        out.write(_varint(schema.symbols.index(value)))
    elif (kind == "array" and isinstance(value, list)) or (kind == "map" and isinstance(value, dict)):
        out.write(_varint(len(value)) if value else b"")
        for each in value:
            if kind == "map":
                out.write(_varint(len(each.encode())) + each.encode())
            _encode(out, schema.element, value[each] if kind == "map" else each)
        out.write(b"\0")
    elif kind == "record" and isinstance(value, dict):
        for field in fields_of(schema.json):
            given = value[field["name"]] if field["name"] in value else field["default"]
            _encode(out, schema.inner(field["type"]), given)
    else:
        raise ValueError
