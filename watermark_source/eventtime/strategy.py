"""Watermark strategies: how a split's watermark follows the event times read from it."""

from __future__ import annotations

from watermark_source.eventtime.watermark import MIN, Millis, saturating_add


def candidate(max_event_time: Millis | None, bound: int) -> Millis:
    """Return the watermark of bounded out-of-orderness: the highest event time less ``bound`` ms and one more.

    The one is there because an event with the same time may still follow. ``MIN`` before the first event, and never
    less; never ``MAX``, which only the end of a stream may say.
    """
    return MIN if max_event_time is None else saturating_add(max_event_time, -bound - 1)
