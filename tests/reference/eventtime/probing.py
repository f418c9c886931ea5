"""Probe schedule: when generators are asked for their watermark."""

from __future__ import annotations

from dataclasses import dataclass, replace

from watermark_source.errors import UsageError


@dataclass(frozen=True, slots=True)
class ProbeSchedule:
    """Probes at a fixed delay of ``interval`` ms. Interval 0 turns probing off, and idle timers with it."""

    interval: int
    due: int | None
    """Moment of the next probe; None when there will be none."""


def probing(interval: int, now: int) -> ProbeSchedule:
    """Return a schedule whose first probe comes one interval after ``now``."""
    if interval < 0:
        raise UsageError(f"watermark interval is {interval} ms; it must not be negative, for example 200, or 0 for off")
    return ProbeSchedule(interval, now + interval if interval else None)


def probed(schedule: ProbeSchedule, now: int) -> ProbeSchedule:
    """Return the schedule after a probe at ``now``."""
    return replace(schedule, due=now + schedule.interval if schedule.interval else None)
