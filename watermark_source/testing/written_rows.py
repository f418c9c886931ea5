"""Rows that a check writes: numbered, in no order of time, and known again wherever they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watermark_source.testing.harness import Ability, Harness, Row

START = 1_699_999_980_000
"""A whole minute, in milliseconds."""
_OF_A_SPLIT = 1_000_000
Written = Mapping[int, Sequence[Row]]


def splits_of(harness: Harness) -> range:
    """Return the numbers of the splits that a check writes to."""
    return range(2 if Ability.SEVERAL_SPLITS in harness.abilities else 1)


def numbered(split: int, count: int, *, first: int = 0) -> list[Row]:
    """Return rows of which each tenth is later than the ones after it."""
    numbers = range(first, first + count)
    return [Row(START + 1_000 * (n + (15 if n % 10 == 5 else 0)), split * _OF_A_SPLIT + n) for n in numbers]


def write(harness: Harness, count: int = 20, *, first: int = 0) -> Written:
    """Write numbered rows to every split, and return them."""
    written = {split: numbered(split, count, first=first) for split in splits_of(harness)}
    for split, rows in written.items():
        harness.write(split, rows)
    return written


def values(*written: Written) -> list[int]:
    """Return the values of rows, in order."""
    return sorted(row.value for each in written for rows in each.values() for row in rows)
