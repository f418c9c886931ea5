"""A watch of logs that are quiet, for the time in which no plan asks for their ends: a batch that takes long."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Set

from watermark_source.contract.stream import CurrentEnds
from watermark_source.errors import SourceError
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

_LOOKS = 4
"""So often within an idle timeout the logs are asked for their ends."""
_SHORTEST, _LONGEST = 0.25, 15.0
"""Seconds between two looks, at least and at most."""
_DELAY = 1.0
"""Seconds by which a busy machine may delay a look."""


class Watch:
    """Notes which splits did not answer at some time. It asks on a thread of its own, which begins with the first
    pause between two plans that is long enough."""

    def __init__(self, logs: CurrentEnds | None, idle_timeout: int | None) -> None:
        """Watch nothing without ``logs`` that may be asked from another thread, or if no split can turn idle."""
        self._logs = None if idle_timeout is None else logs
        timeout = (idle_timeout or 0) / 1_000
        self._interval = min(_LONGEST, max(_SHORTEST, timeout / _LOOKS))
        self._longest_gap = 2 * self._interval + _DELAY
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._splits: Set[Split] = frozenset()
        self._silent: Set[Split] = frozenset()
        self._answered = 0.0
        """When the last question was asked that was answered, by ``time.monotonic()``."""
        self._plan = 0
        self._closed = False

    def begin(self, splits: Set[Split]) -> None:
        """Watch splits that answered just now."""
        if self._logs is None:
            return
        with self._changed:
            self._splits, self._silent, self._answered = splits, frozenset(), time.monotonic()
            self._plan += 1
            self._changed.notify()
        if splits and self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._logs,), name="watch", daemon=True)
            self._thread.start()

    def end(self) -> Set[Split]:
        """Stop watching until ``begin``; return the splits that did not answer all the time.

        Those are all of them if nobody asked for long, because this process had no processor or waited for an answer.
        """
        with self._changed:
            splits, self._splits = self._splits, frozenset()
            return splits if time.monotonic() - self._answered > self._longest_gap else self._silent

    def close(self) -> None:
        """End the thread; it does not wait for an answer that is still to come."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self, logs: CurrentEnds) -> None:
        while (due := self._next()) is not None:
            splits, plan = due
            asked = time.monotonic()
            try:
                silent: Set[Split] = logs.current_ends(splits).unknown.keys()
            except SourceError as error:
                _log.info("the logs do not answer: %s", error)
                silent = splits
            with self._changed:
                if plan == self._plan:
                    gap = asked - self._answered > self._longest_gap
                    self._silent = splits if gap else self._silent | silent
                    self._answered = asked

    def _next(self) -> tuple[Set[Split], int] | None:
        """Wait until a look is due, and return what it is about; ``None`` at the end."""
        with self._changed:
            while not self._closed:
                left = self._answered + self._interval - time.monotonic()
                if self._splits and left <= 0:
                    return self._splits, self._plan
                self._changed.wait(left if self._splits else None)
            return None
