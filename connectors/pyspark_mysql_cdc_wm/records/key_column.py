"""A column of a primary key: how its values are asked for, kept as bounds of chunks, put in statements, and compared.

A bound's value is a whole number or a text: of a decimal its digits, of bytes their hexadecimal form, of a date or time
the server's own text (in UTC), of text itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from pyspark_mysql_cdc_wm.records.column import BINARY_COLLATION, ColumnType, TableMap, key_names
from watermark_source.errors import OffsetError, shortened

_WHOLE_NUMBERS = frozenset(
    {ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG, ColumnType.YEAR}
)
_STRINGS = frozenset({ColumnType.STRING, ColumnType.VARCHAR})
_TEMPORAL: Mapping[ColumnType, str] = {
    ColumnType.DATE: "DATE",
    ColumnType.DATETIME2: "TIMESTAMP",
    ColumnType.TIMESTAMP2: "TIMESTAMP",
}
"""What a literal of the type begins with."""
_MOST_DIGITS = 100


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of a primary key that rows are ordered by."""

    name: str
    type: ColumnType
    arrow: pa.DataType
    charset: str | None = None
    """Of text; ``None`` of all else."""
    collation: str | None = None
    """How the server sorts text; ``None`` of what sorts everywhere alike."""

    @property
    def can_be_ordered(self) -> bool:
        """Whether chunks can be cut by it."""
        if self.type is ColumnType.NEWDECIMAL:
            return bool(pa.types.is_decimal128(self.arrow))
        return self.type in _WHOLE_NUMBERS or self.type in _STRINGS or self.type in _TEMPORAL

    @property
    def is_binary(self) -> bool:
        """Whether it is of bytes."""
        return self.type in _STRINGS and self.collation is None

    def asked(self, quoted: str) -> str:
        """Return the expression, with its name as statements have it, whose value becomes a bound's."""
        if self.is_binary:
            return f"HEX({quoted})"
        return f"CAST({quoted} AS CHAR)" if self.type in _TEMPORAL else quoted

    def bound_value(self, answer: Any) -> int | str:
        """Return a bound's value for what the server answered."""
        return int(answer) if self.type in _WHOLE_NUMBERS else str(answer)

    def literal(self, value: int | str) -> str:
        """Return a bound's value as statements have it; nothing in it can end the literal.

        Raises:
            OffsetError: it is not one of this column's.
        """
        parsed = self._parsed(value)
        if isinstance(parsed, bytes):
            return f"x'{parsed.hex()}'"
        if isinstance(parsed, date):
            return f"{_TEMPORAL[self.type]}'{parsed}'"
        return text_literal(parsed) if isinstance(parsed, str) else f"{parsed:f}"

    def scalar(self, value: int | str) -> pa.Scalar:
        """Return a bound's value as one of the column's, of which it is known how it sorts.

        Raises:
            OffsetError: it is not one of this column's.
        """
        parsed = self._parsed(value)
        if pa.types.is_timestamp(self.arrow) and self.arrow.tz is not None:
            parsed = parsed.replace(tzinfo=timezone.utc)
        try:
            return pa.scalar(parsed, self.arrow)
        except (ValueError, ArithmeticError, pa.ArrowException):
            raise self._strange(value) from None

    def _parsed(self, value: int | str) -> Any:
        """Return a bound's value as Python has it: a decimal, bytes, a date, a moment without a zone, or text."""
        if isinstance(value, str) is (self.type in _WHOLE_NUMBERS):
            raise self._strange(value)
        try:
            return self._parser(value)
        except (ValueError, ArithmeticError):
            raise self._strange(value) from None

    @property
    def _parser(self) -> Callable[[Any], Any]:
        if self.type in _WHOLE_NUMBERS or self.type is ColumnType.NEWDECIMAL:
            return _number
        if self.type in _TEMPORAL:
            return date.fromisoformat if self.type is ColumnType.DATE else _moment
        return bytes.fromhex if self.is_binary else _encodable

    def _strange(self, value: int | str) -> OffsetError:
        return OffsetError(
            f"the checkpoint has {shortened(repr(value))} as a value of the column {self.name}, which cannot be one of "
            "its type. Was the table altered since? Begin a new query"
        )


def key_column(
    name: str, kind: ColumnType, arrow: pa.DataType, collation: tuple[int, str] | None, charsets: Mapping[int, str]
) -> KeyColumn:
    """Return a column of a primary key; ``collation`` is that of text by number and name."""
    if kind not in _STRINGS or collation is None or collation[0] == BINARY_COLLATION:
        return KeyColumn(name, kind, arrow)
    number, collated = collation
    return KeyColumn(name, kind, arrow, charsets[number], collated)


def logged_key(
    table: TableMap, types: Mapping[str, pa.DataType], charsets: Mapping[int, str], collations: Mapping[int, str]
) -> tuple[KeyColumn, ...]:
    """Return the columns of a table's primary key as the binlog describes it; ``collations`` has names by number."""
    columns = {str(column.name): column for column in table.columns}

    def described(name: str) -> KeyColumn:
        number = columns[name].collation
        collated = None if number is None or number not in collations else (number, collations[number])
        return key_column(name, columns[name].type, types[name], collated, charsets)

    return tuple(described(name) for name in key_names(table))


def text_literal(text: str) -> str:
    """Return a text as statements have it, whatever is in it and whatever the server takes for an escape."""
    return f"_utf8mb4 x'{text.encode().hex()}'"


def _number(value: int | str) -> Decimal:
    number = Decimal(value)
    # A checkpoint may hold anything, and an exponent can mean more digits than there is memory.
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError(value)
    return number


def _encodable(text: str) -> str:
    text.encode()
    return text


def _moment(text: str) -> datetime:
    # Of any number of digits, which fromisoformat takes since Python 3.11.
    whole, _, fraction = text.partition(".")
    return datetime.fromisoformat(whole).replace(microsecond=int(fraction.ljust(6, "0")))
