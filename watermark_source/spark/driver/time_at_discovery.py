"""How far something that goes on by itself had come when splits were last looked for.

A row of a split that the look did not find was written later. So a watermark that goes on without rows of the source's
own, by a clock or with other sources, goes so far and no further; and one that goes by rows, while looks take longer
than batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from watermark_source.eventtime.watermark import Millis
from watermark_source.spark.connector.stream import SplitDiscovery

WAIT_FOR_LOOK = 1.0
"""Seconds a plan waits to know whether there are new splits; then the watermark stands still until it is known."""


class TimeAtDiscovery:
    """Looks for splits only where that takes a watermark on: in silence once a ``watermark_interval``."""

    def __init__(
        self, discovery: SplitDiscovery, *, wait: float = WAIT_FOR_LOOK, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``clock`` is the one of ``looked_since``."""
        self._discovery = discovery
        self._wait = wait
        self._clock = clock
        self._known: Millis | None = None
        self._wanted: tuple[float, Millis] | None = None
        """Since when splits have to be looked for, and how far it had come then."""

    def as_of(self, reached: Millis, due: Millis, *, since: float | None = None) -> Millis | None:
        """Return how far it had come before the last look that has ended; ``None`` before the first.

        Args:
            reached: how far it has come by now.
            due: beyond this it is of use: splits are looked for if the last look was before.
            since: when it had come so far, if that is known; else a look counts that begins now.
        """
        if self._known is not None and self._known > reached:
            # It went back, so it was something else.
            self._known = None
        if self._wanted is None and reached > due and (self._known is None or self._known <= due):
            self._wanted = self._clock() if since is None else since, reached
        if self._wanted is not None:
            moment, before = self._wanted
            if self._discovery.looked_since(moment, wait=self._wait):
                self._wanted = None
                self.has_ended(before)
        return None if self._known is None else min(self._known, reached)

    def has_ended(self, before: Millis) -> None:
        """Take in that a look has ended, and how far it had come before that look began."""
        self._known = before if self._known is None else max(self._known, before)
