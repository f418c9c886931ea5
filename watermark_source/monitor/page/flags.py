"""Where the texts of vertical lines stand above the picture: none covers another, and none leaves it. Pure.

A page knows no width of its reader's window, so that two layouts are drawn, for ``WIDE`` and ``NARROW`` pixels of text,
and the style sheet shows one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

WIDE: Final = 640
NARROW: Final = 300
_LEVELS: Final = 4
GAP: Final = 5
"""Pixels between a line and its text, and between two texts."""
_CHARACTER: Final = 7.6
"""Pixels of a character of such a text, at most on average."""


class Flag(NamedTuple):
    """A vertical line, and its text."""

    kind: str
    """Its class."""
    share: float
    """Where the line is, from 0 to 1."""
    text: str
    is_line: bool = True
    """``False``: the moment is past the edge, where only its text stands."""


class PlacedFlag(NamedTuple):
    """A flag with its place."""

    flag: Flag
    level: int
    """0 is the highest."""
    is_left: bool
    """Whether the text is left of the line."""


def text_width(text: str) -> float:
    """Return the pixels of a text beside a line, as an estimate that is rather too high."""
    return _CHARACTER * len(text)


def placed(flags: Sequence[Flag], width: int) -> tuple[PlacedFlag, ...]:
    """Return the flags with their places: the first free level, right of the line, or left where it does not fit."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(_LEVELS)]
    return tuple(_place(flag, width, taken) for flag in flags)


def _place(flag: Flag, width: int, taken: list[list[tuple[float, float]]]) -> PlacedFlag:
    x, long = flag.share * width, text_width(flag.text)
    sides = {False: (x + GAP, x + GAP + long), True: (x - GAP - long, x - GAP)}
    for level, used in enumerate(taken):
        for is_left, (begin, end) in sides.items():
            is_within = begin >= 0 and end <= width
            if is_within and all(end + GAP < other or begin > until + GAP for other, until in used):
                used.append((begin, end))
                return PlacedFlag(flag, level, is_left)
    # Wherever it is, it covers another: at the lowest level, on the side with more room.
    return PlacedFlag(flag, _LEVELS - 1, x > width / 2)


def depth(flags: Sequence[PlacedFlag]) -> int:
    """Return how many levels the flags take."""
    return 1 + max((each.level for each in flags), default=-1)
