"""Numbers that compiled code returns, each with what it means."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class Worded(IntEnum):
    """Members are numbers, or a number and its text."""

    text: str
    """What it means, for a message; empty for a number that no user sees."""

    def __new__(cls, number: int, text: str = "") -> Self:
        """Make a member of its number and its text."""
        made = int.__new__(cls, number)
        made._value_ = number
        made.text = text
        return made
