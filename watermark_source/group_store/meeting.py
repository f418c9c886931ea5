"""Meeting: one source's place in its group, kept up beside the query by a thread that alone talks to the store."""

from __future__ import annotations

import logging
import secrets
import threading
import time

from watermark_source.alignment.group import GroupMember, other_drift
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
_COMING = 10.0
"""Seconds those that start together wait for one that has come, and has not planned yet."""
_LEAVING = 1.0
_JUMP = 1_000
"""Milliseconds by which the store's clock has to have passed more, or less, than ours for it to have been set."""


class Meeting:
    """Tells the store what this source has come to, and knows what the others have. For use by one thread."""

    def __init__(self, store: GroupStore, who: Identity) -> None:
        self._store, self._who = store, who._replace(writer=secrets.token_hex(8))
        self._clock = Clock()
        self._report: GroupMember | None = None
        """``None`` until there is one: before, what another process of this member has told holds."""
        self._known = Others()
        self._answered_at: float | None = None
        self._store_time: Millis | None = None
        self._trouble: Exception | None = None
        self._wrong: UsageError | None = None
        self._answered, self._news = threading.Event(), threading.Event()
        self._hurry = self._leaving = self._left = self._started = False
        self._is_ours = False
        """Whether this process has written the row."""
        self._told_at: float | None = None
        self._asked_at = 0.0
        self._coming, self._has_begun = 0, False
        self._doubtful_until, self._were_there = 0.0, 0
        self._thread = threading.Thread(target=self._run, name=f"alignment group {who.group}", daemon=True)

    @property
    def member(self) -> str:
        """The name by which the others know it: another one when it turns out that two processes have the first."""
        return self._who.member

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
        if self._coming and not self._has_begun and time.monotonic() < self._told_at + _COMING:
            return False
        self._has_begun = True
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
        if waits or report != self._report:
            self._news.set()
        self._report, self._hurry = report, waits

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
        while (answer := self._store.exchange(self._who, self._report, takes_over=not self._is_ours)) is None:
            self._take_another_name()
        self._is_ours = True
        if answer.drift is not None and self._who.max_drift not in (None, answer.drift):
            # They came at once, and neither saw the other when it looked.
            raise other_drift(self._who.source, self._who.max_drift or 0, self._who.group, answer.drift)
        self._doubt(answer.now, time.monotonic())
        if self._trouble is not None:
            _log.warning("the store of the alignment group %s answers again", self._who.group)
        slowest = None
        if answer.slowest is not None:
            before = self._known.slowest
            since = before.since if before is not None and before.name == answer.slowest else self._clock.now()
            slowest = Elsewhere(answer.slowest, since)
        self._coming = answer.coming
        self._known = Others(answer.minimum, slowest, answer.members)
        self._trouble, self._asked_at, self._answered_at = None, asked_at, time.monotonic()
        self._store_time = answer.now
        self._answered.set()

    def _doubt(self, store_time: Millis, now: float) -> None:
        """See whether others may seem to be gone that are not: they are given their time to speak again.

        After a time without answers nobody could speak; after a jump of the store's clock everybody seems silent.
        """
        if self._answered_at is None or self._store_time is None:
            return
        passed = now - self._answered_at
        if passed > _SILENT or abs(store_time - self._store_time - passed * 1_000) > _JUMP:
            in_doubt = self._were_there if now < self._doubtful_until else 0
            self._were_there = max(in_doubt, self._known.members)
            self._doubtful_until = now + self._who.time_to_live / 1_000

    def _take_another_name(self) -> None:
        """Leave the row to the process that has taken it: both go by the checkpoint that one has copied."""
        self._who = self._who._replace(member=secrets.token_hex(6))
        self._is_ours = False
        _log.warning(
            "another process goes by this source's name in the alignment group %s, as after a copy of a checkpoint; it "
            "takes another one", self._who.group,
        )  # fmt: skip

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
