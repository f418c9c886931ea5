"""The schema of decoded JSON: Spark's DDL and its JSON, read without a JVM."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

CORRUPT_MEMBER = "_corrupt_record"
"""Spark's default."""
DEEPEST = 64
"""Types within each other."""
MOST_COLUMNS = 10_000
"""Limit on the columns of a schema, nested ones included: each takes memory in every reader."""
_SIMPLE: dict[str, Callable[[], DataType]] = {
    "boolean": BooleanType, "byte": ByteType, "tinyint": ByteType, "short": ShortType, "smallint": ShortType,
    "int": IntegerType, "integer": IntegerType, "long": LongType, "bigint": LongType, "float": FloatType,
    "real": FloatType, "double": DoubleType, "string": StringType, "binary": BinaryType, "date": DateType,
    "timestamp": TimestampType, "timestamp_ltz": TimestampType,
}  # fmt: skip
_NO_SCHEMA = (KeyError, TypeError, ValueError, AttributeError, AssertionError, ImportError, PySparkException)
"""What Spark's reader of schemas raises."""
_DECIMALS = ("decimal", "dec", "numeric")
ACCEPTED_TYPES = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), STRING, BINARY, DATE, TIMESTAMP, STRUCT<…>, "
    "ARRAY<…> and MAP<STRING,…>"
)
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*')|([A-Za-z0-9_]+)|([<>(),:]))")


def parse_schema(text: str) -> StructType:
    """Read a schema as ``from_json`` takes it: DDL (``id STRING, at TIMESTAMP``, ``STRUCT<…>``) or Spark's JSON.

    All members are nullable, as in ``from_json``.

    Raises:
        ValueError: it is no such schema, or has a type that is not decoded.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        try:
            read = json.loads(stripped)
            # Half of a pair of surrogates can be in JSON, and in no name.
            json.dumps(read, ensure_ascii=False).encode()
            found: DataType = StructType.fromJson(read)
        except RecursionError:
            raise ValueError(f"has more than {DEEPEST} types in each other") from None
        except _NO_SCHEMA as error:
            raise ValueError(f"is not a schema of Spark in JSON: {error}") from None
    else:
        found = _Ddl(stripped).schema()
    checked = _nullable(found, "", 0)
    if (columns := len([*_types_in(checked)])) > MOST_COLUMNS:
        raise ValueError(f"has {columns} columns, nested ones included; accepted are {MOST_COLUMNS}")
    assert isinstance(checked, StructType)
    if not [each for each in checked.fields if each.name != CORRUPT_MEMBER]:
        raise ValueError("has no member")
    for each in checked.fields:
        if each.name == CORRUPT_MEMBER and not isinstance(each.dataType, StringType):
            raise ValueError(f"{CORRUPT_MEMBER} must be a STRING")
    return checked


def first_twice(names: Iterable[str]) -> str | None:
    """Return the first name that occurs more than once, ``None`` if there is none."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _types_in(kind: DataType) -> Iterator[DataType]:
    """Yield a type, and those in it."""
    yield kind
    inner: list[DataType] = []
    if isinstance(kind, StructType):
        inner = [each.dataType for each in kind.fields]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    elif isinstance(kind, ArrayType):
        inner = [kind.elementType]
    for each in inner:
        yield from _types_in(each)


def has_timestamp(kind: DataType) -> bool:
    """Return whether a type has timestamps in it."""
    return any(isinstance(each, TimestampType) for each in _types_in(kind))


