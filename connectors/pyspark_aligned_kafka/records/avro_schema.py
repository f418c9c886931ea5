"""Avro schemas as columns: the types that they have in Spark, and how a writer's schema resolves to the reader's.

Types are those of ``from_avro`` (Spark's ``SchemaConverters``); resolution follows the section "Schema Resolution" of
Avro's specification. What it makes is code for the compiled walk of ``avro_cells``.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
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

from pyspark_aligned_kafka.records.avro_cells import Read
from pyspark_aligned_kafka.records.payload_schema import DEEPEST, MOST_COLUMNS
from watermark_source.errors import SchemaError, shortened
from watermark_source.extractors.avro_plan import TOO_DEEP, Json, WalkPlanner, fields_of, kind_of, member_of

_UNITS: Final = {"millis": (1_000, 1), "micros": (1, 1), "nanos": (1, 1_000)}
"""Multiplier and divisor to microseconds."""
_MOMENTS: Final = {"timestamp-millis": TimestampType, "timestamp-micros": TimestampType,
                   "local-timestamp-millis": TimestampNTZType, "local-timestamp-micros": TimestampNTZType}  # fmt: skip
_TIMES: Final = {"date": "int", "time-millis": "int", "time-micros": "long"}
_SIMPLE: Final = {
    "boolean": BooleanType, "int": IntegerType, "long": LongType, "float": FloatType, "double": DoubleType,
    "bytes": BinaryType, "string": StringType, "fixed": BinaryType, "enum": StringType,
}  # fmt: skip
_PROMOTED: Final = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
                    "string": ("bytes",), "bytes": ("string",)}  # fmt: skip
_NAMED = ("record", "enum", "fixed")
_MOST_CODE = 1 << 20
_WORD = (1 << 64) - 1


class AvroType:
    """A type of a schema, with references resolved."""

    __slots__ = ("json", "kind", "name", "planner", "space")

    def __init__(self, planner: WalkPlanner, schema: Json, space: str) -> None:
        self.planner = planner
        self.json, self.name, self.space = planner.resolved(schema, space)
        kind = "union" if isinstance(self.json, list) else kind_of(self.json)
        self.kind = "record" if kind == "error" else kind

    def inner(self, schema: Json) -> AvroType:
        """Return a type within this one."""
        return AvroType(self.planner, schema, self.space)

    @property
    def branches(self) -> list[AvroType]:
        """The branches of a union."""
        return [self.inner(branch) for branch in self.json]

    @property
    def values(self) -> list[AvroType]:
        """The branches of a union but null."""
        return [branch for branch in self.branches if branch.kind != "null"]

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
            self.logical
            if self.kind == "long" and prefix in ("timestamp", "local-timestamp") and unit in _UNITS
            else ""
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
            raise SchemaError(f"an Avro enum whose symbols are no names: {shortened(self.json)}")
        if len(set(symbols)) < len(symbols):
            raise SchemaError(f"an Avro enum has each symbol once; seen {shortened(self.json)}")
        if "default" in self.json and self.json["default"] not in symbols:
            raise SchemaError(f"the default of an Avro enum is one of its symbols; seen {shortened(self.json)}")
        return symbols

    def has_name_of(self, writer: AvroType) -> bool:
        """Return whether a named type of the writer is this one, by its name or an alias."""
        names = {self.name, *(_aliases_of(self.json) if isinstance(self.json, dict) else ())}
        return writer.name.rpartition(".")[2] in {name.rpartition(".")[2] for name in names}

    def __str__(self) -> str:
        return self.name or (self.kind if self.kind != "union" else shortened(json.dumps(self.json)))


def _aliases_of(named: Mapping[str, Json]) -> list[str]:
    aliases = named.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(name, str) for name in [named.get("name"), *aliases]):
        raise SchemaError(f"an Avro schema whose name and aliases are no texts: {shortened(named)}")
    return aliases


def parsed(text: str) -> Json:
    """Return a schema's text as JSON; the name of a primitive type is a schema too.

    Raises:
        SchemaError: it is no JSON.
    """
    try:
        schema = json.loads(text)
        # Half of a pair of surrogates can be in JSON, and in no name.
        json.dumps(schema, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        if text.isalpha():
            return text
        raise SchemaError(f"an Avro schema is JSON; seen {text[:80]!r}") from None
    return schema


def reader_type(text: str, references: Sequence[str] = (), code: list[int] | None = None) -> AvroType:
    """Return a schema's type; raises ``SchemaError``."""
    schema = parsed(text)
    return AvroType(WalkPlanner(schema, "millis", [parsed(each) for each in references], code), schema, "")


