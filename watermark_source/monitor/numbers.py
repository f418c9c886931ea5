"""PURE. Whole numbers for people."""

from __future__ import annotations


def count_text(n: int) -> str:
    """Return a whole number with its thousands set apart."""
    return f"{n:,}".replace(",", " ")
