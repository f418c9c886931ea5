"""A column of every type of MySQL, with values at its edges, and how to compare a decoded value with the server's."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from services.mysql import MySql
from services.mysql_client import run
from services.mysql_program import Flavour


@dataclass(frozen=True, slots=True)
class Sample:
    """A column: its declaration, literals to put in, what to ask the server for, and the same of a decoded value."""

    name: str
    declaration: str
    literals: tuple[str, ...]
    asked: str = "CAST({} AS CHAR)"
    shown: Callable[[Any], Any] = str
    only: Flavour | None = None
    since: tuple[int, ...] = ()
    """The first release of that server with this type."""
    metadata: bool = True
    """Whether it can be read where the server logs the least of metadata (names apart)."""


def _decimal(value: Decimal | str) -> str:
    return value if isinstance(value, str) else format(value, "f")


def _hex(value: bytes) -> str:
    return value.hex().upper()


def _seconds(micros: int, digits: int) -> str:
    sign = "-" if micros < 0 else ""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{sign}{hour:02}:{minute:02}:{second:02}"
    return text + (f".{fraction:06}"[: digits + 1] if digits else "")


def _time(digits: int) -> Callable[[datetime.timedelta], str]:
    return lambda value: _seconds(round(value / datetime.timedelta(microseconds=1)), digits)


def _moment(digits: int) -> Callable[[datetime.datetime], str]:
    def shown(value: datetime.datetime) -> str:
        fraction = f".{value.microsecond:06}"[: digits + 1] if digits else ""
        return f"{value.year:04}-{value.month:02}-{value.day:02} {value:%H:%M:%S}{fraction}"

    return shown


def _shape(value: dict[str, Any]) -> str:
    return _hex(value["srid"].to_bytes(4, "little", signed=True) + value["wkb"])


def _floats(value: list[float]) -> list[float]:
    return value


_NO_DATE = "CASE WHEN YEAR({0}) = 0 OR MONTH({0}) = 0 OR DAYOFMONTH({0}) = 0 THEN NULL ELSE CAST({0} AS CHAR) END"
_JSON = (
    "'null'", "'true'", "'1'", "'-7'", "'32768'", "'-2147483649'", "'18446744073709551615'", "'1.5'", "'1.0'", "'-0.0'",
    "'1e15'", "'1e14'", "'123456789012345680'", "'1e16'", "'1.7976931348623157e308'", "'5e-324'", "'1e-14'", "'1e-15'",
    "'1.25e-15'", "'1e-16'", "'0.1'", "'3.141592653589793'", "'1e100'", "'-2.5e-100'",
    """'"text"'""", r"""'"a \\"quoted\\" \\\\ \\n \\u0001 é 漢 😀"'""", "'[]'", "'{}'", "'[1, 2, [3, {}]]'",
    """'{"b": 1, "a": [true, false, null], "": {"ccc": 1.5, "dd": -1}}'""",
    "CAST(CAST('12345.6789000' AS DECIMAL(30,10)) AS JSON)",
    "JSON_ARRAY(CAST('2015-01-15 23:24:25.120000' AS DATETIME(6)), CAST('2015-01-15' AS DATE))",
    "CAST(CAST('10:11:12' AS TIME) AS JSON)",
    "JSON_ARRAY(CAST('-838:59:58.000001' AS TIME(6)), CAST(-0.05 AS DECIMAL(3,2)), 65535, 65536, 4294967296, -32769)",
    "JSON_ARRAY(x'00ff10', REPEAT(x'41', 70))",
    "JSON_OBJECT('large', REPEAT('x', 70000), 'n', 1, 'i', 70000, 'd', 2.5e0)",
    "JSON_ARRAY(REPEAT('y', 200), REPEAT('z', 20000))",
    # More digits than a column has: the server calculates with nine words of nine.
    *(f"CAST(CAST('{number}' AS DECIMAL({digits},{scale})) AS JSON)" for number, digits, scale in (
        ("9" * 65, 65, 0), ("-" + "9" * 64, 65, 0), ("9" * 35 + "." + "9" * 30, 65, 30), ("-0." + "9" * 30, 30, 30),
    )),
    *(f"JSON_ARRAY({number})" for number in (
        "9" * 64, "9" * 28 + "." + "1" * 30, "-" + "1" * 65 + "e0", "1" * 70, "9" * 81, "1" * 50 + "." + "1" * 31,
    )),
)  # fmt: skip

SAMPLES: tuple[Sample, ...] = (
    Sample("tiny", "TINYINT", ("-128", "127", "0")),
    Sample("tiny_u", "TINYINT UNSIGNED", ("0", "255")),
    Sample("small", "SMALLINT", ("-32768", "32767")),
    Sample("small_u", "SMALLINT UNSIGNED", ("0", "65535")),
    Sample("year_between", "YEAR", ("1901", "2155", "0"), shown=lambda value: f"{value:04}"),
    Sample("medium", "MEDIUMINT", ("-8388608", "8388607", "-1")),
    Sample("medium_u", "MEDIUMINT UNSIGNED", ("0", "16777215")),
    Sample("int_s", "INT", ("-2147483648", "2147483647")),
    Sample("int_u", "INT UNSIGNED", ("0", "4294967295")),
    Sample("big", "BIGINT", ("-9223372036854775808", "9223372036854775807")),
    Sample("big_u", "BIGINT UNSIGNED", ("0", "18446744073709551615", "9223372036854775808"), shown=_decimal),
    Sample("float_s", "FLOAT", ("0.1", "-3.4028234e38", "1e-38", "16777217", "-0e0"), "{}+0e0", float),
    Sample("double_s", "DOUBLE", ("0.1", "-1.7976931348623157e308", "5e-324", "-0e0"), "{}+0e0", float),
    # Not all that is stored is shown: -0.1 is stored as -0.09999999999999998.
    Sample("float_cut", "FLOAT(10,2)", ("-0.1", "0.3", "99999.99"), "{} * 1e0", float),
    Sample("double_cut", "DOUBLE(10,2)", ("-0.1", "0.3", "-0e0", "12345678.91"), "{} * 1e0", float),
    Sample("double_fill", "DOUBLE(12,3) ZEROFILL", ("0.1",), "{} * 1e0", float),
    Sample("int_fill", "INT(8) ZEROFILL", ("7", "4294967295"), "{} + 0", int),
    Sample("dec_fill", "DECIMAL(10,2) ZEROFILL", ("1.5",), "CAST(CAST({} AS DECIMAL(10,2)) AS CHAR)", _decimal),
    Sample("dec_40_fill", "DECIMAL(40,2) ZEROFILL", ("1.5", "0", "1234567.89"),
           "CAST(CAST({} AS DECIMAL(40,2)) AS CHAR)", _decimal),
    Sample("dec_38_38", "DECIMAL(38,38)", ("-0.5", "0." + "9" * 38), shown=_decimal, only=Flavour.MARIADB),
    Sample("dec_65_38", "DECIMAL(65,38)", ("-" + "9" * 27 + "." + "9" * 38, "0"), shown=_decimal, only=Flavour.MARIADB),
    Sample("dec_10_0", "DECIMAL(10,0)", ("0", "-9999999999", "12"), shown=_decimal),
    Sample("dec_14_4", "DECIMAL(14,4)", ("1234567890.1234", "-1234567890.1234", "-0.0001"), shown=_decimal),
    Sample("dec_2_2", "DECIMAL(2,2)", ("0.01", "-0.99"), shown=_decimal),
    Sample("dec_10_8", "DECIMAL(10,8)", ("0.00000001", "-0.00000120"), shown=_decimal),
    Sample("dec_u", "DECIMAL(9,9) UNSIGNED", ("0.123456789",), shown=_decimal),
    Sample("dec_19_9", "DECIMAL(19,9)", ("-9999999999.999999999", "1.000000001"), shown=_decimal),
    Sample("dec_38_10", "DECIMAL(38,10)", ("9999999999999999999999999999.9999999999", "-1"), shown=_decimal),
    Sample("dec_38_30", "DECIMAL(38,30)", ("-12345678.000000000000000000000000000001",), shown=_decimal),
    Sample("dec_39_0", "DECIMAL(39,0)", ("-" + "9" * 39, "0", "100"), shown=_decimal),
    Sample("dec_65_30", "DECIMAL(65,30)", ("9" * 35 + "." + "9" * 30, "-0.5", "0"), shown=_decimal),
    Sample("bit_1", "BIT(1)", ("b'0'", "b'1'"), "{}+0", lambda value: int(value)),
    Sample("bit_9", "BIT(9)", ("b'101010101'", "b'1'"), "{}+0", lambda value: int.from_bytes(value, "big")),
    Sample("bit_64", "BIT(64)", ("18446744073709551615", "1"), "{}+0", lambda value: int.from_bytes(value, "big")),
    Sample("year_s", "YEAR", ("1901", "2155", "0"), shown=lambda value: f"{value:04}"),
    Sample("date_s", "DATE", ("'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2020-00-00'", "'2024-02-29'"),
           _NO_DATE),
    Sample("time_0", "TIME", ("'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"), shown=_time(0)),
    Sample("time_2", "TIME(2)", ("'-00:00:00.01'", "'-12:34:56.78'", "'01:02:03.04'"), shown=_time(2)),
    Sample("time_3", "TIME(3)", ("'-00:00:00.010'", "'-838:59:58.999'"), shown=_time(3)),
    Sample("time_6", "TIME(6)", ("'-00:00:00.000001'", "'-838:59:58.999999'", "'1:1:1.1'"), shown=_time(6)),
    Sample("datetime_0", "DATETIME", ("'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'0000-00-00'"), _NO_DATE,
           _moment(0)),
    Sample("datetime_1", "DATETIME(1)", ("'2024-05-07 12:30:15.1'", "'1969-12-31 23:59:59.9'"), shown=_moment(1)),
    Sample("datetime_4", "DATETIME(4)", ("'2024-05-07 12:30:15.1234'", "'1582-10-10 0:0:0'"), shown=_moment(4)),
    Sample("datetime_6", "DATETIME(6)", ("'2024-05-07 12:30:15.123456'", "'1900-02-28 23:59:59.999999'",
           "'2020-00-00'"), _NO_DATE, _moment(6)),
    Sample("timestamp_0", "TIMESTAMP NULL", ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'0000-00-00'"),
           _NO_DATE, _moment(0)),
    Sample("timestamp_3", "TIMESTAMP(3) NULL", ("'2024-02-29 23:59:59.999'",), shown=_moment(3)),
    Sample("timestamp_6", "TIMESTAMP(6) NULL", ("'2001-09-09 01:46:40.000001'",), shown=_moment(6)),
    Sample("timestamp_late", "TIMESTAMP NULL", ("'2038-01-19 03:14:08'", "'2106-02-07 06:28:15'"), shown=_moment(0),
           only=Flavour.MARIADB, since=(11, 5)),
    # Before the texts, whose collations are identified by their number among all columns that have one.
    Sample("json_s", "JSON", _JSON, only=Flavour.MYSQL),
    Sample("point_s", "POINT", ("ST_GeomFromText('POINT(1 -2)')", "ST_GeomFromText('POINT(3 4)', 4326)"), "HEX({})",
           _shape),
    Sample("geometry_s", "GEOMETRY", ("ST_GeomFromText('LINESTRING(0 0, 1 1, 2 2)')",), "HEX({})", _shape),
    Sample("vector_s", "VECTOR(3)", ("STRING_TO_VECTOR('[1, -2.5, 0.1]')",), "VECTOR_TO_STRING({})",
           lambda value: "[" + ",".join(f"{each:.5e}" for each in value) + "]", Flavour.MYSQL, (9, 0)),
    # MariaDB's are bytes like any other in its binlog.
    Sample("vector_bytes", "VECTOR(2)", ("VEC_FromText('[1, -2.5]')",), "HEX({})", _hex, Flavour.MARIADB, (11, 7)),
    Sample("char_10", "CHAR(10) CHARACTER SET utf8mb4", ("'a'", "''", "'tail  '", "'é漢😀'")),
    Sample("char_255", "CHAR(255) CHARACTER SET utf8mb4", ("REPEAT('😀', 255)", "'x'")),
    Sample("varchar_20", "VARCHAR(20) CHARACTER SET utf8mb4", ("'tail  '", "''", "'é漢😀'")),
    Sample("varchar_300", "VARCHAR(300) CHARACTER SET ascii", ("REPEAT('v', 300)", "'1'")),
    Sample("latin1", "VARCHAR(255) CHARACTER SET latin1", ("'äöü€ž'", "_latin1 x'818D8F909DFF80'"),
           "CONVERT({} USING utf8mb4)"),
    Sample("utf8mb3", "VARCHAR(10) CHARACTER SET utf8mb3", ("'é漢'",), "CONVERT({} USING utf8mb4)"),
    Sample("ucs2", "VARCHAR(10) CHARACTER SET ucs2", ("'aé漢'",), "CONVERT({} USING utf8mb4)"),
    Sample("utf16", "VARCHAR(10) CHARACTER SET utf16", ("'aé漢😀'",), "CONVERT({} USING utf8mb4)"),
    Sample("utf16le", "VARCHAR(10) CHARACTER SET utf16le", ("'aé漢😀'",), "CONVERT({} USING utf8mb4)"),
    Sample("utf32", "VARCHAR(10) CHARACTER SET utf32", ("'aé漢😀'",), "CONVERT({} USING utf8mb4)"),
    Sample("cp1251", "TEXT CHARACTER SET cp1251", ("'Привет'",), "CONVERT({} USING utf8mb4)"),
    Sample("big5", "VARCHAR(10) CHARACTER SET big5", ("'a漢字'",), "CONVERT({} USING utf8mb4)"),
    Sample("gbk", "TEXT CHARACTER SET gbk", ("'汉字é'", "''"), "CONVERT({} USING utf8mb4)"),
    Sample("sjis", "CHAR(9) CHARACTER SET sjis", ("'かなｶﾅ漢'",), "CONVERT({} USING utf8mb4)"),
    Sample("ujis", "VARCHAR(200) CHARACTER SET ujis", ("'かなｶﾅ漢丂'",), "CONVERT({} USING utf8mb4)"),
    Sample("euckr", "VARCHAR(10) CHARACTER SET euckr", ("'한글a'",), "CONVERT({} USING utf8mb4)"),
    Sample("gb18030", "VARCHAR(10) CHARACTER SET gb18030", ("'汉€😀'",), "CONVERT({} USING utf8mb4)",
           only=Flavour.MYSQL),
    Sample("tinytext_s", "TINYTEXT", ("'tiny'", "''")),
    Sample("text_s", "TEXT", ("REPEAT('t', 60000)", "'é'")),
    Sample("mediumtext_s", "MEDIUMTEXT", ("REPEAT('m', 70000)",)),
    Sample("longtext_s", "LONGTEXT", ("REPEAT('l', 70000)",)),
    Sample("binary_5", "BINARY(5)", ("'ab'", "x'0000000000'", "x'FF00FF00FF'"), "HEX({})", _hex),
    Sample("varbinary_9", "VARBINARY(9)", ("'ab'", "x'00FF00'", "''"), "HEX({})", _hex),
    Sample("blob_s", "BLOB", ("REPEAT(x'00FF', 30000)", "''"), "HEX({})", _hex),
    Sample("enum_s", "ENUM('small','größe','x,y')", ("'small'", "'größe'", "'x,y'", "''"), metadata=False),
    Sample("enum_latin1", "ENUM('é','ü') CHARACTER SET latin1", ("'ü'",), "CONVERT({} USING utf8mb4)", metadata=False),
    Sample("enum_gbk", "ENUM('汉','字') CHARACTER SET gbk", ("'字'",), "CONVERT({} USING utf8mb4)", metadata=False),
    Sample("enum_empty", "ENUM('','a')", ("''", "'a'", "0", "1"), metadata=False),
    Sample("set_empty", "SET('','a','b')", ("'a'", "0", "1", "2", "3", "6", "7"), "{} + 0",
           lambda value: sum(1 << ["", "a", "b"].index(each) for each in value), metadata=False),
    Sample("set_s", "SET('a','bé','c')", ("'a,c'", "''", "'bé'", "'a,bé,c'"), shown=",".join, metadata=False),
)  # fmt: skip


def version_of(server: MySql) -> tuple[int, ...]:
    """Return a server's release, (8, 0, 15) for example."""
    ((version,),) = run(server.host, server.port, "SELECT VERSION()")
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def samples_of(server: MySql) -> tuple[Sample, ...]:
    """Return the samples of the types that a server has."""
    version = version_of(server)
    return tuple(each for each in SAMPLES if each.only in (None, server.flavour) and version >= each.since)


def has_invisible_columns(server: MySql) -> bool:
    """Return whether a server has them: MySQL since 8.0.23, MariaDB since 10.3."""
    return server.flavour is Flavour.MARIADB or version_of(server) >= (8, 0, 23)
