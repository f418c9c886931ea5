"""Sampling buffer: a watermark is judged by its value some update intervals ago (FLINK-37399)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from watermark_source.eventtime.watermark import MIN, Millis


@dataclass(frozen=True, slots=True)
class Samples:
    """The latest value and, oldest first, those of the last update intervals; without a ring the latest is judged."""

    ring: tuple[Millis, ...] = ()
    latest: Millis = MIN

    @property
    def oldest(self) -> Millis:
        """The value that is compared with the limit."""
        return self.ring[0] if self.ring else self.latest


def samples(size: int) -> Samples:
    """Return a buffer of ``size`` samples; 0 judges at once, as an announcement without delay allows."""
    return Samples((MIN,) * size)


def add(state: Samples, value: Millis) -> Samples:
    """Take the latest value."""
    return replace(state, latest=value)


def sample(state: Samples) -> Samples:
    """Push the latest value at an update interval; the oldest falls out."""
    return replace(state, ring=(*state.ring[1:], state.latest)) if state.ring else state