# Types of Spark.


def spark_type(schema: AvroType) -> DataType:
    """Return the type that ``from_avro`` has, with everything in it nullable.

    Raises:
        SchemaError: a type without a column: null alone, an empty record, one that contains itself.
    """
    return _Columns().of(schema, "", frozenset())


class _Columns:
    def __init__(self) -> None:
        self._count = 0

    def of(self, schema: AvroType, where: str, within: frozenset[str], depth: int = 0) -> DataType:
        self._count += 1
        if self._count > MOST_COLUMNS:
            raise SchemaError(f"the schema has more than {MOST_COLUMNS} columns")
        if depth > DEEPEST:
            raise SchemaError(f"the schema has more than {DEEPEST} types in each other")
        return self._of(schema, where, within, depth + 1)

    def _of(  # noqa: PLR0911 - one for each kind
        self, schema: AvroType, where: str, within: frozenset[str], depth: int
    ) -> DataType:
        named = where or "the schema"
        if schema.kind in _NAMED:
            _aliases_of(schema.json)
        if schema.kind == "union":
            kinds = [branch.name or branch.kind for branch in schema.branches]
            if "union" in kinds or len(set(kinds)) < len(kinds):
                raise SchemaError(f"{named}: a union has no union in it, and no type twice: {shortened(kinds)}")
            values = schema.values
            if len(values) == 1:
                return self.of(values[0], where, within, depth)
            if (number := _number_of(values)) is not None:
                return _SIMPLE[number]()
            members = [(f"member{place}", value) for place, value in enumerate(values)]
            return self._struct(members, named, where, within, depth)
        if schema.kind == "record":
            if schema.name in within:
                raise SchemaError(f"{named}: the record {schema.name} contains itself, which no type of Spark can")
            inner = within | {schema.name}
            for field in fields_of(schema.json):
                _aliases_of(field)
            fields = [(str(field["name"]), schema.inner(field["type"])) for field in fields_of(schema.json)]
            return self._struct(fields, named, where, inner, depth)
        if schema.kind == "array":
            return ArrayType(self.of(schema.inner(member_of(schema.json, "items")), where, within, depth))
        if schema.kind == "map":
            return MapType(StringType(), self.of(schema.inner(member_of(schema.json, "values")), where, within, depth))
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
    if schema.moment in _MOMENTS:
        return _MOMENTS[schema.moment]()
    if (schema.kind == "fixed" and schema.size < 0) or (schema.kind == "enum" and not schema.symbols):
        raise SchemaError(f"{named}: {shortened(properties)} has no values")
    return _SIMPLE[schema.kind]()


def _number_of(values: Sequence[AvroType]) -> str | None:
    """Return the one type that a union of two numbers has in Spark."""
    kinds = {value.kind for value in values}
    if len(values) == 2 and kinds in ({"int", "long"}, {"float", "double"}):
        return "long" if "long" in kinds else "double"
    return None


# Resolution.


class UnresolvableError(Exception):
    """A type of the writer that the reader does not take; its text is the reason."""


