"""The status report: what Spark's progress reports show of the source, made when Spark asks for it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from watermark_source.clock import Clock
from watermark_source.monitor.status_json import status_to_json
from watermark_source.spark.driver.status_from_plan import Seen, bound_in_force, source_status
from watermark_source.spark.options.engine_options import EngineOptions

_STATUS_INTERVAL = 1.0
"""Seconds a status is kept while there is no batch."""


class StatusReport:
    """The status of the last plan as JSON."""

    def __init__(self, options: EngineOptions, format_name: str, clock: Clock) -> None:
        self._options = options
        self._format_name = format_name
        self._clock = clock
        self._seen: Seen | None = None
        self._made: dict[str, Any] | None = None
        self._made_until = 0.0

    def note(self, seen: Seen) -> None:
        """Take in the last plan."""
        before = None if self._seen is None else self._seen.bound
        bound = bound_in_force(seen.plan, self._options.strategy.percentile)
        self._seen = replace(seen, bound=None if bound is None else bound.after(before, seen.observation.now))
        if seen.plan.is_batch:
            self._made = None

    def json(self) -> dict[str, Any] | None:
        """Return the status, ``None`` before the first plan; while nothing happens the same for a second."""
        if self._seen is not None and (self._made is None or time.monotonic() >= self._made_until):
            status = source_status(self._seen, self._options, self._format_name, self._clock.wall())
            self._made = status_to_json(status)
            self._made_until = time.monotonic() + _STATUS_INTERVAL
        return self._made
