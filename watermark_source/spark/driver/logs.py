"""A source's logs, as its connector is asked: which splits exist, where they end, how far their time is."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

from watermark_source.clock import Clock
from watermark_source.contract.stream import Connector, Ends, SplitDiscovery
from watermark_source.planning.combined_watermark import clock_due_now
from watermark_source.planning.observation import LogTimes, ObservedLogs
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState
from watermark_source.planning.status_transitions import is_quiet
from watermark_source.planning.watermark import MIN, Millis
from watermark_source.spark.driver.pace import splits_behind
from watermark_source.spark.driver.silence_watch import Watch

# How far something that goes on by itself had come when splits were last looked for.
#
# A row of a split that the look did not find was written later. So a watermark that goes on without rows of the
# source's own, by a clock or with other sources, goes so far and no further; and one that goes by rows, while looks
# take longer than batches.


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


_log = logging.getLogger(__name__)

_WAIT_FOR_PREVIEW = 0.2
"""The same for what need not be known: the watermark of a batch's rows goes out with the next one then."""
_PREVIEWED = 256
"""Splits with rows up to which their newest rows are looked at: with more, that costs more than it brings."""
_WAIT_FOR_LOOK_OF_RUN = 30.0
"""The same for ``Trigger.AvailableNow``, which looks until nothing is new."""
_PAUSE_BETWEEN_LOOKS = 0.05


