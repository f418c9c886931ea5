"""Columns of every type, with values as row events store them, as a SELECT shows them, and what becomes of both."""

from __future__ import annotations

import datetime
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, Column, ColumnType

UTF8 = 45
CHARSETS = {UTF8: "utf8mb4", BINARY_COLLATION: "binary"}
COLLATIONS = {UTF8: "utf8mb4_general_ci", BINARY_COLLATION: "binary"}
_AT = datetime.datetime(2024, 5, 7, 12, 30, 15)  # noqa: DTZ001 - a clock's reading
_MOMENT = datetime.datetime(2024, 5, 7, 12, 30, 15, 7, tzinfo=datetime.UTC)
_SECONDS = 1715085015
_PACKED = ((2024 * 13 + 5) << 22 | 7 << 17 | 12 << 12 | 30 << 6 | 15) + (1 << 39)
_DAY = (7 | 5 << 5 | 2024 << 9).to_bytes(3, "little")


@dataclass(frozen=True)
class Value:
    stored: bytes
    shown: bytes | None
    """``None`` where no server that is read shows it."""
    value: Any
    as_json: str


@dataclass(frozen=True)
class Sample:
    column: Column
    described: bytes
    """The type and its metadata in a TABLE_MAP event."""
    values: tuple[Value, ...]
    can_be_ordered: bool = True


def _numbers(kind: ColumnType, *numbers: int, unsigned: bool = False) -> Sample:
    size = {ColumnType.TINY: 1, ColumnType.SHORT: 2, ColumnType.INT24: 3, ColumnType.LONG: 4, ColumnType.LONGLONG: 8}
    wide = unsigned and kind is ColumnType.LONGLONG
    return Sample(
        Column(kind, unsigned=unsigned), bytes([kind]),
        tuple(
            Value(
                each.to_bytes(size[kind], "little", signed=not unsigned), str(each).encode(),
                Decimal(each) if wide else each, str(each),
            )
            for each in numbers
        ),
    )  # fmt: skip


def _text(kind: ColumnType, described: bytes, *, size: int, length: int = 0, ordered: bool = True) -> Sample:
    given = (("é😀", '"é😀"'), ("", '""'), ('"\\\n\t\x01/', '"\\"\\\\\\n\\t\\u0001/"'))
    return Sample(
        Column(kind, size=size, length=length, collation=UTF8), bytes([kind]) + described,
        tuple(Value(each.encode(), each.encode(), each, as_json) for each, as_json in given), ordered,
    )  # fmt: skip


def _bytes(kind: ColumnType, described: bytes, *, size: int, length: int = 0, ordered: bool = True) -> Sample:
    given = ((b"ab", '"YWI="'), (b"\xff\xfe\xfd", '"//79"'), (b"", '""'), (b"abcd", '"YWJjZA=="'))
    return Sample(
        Column(kind, size=size, length=length, collation=BINARY_COLLATION), bytes([kind]) + described,
        tuple(Value(each, each, each, as_json) for each, as_json in given), ordered,
    )  # fmt: skip


def _once(column: Column, described: bytes, *values: Value, ordered: bool = True) -> Sample:
    return Sample(column, described, values, ordered)


