"""Meeting: one source's place in its group, kept up beside the query by a thread that alone talks to the store."""

from __future__ import annotations

import logging
import threading
import time

from watermark_source.alignment.group import GroupMember
from watermark_source.alignment.others import Elsewhere, Others, unanswered
from watermark_source.clock import Clock
from watermark_source.errors import UsageError, WatermarkSourceError
from watermark_source.eventtime.watermark import Millis
from watermark_source.group_store.store import GroupStore, Identity

_log = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.1, 1.0
"""Seconds between two statements: while something moves or somebody waits, and at rest."""
_SILENT = 3.0
"""Seconds without an answer from which on the store counts as one that does not answer."""
_FIRST = 10.0
"""Seconds the first plan of a process waits for the first answer."""
_SETTLING = 0.4
"""Seconds from the first word until what is known is sure: those that start together hear of each other by then."""
_LEAVING = 1.0


class Meeting:
    """Tells the store what this source has come to, and knows what the others have. For use by one thread."""

    def __init__(self, store: GroupStore, who: Identity) -> None:
        self._store, self._who = store, who
        self._clock = Clock()
        self._report = GroupMember()
        self._known = Others()
        self._answered_at: float | None = None
        self._trouble: Exception | None = None
        self._wrong: UsageError | None = None
        self._answered, self._news = threading.Event(), threading.Event()
        self._hurry = self._leaving = self._left = self._started = False
        self._told_at: float | None = None
        self._asked_at = 0.0
        self._doubtful_until, self._were_there = 0.0, 0
        self._thread = threading.Thread(target=self._run, name=f"alignment group {who.group}", daemon=True)

    def others(self, last_limit: Millis | None) -> Others:
        """Return what is known of the others; ``last_limit`` holds while the store does not answer.

        The first call waits for the first answer, ten seconds at most.

        Raises:
            UsageError: the group has another drift.
        """
        if not self._started:
            self._started = True
            self._thread.start()
            self._answered.wait(_FIRST)
        if self._wrong is not None:
            raise self._wrong
        if self.trouble is not None:
            return unanswered(self._known, last_limit)
        return self._known if self._is_sure() else unanswered(self._known, last_limit, awaited=True)

    def _is_sure(self) -> bool:
        """Return whether who is there had the time to say so: at first, and after the store was away."""
        if self._told_at is None or self._asked_at < self._told_at + _SETTLING:
            return False
        return self._known.members >= self._were_there or time.monotonic() >= self._doubtful_until

    @property
    def trouble(self) -> str | None:
        """Return why what is known of the others may be old, ``None`` if it is not."""
        if self._answered_at is not None and time.monotonic() - self._answered_at < _SILENT:
            return None
        return f"the store {self._store.shown} does not answer" if self._trouble is None else str(self._trouble)

    def tell(self, report: GroupMember, *, waits: bool) -> None:
        """Have the others told; ``waits``: some of this source's splits wait for them."""
        if self._told_at is None:
            self._told_at = time.monotonic()
        changed = report != self._report
        self._report, self._hurry = report, waits or changed
        if self._hurry:
            self._news.set()

    def close(self) -> None:
        """Leave the group, within a second or not at all. Takes no lock, so that a signal's handler may call it."""
        self._leaving = True
        end = time.monotonic() + _LEAVING
        while self._thread.is_alive() and not self._left and time.monotonic() < end:
            time.sleep(0.01)

    def _run(self) -> None:
        joined = False
        while not self._leaving:
            self._news.clear()
            try:
                if not joined:
                    self._store.join(self._who)
                    joined = True
                self._exchange()
            except UsageError as wrong:
                self._wrong = wrong
                self._answered.set()
                break
            except Exception as trouble:  # noqa: BLE001 - a database's driver may raise anything, and the query goes on
                if self._trouble is None:
                    _log.warning("%s. The limit of before holds until it does", trouble)
                self._trouble = trouble
            self._pause()
        self._leave()

    def _exchange(self) -> None:
        asked_at = time.monotonic()
        answer = self._store.exchange(self._who, self._report)
        if self._answered_at is not None and asked_at - self._answered_at > _SILENT:
            # The others could not speak either, and count as silent until they have.
            self._doubtful_until = time.monotonic() + self._who.time_to_live / 1_000
            self._were_there = self._known.members
        if self._trouble is not None:
            _log.warning("the store of the alignment group %s answers again", self._who.group)
        slowest = None
        if answer.slowest is not None:
            before = self._known.slowest
            since = before.since if before is not None and before.name == answer.slowest else self._clock.now()
            slowest = Elsewhere(answer.slowest, since)
        self._known = Others(answer.minimum, slowest, answer.members)
        self._trouble, self._asked_at, self._answered_at = None, asked_at, time.monotonic()
        self._answered.set()

    def _pause(self) -> None:
        """Wait until the next statement is due: at rest it comes later, but for news."""
        rest = 0.0
        while rest < LONGEST and not self._leaving:
            step = time.monotonic()
            if rest >= SHORTEST and (self._hurry or self._news.is_set()):
                return
            time.sleep(SHORTEST / 4)
            rest += time.monotonic() - step

    def _leave(self) -> None:
        try:
            self._store.leave(self._who)
        except WatermarkSourceError as trouble:
            _log.debug("left the alignment group without a word: %s", trouble)
        finally:
            self._store.close()
            self._left = True
