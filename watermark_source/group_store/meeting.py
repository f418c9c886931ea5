"""Meeting: one source's place in its group, kept up beside the query by a thread that alone talks to the store."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from typing import NamedTuple

from watermark_source.alignment.group import GroupMember, other_drift
from watermark_source.alignment.others import Elsewhere, Others, unanswered
from watermark_source.clock import Clock
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import Millis
from watermark_source.group_store.doubt import Doubt, after_answer, is_believed
from watermark_source.group_store.store import GroupStore, Identity

_log = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.1, 1.0
"""Seconds between two statements: while something moves or somebody waits, and at rest."""
_EASE, _MOST_EASE = 4, 2.0
"""A statement that takes long is followed by a pause so many times as long, and of so many seconds at most: a store
that is busy is asked less."""
_SILENT = 3.0
"""Seconds without an answer from which on the store counts as one that does not answer."""
_FIRST = 10.0
"""Seconds the first plan of a process waits for the first answer."""
_SETTLING = 0.4
"""Seconds from the first word until what is known is sure: those that start together hear of each other by then."""
_LATE_SETTLING = 7.0
"""The same when the store was away meanwhile: who cannot reach it either tries again within a second, and a try takes
six at most."""
_COMING = 10.0
"""Seconds those that start together wait for one that has come, and has not planned yet."""
_LEAVING = 1.0
_JUMP = 1.0
"""Seconds by which the store's clock has to have passed more, or less, than ours for it to have been set."""


class _Heard(NamedTuple):
    """The store's last answer: one object, for it is replaced while others look at it."""

    others: Others
    coming: int
    store_time: Millis
    asked_at: float
    answered_at: float

    def is_odd_after(self, before: _Heard) -> bool:
        """Return whether the store's clock was set between two answers; each was read between question and answer."""
        passed = (self.store_time - before.store_time) / 1_000
        at_least, at_most = self.asked_at - before.answered_at, self.answered_at - before.asked_at
        return not at_least - _JUMP <= passed <= at_most + _JUMP


