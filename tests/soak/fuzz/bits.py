"""Choices taken from the bytes of an input, one after another; when they run out, the choice is the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


class Bits:
    """What is left of an input."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        """Take a byte."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def one_of(self, choices: Sequence[_T]) -> _T:
        """Take a byte and return what it chooses."""
        return choices[self.byte() % len(choices)]

    def some(self) -> bytes:
        """Take a byte and as many bytes as it states."""
        size = self.byte()
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self) -> bytes:
        """Take all that is left."""
        begin, self._at = self._at, len(self._data)
        return self._data[begin:]

    def text(self) -> str:
        """Take some bytes as text."""
        return self.some().decode("utf-8", "surrogateescape")
