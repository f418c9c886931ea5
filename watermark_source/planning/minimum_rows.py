"""Minimum rows: a batch waits until enough rows are there for it, or until it has waited long enough."""

from __future__ import annotations

from dataclasses import dataclass

from watermark_source.eventtime.watermark import Millis


@dataclass(frozen=True, slots=True)
class MinimumRows:
    """What rows wait for before they are read: ``minOffsetsPerTrigger`` and ``maxTriggerDelay`` of Spark's source."""

    rows: int
    max_delay: Millis


def waits_for_more(minimum: MinimumRows, waiting: int, since_rows: Millis | None) -> bool:
    """Return whether rows wait for more to come.

    Args:
        minimum: the rule.
        waiting: positions that could be read now.
        since_rows: time since a batch last read rows; ``None`` in a process that has read none, whose first rows never
            wait.
    """
    return waiting < minimum.rows and since_rows is not None and since_rows < minimum.max_delay
