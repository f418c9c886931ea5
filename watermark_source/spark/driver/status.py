"""The status report: what Spark's progress reports show of the source, made when Spark asks for it."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

from watermark_source.clock import Clock
from watermark_source.planning.group import silent_names
from watermark_source.planning.state import SourceState
from watermark_source.planning.watermark import watermark_text
from watermark_source.spark.driver.plan_history import History
from watermark_source.spark.driver.status_from_plan import Seen, bound_in_force, source_status
from watermark_source.spark.options import EngineOptions
from watermark_source.status_model.hold_texts import holder_name
from watermark_source.status_model.source_status import SourceStatus, Status
from watermark_source.status_model.status_json import status_to_json

_log = logging.getLogger(__name__)

_STATUS_INTERVAL, _OLDEST, _CPU_SHARE = 1.0, 10.0, 0.01
"""A status is kept for so many seconds while there is no batch; for longer where it would take more than this share of
a core, as that of thousands of splits does, but not beyond Spark's own interval between two reports of an idle query.
"""


class StatusReport:
    """The status of the last plan as JSON."""

    def __init__(self, options: EngineOptions, format_name: str, clock: Clock) -> None:
        self._options = options
        self._format_name = format_name
        self._clock = clock
        self._seen: Seen | None = None
        self._history = History()
        self._made: dict[str, Any] | None = None
        self._made_until = 0.0

    def note(self, seen: Seen, before: SourceState) -> None:
        """Take in the last plan, which began with the state ``before``."""
        last = None if self._seen is None else self._seen.bound
        silent = frozenset[str]() if self._seen is None else _silent(self._seen)
        bound = bound_in_force(seen.plan, self._options.policy.strategy)
        elapsed = self._clock.elapsed()
        self._history = self._history.after(before, seen.plan, elapsed)
        self._seen = replace(
            seen,
            bound=None if bound is None else bound.after(last, seen.plan.observation.now),
            history=self._history,
            clock_moved=self._clock.wall() - elapsed,
        )
        if seen.plan.is_batch or silent != _silent(seen):
            self._made = None
        if seen.plan.is_batch and _log.isEnabledFor(logging.DEBUG):
            status = source_status(self._seen, self._options, self._format_name, self._clock.wall())
            _log.debug("%s", batch_line(status))

    def json(self) -> dict[str, Any] | None:
        """Return the status, ``None`` before the first plan.

        Without a batch it is the same for a second or more, unless the silence of another source has begun or ended.
        """
        if self._seen is not None and (self._made is None or time.monotonic() >= self._made_until):
            begun = time.thread_time()
            status = source_status(self._seen, self._options, self._format_name, self._clock.wall())
            self._made = status_to_json(status)
            price = time.thread_time() - begun
            self._made_until = time.monotonic() + min(_OLDEST, max(_STATUS_INTERVAL, price / _CPU_SHARE))
        return self._made


def _silent(seen: Seen) -> frozenset[str]:
    return silent_names(seen.plan.observation.others.peers)


def batch_line(of: SourceStatus) -> str:
    """Return the line of a batch for the log: watermark, who holds it, the group's limit, and the oldest row."""
    limit = "" if of.group is None or of.group.limit is None else f", limit {watermark_text(of.group.limit)}"
    counts = ", ".join(f"{n} {status.name.lower()}" for status in Status if (n := of.counts.get(status, 0)))
    arrived = "none" if of.unprocessed is None else watermark_text(of.unprocessed.arrived)
    held = holder_name(of.holds[0]) if of.holds else "nothing"
    return (
        f"watermark {watermark_text(of.watermark)}, held by {held}{limit}; rows "
        f"up to {arrived} are processed; splits: {counts or 'none'}"
    )
