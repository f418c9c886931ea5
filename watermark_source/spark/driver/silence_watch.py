"""Silence: which splits did not answer where they end, in plans, and in the time between two plans of a long batch."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Set

from watermark_source.contract.stream import CurrentEnds, Ends
from watermark_source.durations import format_duration
from watermark_source.errors import SourceError, listed
from watermark_source.planning.availability import SILENCES, AvailabilityTable, Effect
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

_POLLS = 4
"""The watch polls the logs this many times within an idle timeout."""
_SHORTEST, _LONGEST = 0.25, 15.0
"""Seconds between two polls of the watch, at least and at most."""
_DELAY = 1.0
"""Seconds by which a busy machine may delay a poll."""


class PolledSplits(AvailabilityTable[int]):
    """The availability of a source's splits, by the answers to polls for their ends. One caller at a time.

    Logs each silence once when it begins, and once when it ends.
    """

    @property
    def silent(self) -> Set[Split]:
        """The splits that did not answer the last poll that asked for them."""
        return self.within(SILENCES)

    def note_poll(self, splits: Set[Split], ends: Ends, at: float, failure: SourceError | None = None) -> None:
        """Take in the answers to a poll that began ``at`` (``time.monotonic()``); ``failure``: why some are missing."""
        ended = self.answer(splits, ends.unknown.keys()).get(Effect.END_SILENCE, {})
        begun = self.time_out(splits & ends.unknown.keys(), sent_at=at).get(Effect.BEGIN_SILENCE)
        by_beginning: defaultdict[float | None, list[Split]] = defaultdict(list)
        for split, row in ended.items():
            by_beginning[row.silent_since].append(split)
        for since, again in by_beginning.items():
            lasted = 0.0 if since is None else at - since
            _log.warning("%s: the end is answered again, after %s", listed(again), format_duration(round(lasted * 1e3)))
        if begun:
            _log.warning(
                "%s: no answer about the end%s. Other logs are read meanwhile, and the watermark waits for these",
                listed(begun), "" if failure is None else f": {failure}",
            )  # fmt: skip


class Watch:
    """Notes which splits do not answer in the time between two plans.

    It polls them in a thread of its own, which begins with the first such time that is long enough.
    """

    def __init__(self, logs: CurrentEnds | None, idle_timeout: int | None, polled: PolledSplits) -> None:
        """Watch nothing without ``logs``, which another thread polls, or if no split can turn idle.

        Args:
            logs: polled.
            idle_timeout: milliseconds.
            polled: used from ``begin`` to ``end``.
        """
        self._logs = None if idle_timeout is None else logs
        timeout = (idle_timeout or 0) / 1_000
        self._interval = min(_LONGEST, max(_SHORTEST, timeout / _POLLS))
        self._longest_gap = 2 * self._interval + _DELAY
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._polled = polled
        self._splits: Set[Split] = frozenset()
        self._had_gap = False
        """Whether two answers lay further apart than the longest gap."""
        self._answered = 0.0
        """When the last poll began that was answered, by ``time.monotonic()``."""
        self._plan = 0
        self._closed = False

    @property
    def watches(self) -> bool:
        """Whether it watches anything."""
        return self._logs is not None

    def begin(self, splits: Set[Split]) -> None:
        """Watch splits that answered just now."""
        if self._logs is None:
            return
        with self._changed:
            self._polled.take_begun()
            self._splits, self._had_gap, self._answered = splits, False, time.monotonic()
            self._plan += 1
            self._changed.notify()
        if splits and self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._logs,), name="watch", daemon=True)
            self._thread.start()

    def end(self) -> Set[Split]:
        """Stop watching until ``begin``; return the splits that did not answer all the time.

        Those are all of them if no poll was answered for long, because this process had no processor or waited for an
        answer.
        """
        with self._changed:
            splits, self._splits = self._splits, frozenset()
            # A poll under way is about a time that is over.
            self._plan += 1
            had_gap = self._had_gap or time.monotonic() - self._answered > self._longest_gap
            return splits if had_gap else splits & self._polled.take_begun()

    def close(self) -> None:
        """End the thread, without a wait for the poll under way."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self, logs: CurrentEnds) -> None:
        while (due := self._next()) is not None:
            splits, plan = due
            began, failure = time.monotonic(), None
            try:
                ends = logs.current_ends(splits)
            except SourceError as error:
                ends, failure = Ends({}, dict.fromkeys(splits)), error
            with self._changed:
                if plan == self._plan:
                    self._had_gap |= began - self._answered > self._longest_gap
                    self._answered = began
                    self._polled.note_poll(splits, ends, began, failure)

    def _next(self) -> tuple[Set[Split], int] | None:
        """Wait until a poll is due, and return its splits and the plan before it; ``None`` at the end."""
        with self._changed:
            while not self._closed:
                left = self._answered + self._interval - time.monotonic()
                if self._splits and left <= 0:
                    return self._splits, self._plan
                self._changed.wait(left if self._splits else None)
            return None