class Meeting:
    """Tells the store what this source has come to, and knows what the others have. For use by one thread."""

    def __init__(self, store: GroupStore, who: Identity) -> None:
        self._store, self._who = store, who._replace(writer=secrets.token_hex(8))
        self._clock = Clock()
        self._report: GroupMember | None = None
        """``None`` until there is one: before, what another process of this member has told holds."""
        self._heard: _Heard | None = None
        self._trouble: Exception | None = None
        self._wrong: UsageError | None = None
        self._answered, self._news = threading.Event(), threading.Event()
        self._hurry = self._leaving = self._left = self._started = False
        self._is_ours = False
        """Whether this process has written the row."""
        self._spoke_at: Millis | None = None
        self._told_at: float | None = None
        self._settled_at: float | None = None
        """From when on those that start together have spoken; ``None`` until the store answers."""
        self.has_begun = False
        """Whether what is known was sure once."""
        self._doubts: tuple[Doubt, ...] = ()
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
        heard = self._heard
        known = Others() if heard is None else heard.others
        if heard is None or _is_old(heard):
            return unanswered(known, last_limit)
        return known if self._is_sure(heard) else unanswered(known, last_limit, awaited=True)

    def _is_sure(self, heard: _Heard) -> bool:
        """Return whether who is there had the time to say so: at first, and after the store was away."""
        if self._told_at is None or self._settled_at is None:
            return False
        if heard.asked_at < max(self._told_at + _SETTLING, self._settled_at):
            return False
        come_by = max(self._told_at, self._settled_at) + _COMING
        if heard.coming and not self.has_begun and time.monotonic() < come_by:
            return False
        self.has_begun = True
        return is_believed(self._doubts, heard.others.members, time.monotonic())

    @property
    def place(self) -> str:
        """Where the members meet, without what is secret."""
        return self._store.shown

    @property
    def trouble(self) -> str | None:
        """Return why what is known of the others may be old, ``None`` if it is not."""
        if self._heard is not None and not _is_old(self._heard):
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
            asked_at = time.monotonic()
            try:
                if not joined:
                    self._come()
                    joined = True
                elif self._was_out():
                    self._store.join(self._who)
                self._exchange()
            except UsageError as wrong:
                self._wrong = wrong
                self._answered.set()
                break
            except Exception as trouble:  # noqa: BLE001 - a database's driver may raise anything, and the query goes on
                if self._trouble is None:
                    _log.warning("%s. The limit of before holds until it does", trouble)
                self._trouble = trouble
            self._pause(time.monotonic() - asked_at)
        self._leave()

    def _come(self) -> None:
        """Join the group, which is of silent members with another drift if they have only not reached the store."""
        if self._store.join(self._who):
            self._rest(_LATE_SETTLING)
            self._store.join(self._who)

    def _was_out(self) -> bool:
        """Whether the others may have gone on without this one, and with another drift: it comes as if it were new."""
        return self._spoke_at is not None and self._clock.now() - self._spoke_at > self._who.time_to_live

    def _exchange(self) -> None:
        asked_at, spoke_at = time.monotonic(), self._clock.now()
        while (answer := self._store.exchange(self._who, self._report, takes_over=not self._is_ours)) is None:
            self._take_another_name()
        self._is_ours, self._spoke_at = True, spoke_at
        if answer.drift is not None and self._who.max_drift not in (None, answer.drift):
            # They came at once, and neither saw the other when it looked.
            raise other_drift(self._who.source, self._who.max_drift or 0, self._who.group, answer.drift)
        before, slowest = self._heard, None
        if answer.slowest is not None:
            was = None if before is None else before.others.slowest
            since = was.since if was is not None and was.name == answer.slowest else self._clock.now()
            slowest = Elsewhere(answer.slowest, since)
        others = Others(answer.minimum, slowest, answer.members, idle=answer.idle)
        heard = _Heard(others, answer.coming, answer.now, asked_at, time.monotonic())
        if before is None:
            # Those that came while it was away have told nobody.
            self._settled_at = heard.answered_at + (_LATE_SETTLING if self._trouble is not None else 0)
        else:
            self._doubt(before, heard)
        if self._trouble is not None:
            _log.warning("the store of the alignment group %s answers again", self._who.group)
        self._trouble = None
        self._heard = heard
        self._answered.set()

    def _doubt(self, before: _Heard, heard: _Heard) -> None:
        """See whether others may seem to be gone that are not: they are given their time to speak again.

        After a time without answers nobody could speak; after a jump of the store's clock everybody seems silent; and
        what answers after an error may be another server, or have been emptied.
        """
        failed, was_silent = self._trouble is not None, heard.answered_at - before.answered_at > _SILENT
        self._doubts = after_answer(
            self._doubts,
            failed=failed,
            is_odd=was_silent or heard.is_odd_after(before),
            members=before.others.members,
            before=before.answered_at,
            now=heard.answered_at,
            time_to_live=self._who.time_to_live / 1_000,
        )
        if failed and was_silent and not self.has_begun:
            # Those that start together may not have been able to speak either.
            self._settled_at = heard.answered_at + _LATE_SETTLING

    def _take_another_name(self) -> None:
        """Leave the row to the process that has taken it: both go by the checkpoint that one has copied."""
        self._who = self._who._replace(member=secrets.token_hex(6))
        self._is_ours = False
        _log.warning(
            "another process goes by this source's name in the alignment group %s, as after a copy of a checkpoint; it "
            "takes another one", self._who.group,
        )  # fmt: skip

    def _pause(self, taken: float) -> None:
        """Wait until the next statement is due, after one that took so many seconds: at rest later, but for news.

        Nobody hurries after trouble: where a store is down or overrun, tries are what keeps it there.
        """
        shortest = min(max(SHORTEST, _EASE * taken), _MOST_EASE) if self._trouble is None else LONGEST
        self._rest(max(LONGEST, shortest), hurry_after=shortest)

    def _rest(self, longest: float, hurry_after: float | None = None) -> None:
        rest = 0.0
        while rest < longest and not self._leaving:
            step = time.monotonic()
            if hurry_after is not None and rest >= hurry_after and (self._hurry or self._news.is_set()):
                return
            time.sleep(SHORTEST / 4)
            rest += time.monotonic() - step

    def _leave(self) -> None:
        try:
            self._store.leave(self._who)
        except Exception as trouble:  # noqa: BLE001 - as while it was there, and nobody is left to be told
            _log.debug("left the alignment group without a word: %s", trouble)
        finally:
            self._store.close()
            self._left = True


def _is_old(heard: _Heard) -> bool:
    return time.monotonic() - heard.answered_at >= _SILENT
