"""One JSON document as Spark's ``from_json`` reads it, in Python: for the few that the compiled walk leaves.

What Spark accepts is what Jackson does with Spark's defaults: single quotes, ``NaN`` and the infinities, bytes that are
no UTF-8 as U+FFFD, anything behind the document's end. A member of another type than the schema's is null, and the
document is bad; the other members are kept. A document that is not JSON is bad, and all of its members are null.
"""

from __future__ import annotations

import base64
import codecs
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
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
    StructType,
    TimestampType,
)

from pyspark_aligned_kafka.records.payload_times import day_of_text, moment_of_text

_DEPTH = 1_000
_LONGEST_NUMBER, _LONGEST_NAME = 1_000, 50_000
"""Jackson's limits, beyond which it reads no document."""


class NotJsonError(Exception):
    """A document that Jackson does not read to its end."""


class BadMemberError(Exception):
    """A value that is not of its type, and of which nothing is kept."""


class Number(NamedTuple):
    """A number as it is written; ``is_float`` for a fraction, an exponent, NaN or an infinity."""

    text: str
    is_float: bool


class Members(list[tuple[str, Any]]):
    """The members of an object, in order, duplicates included."""


# Documents: bytes to a tree.


def _java_utf8(error: UnicodeError) -> tuple[str, int]:
    """Replace what is no UTF-8 as Java does: encoded surrogates are one character, not one for each byte."""
    assert isinstance(error, UnicodeDecodeError)
    data, at = error.object, error.start
    if data[at] == 0xED and at + 1 < len(data) and 0xA0 <= data[at + 1] <= 0xBF:
        return "\ufffd", at + (3 if at + 2 < len(data) and data[at + 2] & 0xC0 == 0x80 else 2)
    return "\ufffd", error.end


codecs.register_error("java", _java_utf8)

_BLANKS = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_WORD = re.compile(r"true|false|null|NaN|[+-]?Infinity|[+-]INF")
_WORDS = {"true": True, "false": False, "null": None}
_PLAIN = {'"': re.compile(r'[^"\\\x00-\x1f]*'), "'": re.compile(r"[^'\\\x00-\x1f]*")}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\"\\/bfnrt']))")
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_NAME_PART = re.compile(r"\w|\$")
_SURROGATES = re.compile("[\ud800-\udfff]")


