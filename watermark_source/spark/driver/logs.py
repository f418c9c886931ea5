"""A source's logs, polled at its connector: which splits exist, where they end, and up to when all are found."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from watermark_source.clock import Clock
from watermark_source.contract.stream import Connector, Ends, SplitDiscovery
from watermark_source.planning.combined_watermark import due_now
from watermark_source.planning.observation import LogTimes, ObservedLogs
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState
from watermark_source.planning.status_transitions import is_quiet
from watermark_source.planning.watermark import MIN, Millis
from watermark_source.spark.driver.pace import splits_behind
from watermark_source.spark.driver.silence_watch import PolledSplits, Watch

_log = logging.getLogger(__name__)

# How far something had advanced when splits were last discovered.
#
# A row of a split that a discovery did not find was written later. That bounds a watermark that advances without rows
# of the source's own, by a clock or with other sources; and one that follows rows, while discoveries take longer than
# batches.


DISCOVERY_WAIT = 1.0
"""Seconds that a plan waits for a discovery of new splits; without one the watermark stands still."""
_WAIT_FOR_PREVIEW = 0.2
"""Seconds that a preview waits for one; without it the watermark of a batch's rows goes out with the next batch."""
_DISCOVERY_WAIT_OF_RUN = 30.0
"""Seconds for which ``Trigger.AvailableNow`` repeats discovery until no split is new."""
_PAUSE_BETWEEN_DISCOVERIES = 0.05
"""Seconds between two requests for a discovery that pauses."""
_PREVIEWED = 256
"""The most splits with rows whose newest rows are previewed: beyond that it costs more than it gains."""


@dataclass(slots=True, eq=False, repr=False)
class TimeAtDiscovery:
    """Requests a discovery only where it lets a watermark advance: without rows once a ``watermark_interval``."""

    _discovery: SplitDiscovery
    wait: float = DISCOVERY_WAIT
    clock: Callable[[], float] = time.monotonic
    """The one of ``looked_since``."""
    _known: Millis | None = None
    _wanted: tuple[float, Millis] | None = None
    """When the discovery that is needed must begin at the earliest, and how far it had advanced then."""

    def as_of(self, reached: Millis, due: Millis, *, since: float | None = None) -> Millis | None:
        """Return how far it had advanced before the last discovery that has ended; ``None`` before the first.

        Args:
            reached: how far it has advanced by now.
            due: beyond this it is of use: a discovery is requested if the last one began before.
            since: when it had advanced that far, if known; otherwise the discovery must begin now or later.
        """
        if self._known is not None and self._known > reached:
            # It went back, so the earlier value was of something else.
            self._known = None
        if self._wanted is None and reached > due and (self._known is None or self._known <= due):
            self._wanted = self.clock() if since is None else since, reached
        if self._wanted is not None:
            moment, before = self._wanted
            if self._discovery.looked_since(moment, wait=self.wait):
                self._wanted = None
                self.note_ended(before)
        return None if self._known is None else min(self._known, reached)

    def note_ended(self, before: Millis) -> None:
        """Take in that a discovery has ended, and how far it had advanced before that began."""
        self._known = before if self._known is None else max(self._known, before)


