"""A column that rows are ordered by: how its values are asked for, kept as bounds, put in statements, and compared.

It is of the primary key, or it is the one that the user chose for cutting a table into chunks.

A bound's value is a whole number or a text: of decimals and floating point numbers the digits, of bytes their
hexadecimal form, of a date or time the server's own text (in UTC), of text itself; of ENUM, SET and BIT the number that
they sort by.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_mysql_cdc_wm.binlog.character_sets import first_codes_alone, has_second_codes, text_of_several
from pyspark_mysql_cdc_wm.records.arrow_types import FLOATS, WHOLE_NUMBERS
from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, Column, ColumnType
from watermark_source.errors import OffsetError, UnsupportedFormatError, shortened

_NUMBERED = frozenset({ColumnType.ENUM, ColumnType.SET, ColumnType.BIT})
"""What sorts by a whole number that is not shown: of a label, of some labels, of bits."""
_STRINGS = frozenset({ColumnType.STRING, ColumnType.VARCHAR})
_TIME_TEXT = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?")
_DAY_TEXT = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT_TEXT = re.compile(_DAY_TEXT.pattern + r" \d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_NO_DATE = re.compile(r"0000-00-00( 00:00:00(\.0+)?)?")
_DATES = frozenset({ColumnType.DATE, ColumnType.DATETIME2, ColumnType.TIMESTAMP2})
_TEMPORAL: Mapping[ColumnType, str] = {
    ColumnType.DATE: "DATE",
    ColumnType.TIME2: "TIME",
    ColumnType.DATETIME2: "TIMESTAMP",
    ColumnType.TIMESTAMP2: "TIMESTAMP",
}
"""What a literal of the type begins with."""
_MOST_DIGITS = 100


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One of the columns that the chunks of a table are ranges of."""

    name: str
    type: ColumnType
    arrow: pa.DataType
    charset: str | None = None
    """Of text; ``None`` of all else."""
    collation: str | None = None
    """How the server sorts text; ``None`` of what sorts everywhere alike."""
    labels: tuple[str, ...] | None = None
    """Of ENUM and SET where they are known: they sort by where in here a label is."""
    choices: int | None = None
    """How many labels an ENUM has."""
    size: int = 0
    """Bytes of a BIT."""
    chosen: bool = False
    """By the user, instead of the key: rows may share a value."""
    nullable: bool = False
    ambiguous: bool = False
    """Of an ENUM that lists the empty text, which a value that is none of its labels shows too; of ENUM and SET whose
    labels are several codes of one text."""

    @property
    def can_be_ordered(self) -> bool:
        """Whether chunks can be cut by it."""
        if self.type is ColumnType.NEWDECIMAL:
            return bool(pa.types.is_decimal128(self.arrow))
        return any(self.type in kinds for kinds in _ORDERED) and not self.ambiguous

    @property
    def is_whole(self) -> bool:
        """Whether its bounds are whole numbers."""
        return self.type in WHOLE_NUMBERS or self.type in _NUMBERED

    @property
    def is_binary(self) -> bool:
        """Whether it is of bytes."""
        return self.type in _STRINGS and self.collation is None

    def selected(self, quoted: str) -> str:
        """Return the expression, with its name as statements have it, whose value becomes a bound's."""
        if self.is_binary:
            return f"HEX({quoted})"
        if self.type in _NUMBERED:
            return f"CAST({quoted} AS UNSIGNED)"
        if self.type in FLOATS:
            # As eight bytes, of which all digits are shown, whatever FLOAT(M,D) shows.
            return f"{quoted} + 0e0"
        return f"CAST({quoted} AS CHAR)" if self.type in _TEMPORAL else self.told_apart(quoted)

    def told_apart(self, quoted: str) -> str:
        """Return the expression for the column as a key, with its name as statements have it.

        It is NULL for a text that a stream does not distinguish from others.
        """
        if self.charset is None or not has_second_codes(self.charset):
            return quoted
        return first_codes_alone(quoted, self.charset)

    def bound_value(self, answer: Any) -> int | str:
        """Return a bound's value for what the server answered.

        Raises:
            UnsupportedFormatError: it has no value of its own in a stream.
        """
        if answer is None and self.charset is not None:
            raise text_of_several(self.charset)
        if self.type in _DATES:
            try:
                self._parser(answer)
            except ValueError:
                check_zero_date(str(answer))
        return int(answer) if self.is_whole else str(answer)

    def compared(self, quoted: str, sign: str, value: int | str) -> str:
        """Return how statements compare the column, with its name as they have it, with a bound's value.

        Raises:
            OffsetError: it is not one of this column's.
        """
        if self.type is ColumnType.SET:
            # Unchanged, the highest of 64 bits would be read as a sign.
            return f"{self.selected(quoted)} {sign} {self.literal(value)}"
        if self.type is not ColumnType.ENUM or self.choices is None or sign == "=":
            return f"{quoted} {sign} {self.literal(value)}"
        # Of ENUM servers look up in an index what is equal, and nothing else.
        limit = self.number(value)
        within = range(limit) if sign == "<" else range(limit + (sign == ">"), self.choices + 1)
        return f"{quoted} IN ({', '.join(map(str, within))})" if within else "FALSE"

    def number(self, value: int | str) -> int:
        """Return a bound's value as the number that ENUM and SET sort by.

        Raises:
            OffsetError: it is not one of this column's.
        """
        if not isinstance(value, int) or not 0 <= value < 2**64:
            raise self._strange(value)
        return value

    def literal(self, value: int | str) -> str:
        """Return a bound's value as statements have it; nothing in it can end the literal.

        Raises:
            OffsetError: it is not one of this column's.
        """
        parsed = self._parsed(value)
        if parsed is None or self.type in _NUMBERED:
            # What a strict sql_mode refuses as a date it takes as a number.
            return "0" if parsed is None else str(self.number(value))
        if isinstance(parsed, bytes):
            return f"x'{parsed.hex()}'"
        if isinstance(parsed, float):
            # With an exponent it is no decimal.
            return repr(parsed) if "e" in repr(parsed) else f"{parsed!r}e0"
        if isinstance(parsed, timedelta):
            return f"TIME'{value}'"
        if isinstance(parsed, np.datetime64):
            return f"{_TEMPORAL[self.type]}'{value}'"
        return text_literal(parsed) if isinstance(parsed, str) else f"{parsed:f}"

    def scalar(self, value: int | str) -> pa.Scalar:
        """Return a bound's value as one of the column's, of which it is known how it sorts; null for ``0000-00-00``.

        Raises:
            OffsetError: it is not one of this column's.
        """
        parsed = self._parsed(value)
        try:
            if isinstance(parsed, np.datetime64):
                # Days, or microseconds; a moment without a zone is taken to be in UTC.
                count, wide = int(parsed.astype(np.int64)), not pa.types.is_date32(self.arrow)
                return pa.array([count], pa.int64() if wide else pa.int32()).view(self.arrow)[0]
            return pa.scalar(parsed, self.arrow)
        except (ValueError, ArithmeticError, pa.ArrowException):
            raise self._strange(value) from None

    def _parsed(self, value: int | str) -> Any:
        """Return a bound's value as Python has it, of the kind that a value in Arrow has; a moment without a zone."""
        if isinstance(value, str) is self.is_whole:
            raise self._strange(value)
        if self.type in _DATES and _NO_DATE.fullmatch(str(value)):
            return None
        try:
            return self._parser(value)
        except (ValueError, ArithmeticError):
            raise self._strange(value) from None

    @property
    def _parser(self) -> Callable[[Any], Any]:
        if self.type in _PARSERS:
            return _PARSERS[self.type]
        if self.type is ColumnType.BIT:
            return bool if self.size == 1 and pa.types.is_boolean(self.arrow) else self._bits
        return bytes.fromhex if self.is_binary else _encodable

    def _bits(self, value: int) -> bytes:
        try:
            return value.to_bytes(self.size, "big")
        except OverflowError:
            raise ValueError(value) from None

    def _strange(self, value: int | str) -> OffsetError:
        return OffsetError(
            f"the checkpoint has {shortened(repr(value))} as a value of the column {self.name}, which cannot be one of "
            "its type. Was the table altered since? Begin a new query"
        )


