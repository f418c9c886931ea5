"""Whole numbers as users write them in options."""

from __future__ import annotations

import re

_INTEGER = re.compile(r"[+-]?[0-9]+")


def integer(text: str, *, minimum: int) -> int:
    """Return the number.

    Raises:
        ValueError: it is none, or less than ``minimum``.
    """
    if _INTEGER.fullmatch(text.strip()) is None:
        raise ValueError("not a whole number")
    value = int(text)
    if value < minimum:
        raise ValueError(f"must be at least {minimum}")
    return value