class Logs:
    """Polls a connector for ``ObservedLogs``; ``Observer`` adds what depends on the state of the query."""

    def __init__(self, connector: Connector, clock: Clock, policy: PlanPolicy, *, quiet: int | None) -> None:
        """``quiet``: after how many milliseconds a split may be idle at the earliest."""
        self._connector = connector
        self._clock = clock
        self._strategy, self._interval = policy.strategy, policy.watermark_interval
        self._poll_returned_at = 0.0
        """When the last poll for ends returned, by ``time.monotonic()``."""
        self._polled_at = Millis(0)
        """When the last poll for ends began, by the wall clock."""
        self._rows_returned_at: float | None = None
        """When the poll returned that found the rows planned last, by ``time.monotonic()``."""
        self._rows_polled_at = Millis(0)
        """When that poll began, by the wall clock."""
        self._clock_at_discovery = TimeAtDiscovery(connector.discovery)
        self._rows_at_discovery = TimeAtDiscovery(connector.discovery, wait=0)
        self._splits: Set[Split] = frozenset()
        """The splits of the last poll for the ends of all."""
        self._polled = PolledSplits()
        self._previewed = False
        self._is_run = False
        """Whether the ends are fixed: then no time counts as quiet."""
        self._watch = Watch(connector.watched, quiet, self._polled)

    def close(self) -> None:
        """End the watch."""
        self._watch.close()

    def note(self, planned: Plan) -> None:
        """Take in the plan made just now, for the next one.

        After rows, planned or read ahead, new splits are discovered, which the next plan has to know. Splits that are
        quiet are watched until then.
        """
        if planned.has_rows or planned.watermarks.unread:
            self._rows_returned_at, self._rows_polled_at = self._poll_returned_at, self._polled_at
            self._connector.discovery.looked_since(self._rows_returned_at, wait=0)
        if self._watch.watches and not self._is_run:
            self._watch.begin({s for s, t in planned.state.splits.items() if is_quiet(t)})

    def poll(
        self, state: SourceState, rest: Millis | None, read_up_to: Mapping[Split, int] | None = None
    ) -> ObservedLogs:
        """Return the logs as they are now.

        Args:
            state: as of the last planned batch.
            rest: milliseconds since which there has been nothing to do.
            read_up_to: ends that are known to be the positions in ``state``.
        """
        silent = self._watch.end()
        if self._clock.catch_up():
            # For how long they were quiet is not known on the clock as it is now.
            silent = {s for s, t in state.splits.items() if is_quiet(t)}
        discovery = self._connector.discovery
        # An announced watermark bounds the rows of splits that are found later, too.
        by_writers = self._strategy.announced_by is not None
        rows_at = self._rows_returned_at
        all_found = by_writers or rows_at is None or discovery.looked_since(rows_at, wait=DISCOVERY_WAIT)
        found_at = self._found_at(state, rest, all_found=all_found)
        for _ in range(2):
            # A connector may hand out what it changes itself, and the next poll is compared with this one.
            self._splits, self._previewed = frozenset(discovery.discover()), False
            ids = dict(discovery.ids())
            self._polled.note_listed(self._splits)
            self._polled_at, asked_at = self._clock.wall(), self._clock.elapsed()
            # The first late end of a new split may be that of an earlier topic of its name.
            silent_before = self._polled.silent
            ends = self._ends(self._splits)
            is_shorter = any(ends.positions.get(s, t.position) < t.position for s, t in state.splits.items())
            if ends.positions == read_up_to or not is_shorter:
                break
            # One that has become shorter may have another id, which is not listed yet.
            discovery.looked_since(time.monotonic(), wait=DISCOVERY_WAIT)
        # A late end shows that there are rows. It shows nothing about idleness, which is judged as of now.
        known = {
            s: end for s, end in ends.unknown.items() if end is not None and (s in state.splits or s in silent_before)
        }
        late = {s: known[s] for s in splits_behind(state, known)}
        return ObservedLogs(
            asked_at=asked_at,
            ends={**ends.positions, **late},
            ids=ids,
            unknown=ends.unknown.keys() - late.keys(),
            stale=late.keys(),
            silent=silent,
            times=LogTimes(reached=dict(self._strategy.times_at_ends(ends.reached, ends.positions.keys(), found_at))),
            all_found=all_found,
        )

    def poll_run(self) -> ObservedLogs:
        """Return the logs for a run whose ends are fixed when it begins."""
        self._is_run = True
        discovery = self._connector.discovery
        splits = frozenset(discovery.discover())
        now, logs = self._clock.wall(), self._poll_run(splits)
        until = time.monotonic() + _DISCOVERY_WAIT_OF_RUN
        # A split that is new by now is part of the run: in the next one it would lie behind this one's watermark.
        while not (all_found := self._has_discovered(until) and discovery.discover() <= splits):
            if time.monotonic() >= until:
                if not self._strategy.is_clock:
                    _log.warning(
                        "no look-up within %.0f s showed whether there are new partitions: rows are read, and the "
                        "watermark stays where it is until the next run",
                        _DISCOVERY_WAIT_OF_RUN,
                    )
                break
            splits |= discovery.discover()
            now, logs = self._clock.wall(), self._poll_run(splits)
        found_at = now if all_found else None
        reached = self._strategy.times_at_ends(logs.times.reached, logs.ends.keys(), found_at)
        return replace(logs, all_found=all_found, times=replace(logs.times, reached=reached))

    def _has_discovered(self, until: float) -> bool:
        """Return whether a discovery began after the last poll for ends; waits for it, also while discovery pauses."""
        discovery, until = self._connector.discovery, max(until, time.monotonic() + DISCOVERY_WAIT)
        while not discovery.looked_since(self._poll_returned_at, wait=max(0.0, until - time.monotonic())):
            if time.monotonic() >= until:
                return False
            time.sleep(_PAUSE_BETWEEN_DISCOVERIES)
        return True

    def _poll_run(self, splits: Set[Split]) -> ObservedLogs:
        asked_at, ids = self._clock.elapsed(), self._connector.discovery.ids()
        ends = self._ends(splits)
        # A run needs the ends of all of them.
        late = self._connector.bounds.end_positions(ends.unknown.keys()) if ends.unknown else {}
        self._poll_returned_at = time.monotonic()
        logs = ObservedLogs(
            asked_at=asked_at,
            ends={**ends.positions, **late},
            ids=ids,
            times=LogTimes(reached=ends.reached),
            ends_are_final=True,
        )
        return self.with_newest(logs, logs.ends.keys())

    def with_preview(self, logs: ObservedLogs, behind: Set[Split]) -> ObservedLogs:
        """Preview how far event time will be in the rows to read, if they are of few splits, and a preview exists."""
        preview = self._connector.preview
        if preview is None or not self._strategy.advances_early or not 0 < len(behind) <= _PREVIEWED:
            return logs
        preview.prepare(behind)
        self._previewed = True
        # Polled again: the newest row may have come just now.
        return replace(logs, ends={**logs.ends, **self._ends(behind).positions})

    def all_found_now(self) -> bool:
        """Return whether a discovery began after the last poll for ends, and found no other split."""
        discovery = self._connector.discovery
        has_ended = discovery.looked_since(self._poll_returned_at, wait=_WAIT_FOR_PREVIEW)
        return has_ended and discovery.discover() <= self._splits

    def combined_at_discovery(self, combined: Millis, sent: Millis | None) -> Millis | None:
        """Return the combined watermark before the last discovery that has ended; ``combined``: of the last plan.

        ``None`` while that discovery has found a split whose end has not been polled yet.
        """
        found = self._rows_at_discovery.as_of(combined, MIN if sent is None else sent, since=self._rows_returned_at)
        return found if self._connector.discovery.discover() <= self._splits else None

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return how far event time will be in planned ranges; empty if a split may be missing among them."""
        preview = self._connector.preview
        if preview is None or not self._previewed:
            return {}
        # It begins beside the next request.
        self._connector.discovery.looked_since(self._poll_returned_at, wait=0)
        reached = preview.reached(ranges)
        return reached if reached and self.all_found_now() else {}

    def highest(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return the highest event time of ranges that were planned before, where a preview has it."""
        preview = self._connector.preview
        return preview.highest(ranges) if preview is not None and 0 < len(ranges) <= _PREVIEWED else {}

    def with_newest(self, logs: ObservedLogs, splits: Set[Split]) -> ObservedLogs:
        """Add the newest event times of some splits, as far as there is a time index."""
        index = self._connector.time_index
        if index is None or not splits:
            return logs
        newest = index.newest(splits)
        # Polled again: a log whose newest row came just now should be read up to it, not up to a moment before.
        ends = self._connector.bounds.end_positions(splits)
        self._poll_returned_at = time.monotonic()
        settled = {s for s, end in ends.items() if end == logs.ends[s]}
        others = {s: end for s, end in logs.ends.items() if s not in splits}
        return replace(logs, ends={**others, **ends}, times=replace(logs.times, newest=newest, settled=settled))

    def _ends(self, splits: Set[Split]) -> Ends:
        began = time.monotonic()
        ends = self._connector.bounds.current_ends(splits)
        self._poll_returned_at = time.monotonic()
        self._polled.note_poll(splits, ends, began)
        return ends

    def _found_at(self, state: SourceState, rest: Millis | None, *, all_found: bool) -> Millis | None:
        """Return up to when, by the wall clock, all splits with rows are known; used where a watermark follows it."""
        now = self._clock.wall()
        due = self._strategy.clock_due(due_now(state.watermark, rest, self._interval), now, self._interval)
        if due is None:
            return None
        if all_found and self._rows_returned_at is not None:
            self._clock_at_discovery.note_ended(self._rows_polled_at)
        return self._clock_at_discovery.as_of(now, due)
