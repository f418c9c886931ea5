"""Holding back: a batch waits until enough rows are there for it, or until it has waited long enough."""

from __future__ import annotations

from dataclasses import dataclass

from watermark_source.eventtime.watermark import Millis


@dataclass(frozen=True, slots=True)
class Hold:
    """What rows wait for before they are read: ``minOffsetsPerTrigger`` and ``maxTriggerDelay`` of Spark's source."""

    min_rows: int
    max_delay: Millis


def is_held(hold: Hold, waiting: int, since_rows: Millis | None) -> bool:
    """Return whether rows wait for more to come.

    Args:
        hold: the rule.
        waiting: positions that could be read now.
        since_rows: time since a batch last read rows; ``None`` in a process that has read none, whose first rows never
            wait.
    """
    return waiting < hold.min_rows and since_rows is not None and since_rows < hold.max_delay
