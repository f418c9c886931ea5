"""Ends that seem to lie before ends seen earlier: how often and how soon they are asked for again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetRetries:
    """``fetchOffset.numRetries`` and ``fetchOffset.retryIntervalMs``: a new leader may be behind for a moment."""

    retries: int
    interval_ms: int


ACCEPTED = OffsetRetries(retries=0, interval_ms=0)
"""Every answer is taken as it is."""
