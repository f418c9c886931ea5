"""Watermark strategies: how a split's watermark follows what its ranges say. Generators over range summaries.

A generator has no memory of its own: the split's watermark is the highest candidate so far, which is Flink's output
rule. In Flink a generator sees each record (``onEvent``); a range of one record says the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from watermark_source.eventtime.summary import RangeSummary
from watermark_source.eventtime.watermark import MIN, Millis, saturating_add


def candidate(max_event_time: Millis | None, bound: int) -> Millis:
    """Return the watermark of bounded out-of-orderness: the highest event time less ``bound`` ms and one more.

    The one is there because an event with the same time may still follow. ``MIN`` before the first event, and never
    less; never ``MAX``, which only the end of a stream may say.
    """
    return MIN if max_event_time is None else saturating_add(max_event_time, -bound - 1)


class Generator(Protocol):
    """A strategy for one split."""

    def on_range(self, summary: RangeSummary) -> Millis | None:
        """Return the watermark that a range leads to, ``None`` if it says nothing; it may be behind an earlier one."""
        ...


@dataclass(frozen=True, slots=True)
class BoundedOutOfOrderness:
    """Follows the highest event time at a distance of ``bound`` ms; a bound of 0 is the monotonous strategy."""

    bound: int

    def on_range(self, summary: RangeSummary) -> Millis | None:
        """Return ``candidate`` of the highest event time."""
        return None if summary.highest is None else candidate(summary.highest, self.bound)


@dataclass(frozen=True, slots=True)
class Punctuated:
    """Goes by the watermarks that rows themselves carry; rows without one move nothing."""

    def on_range(self, summary: RangeSummary) -> Millis | None:
        """Return the highest of them."""
        return summary.marked
