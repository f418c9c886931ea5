"""Telling: the source's status for Spark's progress reports, and its progress for other systems."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from watermark_source.clock import Clock
from watermark_source.monitor.status_json import status_to_json
from watermark_source.planning.state import SourceState
from watermark_source.spark.connector.progress import ProgressSink
from watermark_source.spark.driver.status import Seen, bound_in_force, source_status
from watermark_source.spark.options.engine_options import EngineOptions

_STATUS_INTERVAL = 1.0
"""Seconds a status is kept while there is no batch."""


class StatusReport:
    """The status as JSON, made when Spark asks for it."""

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


class ShownProgress:
    """Shows each batch that is done once, where the connector has a place for it."""

    def __init__(self, sink: ProgressSink | None) -> None:
        self._sink = sink
        self._is_shown = False

    def show(self, state: SourceState) -> None:
        """Show that the batch before a state is done: Spark asks for the next one only when its commit is logged.

        Spark's own word for it, ``commit``, comes when the next batch is logged: for the last one of a run never, and
        while nothing new comes not either.
        """
        if self._sink is not None and not self._is_shown:
            self._sink.processed({s: t.position for s, t in state.splits.items()})
            self._is_shown = True

    def expect(self) -> None:
        """Take in that another batch is planned."""
        self._is_shown = False

    def close(self) -> None:
        """Show the last."""
        if self._sink is not None:
            self._sink.close()
