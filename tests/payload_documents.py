"""Random schemas and JSON documents, most of them plain, and the values that a struct column holds, to compare."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.records.payload import Decoded, PayloadChoice, PayloadReader, Values
from pyspark_aligned_kafka.records.payload_formats import payload_reader
from pyspark_aligned_kafka.records.payload_schema import parse_schema
from watermark_source.planning.split import Split

EVERY_TYPE = (
    "b BOOLEAN, t TINYINT, sh SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, dec DECIMAL(10,2), s STRING, bin BINARY, "
    "da DATE, ts TIMESTAMP, st STRUCT<x: INT, y: STRING>, ar ARRAY<INT>, m MAP<STRING,INT>, ast ARRAY<STRUCT<x: INT>>, "
    "_corrupt_record STRING"
)
_SIMPLE = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,10)",
    "DECIMAL(18,0)", "DECIMAL(5,5)", "STRING", "STRING", "BINARY", "DATE", "TIMESTAMP",
)  # fmt: skip
_NAMES = ("a", "b", "id", "at", "zähler", "a b", "x", "amount", "`", "$k", "longer_name_of_a_member")
_INTEGERS = (
    "0", "-0", "1", "-1", "42", "127", "128", "255", "256", "-128", "-129", "32767", "32768", "40000", "65536",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "999999999999999999", "1000000000000000000",
    "123456789012345678901234567890123456789", "16777217", "9007199254740993",
)  # fmt: skip
_REALS = (
    "0.0", "-0.0", "1.5", "-2.25", "0.1", "1e3", "1E-7", "1e+2", "12345.678", "1.005", "-1.005", "99999999.995",
    "0.99999", "0.000005", "3.4028235e38", "3.5e38", "1e-45", "1.4e-46", "4.9e-324", "1e400", "-1e400", "1e-400",
    "1e22", "1e23", "123456789.123456789123456789", "0.30000000000000004", "9007199254740993.0",
    "16777217.0", "2.5", "1e308",
    "1.00000017881393432617187499", "1.00000017881393432617187501", "1.000000178813934326171875", "5e-324", "1e10",
    "1.7976931348623157e308", "2.2250738585072014e-308",
)  # fmt: skip
_ODD_NUMBERS = (
    "NaN", "Infinity", "-Infinity", "+Infinity", "-INF", "+INF", "INF", "01", "+1", ".5", "5.",
    "1e", "-", "1x",
)  # fmt: skip
_TEXTS = (
    "", "a", "text", "with \\\"quotes\\\"", "\\u00e9\\n\\t\\/\\\\", "\\ud83d\\ude00", "\\ud83d", "\\ude00x", "é",
    "\U0001f600 and more of it, longer than a word", "it's", "it\\'s", "\\q", "\\u12", "\x01", "\x7f", "NaN",
    "Infinity", "-INF", "1", "1.5", "1,000.25", "1e3", " 1", "true", "null", "x" * 70,
)  # fmt: skip
_TIMES = (
    "2026-11-27T12:00:00Z", "2026-11-27T12:00:00.123456789Z", "2026-11-27 12:00:00", "2026-11-27T12:00",
    "2026-11-27T12", "2026-11-27", "2026-11", "2026", "2026-1-2 3:4:5", "2026-11-27T12:00:00+01:00",
    "2026-11-27T12:00:00.5+0100", "2026-11-27T12:00:00+01", "2026-11-27T12:00:00+1:00", "2026-11-27T12:00:00-17:59",
    "2026-11-27T12:00:00 Europe/Berlin", "2026-11-27T12:00:00 UTC", "2026-11-27T12:00:00UTC+1",
    "2026-11-27T12:00:00GMT", "2026-11-27T12:00:00GMT+01:00", "2026-11-27T12:00:00.", "2026-11-27T24:00:00",
    "2026-11-27T23:59:60", "2026-02-29", "2024-02-29", "0000-01-01", "-0001-01-01", "+12026-01-01", "10000-01-01",
    "1582-10-10", "1500-02-29", "1800-07-01T12:00:00 Europe/Berlin", "now", " 2026-11-27 ", "2026-11-27T",
    "2026-11-27T12:00:00z", "2026-11-27T12:00:00,5", "1764244800", "20261127", "300000-01-01", "290000-01-01",
    "2026-11-27T12:00:00+18:00", "2026-11-27T12:00:00+18:01", "2026-07-27T12:00:00PST", "2026-11-27T12:00:00EST",
    "2026-11-27T12:00:00+01:00:30", "2026-11-27T12:00:00+010030", "19000", "123", "-123", "-150000", "99999999",
    "+5", "2147483648", "00012", "1e3", "-800000", "-99999999", "2026-03-29T02:30:00 Europe/Berlin",
    "2026-10-25T02:30:00 Europe/Berlin", "9999-07-01T00:00:00 Europe/Berlin", "2600-07-01T00:00:00 America/New_York",
    "2401-03-28T20:46:00 America/New_York", "5881580-07-11", "5881580-07-12", "-5877641-06-23", "-5877641-06-22",
    "0500-07-01T00:00:00 America/New_York", "2026-11-27T12:00:00Nowhere/City", "2026-11-27T1:2:3.4Z",
)  # fmt: skip
_BASE64 = (
    "QUJD",
    "QUI=",
    "QQ==",
    "QUJDQUJD",
    "QUI",
    "QU*D",
    "QUJD QUJD",
    "QQ==QQ==",
    "QR==",
    "QUJ\\u0044",
    "-_-_",
    "=",
    "QU==",
)


def random_schema(chance: random.Random) -> str:
    """Return DDL of up to eight members."""
    members = _members(chance, 0)
    return f"{members}, _corrupt_record STRING"


def _members(chance: random.Random, depth: int) -> str:
    names = chance.sample(_NAMES, chance.randint(1, 7 if depth == 0 else 3))
    colon = ":" if depth else ""
    return ", ".join(f"`{name.replace('`', '``')}`{colon} {_type(chance, depth)}" for name in names)


def _type(chance: random.Random, depth: int) -> str:
    if depth < 3 and chance.random() < 0.3:
        kind = chance.randrange(3)
        if kind == 0:
            return f"STRUCT<{_members(chance, depth + 1)}>"
        inner = _type(chance, depth + 1)
        return f"ARRAY<{inner}>" if kind == 1 else f"MAP<STRING,{inner}>"
    return chance.choice(_SIMPLE)


class Documents:
    """Documents for one schema: of ten about six are plain."""

    def __init__(self, schema: str, chance: random.Random) -> None:
        self._type = parse_schema(schema).jsonValue()
        self._chance = chance

    def one(self) -> bytes | None:
        """Return a document."""
        chance = self._chance
        self._oddness = chance.choice((0, 0, 0, 0, 0.05, 0.2))
        whole = self._object(self._type, 0).encode("utf-8", "surrogatepass")
        where = chance.random()
        if where < 0.02:
            return chance.choice((None, b"", b"  \n", b"null", b"[]", b"[{}]", b"1", b'"x"', b"\xef\xbb\xbf{}", b"{}"))
        if where < 0.06:
            return whole[: chance.randrange(len(whole) + 1)]
        if where < 0.10:
            at = chance.randrange(len(whole))
            put = chance.choice(
                (*(bytes([n]) for n in range(0, 256, 5)), b'"', b"{", b"}", b",", b"\\", b"\xed\xa0\x80")
            )
            return whole[:at] + put + whole[at + chance.randrange(3) :]
        if where < 0.12:
            return whole + chance.choice((b" ", b"x", b"{}", b",", b"\xff"))
        return whole

    def _blank(self) -> str:
        return self._chance.choice(("", "", "", " ", "\n", "\t "))

    def _object(self, kind: dict[str, Any], depth: int) -> str:
        chance = self._chance
        members = [(field["name"], field["type"]) for field in kind["fields"] if chance.random() < 0.85]
        if chance.random() < 0.3:
            chance.shuffle(members)
        written = [(name, self._value(inner, depth)) for name, inner in members]
        if chance.random() < 0.3:
            unknown = chance.choice(("unknown", "A", "", "_corrupt_record"))
            written.insert(chance.randrange(len(written) + 1), (unknown, self._anything(depth)))
        if members and chance.random() < self._oddness:
            name, inner = chance.choice(members)
            written.append((name, self._value(inner, depth)))
        return self._braces(written)

    def _braces(self, members: Sequence[tuple[str, str]]) -> str:
        blank = self._blank
        return "{" + blank() + ",".join(f"{self._name(n)}{blank()}:{blank()}{v}{blank()}" for n, v in members) + "}"

    def _name(self, name: str) -> str:
        quote = "'" if self._chance.random() < self._oddness / 4 else '"'
        if name and self._chance.random() < 0.02:
            name = f"\\u{ord(name[0]):04x}{name[1:]}"
        return f"{quote}{name}{quote}"

    def _value(self, kind: Any, depth: int) -> str:
        chance = self._chance
        if chance.random() < 0.08:
            return "null"
        if chance.random() < self._oddness:
            return self._anything(depth)
        if isinstance(kind, dict):
            if kind["type"] == "struct":
                return self._object(kind, depth + 1)
            count = chance.choice((0, 1, 2, 3))
            if kind["type"] == "array":
                return (
                    f"[{','.join(self._blank() + self._value(kind['elementType'], depth + 1) for _ in range(count))}]"
                )
            names = [chance.choice(("k", "k2", "é", "\\u0041", "")) for _ in range(count)]
            return self._braces([(name, self._value(kind["valueType"], depth + 1)) for name in names])
        return self._of_type(kind)

    def _of_type(self, kind: str) -> str:
        chance = self._chance
        if kind == "boolean":
            return chance.choice(("true", "false"))
        if kind in ("byte", "short", "integer", "long"):
            most = {"byte": 127, "short": 32767, "integer": 2**31 - 1, "long": 2**63 - 1}[kind]
            return str(chance.randint(-most - 1, most) if chance.random() < 0.9 else chance.choice(_INTEGERS))
        if kind in ("float", "double"):
            return chance.choice((
                lambda: repr(chance.uniform(-1e3, 1e3)),
                lambda: repr(chance.uniform(-1, 1) * 10 ** chance.randint(-40, 40)),
                lambda: str(chance.randint(-10**6, 10**6)), lambda: f"{chance.uniform(-180, 180):.6f}",
                lambda: chance.choice(_REALS), lambda: chance.choice(_INTEGERS),
            ))()  # fmt: skip
        if kind.startswith("decimal"):
            plain = f"{chance.randint(-(10**7), 10**7)}.{chance.randint(0, 10 ** chance.randint(1, 12))}"
            return chance.choice((plain, plain, f'"{plain}"', chance.choice(_REALS), chance.choice(_INTEGERS)))
        if kind == "date":
            return f'"{2000 + chance.randrange(60)}-{chance.randint(1, 12):02}-{chance.randint(1, 29):02}"'
        if kind == "timestamp":
            fraction = chance.choice(("", f".{chance.randrange(10**6)}"))
            zone = chance.choice(("Z", "", "+02:00", "-09:30"))
            hours = f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"
            text = f'"{2000 + chance.randrange(60)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}T{hours}'
            return chance.choice(
                (f'{text}{fraction}{zone}"', f'"{chance.choice(_TIMES)}"', str(chance.randrange(2**33)))
            )
        if kind == "binary":
            return f'"{chance.choice(_BASE64[:3])}"'
        return f'"{chance.choice(_TEXTS[:10])}"'

    def _anything(self, depth: int) -> str:
        chance = self._chance
        made: list[Callable[[], str]] = [
            lambda: chance.choice(_INTEGERS), lambda: chance.choice(_REALS), lambda: f'"{chance.choice(_TEXTS)}"',
            lambda: f'"{chance.choice(_TIMES)}"', lambda: f'"{chance.choice(_BASE64)}"',
            lambda: chance.choice(("true", "false", "null", "TRUE", "nul", "{}", "[]", '""', "''", "'a\"b'")),
        ]  # fmt: skip
        if chance.random() < 0.2:
            return chance.choice(_ODD_NUMBERS)
        if depth < 4:
            made += [
                lambda: f"[{','.join(self._anything(depth + 2) for _ in range(chance.randrange(4)))}]",
                lambda: self._braces(
                    [(chance.choice("ab"), self._anything(depth + 2)) for _ in range(chance.randrange(3))]
                ),
            ]
        return chance.choice(made)()


def decoded(schema: str, documents: Sequence[bytes | None], *, fail_fast: bool = False, zone: str = "UTC") -> pa.Array:
    """Return the struct column of documents."""
    reader = payload_reader(PayloadChoice(parse_schema(schema), fail_fast=fail_fast, zone=zone))
    return read_by(reader, documents)


def read_by(reader: PayloadReader, documents: Sequence[bytes | None]) -> pa.Array:
    """Return the struct column of documents."""
    return block_by(reader, documents).column


def block_by(
    reader: PayloadReader, documents: Sequence[bytes | None], headers: Sequence[bytes | None] | None = None
) -> Decoded:
    """Decode documents that lie one behind the other as in a fetched batch; ``headers`` have ids of their schemas."""
    parts = [*documents, *(headers or ())]
    data = np.frombuffer(bytearray(b"".join(each or b"" for each in parts) + b"}"), np.uint8)
    sizes = np.array([-1 if each is None else len(each) for each in parts], np.int64)
    starts, count = np.cumsum(np.maximum(sizes, 0)) - np.maximum(sizes, 0), len(documents)
    header = None if headers is None else (starts[count:], sizes[count:])
    values = Values(Split("orders", 0), data, starts[:count], sizes[:count], np.arange(count, dtype=np.int64))
    return reader.read(values, header)


def values_of(column: pa.Array) -> list[Any]:
    """Return the values of a column exactly: numbers of dates and times, bytes of texts, NaN as a text."""
    kind = column.type
    present = column.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        members = [(kind.field(n).name, values_of(column.field(n))) for n in range(kind.num_fields)]
        rows: list[Any] = [{name: values[row] for name, values in members} for row in range(len(column))]
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        offsets = column.offsets.to_pylist()
        if pa.types.is_map(kind):
            inside: list[Any] = list(zip(values_of(column.keys), values_of(column.items), strict=True))
        else:
            inside = values_of(column.values)
        rows = [inside[start:stop] for start, stop in pairwise(offsets)]
    elif pa.types.is_string(kind):
        rows = column.cast(pa.binary()).to_pylist()
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        rows = column.cast(pa.int64()).to_pylist()
    elif pa.types.is_date32(kind):
        rows = column.cast(pa.int32()).to_pylist()
    elif pa.types.is_floating(kind):
        rows = [None if value is None else repr(value) for value in column.to_pylist()]
    else:
        rows = column.to_pylist()
    return [row if is_there else None for row, is_there in zip(rows, present, strict=True)]