class _Document:
    """Reads one document. Objects and arrays within each other are kept on a list and not on Python's stack."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def root(self) -> Any:
        """Return the tree of the document.

        Raises:
            NotJsonError: it is none.
            EOFError: there is nothing but blanks.
        """
        self._skip_blanks()
        if self._at == len(self._text):
            raise EOFError
        holder: list[Any] = []
        enclosing: list[list[Any]] = [holder]
        is_done = self._begin(enclosing)
        while not is_done or len(enclosing) > 1:
            inside = enclosing[-1]
            self._skip_blanks()
            if self._next() == ("}" if isinstance(inside, Members) else "]"):
                self._at += 1
                enclosing.pop()
                is_done = True
                continue
            if inside:
                if self._next() != ",":
                    raise NotJsonError
                self._at += 1
                self._skip_blanks()
            if isinstance(inside, Members):
                if self._next() not in ("'", '"'):
                    raise NotJsonError
                name = self._string()
                if len(name) > _LONGEST_NAME:
                    raise NotJsonError
                self._skip_blanks()
                if self._next() != ":":
                    raise NotJsonError
                self._at += 1
                self._skip_blanks()
                inside.append((name, None))
            is_done = self._begin(enclosing)
        return holder[0]

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip_blanks(self) -> None:
        found = _BLANKS.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _begin(self, enclosing: list[list[Any]]) -> bool:
        """Add the value that is next to the innermost container; return whether it is complete."""
        inside, first = enclosing[-1], self._next()
        if first in ("{", "["):
            if len(enclosing) > _DEPTH:
                raise NotJsonError
            self._at += 1
            value: Any = Members() if first == "{" else []
            enclosing.append(value)
        else:
            value = self._scalar(first)
        if isinstance(inside, Members):
            inside[-1] = (inside[-1][0], value)
        else:
            inside.append(value)
        return first not in ("{", "[")

    def _scalar(self, first: str) -> Any:
        if first in ("'", '"') and first:
            return self._string()
        if (found := _NUMBER.match(self._text, self._at)) is not None:
            self._at = found.end()
            digits = len(found[0]) - found[0].startswith("-")
            if digits > _LONGEST_NUMBER or self._next().isdigit():
                raise NotJsonError
            return Number(found[0], bool(found[1]))
        if (found := _WORD.match(self._text, self._at)) is None:
            raise NotJsonError
        self._at = found.end()
        if _NAME_PART.match(self._next()):
            raise NotJsonError
        return _WORDS[found[0]] if found[0] in _WORDS else Number(found[0], is_float=True)

    def _string(self) -> str:
        quote = self._next()
        self._at += 1
        parts = list[str]()
        while True:
            plain = _PLAIN[quote].match(self._text, self._at)
            assert plain is not None
            parts.append(plain[0])
            self._at = plain.end()
            if self._next() == quote:
                break
            found = _ESCAPE.match(self._text, self._at)
            if found is None:
                raise NotJsonError
            parts.append(chr(int(found[1], 16)) if found[1] else _LETTERS.get(found[2], found[2]))
            self._at = found.end()
        self._at += 1
        whole = "".join(parts)
        if _SURROGATES.search(whole):
            whole = whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return whole


# Values: a tree to what the schema states.

Converter = Callable[[Any], Any]


def _bad(kind: str) -> BadMemberError:
    return BadMemberError(f"it does not fit {kind}")


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _bad("BOOLEAN")


def _integer(lowest: int, highest: int, kind: str) -> Converter:
    bits = 8 if kind == "TINYINT" else 64

    def convert(value: Any) -> int:
        if not isinstance(value, Number) or value.is_float or not lowest <= (found := int(value.text)) <= highest:
            raise _bad(kind)
        # Jackson accepts a byte without its sign.
        return found - (1 << bits) if found >= 1 << (bits - 1) else found

    return convert


_NOT_NUMBERS = frozenset({"NaN", "Infinity", "+Infinity", "+INF", "-Infinity", "-INF"})
"""What is read as a number in a text too."""


def _nearest_float(text: str) -> float:
    """Return the 32-bit float that is nearest to a decimal number, of two the even one."""
    with np.errstate(over="ignore"):
        found = np.float32(float(text))
    if not np.isfinite(found) or abs(float(text)) < 1e-300:
        return float(found)
    exact = Fraction(text)
    with np.errstate(over="ignore"):
        neighbours = (np.nextafter(found, np.float32(-np.inf)), found, np.nextafter(found, np.float32(np.inf)))

    def distance(candidate: np.float32) -> tuple[Fraction, int]:
        bits = int(np.array(candidate, np.float32).view(np.uint32))
        return abs(Fraction(float(candidate)) - exact), bits & 1

    return float(min((n for n in neighbours if np.isfinite(n)), key=distance))


def _real(value: Any, kind: str, parse: Callable[[str], float]) -> float:
    if isinstance(value, Number):
        # An integer has no negative zero.
        return parse(value.text) + 0.0 if not value.is_float else parse(value.text)
    if isinstance(value, str) and value in _NOT_NUMBERS:
        return float(value)
    raise _bad(kind)


_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?")


def _decimal(kind: DecimalType) -> Converter:
    precision, scale = kind.precision, kind.scale
    name = f"DECIMAL({precision},{scale})"
    # Java's exponents have 32 bits: none of them overflows here.
    context = Context(prec=2_200, rounding=ROUND_HALF_UP, Emax=MAX_EMAX, Emin=MIN_EMIN)

    def convert(value: Any) -> Decimal:
        text = value.text if isinstance(value, Number) else None
        if isinstance(value, str):
            text = value.replace(",", "")
        found = None if text is None or len(text) > 2_000 else _DECIMAL.fullmatch(text)
        if text is None or found is None or abs(int(found[1] or 0)) > 2**31 - 1:
            raise _bad(name)
        number = context.create_decimal(text)
        if number.is_zero() or number.adjusted() < -scale - 1:
            return Decimal((0, (0,), -scale))
        if number.adjusted() >= precision - scale:
            raise _bad(name)
        rounded = number.quantize(Decimal((0, (1,), -scale)), context=context)
        if rounded.adjusted() >= precision - scale and not rounded.is_zero():
            raise _bad(name)
        return rounded

    return convert


def _string(value: Any) -> bytes:
    return _java_bytes(value if isinstance(value, str) else written(value))


def _java_bytes(text: str) -> bytes:
    """Return UTF-8 in which half of a pair of surrogates is a question mark, as Java writes it."""
    return text.encode("utf-8", "replace")


def written(value: Any) -> str:
    """Return the text that Jackson writes for a value: without blanks, and with the numbers that Java would write."""
    parts = list[str]()
    todo: list[Any] = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, list):
            begin, end = "{}" if isinstance(each, Members) else "[]"
            named = ((f"{_quoted(name)}:", of) for name, of in each) if begin == "{" else (("", of) for of in each)
            parts.append(begin)
            todo.append(Raw(end))
            for number, (name, inner) in reversed([*enumerate(named)]):
                todo += [inner, Raw(f",{name}" if number else name)]
        elif isinstance(each, Raw):
            parts.append(each)
        elif isinstance(each, str):
            parts.append(_quoted(each))
        elif isinstance(each, Number):
            parts.append(_java_number(each) if each.is_float else str(int(each.text)))
        else:
            parts.append("null" if each is None else "true" if each else "false")
    return "".join(parts)


class Raw(str):
    """A part of a text that is complete."""

    __slots__ = ()


def _quoted(text: str) -> str:
    short = json.dumps(text, ensure_ascii=False)
    short = re.sub("[\ud800-\udfff\U00010000-\U0010ffff]", lambda found: json.dumps(found[0])[1:-1], short)
    return re.sub(r"\\u([0-9a-f]{4})", lambda found: f"\\u{found[1].upper()}", short)


def _java_number(number: Number) -> str:
    value = float(number.text)
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    return java_double(value)


def java_double(value: float) -> str:
    """Return what ``Double.toString`` of Java 19 returns: the shortest decimal, of two digits at least."""
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    if len(digits) == 1 and float(two := f"{abs(value):.1e}") == abs(value):
        _, digits, exponent = Decimal(two).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    point = len(text) + exponent
    text = text.rstrip("0") or "0"
    minus = "-" if sign else ""
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        whole, fraction = text[:point].ljust(point, "0"), text[point:]
        return f"{minus}{whole}.{fraction or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


_BASE64 = re.compile(r"[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==)")
_NO_BLANK = re.compile(r"[^\0- ]")


def _binary(value: Any) -> bytes:
    """Decode Base64 as Jackson does: groups of four, blanks between groups, and complete padding."""
    if not isinstance(value, str):
        raise _bad("BINARY")
    # What is left between groups. One expression for the whole text takes 75 times its memory.
    if _NO_BLANK.search(_BASE64.sub("", value)):
        raise _bad("BINARY, which is Base64")
    made = bytearray()
    for group in _BASE64.finditer(value):
        made += base64.b64decode(group[0])
    return bytes(made)


def _date(value: Any) -> int:
    if isinstance(value, str) and value and (found := day_of_text(value)) is not None:
        return found
    raise _bad("DATE")


def _timestamp(zone: str) -> Converter:
    def convert(value: Any) -> int:
        if isinstance(value, Number) and not value.is_float and -(2**63) <= (seconds := int(value.text)) < 2**63:
            # Java's product overflows.
            return (seconds * 1_000_000 + 2**63) % 2**64 - 2**63
        if isinstance(value, str) and value:
            found = moment_of_text(value, zone)
            if found is not None:
                return found
        raise _bad("TIMESTAMP")

    return convert


def _struct(kind: StructType, zone: str, wrong: list[str]) -> Converter:
    members = {field.name: converter(field.dataType, zone, wrong) for field in kind.fields}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Members):
            raise _bad("STRUCT")
        row: dict[str, Any] = {}
        for name, member in value:
            if name not in members:
                continue
            before = len(wrong)
            try:
                row[name] = None if member is None else members[name](member)
            except BadMemberError as error:
                # Nothing of it is kept, whatever else is wrong within it.
                wrong[before:] = [str(error)]
            wrong[before:] = [f"{name}: {each}" for each in wrong[before : before + 1]]
        return row

    return convert


def _list(element: Converter) -> Converter:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list) or isinstance(value, Members):
            raise _bad("ARRAY")
        return [None if each is None else element(each) for each in value]

    return convert


def _map(element: Converter) -> Converter:
    def convert(value: Any) -> list[tuple[bytes, Any]]:
        if not isinstance(value, Members):
            raise _bad("MAP")
        return [(_java_bytes(name), None if each is None else element(each)) for name, each in value]

    return convert


_CONVERTERS: dict[type[DataType], Converter] = {
    BooleanType: _boolean,
    ByteType: _integer(-(2**7), 2**8 - 1, "TINYINT"),
    ShortType: _integer(-(2**15), 2**15 - 1, "SMALLINT"),
    IntegerType: _integer(-(2**31), 2**31 - 1, "INT"),
    LongType: _integer(-(2**63), 2**63 - 1, "BIGINT"),
    FloatType: lambda value: _real(value, "FLOAT", _nearest_float),
    DoubleType: lambda value: _real(value, "DOUBLE", float),
    StringType: _string,
    BinaryType: _binary,
    DateType: _date,
}


def converter(kind: DataType, zone: str, wrong: list[str]) -> Converter:
    """Return what makes a value of a type of a node of a tree that is not null; it raises ``BadMemberError``.

    Of a value that is kept in part it adds to ``wrong`` what is wrong within it.
    """
    if isinstance(kind, StructType):
        return _struct(kind, zone, wrong)
    if isinstance(kind, ArrayType):
        return _list(converter(kind.elementType, zone, wrong))
    if isinstance(kind, MapType):
        return _map(converter(kind.valueType, zone, wrong))
    if isinstance(kind, DecimalType):
        return _decimal(kind)
    return _timestamp(zone) if isinstance(kind, TimestampType) else _CONVERTERS[type(kind)]


@dataclass(frozen=True, slots=True)
class Reading:
    """A document as read."""

    row: dict[str, Any] | None
    """Members that are left out are null; ``None``: there is no document."""
    wrong: str | None = None
    """Why it is bad."""


class ExactReader:
    """Reads documents of one schema."""

    __slots__ = ("_convert", "_wrong")

    def __init__(self, schema: StructType, zone: str) -> None:
        self._wrong: list[str] = []
        self._convert = converter(schema, zone, self._wrong)

    def read(self, document: bytes) -> Reading:
        """Return what a document holds."""
        try:
            tree = _Document(document.decode("utf-8", "java")).root()
            if not isinstance(tree, Members):
                return Reading({}, "it is not a JSON object")
            self._wrong.clear()
            return Reading(self._convert(tree), next(iter(self._wrong), None))
        except EOFError:
            return Reading(None)
        except NotJsonError:
            return Reading({}, "it is not JSON")
