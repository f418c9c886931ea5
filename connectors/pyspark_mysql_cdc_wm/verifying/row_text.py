"""A row as one text that a server and Spark write alike, and its fingerprint.

A value is the text of a whole number, of a decimal's digits, of bytes in hexadecimal, or a text itself behind its
number of bytes; null is a letter. Floating point numbers are the whole number that has their bits: servers and Java
show other digits of them. A row's fingerprint is 60 bits of the text's SHA-256; that of several rows is their number,
and the exclusive or. By CRC-32, which is linear, values swapped between rows of equal lengths would not be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.types import DataType, DecimalType

from pyspark_mysql_cdc_wm.options.tables import quoted
from pyspark_mysql_cdc_wm.records.arrow_types import FLOATS, STRINGS, WHOLE_NUMBERS, has_empty_label
from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, Column, ColumnType
from watermark_source.errors import UnsupportedFormatError

_HEX_DIGITS = 15
"""Hexadecimal digits of the SHA-256 in a fingerprint: Spark has no 64-bit numbers without a sign."""
_LONG = frozenset({ColumnType.BLOB, ColumnType.JSON, ColumnType.GEOMETRY})
"""Types of which one value may be longer than a packet."""


class _Texts(NamedTuple):
    """A value's text: an expression of the server, and one of Spark, in which {0} is the column in backquotes."""

    server: str
    spark: str
    is_free: bool = False
    """Whether the text may contain any character, so that its length has to be before it."""


_CALENDAR_DATE = "IF(DAYOFMONTH({0}) BETWEEN 1 AND DAYOFMONTH(LAST_DAY({0})), %s, 'N')"
"""Other dates, such as 2024-02-30, are null in a stream."""
_DIGITS = _Texts("CAST({0} + 0 AS CHAR)", "CAST({0} AS STRING)")
_TEXT = _Texts("CONVERT({0} USING utf8mb4)", "{0}", is_free=True)
_BYTES = _Texts("HEX({0})", "hex({0})")
_FLOAT = _Texts(
    # The geometry has the eight bytes of the number behind its SRID, byte order and type.
    "CONV(HEX(REVERSE(SUBSTR(POINT({0} * 1e0, 0), 10, 8))), 16, -10)",
    "IF({0} IS NULL, NULL, reflect('java.lang.Double', 'doubleToRawLongBits', coalesce(CAST({0} AS DOUBLE), 0D)))",
)
_MOMENT = "DATE_FORMAT({0}, '%Y-%m-%d %H:%i:%s.%f')"
_TEXTS: Mapping[ColumnType, _Texts] = {
    **dict.fromkeys(WHOLE_NUMBERS, _DIGITS),
    **dict.fromkeys(FLOATS, _FLOAT),
    **dict.fromkeys((ColumnType.ENUM, *STRINGS), _TEXT),
    ColumnType.DATE: _Texts(_CALENDAR_DATE % "CAST({0} AS CHAR)", "CAST({0} AS STRING)"),
    ColumnType.DATETIME2: _Texts(
        _CALENDAR_DATE.replace("%s", f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {_MOMENT}))"),
        "CAST({0} AS STRING)",
    ),
    ColumnType.TIMESTAMP2: _Texts(
        "COALESCE(CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {0}) AS CHAR), 'N')",
        "CAST(unix_micros({0}) AS STRING)",
    ),
    ColumnType.TIME2: _Texts(
        "CONCAT(IF({0} < TIME'00:00:00', '-', ''), "
        "((HOUR({0}) * 60 + MINUTE({0})) * 60 + SECOND({0})) * 1000000 + MICROSECOND({0}))",
        "CAST(((extract(DAY FROM {0}) * 24L + extract(HOUR FROM {0})) * 60 + extract(MINUTE FROM {0})) * 60000000 "
        "+ CAST(extract(SECOND FROM {0}) * 1000000 AS BIGINT) AS STRING)",
    ),
    # With their number: a copy's list may have nulls, and commas in a label.
    ColumnType.SET: _Texts(
        "CONCAT(BIT_COUNT(CAST({0} AS UNSIGNED)), ':', CONVERT({0} USING utf8mb4))",
        "concat(size({0}), ':', array_join({0}, ',', ','))",
        is_free=True,
    ),
    # The column itself is empty, and not null, where it is longer than max_allowed_packet.
    ColumnType.JSON: _Texts("CAST(JSON_EXTRACT({0}, '$') AS CHAR)", "{0}", is_free=True),
    ColumnType.GEOMETRY: _Texts(
        "CONCAT(ST_SRID({0}), ':', SUBSTR(HEX({0}), 9))",
        # A copy's may lack a part, and is no null then.
        "IF({0} IS NULL, NULL, concat_ws(':', CAST({0}.srid AS STRING), hex({0}.wkb)))",
    ),
}