def _nullable(kind: DataType, where: str, depth: int) -> DataType:
    """Return a type with everything in it nullable; raises ``ValueError`` for one that is not decoded."""
    if depth > DEEPEST:
        raise ValueError(f"has more than {DEEPEST} types in each other")
    if isinstance(kind, StructType):
        names = [each.name for each in kind.fields]
        if (twice := first_twice(names)) is not None:
            raise ValueError(f"has {where}{twice} twice")
        if not names:
            raise ValueError(f"{where or 'the schema'} is a STRUCT without members")
        return StructType(
            [StructField(f.name, _nullable(f.dataType, f"{where}{f.name}.", depth + 1)) for f in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType, where, depth + 1))
    if isinstance(kind, MapType) and type(kind.keyType) is StringType and kind.keyType == StringType():
        return MapType(StringType(), _nullable(kind.valueType, where, depth + 1))
    if isinstance(kind, DecimalType):
        if not 0 < kind.precision <= 38 or not 0 <= kind.scale <= kind.precision:
            raise ValueError(f"{where.rstrip('.')}: a DECIMAL has up to 38 digits, and no more of them after the point")
        return kind
    # A string with a collation is another type than STRING.
    if kind not in [make() for make in _SIMPLE.values()]:
        raise ValueError(f"{where.rstrip('.')} is {kind.simpleString().upper()}; accepted are {ACCEPTED_TYPES}")
    return kind


class _Ddl:
    """Reads DDL, one token after another."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f'cannot be read at "{text[at : at + 20].strip()}"; other names than of letters, '
                                 "digits and _ are written in `backquotes`")  # fmt: skip
            self._tokens.append(found[0].strip())
            at = found.end()
        self._at = 0

    def schema(self) -> StructType:
        whole = self._tokens[:2]
        if len(whole) == 2 and whole[0].lower() == "struct" and whole[1] == "<":
            found = self._type(0)
        else:
            found = StructType(self._members("", 0))
        if self._at < len(self._tokens):
            raise ValueError(f'cannot be read at "{self._next()}"')
        assert isinstance(found, StructType)
        return found

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str | None = None) -> str:
        token = self._next()
        if not token or (expected is not None and token.lower() != expected):
            seen = f'"{token}"' if token else "its end"
            raise ValueError(f"has {seen} where {expected or 'a name or a type'} is expected")
        self._at += 1
        return token

    def _members(self, end: str, depth: int) -> list[StructField]:
        members: list[StructField] = []
        while self._next() != end:
            if members:
                self._take(",")
            name = self._take()
            if name[0] in "'<>(),:":
                raise ValueError(f'has "{name}" where a name is expected')
            if name[0] == "`":
                name = name[1:-1].replace("``", "`")
            if self._next() == ":":
                self._take()
            kind = self._type(depth + 1)
            if self._next().lower() == "not":
                self._take()
                self._take("null")
            if self._next().lower() == "comment":
                self._take()
                if not self._take().startswith("'"):
                    raise ValueError("has a COMMENT that is not 'in quotes'")
            members.append(StructField(name, kind))
        return members

    def _type(self, depth: int) -> DataType:
        if depth > DEEPEST:
            raise ValueError(f"has more than {DEEPEST} types in each other")
        name = self._take()
        lowered = name.lower()
        if lowered in ("struct", "array", "map") and self._next() == "<":
            self._take()
            found = self._with_types(lowered, depth)
            self._take(">")
            return found
        if lowered in _DECIMALS:
            return self._decimal()
        if lowered not in _SIMPLE or self._next() in ("<", "("):
            raise ValueError(f'has the type "{name}"; accepted are {ACCEPTED_TYPES}')
        return _SIMPLE[lowered]()

    def _with_types(self, name: str, depth: int) -> DataType:
        if name == "struct":
            return StructType(self._members(">", depth))
        inner = self._type(depth + 1)
        if name == "array":
            return ArrayType(inner)
        self._take(",")
        if isinstance(inner, StringType):
            return MapType(inner, self._type(depth + 1))
        raise ValueError("has a MAP whose keys are not STRING: names of JSON are strings")

    def _decimal(self) -> DecimalType:
        if self._next() != "(":
            return DecimalType(10, 0)
        self._take()
        digits = [self._take()]
        if self._next() == ",":
            self._take()
            digits.append(self._take())
        self._take(")")
        if not all(each.isdigit() for each in digits):
            raise ValueError("has a DECIMAL whose digits are not whole numbers")
        return DecimalType(int(digits[0]), int(digits[1]) if len(digits) > 1 else 0)
