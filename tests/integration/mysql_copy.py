"""A table kept by a query's changes: what it is in the end, and what contradicted it on the way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

Rows = Iterable[tuple[Any, ...]]
"""Version, number, type, then the row, its key first; in order."""


class Copy(NamedTuple):
    """The table, by key."""

    table: dict[Any, tuple[Any, ...]]
    lost: int
    doubled: int


def copy_of(rows: Rows) -> Copy:
    """Apply changes one after another."""
    table: dict[Any, tuple[Any, ...]] = {}
    lost = doubled = 0
    # An update is its row before and after, in this order, and one place after another.
    for _, _, kind, *row in rows:
        known = table.get(row[0])
        if kind == "insert":
            doubled += known is not None
        elif kind != "update_postimage":
            lost += known != tuple(row)
        if kind == "delete":
            table.pop(row[0], None)
        else:
            table[row[0]] = tuple(row)
    return Copy(table, lost, doubled)