def _texts(column: Column, kind: DataType, where: str) -> _Texts:
    if column.type is ColumnType.NEWDECIMAL:
        digits = f"CAST(CAST({{0}} AS DECIMAL({column.precision}, {column.scale})) AS CHAR)"
        if not isinstance(kind, DecimalType):
            return _Texts(digits, "{0}", is_free=True)
        # Spark shows a small decimal with an exponent.
        return _Texts(digits, f"replace(format_number({{0}}, {column.scale}), ',', '')")
    if column.type is ColumnType.BIT:
        if column.length == 1:
            return _Texts("CAST({0} + 0 AS CHAR)", "CAST(CAST({0} AS INT) AS STRING)")
        return _Texts(f"LPAD(HEX({{0}} + 0), {2 * column.size}, '0')", "hex({0})")
    if column.collation == BINARY_COLLATION and column.type in STRINGS:
        return _BYTES
    if has_empty_label(column) or column.type not in _TEXTS:
        raise UnsupportedFormatError(
            f"{where} column {column.name}: values of {column.type.name}"
            f"{' with an empty label' if column.labels else ''} cannot be compared on the server. Name the other "
            "columns by the option columns, or leave it out by excludeColumns"
        )
    return _TEXTS[column.type]


@dataclass(frozen=True, slots=True)
class RowText:
    """The text of some columns of a row, as an expression of the server and as one of Spark."""

    server: str
    spark: str
    counted: str = "*"
    """What ``COUNT`` counts on the server: the texts, where a row may be too long to have one."""

    @classmethod
    def of(cls, columns: Sequence[tuple[Column, DataType]], where: str) -> RowText:
        """Return the text of columns with their types in a stream, in this order; ``where`` names the table.

        Raises:
            UnsupportedFormatError: a column is of a type that servers and Spark have no common text for.
        """
        found = [(quoted(str(column.name)), _texts(column, kind, where)) for column, kind in columns]
        if len(found) == 1:
            ((name, alone),) = found
            return cls(*(f"COALESCE({side.format(name)}, 'N')" for side in (alone.server, alone.spark)))
        # A text that is longer than max_allowed_packet is null, and not the letter of a null: so is the row's then.
        server = [f"IF({name} IS NULL, 'N', {_part(text.server.format(name), 'LENGTH', text)})" for name, text in found]
        spark = [f"COALESCE({_part(text.spark.format(name), 'octet_length', text)}, 'N')" for name, text in found]
        whole = "CONCAT(" + ", ',', ".join(server) + ")"
        may_be_long = any(column.type in _LONG for column, _ in columns)
        return cls(whole, f"concat_ws(',', {', '.join(spark)})", whole if may_be_long else "*")

    @property
    def server_digest(self) -> str:
        """The fingerprint, as an expression of the server."""
        return f"CAST(CONV(LEFT(SHA2({self.server}, 256), {_HEX_DIGITS}), 16, 10) AS UNSIGNED)"

    @staticmethod
    def spark_digest(text: str) -> str:
        """Return the same of Spark, of a column with the text."""
        return f"CAST(conv(left(sha2(encode({text}, 'UTF-8'), 256), {_HEX_DIGITS}), 16, 10) AS BIGINT)"


def _part(text: str, length: str, texts: _Texts) -> str:
    return f"CONCAT({length}({text}), ':', {text})" if texts.is_free else text


class Fingerprint(NamedTuple):
    """The fingerprint of several rows."""

    rows: int = 0
    sha: int = 0


def totals(digest: str) -> tuple[str, str]:
    """Return the fields of a ``Fingerprint`` as aggregates, in the words of both the server and Spark."""
    return "COUNT(*)", f"BIT_XOR({digest})"


def too_long() -> UnsupportedFormatError:
    """Return the error for a row that has no fingerprint."""
    return UnsupportedFormatError(
        "a row is longer than the server's max_allowed_packet, so that it has no fingerprint. Leave its long "
        "columns out by the option excludeColumns"
    )