class Resolver:
    """Resolves writers' schemas to one reader's: their code is appended to ``code``, their constants to ``constants``.

    ``children`` are the nodes of columns within each node. ``reasons`` are why a value is refused, by number.
    """

    def __init__(self, reader: AvroType, children: Sequence[Sequence[int]]) -> None:
        self.code: list[int] = reader.planner.code
        self.constants = bytearray(1)
        self._places: dict[bytes, int] = {}
        self.reasons: list[str] = []
        self._reader = reader
        self._children = children
        self._begin = 0

    def entry(self, writer: AvroType) -> int:
        """Return the node of values of a writer's schema, whose planner appends to the same code.

        Raises:
            SchemaError: it is no Avro schema.
            UnresolvableError: no value of it fits the reader's schema.
        """
        self._begin = len(self.code)
        try:
            return self._resolve(writer, self._reader, 0, "")
        except RecursionError:
            raise SchemaError(TOO_DEEP) from None

    def _add(self, *numbers: int) -> int:
        if len(self.code) - self._begin > _MOST_CODE:
            raise SchemaError("an Avro schema that is too large")
        self.code.extend(numbers)
        return len(self.code) - len(numbers)

    def _constant(self, content: bytes) -> tuple[int, int]:
        # The same for each schema of a subject.
        if content not in self._places:
            self._places[content] = len(self.constants)
            self.constants += content
        begin = self._places[content]
        return begin, begin + len(content)

    def _resolve(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        if writer.kind == "union":
            return self._from_union(writer, reader, node, where)
        if reader.kind == "union":
            return self._to_union(writer, reader, node, where)
        return self._plain(writer, reader, node, where)

    def _from_union(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        if any(branch.kind == "union" for branch in writer.branches):
            raise SchemaError("an Avro schema with a union within a union")
        places = [self._or_refused(branch, reader, node, where) for branch in writer.branches]
        return self._add(Read.UNION, len(places), *places)

    def _or_refused(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        """Resolve a type that not every value has: only those that have it are refused."""
        try:
            return self._resolve(writer, reader, node, where)
        except UnresolvableError as problem:
            self.reasons.append(str(problem))
            return self._add(Read.REFUSED, len(self.reasons) - 1)

    def _to_union(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        if writer.kind == "null":
            if any(branch.kind == "null" for branch in reader.branches):
                return self._add(Read.NULL, node)
            raise _mismatch(writer, reader, where)
        values = reader.values
        place = _matching(writer, values)
        if place is None:
            raise _mismatch(writer, reader, where)
        if len(values) == 1:
            return self._resolve(writer, values[0], node, where)
        if (number := _number_of(values)) is not None:
            return self._number(writer, number, node, is_float=False)
        nodes = self._children[node]
        inner = self._resolve(writer, values[place], nodes[place], where)
        others = [each for number, each in enumerate(nodes) if number != place]
        return self._add(Read.MEMBER, node, inner, len(others), *others)

    def _plain(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:  # noqa: PLR0911 - one a kind
        kind = reader.kind
        if kind in _NAMED and (writer.kind != kind or not reader.has_name_of(writer)):
            raise _mismatch(writer, reader, where)
        if kind == "record":
            return self._record(writer, reader, node, where)
        if kind == "enum":
            return self._enum(writer, reader, node)
        if reader.decimal is not None:
            return self._decimal(writer, reader, node, where)
        if writer.kind != kind and kind not in _PROMOTED.get(writer.kind, ()):
            raise _mismatch(writer, reader, where)
        if kind == "fixed":
            if writer.size != reader.size:
                raise UnresolvableError(f"{_at(where)}the writer's {writer} has {writer.size} bytes, not {reader.size}")
            return self._add(Read.FIXED, node, reader.size)
        if kind == "array":
            items = writer.inner(member_of(writer.json, "items")), reader.inner(member_of(reader.json, "items"))
            return self._add(Read.LIST, node, self._or_refused(*items, self._children[node][0], where))
        if kind == "map":
            values = writer.inner(member_of(writer.json, "values")), reader.inner(member_of(reader.json, "values"))
            keys, inner = self._children[node]
            return self._add(Read.MAP, node, keys, self._or_refused(*values, inner, where))
        if kind in ("bytes", "string"):
            return self._add(Read.BYTES, node, int(kind == "string"))
        if kind == "boolean":
            return self._add(Read.BOOLEAN, node)
        _check_times(writer, reader, where)
        if reader.moment in _MOMENTS:
            # A moment has the unit of its writer.
            return self._add(Read.SCALED, node, *_UNITS[(writer.moment or reader.moment).rpartition("-")[2]])
        return self._number(writer, kind, node, is_float=kind == "float")

    def _number(self, writer: AvroType, kind: str, node: int, *, is_float: bool) -> int:
        if kind in ("int", "long"):
            return self._add(Read.INT if writer.kind == "int" else Read.LONG, node)
        if writer.kind in ("int", "long"):
            return self._add(Read.NUMBER, node, int(is_float), int(writer.kind == "int"))
        return self._add(Read.FLOAT if writer.kind == "float" else Read.DOUBLE, node)

    def _decimal(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        precision, scale = reader.decimal or (1, 0)
        if writer.kind != reader.kind or writer.decimal is None or writer.decimal[1] != scale:
            raise UnresolvableError(
                f"{_at(where)}the writer's {shortened(json.dumps(writer.json))} is no decimal of {reader.kind} with "
                f"scale {scale}"
            )
        if writer.kind == "fixed" and writer.size != reader.size:
            raise UnresolvableError(f"{_at(where)}the writer's {writer} has {writer.size} bytes, not {reader.size}")
        size = writer.size if writer.kind == "fixed" else -1
        return self._add(Read.DECIMAL, node, size, *_words(10**precision), *_words(-(10**precision)))

    def _enum(self, writer: AvroType, reader: AvroType, node: int) -> int:
        known, default = set(reader.symbols), reader.json.get("default")
        places: list[int] = []
        for symbol in writer.symbols:
            text = symbol if symbol in known else default
            begin, end = self._constant(text.encode()) if isinstance(text, str) and text in known else (0, -1)
            places += [begin, end - begin]
        return self._add(Read.ENUM, node, len(writer.symbols), *places)

    def _record(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        fields = fields_of(reader.json)
        written = {str(field["name"]) for field in fields_of(writer.json)}
        sources: dict[str, int] = {}
        """Which field of the reader each of the writer's is."""
        for place, field in enumerate(fields):
            found = next(
                (name for name in (field["name"], *_aliases_of(field)) if name in written and name not in sources), None
            )
            if found is not None:
                sources[str(found)] = place
        steps: list[int] = []
        prefix = f"{where}." if where else ""
        for field in fields_of(writer.json):
            name, kind = str(field["name"]), writer.inner(field["type"])
            if name in sources:
                place = sources[name]
                inner = reader.inner(fields[place]["type"])
                steps.append(
                    self._resolve(kind, inner, self._children[node][place], f"{prefix}{fields[place]['name']}")
                )
            elif not writer.planner.takes_no_bytes(field["type"], writer.space):
                steps.append(writer.planner.skip(field["type"], writer.space))
        for place, field in enumerate(fields):
            if place in sources.values():
                continue
            if "default" not in field:
                raise UnresolvableError(f"the writer has no field {prefix}{field['name']}, and it has no default")
            inner = reader.inner(field["type"])
            at = self._constant(encoded(inner, field["default"]))
            steps.append(
                self._add(
                    Read.DEFAULT,
                    *at,
                    self._resolve(inner, inner, self._children[node][place], f"{prefix}{field['name']}"),
                )
            )
        return self._add(Read.RECORD, node, len(steps), *steps)


def _matching(writer: AvroType, values: Sequence[AvroType]) -> int | None:
    """Return the branch of a reader's union for a type: the same one, or else the first that it resolves to."""
    rules: list[Callable[[AvroType], bool]] = [
        lambda value: value.kind == writer.kind and value.name == writer.name,
        lambda value: value.kind == writer.kind and (value.kind not in _NAMED or value.has_name_of(writer)),
        lambda value: value.kind in _PROMOTED.get(writer.kind, ()),
    ]
    return next((place for rule in rules for place, value in enumerate(values) if rule(value)), None)


def _check_times(writer: AvroType, reader: AvroType, where: str) -> None:
    """Refuse a day, a time or a moment of another unit or kind: by Avro's rules its number would be another time."""
    written, read = writer.time, reader.time
    is_scaled = reader.moment in _MOMENTS and written.rpartition("-")[0] == read.rpartition("-")[0]
    if written and read and written != read and not is_scaled:
        raise UnresolvableError(f"{_at(where)}the writer's {written} is no {read}")


def _mismatch(writer: AvroType, reader: AvroType, where: str) -> UnresolvableError:
    return UnresolvableError(f"{_at(where)}the writer's {writer} does not resolve to {reader}")


def _at(where: str) -> str:
    return f"{where}: " if where else ""


def _words(number: int) -> tuple[int, int]:
    """Return a number of 128 bits as two signed words."""
    high, low = number >> 64, number & _WORD
    return high, low - (1 << 64) if low >> 63 else low


# Defaults.


def check_defaults(schema: AvroType) -> None:
    """Raise ``SchemaError`` for a field of the reader's schema whose default is none of its type."""
    if schema.kind == "union":
        for branch in schema.values:
            check_defaults(branch)
    elif schema.kind == "record":
        for field in fields_of(schema.json):
            inner = schema.inner(field["type"])
            if "default" in field:
                encoded(inner, field["default"])
            check_defaults(inner)
    elif schema.kind in ("array", "map"):
        check_defaults(schema.inner(member_of(schema.json, "items" if schema.kind == "array" else "values")))


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
    elif kind == "array" and isinstance(value, list):
        items = schema.inner(member_of(schema.json, "items"))
        out.write(_varint(len(value)) if value else b"")
        for each in value:
            _encode(out, items, each)
        out.write(b"\0")
    elif kind == "map" and isinstance(value, dict):
        values = schema.inner(member_of(schema.json, "values"))
        out.write(_varint(len(value)) if value else b"")
        for name, each in value.items():
            out.write(_varint(len(name.encode())) + name.encode())
            _encode(out, values, each)
        out.write(b"\0")
    elif kind == "record" and isinstance(value, dict):
        for field in fields_of(schema.json):
            _encode(
                out, schema.inner(field["type"]), value[field["name"]] if field["name"] in value else field["default"]
            )
    else:
        raise ValueError