def key_column(
    column: Column,
    arrow: pa.DataType,
    charsets: Mapping[int, str],
    collations: Mapping[int, str],
    labels: tuple[str, ...] | None = None,
) -> KeyColumn:
    """Return a column to order rows by; character sets and names of collations are by the number of a collation."""
    name, number = str(column.name), column.collation
    if column.type in _NUMBERED:
        # A server describes characters beyond U+FFFF as ?, whatever they are.
        texts = [label for label in labels or () if "?" not in label]
        ambiguous = (column.type is ColumnType.ENUM and b"" in (column.labels or ())) or len({*texts}) < len(texts)
        choices = None if column.labels is None else len(column.labels)
        return KeyColumn(
            name, column.type, arrow, labels=labels, choices=choices, size=column.size, nullable=column.nullable,
            ambiguous=ambiguous,
        )  # fmt: skip
    if column.type not in _STRINGS or number is None or number == BINARY_COLLATION or number not in collations:
        return KeyColumn(name, column.type, arrow, nullable=column.nullable)
    return KeyColumn(name, column.type, arrow, charsets[number], collations[number], nullable=column.nullable)


def comparable(values: pa.Array) -> pa.Array:
    """Return values of a key as what Arrow can compare and join: a SET as one text, since no label has a comma."""
    if not pa.types.is_list(values.type):
        return values
    # A label may be empty.
    count = pc.list_value_length(values).cast(pa.string())
    return pc.binary_join_element_wise(count, pc.binary_join(values, ","), ",")


