"""Positions as a user names them become offsets, with injected look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Protocol

from pyspark_aligned_kafka.options.positions import (
    At,
    AtTime,
    Earliest,
    Latest,
    NoMatch,
    Position,
    PositionPolicy,
    Settled,
)
from watermark_source.errors import OptionError, listed
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis


class PositionLookup(Protocol):
    """The look-ups a policy may need."""

    def earliest(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's first retained offset."""
        ...

    def latest(self, splits: Set[Split]) -> Mapping[Split, int]:
        """Return each split's end offset."""
        ...

    def at_time(self, wanted: Mapping[Split, Millis]) -> Mapping[Split, int | None]:
        """Return the first offset with a timestamp at or after the one wanted, or ``None``."""
        ...


def settle(policy: PositionPolicy, chosen: Mapping[Split, Position], lookup: PositionLookup) -> dict[Split, Settled]:
    """Return the positions with timestamps looked up.

    Raises:
        OptionError: no record is as new as a timestamp, and the policy has no other place to go.
    """
    settled = {split: position for split, position in chosen.items() if not isinstance(position, AtTime)}
    times = {split: position.millis for split, position in chosen.items() if isinstance(position, AtTime)}
    found = lookup.at_time(times) if times else {}
    unmatched = {split for split, offset in found.items() if offset is None}
    if unmatched and policy.no_match is NoMatch.ERROR:
        raise OptionError(
            policy.option,
            policy.text,
            f"no record is that new in {listed(unmatched)}; take an earlier time, or, as a partition without records "
            "has none of any time, begin there at the end with startingOffsetsByTimestampStrategy",
            example='startingOffsetsByTimestampStrategy = "latest"',
        )
    return {**settled, **{split: Latest() if offset is None else At(offset) for split, offset in found.items()}}


def offsets_of(settled: Mapping[Split, Settled], lookup: PositionLookup) -> dict[Split, int]:
    """Return each split's offset as it is now; splits that are gone are left out."""
    offsets = {split: position.offset for split, position in settled.items() if isinstance(position, At)}
    offsets.update(_look_up(lookup.earliest, (s for s, position in settled.items() if isinstance(position, Earliest))))
    offsets.update(_look_up(lookup.latest, (s for s, position in settled.items() if isinstance(position, Latest))))
    return offsets


def _look_up(lookup: Callable[[Set[Split]], Mapping[Split, int]], splits: Iterable[Split]) -> Mapping[Split, int]:
    wanted = frozenset(splits)
    return lookup(wanted) if wanted else {}
