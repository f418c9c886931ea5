"""Columns in the text of a plan, in which Spark gives each a number, the same from its source to the last operator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_NUMBERED = r"(?P<name>.+)#(?P<number>\d+)L?(?:-T\d+ms)?"
COLUMN = re.compile(_NUMBERED)
ALIAS = re.compile(rf"(?P<of>.*) AS {_NUMBERED}", re.DOTALL)
CAST = re.compile(r"cast\((?P<of>.*) as [\w(),]+\)")
WATERMARK = re.compile(rf"\S+, {_NUMBERED}: timestamp, (?P<delay>.*)")
_MOVED = re.compile(r"(?P<of>.*#\d+(?:-T\d+ms)?) [+-] INTERVAL '[^']*' [A-Z ]+")
"""A time moved by an interval that is the same for all rows."""
_NUMBER = re.compile(r"#(\d+)L?(?:-T\d+ms)?")
_LISTED = re.compile(r"(?P<name>.+?)#(?P<number>\d+)L?(?:-T\d+ms)?(?:, ?|$)", re.DOTALL)
_FUNCTION = re.compile(r"(\w+)\(")
_STEADY = frozenset(
    (
        *("bigint", "cast", "char", "decimal", "int", "varchar"),
        *("abs", "coalesce", "hash", "if", "isnotnull", "isnull", "pmod", "xxhash64"),
        *("concat", "contains", "endswith", "length", "like", "lower", "ltrim", "rtrim", "startswith", "substring"),
        *("trim", "upper"),
    )
)
"""Functions, and types with parameters, that are known to give the same answer for the same row in each batch."""


class NumberedColumn(NamedTuple):
    """A column of a plan."""

    name: str
    number: int


def listed_columns(text: str) -> tuple[NumberedColumn, ...]:
    """Return the columns of the last list in brackets that has nothing else; names may have commas and parentheses."""
    for listed in reversed(re.findall(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", text)):
        found = list(_LISTED.finditer(listed))
        if found and found[-1].end() == len(listed):
            return tuple(map(_column, found))
    return ()


def projected(text: str) -> tuple[tuple[NumberedColumn, ...], Mapping[int, str]]:
    """Return the columns of a projection's list, and what those are made of that are not in its input."""
    columns: list[NumberedColumn] = []
    made: dict[int, str] = {}
    for entry in split(text.removeprefix("[").removesuffix("]"), ", "):
        if (found := ALIAS.fullmatch(entry)) is not None:
            made[int(found["number"])] = found["of"]
        else:
            found = COLUMN.fullmatch(entry)
        if found is not None:
            columns.append(_column(found))
    return tuple(columns), made


def _column(found: re.Match[str]) -> NumberedColumn:
    return NumberedColumn(found["name"], int(found["number"]))


def column_of(text: str) -> int | None:
    """Return the number of the column that an expression is, or is a cast of."""
    while (within := CAST.fullmatch(text)) is not None:
        text = within["of"]
    found = re.fullmatch(r"[^()#]+#(\d+)L?(?:-T\d+ms)?", text)
    return None if found is None else int(found[1])


def time_of(text: str) -> int | None:
    """Return the number of the time that an expression is, casts, or moves by the same interval in all rows."""
    while (within := CAST.fullmatch(text) or _MOVED.fullmatch(text)) is not None:
        text = within["of"]
    return column_of(text)


def numbers_in(text: str) -> frozenset[int]:
    """Return the columns that an expression reads, and those of the plans in it."""
    return frozenset(map(int, _NUMBER.findall(text)))


def is_steady(text: str) -> bool:
    """Return whether an expression is known to have the same value for the same row in each batch."""
    return {name.lower() for name in _FUNCTION.findall(text)} <= _STEADY


def without_numbers(text: str) -> str:
    """Return an expression as a user writes it, except texts, which Spark shows without their quotes."""
    return _NUMBER.sub("", text)


def split(text: str, between: str) -> Iterator[str]:
    """Yield the parts of a text between a separator that is in no parentheses or brackets."""
    depth = begin = 0
    for at, character in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if depth == 0 and text.startswith(between, at):
            yield text[begin:at]
            begin = at + len(between)
    yield text[begin:]
