"""Items in groups of a limited size, in their order: rows of a task, messages of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")


def grouped(items: Iterable[_Item], size_of: Callable[[_Item], int], most: int) -> Iterator[list[_Item]]:
    """Yield the items in groups that are at most so large together; a larger item is a group by itself."""
    group: list[_Item] = []
    filled = 0
    for item in items:
        size = size_of(item)
        if group and filled + size > most:
            yield group
            group, filled = [], 0
        group.append(item)
        filled += size
    if group:
        yield group
