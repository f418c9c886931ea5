"""Values of plain classes as JSON objects, and back: a field is a key, and one that has its default is left out. Pure.

Keys are the fields' names as JSON writes them (``holds_back``: ``holdsBack``), except those in ``_KEYS``.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from watermark_source.errors import UsageError

_Word = TypeVar("_Word", bound=Enum)
_Made = TypeVar("_Made")

_KEYS: Final = {
    "format_name": "format",
    "source_name": "source",
    "is_older": "older",
    "is_last": "last",
    "is_waited_for": "waited",
    "was_waited_for": "waited",
    "looked_ahead": "ahead",
    "late_rows": "late",
}


class _Field(NamedTuple):
    name: str
    key: str
    kind: Any
    """Without ``None``."""
    default: Any
    """``dataclasses.MISSING`` where a value is needed."""


@cache
def _fields_of(kind: Any) -> tuple[_Field, ...]:
    """Return the fields of a dataclass or a named tuple, except those that are not part of its equality."""
    if dataclasses.is_dataclass(kind):
        defaults = {field.name: field.default for field in dataclasses.fields(kind) if field.compare}
    else:
        defaults = dict.fromkeys(kind._fields, dataclasses.MISSING) | kind._field_defaults
    hints = get_type_hints(kind)
    return tuple(_field(name, hints[name], default) for name, default in defaults.items())


def _field(name: str, hint: Any, default: Any) -> _Field:
    first, *rest = name.split("_")
    key = _KEYS.get(name, first + "".join(word.capitalize() for word in rest))
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (each for each in get_args(hint) if each is not types.NoneType)
        default = None if default is dataclasses.MISSING else default
    return _Field(name, key, getattr(hint, "__supertype__", hint), default)


def to_json(of: Any, *leave_out: str) -> dict[str, Any]:
    """Return a value of a dataclass or a named tuple, without the fields to leave out and without nulls."""
    kind: Any = type(of)
    values = ((field, getattr(of, field.name)) for field in _fields_of(kind) if field.name not in leave_out)
    return {field.key: _plain(value) for field, value in values if value is not False and value != field.default}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        return to_json(value)
    return {str(at): _plain(each) for at, each in enumerate(value)} if isinstance(value, tuple) else value


def from_json(kind: type[_Made], fields: Fields, **given: Any) -> _Made:
    """Read what ``to_json`` wrote; ``given`` are the fields that it left out."""
    of: Any = kind
    known = (field for field in _fields_of(of) if field.name not in given)
    return kind(**given, **{field.name: _read(field, fields) for field in known})


def _read(field: _Field, fields: Fields) -> Any:
    kind, key = field.kind, field.key
    if key not in fields and kind is not bool and field.default is not dataclasses.MISSING:
        return field.default
    if kind in _PLAIN:
        return _PLAIN[kind](fields, key)
    if get_origin(kind) is tuple:
        numbers = fields.child(key)
        return tuple(from_json(get_args(kind)[0], numbers.child(number)) for number in numbers)
    if issubclass(kind, Enum):
        return fields.word(key, fields.text(key), kind)
    return from_json(kind, fields.child(key))


class Fields:
    """A JSON object and its path in the report. Every method raises ``UsageError`` for a value of another type."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def _refuse(self, key: str, expected: str) -> UsageError:
        return UsageError(
            f"status report: {self._path}{key} = {self._values.get(key)!r}; expected {expected}. "
            "Only what a source of this project reported can be read"
        )

    def _typed(self, key: str, kind: type[_Made], expected: str) -> _Made:
        value = self._values.get(key)
        # JSON's true is an int to Python.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._refuse(key, expected)
        return value

    def integer(self, key: str) -> int:
        """Return a whole number."""
        return self._typed(key, int, "an integer")

    def optional_integer(self, key: str) -> int | None:
        """Return a whole number, ``None`` without the key."""
        return None if self._values.get(key) is None else self.integer(key)

    def text(self, key: str) -> str:
        """Return a string."""
        return self._typed(key, str, "a string")

    def flag(self, key: str) -> bool:
        """Return a boolean, false without the key."""
        return key in self._values and self._typed(key, bool, "true or false")

    def child(self, key: str) -> Fields:
        """Return the fields of a nested object."""
        values = self._typed(key, Mapping, "an object")  # type: ignore[type-abstract]
        return Fields(values, f"{self._path}{key}.")

    def number(self, key: str) -> int:
        """Return the key itself as a split's number."""
        if not (key.isascii() and key.isdigit()):
            raise self._refuse(key, "a split's number as key")
        return int(key)

    def word(self, key: str, text: str, kind: type[_Word]) -> _Word:
        """Return the member of an enum with the value ``text``, which is the key or its value."""
        try:
            return kind(text)
        except ValueError:
            raise self._refuse(key, f"one of {', '.join(str(member.value) for member in kind)}") from None


_PLAIN: Final = {int: Fields.integer, str: Fields.text, bool: Fields.flag}