def check_zero_date(text: str) -> None:
    """Check a date of a key, which is none and so is null in a stream: only one such key is distinguished.

    Raises:
        UnsupportedFormatError: it is not zero throughout.
    """
    if not _NO_DATE.fullmatch(text):
        raise UnsupportedFormatError(
            f"a key of {text}, which is not a calendar date: such keys are null in a stream, and do not distinguish "
            "rows. Give such rows a date on the server and begin a new query, or leave the table out of the option "
            "tables"
        )


def text_literal(text: str) -> str:
    """Return a literal of a text for statements, whatever escapes the server accepts."""
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


def _calendar(text: str, *, form: re.Pattern[str], unit: Literal["D", "us"]) -> np.datetime64:
    """Return a date or a moment. Of NumPy, not of Python: the server has a year 0."""
    if not form.fullmatch(text):
        raise ValueError(text)
    return np.datetime64(text, unit)


def _time(text: str) -> timedelta:
    found = _TIME_TEXT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, hours, minutes, seconds, fraction = found.groups("")
    micros = int(fraction.ljust(6, "0"))
    size = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds), microseconds=micros)
    return -size if sign else size


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_ORDERED = (WHOLE_NUMBERS, _NUMBERED, FLOATS, _STRINGS, _TEMPORAL)
_PARSERS: Mapping[ColumnType, Callable[[Any], Any]] = {
    **dict.fromkeys((*WHOLE_NUMBERS, ColumnType.NEWDECIMAL, ColumnType.ENUM, ColumnType.SET), _number),
    **dict.fromkeys(FLOATS, _float),
    ColumnType.DATE: partial(_calendar, form=_DAY_TEXT, unit="D"),
    ColumnType.TIME2: _time,
    **dict.fromkeys((ColumnType.DATETIME2, ColumnType.TIMESTAMP2), partial(_calendar, form=_MOMENT_TEXT, unit="us")),
}