class Logs:
    """Asks a connector; what it does not know by itself of ``ObservedLogs`` is filled in by ``Observer``."""

    def __init__(self, connector: Connector, clock: Clock, strategy: WatermarkStrategy, *, quiet: int | None) -> None:
        """``quiet``: after how many milliseconds a split may be idle at the earliest."""
        self._connector = connector
        self._clock = clock
        self._strategy = strategy
        self._ends_told = 0.0
        """When the ends were told last, by ``time.monotonic()``."""
        self._asked_at = Millis(0)
        """When the ends were asked for last, by the wall clock."""
        self._rows_planned: float | None = None
        """When the ends were told of the rows that were planned last."""
        self._rows_asked_at = Millis(0)
        """When they were asked for."""
        self._clock_at_look = TimeAtDiscovery(connector.discovery)
        self._rows_at_look = TimeAtDiscovery(connector.discovery, wait=0)
        self._splits: Set[Split] = frozenset()
        """Those that were found when the ends were asked for."""
        self._unanswered: Set[Split] = frozenset()
        """Those whose end was not told in time then."""
        self._previewed = False
        self._is_run = False
        """Whether the ends are fixed: then no time counts as quiet."""
        self._watch = Watch(connector.watched, quiet)

    def close(self) -> None:
        """Ask no more."""
        self._watch.close()

    def note(self, planned: Plan) -> None:
        """Note what was planned just now, for the next plan.

        With rows, read or looked at ahead, new splits are looked for: it has to know of them. Splits that are quiet are
        watched until then.
        """
        if planned.has_rows or planned.unread:
            self._rows_planned, self._rows_asked_at = self._ends_told, self._asked_at
            self._connector.discovery.looked_since(self._rows_planned, wait=0)
        if not self._is_run:
            self._watch.begin({s for s, t in planned.state.splits.items() if is_quiet(t)})

    def now(self, state: SourceState, rest: Millis | None) -> ObservedLogs:
        """Return the logs as they are now; ``rest``: for how long there has been nothing to do."""
        silent = self._watch.end()
        if self._clock.catches_up():
            # For how long they were quiet is not known on the clock as it is now.
            silent = {s for s, t in state.splits.items() if is_quiet(t)}
        discovery = self._connector.discovery
        all_found = self._rows_planned is None or discovery.looked_since(self._rows_planned, wait=WAIT_FOR_LOOK)
        found_at = self._found_at(state, rest, all_found=all_found)
        # A connector may hand out a set that it changes itself.
        self._splits, self._previewed = frozenset(discovery.discover()), False
        self._asked_at, asked_at = self._clock.wall(), self._clock.elapsed()
        ends = self._ends(self._splits)
        # An end of a while ago says nothing about idleness, which is judged as of now. That there are rows, it does.
        # The first one of a new split may be that of an earlier topic of its name.
        asked_about = state.splits.keys() | self._unanswered
        self._unanswered = ends.unknown.keys()
        known = {s: end for s, end in ends.unknown.items() if end is not None and s in asked_about}
        late = {s: known[s] for s in splits_behind(state, known)}
        return ObservedLogs(
            asked_at=asked_at,
            ends={**ends.positions, **late},
            unknown=ends.unknown.keys() - late.keys(),
            stale=late.keys(),
            silent=silent,
            times=LogTimes(reached=self._reached(ends, found_at)),
            all_found=all_found,
        )

    def of_run(self) -> ObservedLogs:
        """Return the logs as a run finds them whose ends are fixed when it begins."""
        self._is_run = True
        discovery = self._connector.discovery
        splits = frozenset(discovery.discover())
        now, logs = self._clock.wall(), self._of_run(splits)
        until = time.monotonic() + _WAIT_FOR_LOOK_OF_RUN
        # A split that is new by now is part of the run: the next one would find it behind this one's watermark.
        while not (all_found := self._has_looked(until) and discovery.discover() <= splits):
            if time.monotonic() >= until:
                if not self._strategy.use_processing_time:
                    _log.warning(
                        "it was not known within %.0f s whether there are new partitions: rows are read, and the "
                        "watermark stays where it is until the next run",
                        _WAIT_FOR_LOOK_OF_RUN,
                    )
                break
            splits |= discovery.discover()
            now, logs = self._clock.wall(), self._of_run(splits)
        reached = self._reached(Ends(logs.ends, reached=logs.times.reached), now if all_found else None)
        return replace(logs, all_found=all_found, times=replace(logs.times, reached=reached))

    def _has_looked(self, until: float) -> bool:
        """Return whether splits were looked for after the ends were told; waits for it, also while looks pause."""
        discovery, until = self._connector.discovery, max(until, time.monotonic() + WAIT_FOR_LOOK)
        while not discovery.looked_since(self._ends_told, wait=max(0.0, until - time.monotonic())):
            if time.monotonic() >= until:
                return False
            time.sleep(_PAUSE_BETWEEN_LOOKS)
        return True

    def _of_run(self, splits: Set[Split]) -> ObservedLogs:
        asked_at = self._clock.elapsed()
        ends = self._ends(splits)
        # A run must know them all.
        late = self._connector.bounds.end_positions(ends.unknown.keys()) if ends.unknown else {}
        self._ends_told = time.monotonic()
        logs = ObservedLogs(
            asked_at=asked_at,
            ends={**ends.positions, **late},
            times=LogTimes(reached=ends.reached),
            ends_are_final=True,
        )
        return self.dated(logs, logs.ends.keys())

    def previewed(self, logs: ObservedLogs, behind: Set[Split]) -> ObservedLogs:
        """Look how far event time will be in what there is to read, if it is few splits, and it can be told."""
        preview = self._connector.preview
        by_rows = not self._strategy.use_processing_time and not self._strategy.looks_ahead
        if preview is None or not by_rows or not 0 < len(behind) <= _PREVIEWED:
            return logs
        preview.prepare(behind)
        self._previewed = True
        # Asked again: the newest row may have come just now.
        return replace(logs, ends={**logs.ends, **self._ends(behind).positions})

    def all_found_now(self) -> bool:
        """Return whether splits were looked for after the ends were told, and there are no others."""
        discovery = self._connector.discovery
        return discovery.looked_since(self._ends_told, wait=_WAIT_FOR_PREVIEW) and discovery.discover() <= self._splits

    def led_to_at_look(self, leads_to: Millis, sent: Millis | None) -> Millis | None:
        """Return how far the watermark led before the last look that has ended; ``leads_to``: as of the last plan.

        ``None`` while that look has found a split whose end is not told yet.
        """
        led_to = self._rows_at_look.as_of(leads_to, MIN if sent is None else sent, since=self._rows_planned)
        return led_to if self._connector.discovery.discover() <= self._splits else None

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return how far event time will be in planned ranges; nothing if a split may be missing among them."""
        preview = self._connector.preview
        if preview is None or not self._previewed:
            return {}
        # Begins beside what is asked next.
        self._connector.discovery.looked_since(self._ends_told, wait=0)
        found = preview.reached(ranges)
        return found if found and self.all_found_now() else {}

    def highest(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return the highest event time of ranges that were planned before, where it can be told without reading."""
        preview = self._connector.preview
        return preview.highest(ranges) if preview is not None and 0 < len(ranges) <= _PREVIEWED else {}

    def dated(self, logs: ObservedLogs, splits: Set[Split]) -> ObservedLogs:
        """Add the newest event times of some splits, as far as there is a time index."""
        index = self._connector.time_index
        if index is None or not splits:
            return logs
        newest = index.newest(splits)
        # Asked again: a log whose newest row came just now should be read up to it, not up to a moment before.
        ends = self._connector.bounds.end_positions(splits)
        self._ends_told = time.monotonic()
        settled = {s for s, end in ends.items() if end == logs.ends[s]}
        others = {s: end for s, end in logs.ends.items() if s not in splits}
        return replace(logs, ends={**others, **ends}, times=replace(logs.times, newest=newest, settled=settled))

    def _ends(self, splits: Set[Split]) -> Ends:
        ends = self._connector.bounds.current_ends(splits)
        self._ends_told = time.monotonic()
        return ends

    def _found_at(self, state: SourceState, rest: Millis | None, *, all_found: bool) -> Millis | None:
        """Return up to when, by the wall clock, all splits are known that hold rows, where a watermark goes by it."""
        if self._strategy.watermark_lag is None:
            return None
        if all_found and self._rows_planned is not None:
            self._clock_at_look.has_ended(self._rows_asked_at)
        due = clock_due_now(state.watermark, rest, self._strategy)
        return self._clock_at_look.as_of(self._clock.wall(), due)

    def _reached(self, ends: Ends, found_at: Millis | None) -> Mapping[Split, Millis]:
        """Return the time that logs have reached at their ends: of their system, or by the wall clock."""
        if self._strategy.watermark_lag is None:
            return ends.reached
        return {} if found_at is None else dict.fromkeys(ends.positions, found_at)
