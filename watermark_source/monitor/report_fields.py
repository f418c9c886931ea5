"""Fields of a status report: typed access to a JSON object, with errors that name the path. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

from watermark_source.errors import UsageError

_Word = TypeVar("_Word", bound=Enum)


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

    def _typed(self, key: str, kind: type, expected: str) -> Any:
        value = self._values.get(key)
        # JSON's true is an int to Python.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._refuse(key, expected)
        return value

    def integer(self, key: str) -> int:
        """Return a whole number."""
        value: int = self._typed(key, int, "an integer")
        return value

    def optional_integer(self, key: str) -> int | None:
        """Return a whole number, ``None`` without the key."""
        return None if self._values.get(key) is None else self.integer(key)

    def text(self, key: str) -> str:
        """Return a string."""
        value: str = self._typed(key, str, "a string")
        return value

    def optional_text(self, key: str) -> str | None:
        """Return a string, ``None`` without the key."""
        return None if self._values.get(key) is None else self.text(key)

    def flag(self, key: str) -> bool:
        """Return a boolean, false without the key."""
        return key in self._values and bool(self._typed(key, bool, "true or false"))

    def child(self, key: str) -> Fields:
        """Return the fields of a nested object."""
        return Fields(self._typed(key, Mapping, "an object"), f"{self._path}{key}.")

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