_FLOATS = ((0.5, b"0.5", "0.5"), (-1.25, b"-1.25", "-1.25"), (0.0, b"0", "0"))
_WKB = b"\x01\x01\0\0\0" + struct.pack("<dd", 1.0, -2.0)
_WKB_JSON = "AQEAAAAAAAAAAADwPwAAAAAAAADA"
SAMPLES = (
    _numbers(ColumnType.TINY, -3, 127, 0), _numbers(ColumnType.TINY, 255, 1, unsigned=True),
    _numbers(ColumnType.SHORT, -2, 256), _numbers(ColumnType.SHORT, 2**16 - 1, unsigned=True),
    _numbers(ColumnType.INT24, -1, -(2**23), 2**23 - 1), _numbers(ColumnType.INT24, 2**24 - 1, unsigned=True),
    _numbers(ColumnType.LONG, -(2**31), 5), _numbers(ColumnType.LONG, 2**32 - 1, unsigned=True),
    _numbers(ColumnType.LONGLONG, -(2**63), 2**63 - 1), _numbers(ColumnType.LONGLONG, 2**64 - 1, 7, unsigned=True),
    _once(
        Column(ColumnType.FLOAT, size=4), bytes([ColumnType.FLOAT, 4]),
        *(Value(struct.pack("<f", value), shown, value, as_json) for value, shown, as_json in _FLOATS),
    ),
    _once(
        Column(ColumnType.DOUBLE, size=8), bytes([ColumnType.DOUBLE, 8]),
        *(Value(struct.pack("<d", value), shown, value, as_json) for value, shown, as_json in _FLOATS),
    ),
    _once(
        Column(ColumnType.NEWDECIMAL, precision=6, scale=2), bytes([ColumnType.NEWDECIMAL, 6, 2]),
        Value(b"\x7b\x2d\xcd", b"-1234.50", Decimal("-1234.50"), "-1234.50"),
        Value(b"\x80\x00\x05", b"0.05", Decimal("0.05"), "0.05"),
    ),
    _once(
        Column(ColumnType.NEWDECIMAL, precision=2), bytes([ColumnType.NEWDECIMAL, 2, 0]),
        Value(b"\x8c", b"12", Decimal(12), "12"),
    ),
    _once(
        Column(ColumnType.NEWDECIMAL, precision=39), bytes([ColumnType.NEWDECIMAL, 39, 0]),
        Value(b"\x80\x00" + bytes(15) + b"\x07", b"7", "7", "7"), ordered=False,
    ),
    _once(
        Column(ColumnType.YEAR), bytes([ColumnType.YEAR]), Value(b"\0", b"0000", 0, "0"),
        Value(b"\x01", b"1901", 1901, "1901"), Value(b"\xff", b"2155", 2155, "2155"),
    ),
    _once(
        Column(ColumnType.BIT, size=1, length=1), bytes([ColumnType.BIT, 1, 0]), Value(b"\1", b"\1", True, "true"),
        Value(b"\0", b"\0", False, "false"),
    ),
    _once(
        Column(ColumnType.BIT, size=1, length=2), bytes([ColumnType.BIT, 2, 0]), Value(b"\3", b"\3", b"\3", '"Aw=="')
    ),
    _once(
        Column(ColumnType.BIT, size=2, length=12), bytes([ColumnType.BIT, 4, 1]),
        Value(b"\x0a\xbc", b"\x0a\xbc", b"\x0a\xbc", '"Crw="'),
    ),
    _once(
        Column(ColumnType.DATE), bytes([ColumnType.DATE]), Value(_DAY, b"2024-05-07", _AT.date(), '"2024-05-07"')
    ),
    _once(
        Column(ColumnType.NEWDATE), bytes([ColumnType.NEWDATE]), Value(_DAY, None, _AT.date(), '"2024-05-07"'),
        ordered=False,
    ),
    _once(
        Column(ColumnType.TIME2), bytes([ColumnType.TIME2, 0]),
        Value(
            (2**23 - (1 << 12 | 2 << 6 | 3)).to_bytes(3, "big"), b"-01:02:03",
            -datetime.timedelta(hours=1, minutes=2, seconds=3), '"-01:02:03"',
        ),
        Value(
            (2**23 + (838 << 12 | 59 << 6 | 59)).to_bytes(3, "big"), b"838:59:59",
            datetime.timedelta(hours=838, minutes=59, seconds=59), '"838:59:59"',
        ),
        Value((2**23).to_bytes(3, "big"), b"00:00:00", datetime.timedelta(), '"00:00:00"'),
        Value((2**23 + (1 << 12)).to_bytes(3, "big"), b"01:00:00", datetime.timedelta(hours=1), '"01:00:00"'),
    ),
    _once(
        Column(ColumnType.TIME2, precision=3), bytes([ColumnType.TIME2, 3]),
        Value(
            (2**23 + (12 << 12 | 30 << 6 | 15)).to_bytes(3, "big") + (70).to_bytes(2, "big"), b"12:30:15.007",
            datetime.timedelta(hours=12, minutes=30, seconds=15, milliseconds=7), '"12:30:15.007"',
        ),
    ),
    _once(
        Column(ColumnType.DATETIME2), bytes([ColumnType.DATETIME2, 0]),
        Value(_PACKED.to_bytes(5, "big"), b"2024-05-07 12:30:15", _AT, '"2024-05-07 12:30:15"'),
    ),
    _once(
        Column(ColumnType.DATETIME2, precision=3), bytes([ColumnType.DATETIME2, 3]),
        Value(
            _PACKED.to_bytes(5, "big") + (1230).to_bytes(2, "big"), b"2024-05-07 12:30:15.123",
            _AT.replace(microsecond=123_000), '"2024-05-07 12:30:15.123"',
        ),
    ),
    _once(
        Column(ColumnType.TIMESTAMP2, precision=6), bytes([ColumnType.TIMESTAMP2, 6]),
        Value(
            _SECONDS.to_bytes(4, "big") + (7).to_bytes(3, "big"), b"2024-05-07 12:30:15.000007", _MOMENT,
            '"2024-05-07 12:30:15.000007Z"',
        ),
    ),
    _once(
        Column(ColumnType.TIMESTAMP2), bytes([ColumnType.TIMESTAMP2, 0]),
        Value(
            _SECONDS.to_bytes(4, "big"), b"2024-05-07 12:30:15", _MOMENT.replace(microsecond=0),
            '"2024-05-07 12:30:15Z"',
        ),
    ),
    _once(
        Column(ColumnType.DATETIME), bytes([ColumnType.DATETIME]),
        Value((20240507123015).to_bytes(8, "little"), None, _AT, '"2024-05-07 12:30:15"'), ordered=False,
    ),
    _once(
        Column(ColumnType.TIME), bytes([ColumnType.TIME]),
        Value((10203).to_bytes(3, "little"), None, datetime.timedelta(hours=1, minutes=2, seconds=3), '"01:02:03"'),
        ordered=False,
    ),
    _once(
        Column(ColumnType.TIMESTAMP), bytes([ColumnType.TIMESTAMP]),
        Value(_SECONDS.to_bytes(4, "little"), None, _MOMENT.replace(microsecond=0), '"2024-05-07 12:30:15Z"'),
        ordered=False,
    ),
    _text(ColumnType.VARCHAR, b"\xff\x00", size=1, length=255),
    _text(ColumnType.VARCHAR, b"\x00\x01", size=2, length=256),
    _bytes(ColumnType.VARCHAR, b"\x08\x00", size=1, length=8),
    _once(
        Column(ColumnType.VAR_STRING, size=1, length=40, collation=UTF8), bytes([ColumnType.VAR_STRING, 40, 0]),
        Value("é".encode(), None, "é", '"é"'), ordered=False,
    ),
    _text(ColumnType.STRING, b"\xfe\xff", size=1, length=255),
    _text(ColumnType.STRING, b"\xee\x00", size=2, length=256),
    _text(ColumnType.STRING, b"\xce\xfc", size=2, length=1020),
    _once(
        Column(ColumnType.STRING, size=1, length=4, collation=BINARY_COLLATION), bytes([ColumnType.STRING, 254, 4]),
        Value(b"a", b"a\0\0\0", b"a\0\0\0", '"YQAAAA=="'), Value(b"abcd", b"abcd", b"abcd", '"YWJjZA=="'),
    ),
    _text(ColumnType.BLOB, b"\x02", size=2, ordered=False),
    _bytes(ColumnType.BLOB, b"\x03", size=3, ordered=False),
    _once(
        Column(ColumnType.ENUM, size=1, collation=UTF8, labels=(b"new", "bezählt".encode())),
        bytes([ColumnType.STRING, ColumnType.ENUM, 1]), Value(b"\2", "bezählt".encode(), "bezählt", '"bezählt"'),
        Value(b"\1", b"new", "new", '"new"'), Value(b"\0", b"", "", '""'),
    ),
    _once(
        Column(ColumnType.ENUM, size=2, collation=UTF8, labels=(b"a", b"b")),
        bytes([ColumnType.STRING, ColumnType.ENUM, 2]), Value(b"\2\0", b"b", "b", '"b"'),
    ),
    *(
        _once(
            Column(ColumnType.SET, size=size, collation=UTF8, labels=(b"a", b"b")),
            bytes([ColumnType.STRING, ColumnType.SET, size]), Value(b"\2" + bytes(size - 1), b"b", ["b"], '["b"]'),
        )
        for size in (2, 3, 4, 8)
    ),
    _once(
        Column(ColumnType.SET, size=1, collation=UTF8, labels=(b"a", b"b", b"c")),
        bytes([ColumnType.STRING, ColumnType.SET, 1]), Value(b"\5", b"a,c", ["a", "c"], '["a","c"]'),
        Value(b"\0", b"", [], "[]"), Value(b"\2", b"b", ["b"], '["b"]'),
    ),
    _once(
        Column(ColumnType.JSON, size=4), bytes([ColumnType.JSON, 4]),
        Value(b"\x05\x05\x00", b"5", "5", "5"),
        Value(b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x05\x00a", b'{"a": 5}', '{"a": 5}', '{"a": 5}'), ordered=False,
    ),
    _once(
        Column(ColumnType.GEOMETRY, size=4), bytes([ColumnType.GEOMETRY, 4]),
        Value(
            (4326).to_bytes(4, "little") + _WKB, (4326).to_bytes(4, "little") + _WKB, {"srid": 4326, "wkb": _WKB},
            f'{{"srid":4326,"wkb":"{_WKB_JSON}"}}',
        ),
        Value(bytes(4), bytes(4), {"srid": 0, "wkb": b""}, '{"srid":0,"wkb":""}'), ordered=False,
    ),
    _once(
        Column(ColumnType.VECTOR, size=4), bytes([ColumnType.VECTOR, 4]),
        Value(struct.pack("<2f", 1.5, -2.0), struct.pack("<2f", 1.5, -2.0), [1.5, -2.0], "[1.5,-2]"),
        Value(b"", b"", [], "[]"), Value(struct.pack("<f", 3.5), struct.pack("<f", 3.5), [3.5], "[3.5]"), ordered=False,
    ),
)  # fmt: skip
NOT_READ = {
    ColumnType.DECIMAL: "made before MySQL 5.0",
    ColumnType.TYPED_ARRAY: "which no row has",
    **dict.fromkeys(
        (ColumnType.BLOB_COMPRESSED, ColumnType.VARCHAR_COMPRESSED), "COMPRESSED is not read; leave it out"
    ),
}
"""Why a column of such a type is refused."""
