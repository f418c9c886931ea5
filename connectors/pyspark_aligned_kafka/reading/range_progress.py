"""Progress of a read: the position of each range, the ranges of the next fetch, and the patience without progress."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from watermark_source.planning.split import Split, SplitRange

_UNKNOWN_DENSITY = 256.0
_SPARE = 1.1
_SMALLEST_FETCH = 64 * 1024
_MOST_PARTITIONS = 500


class Pending(NamedTuple):
    """A range whose rows before ``position`` have been delivered."""

    range: SplitRange
    position: int
    newest: int | None = None
    """The epoch of the range's last record; ``None`` if it is not known. A later one is of records that were written
    in place of those that were planned."""

    @property
    def split(self) -> Split:
        """The range's split."""
        return self.range.split

    @property
    def left(self) -> int:
        """Number of unread offsets."""
        return self.range.end - self.position

    def at(self, position: int) -> Pending:
        """Return the range at a later position; a position never decreases."""
        return self._replace(position=max(position, self.position))


Densities = Mapping[str, float]
"""Bytes of an offset on the wire, by topic, learned from responses."""


def fetch_bytes(pending: Pending, densities: Densities, most: int) -> int:
    """Return how many bytes to request so that the broker sends little beyond the range's end."""
    return min(most, _SMALLEST_FETCH + int(_SPARE * _expected_bytes(pending, densities)))


def next_group(
    pending: Sequence[Pending], nodes: Mapping[Split, int], densities: Densities, most: int
) -> list[Pending]:
    """Return the ranges to fetch together from one broker: the first range, and if it is small the other small ones.

    Small ranges in one request cost one round trip. Large ranges are fetched one by one, so that the bytes of a
    partition arrive in long stretches. A group has each split once.
    """
    first = pending[0]
    if _expected_bytes(first, densities) > most:
        return [first]
    group: dict[Split, Pending] = {}
    total = 0.0
    for candidate in pending:
        size = _expected_bytes(candidate, densities)
        if candidate.split in group or nodes.get(candidate.split) != nodes.get(first.split) or total + size > most:
            continue
        total += size
        group[candidate.split] = candidate
        if len(group) == _MOST_PARTITIONS:
            break
    return list(group.values())


def starved_first(before: Iterable[Pending], after: Iterable[Pending]) -> list[Pending]:
    """Order the unfinished ranges so that those without new records come first.

    A broker fills a response in the request's order, and sends a batch larger than the limits only for the first
    partition (KIP-74). Without the new order all others would wait until the first one is done.
    """
    positions = {pending.range: pending.position for pending in before}
    return sorted(after, key=lambda pending: positions.get(pending.range) != pending.position)


def unfinished(pending: Iterable[Pending]) -> list[Pending]:
    """Return the ranges that are not read to their end."""
    return [p for p in pending if p.left > 0]


def learned(densities: Densities, topic: str, size: int, offsets: int) -> dict[str, float]:
    """Return the densities with one more observation, which counts for half."""
    if offsets <= 0:
        return dict(densities)
    seen = size / offsets
    return {**densities, topic: (densities.get(topic, seen) + seen) / 2}


def _expected_bytes(pending: Pending, densities: Densities) -> float:
    return pending.left * densities.get(pending.split.log, _UNKNOWN_DENSITY)


_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)


class Patience:
    """The time that a read has waited for the cluster since a position last advanced, without the consumer's time."""

    __slots__ = ("_pauses", "checked_at_s", "limit_s", "spent_s")

    def __init__(self, limit_ms: int) -> None:
        self.limit_s = limit_ms / 1000
        self.reset()

    def reset(self) -> None:
        """Restart after a position has advanced."""
        self.spent_s = 0.0
        self.checked_at_s = 0.0
        """The time spent when the log's bounds were last requested."""
        self._pauses = 0

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.limit_s - self.spent_s)

    @property
    def left_ms(self) -> int:
        """Milliseconds left, at least 1: for sockets a time limit of zero means non-blocking."""
        return max(1, int(self.left_s * 1000))

    @property
    def over(self) -> bool:
        """Whether no time is left."""
        return self.left_s == 0.0

    def spend(self, begun: float) -> None:
        """Add the time since ``begun``, in seconds of the monotonic clock."""
        self.spent_s += time.monotonic() - begun

    def pause(self) -> None:
        """Wait before the next attempt, longer each time."""
        begun = time.monotonic()
        time.sleep(min(_PAUSES_S[min(self._pauses, len(_PAUSES_S) - 1)], self.left_s))
        self._pauses += 1
        self.spend(begun)
