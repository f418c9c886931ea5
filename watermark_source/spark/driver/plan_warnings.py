"""Warnings of what in a plan may not be what the user wants: a watermark that stands or is of the future, late rows,
new splits, losses."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter

from watermark_source.clock import Clock
from watermark_source.errors import listed
from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.monitor.row_totals import NO_ROWS
from watermark_source.monitor.source_status import SourceStatus, SplitView, Status
from watermark_source.monitor.watermark_warnings import (
    Holder,
    LateSplit,
    Stand,
    Standing,
    clock_text,
    clocks_behind,
    end_text,
    late_text,
    standing_text,
)
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.watermark_without_rows import CLOCKS_DIFFER
from watermark_source.spark.driver.status_from_plan import Seen, source_status
from watermark_source.spark.options.engine_options import EngineOptions
from watermark_source.watermark_text import watermark_text

_log = logging.getLogger(__name__)

_FAR_FUTURE = 3_600_000
"""Milliseconds after which a watermark of the future is told, where nothing keeps it from there."""


def warn_of(planned: Plan, before: SourceState, now: Millis, strategy: WatermarkStrategy) -> None:
    """Log warnings of a plan that began with the state ``before`` at ``now`` by the wall clock."""
    added = planned.state.splits.keys() - before.splits.keys()
    if added and before.watermark is not None and not strategy.use_processing_time:
        _log.warning(
            "%s: found while the query runs, and read from the beginning. Rows there with event times up to the "
            "watermark, %s, are late", listed(added), watermark_text(before.watermark),
        )  # fmt: skip
    is_first = planned.state.run > before.run
    stands = planned.state.use_processing_time and before.watermark is not None and is_first
    if stands and before.watermark is not None and before.watermark > now + CLOCKS_DIFFER:
        _log.warning(
            "event time is the driver's clock, %s, and stands still at the checkpoint's, %s, until the clock has come "
            "there: rows are dated so, and no window closes. Set the clock, or start with a new checkpoint location",
            watermark_text(now), watermark_text(before.watermark),
        )  # fmt: skip
    watermark, soon = planned.state.watermark, now + _FAR_FUTURE
    if strategy.max_future_skew is None and watermark != MAX and (before.watermark or MIN) <= soon < (watermark or MIN):
        _log.warning(
            "the watermark, %s, is more than an hour in the future: rows of now are late. A clock may be wrong; "
            "with maxFutureSkew (1 hour, say) such a row would be counted and move no watermark",
            watermark_text(watermark),
        )  # fmt: skip
    for loss in planned.losses:
        _log.warning("failOnDataLoss is false, going on: %s", loss.text)


class WatermarkWarnings:
    """Logs what ``monitor.watermark_warnings`` decides; nothing where time is the clock, or without markers."""

    def __init__(self, options: EngineOptions, format_name: str, clock: Clock) -> None:
        self._options = options
        self._format_name = format_name
        self._clock = clock
        self._standing: Standing | None = None
        self._late_rows = 0
        self._late: set[Split] = set()
        """Splits whose late rows were warned of."""
        self._were_idle: set[Split] = set()
        self._were_added: set[Split] = set()
        self._ended = False
        self._set_back = False
        """Whether a clock was behind the watermark the last time that it was asked for."""

    def note(self, seen: Seen, before: SourceState) -> None:
        """Take in a plan that began with the state ``before``."""
        state, options = seen.plan.state, self._options
        if not options.include_markers or options.strategy.use_processing_time or state.use_processing_time:
            return
        self._note_left_out(seen, before)
        self._warn_of_clocks(seen, before)
        if seen.counts.totals.late.rows != self._late_rows:
            self._late_rows = seen.counts.totals.late.rows
            self._warn_of_late_rows(seen)
        now, rows = self._clock.elapsed(), seen.counts.totals.read
        standing = self._standing or Standing(before.watermark, now, 0, before.watermark)
        standing = standing.at(state.watermark, rows, now)
        is_over = seen.observation.logs.ends_are_final and not seen.plan.is_batch
        if is_over and not self._ended and standing.is_due_at_end(rows):
            _log.warning("%s", end_text(self._stand(standing, rows, now, seen)))
        elif not is_over and standing.is_due(rows, now, options.watermark_warning_after):
            standing = standing.warn()
            _log.warning("%s", standing_text(self._stand(standing, rows, now, seen)))
        self._ended, self._standing = is_over, standing

    def _note_left_out(self, seen: Seen, before: SourceState) -> None:
        """Note which splits' rows may be late because the watermark went on without them."""
        state = seen.plan.state
        if before.watermark is not None:
            self._were_added |= state.splits.keys() - before.splits.keys()
        if self._options.idleness.timeout is not None and seen.plan.has_rows:
            was, now = before.splits, state.splits
            self._were_idle |= {
                s for s, at in was.items()
                if at.status is SplitStatus.IDLE and s in now and now[s].status is not SplitStatus.IDLE
            }  # fmt: skip

    def _warn_of_clocks(self, seen: Seen, before: SourceState) -> None:
        """Warn once of each time that a clock which dates rows was set back behind the watermark."""
        options, watermark = self._options, before.watermark
        reached = seen.observation.logs.times.reached
        # Others than that clock may have led the watermark.
        if not reached or options.strategy.watermark_lag is not None or options.idleness.follows_group:
            return
        behind = clocks_behind(reached, watermark)
        if behind and watermark is not None and not self._set_back:
            _log.warning("%s", clock_text(behind, watermark))
        self._set_back = bool(behind)

    def _warn_of_late_rows(self, seen: Seen) -> None:
        found = [
            LateSplit(split, rows.late, split in self._were_idle, split in self._were_added)
            for split, rows in seen.counts.by_split.items()
            if rows.late.rows and split not in self._late
        ]
        self._late |= {each.split for each in found}
        cause = attrgetter("was_idle", "was_added")
        for _, splits in groupby(sorted(found, key=cause), key=cause):
            _log.warning("%s", late_text(splits, self._options.strategy, self._options.idleness.timeout))

    def _stand(self, standing: Standing, rows: int, now: Millis, seen: Seen) -> Stand:
        status = source_status(seen, self._options, self._format_name, self._clock.wall())
        lasted = now - standing.since
        return Stand(
            watermark=standing.watermark,
            since=status.at - lasted,
            lasted=lasted,
            rows=rows - standing.rows,
            holders=[self._holder(view, seen) for view in _holding(status)],
            snapshots=[each.log for each in status.snapshots],
            elsewhere=None if status.group is None else status.group.slowest,
        )

    def _holder(self, view: SplitView, seen: Seen) -> Holder:
        timeouts: Mapping[Split, int] = seen.observation.history.idle_timeouts
        return Holder(
            view.split,
            view.why,
            view.lag,
            seen.counts.by_split.get(view.split, NO_ROWS),
            self._options.idleness.timeout_of(view.split, timeouts),
        )


def _holding(status: SourceStatus) -> list[SplitView]:
    """Return the splits that the combined watermark waits for, those that no record can help first."""
    counting = [view for view in status.splits if view.status is not Status.IDLE]
    without = [view for view in counting if view.watermark is None]
    if without or not counting:
        return sorted(without, key=lambda view: (view.lag != 0, view.split))
    lowest = min(view.watermark for view in counting if view.watermark is not None)
    return [view for view in counting if view.watermark == lowest]
