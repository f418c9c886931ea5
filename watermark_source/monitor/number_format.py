"""PURE. Numbers for people."""

from __future__ import annotations


def count_text(n: int) -> str:
    """Return a whole number with its thousands set apart."""
    return f"{n:,}".replace(",", " ")


def share_text(share: float) -> str:
    """Return a share in percent."""
    if not share:
        return "0 %"
    return "< 0.01 %" if share < 0.0001 else f"{100 * share:.3g} %"
