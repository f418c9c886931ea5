"""HeartbeatClient: keeps one source a member of its group, by a thread of its own that alone talks to the store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from watermark_source.clock import Clock
from watermark_source.errors import UsageError
from watermark_source.group_store import store_waits
from watermark_source.group_store.store import Answer, GroupStore, Identity, OwnRow
from watermark_source.planning.group import GroupMember, OtherMember, OtherMembers, unanswered
from watermark_source.planning.watermark import Millis

# Grace period: others that were there may seem to be gone, after a time in which they could not speak.
#
# Pure: moments are seconds of the monotonic clock.


class GracePeriod(NamedTuple):
    """So many others were there, and until a moment fewer than that are not believed."""

    members: int
    until: float


def after_answer(
    periods: Sequence[GracePeriod],
    *,
    failed: bool,
    is_odd: bool,
    members: int,
    before: float,
    now: float,
    time_to_live: float,
) -> tuple[GracePeriod, ...]:
    """Return the grace periods after an answer.

    Args:
        periods: as they were.
        failed: whether there was an error since the answer before it: nobody may have been able to speak meanwhile.
        is_odd: whether there is another reason not to believe it.
        members: how many others the answer before it told of.
        before: when that came.
        now: when this one came.
        time_to_live: how long those who could not speak are given to do so.
    """
    open_still = [period for period in periods if period.until > before]
    if failed:
        # The time in which nobody could speak does not count. Any other does: it would never end with a store that
        # is slow, or fails now and then.
        open_still = [period._replace(until=period.until + now - before) for period in open_still]
    if not (failed or is_odd):
        return tuple(open_still)
    return (*(period for period in open_still if period.members > members), GracePeriod(members, now + time_to_live))


def may_be_all(periods: Sequence[GracePeriod], members: int, now: float) -> bool:
    """Return whether so many others may be all that there are."""
    return all(members >= period.members or now >= period.until for period in periods)


# KnownMembers: what one member knows of the others, and whether all that are there had the time to report.


_JUMP = 1.0
"""Seconds by which the store's clock has to have passed more, or less, than ours for it to have been set."""


class Heard(NamedTuple):
    """The store's last answer: one object, for it is replaced while others look at it."""

    others: OtherMembers
    coming: int
    store_time: Millis
    asked_at: float
    answered_at: float

    @property
    def is_old(self) -> bool:
        """Return whether the store has not answered since for so long that it counts as silent."""
        return time.monotonic() - self.answered_at >= store_waits.SILENT_AFTER

    def is_odd_after(self, before: Heard) -> bool:
        """Return whether the store's clock was set between two answers; each was read between question and answer."""
        passed = (self.store_time - before.store_time) / 1_000
        at_least, at_most = self.asked_at - before.answered_at, self.answered_at - before.asked_at
        return not at_least - _JUMP <= passed <= at_most + _JUMP


class KnownMembers:
    """Filled by the thread that talks to the store, asked by the one that plans."""

    def __init__(self, time_to_live: int) -> None:
        self._clock = Clock()
        self._time_to_live = time_to_live / 1_000
        self._told_at: float | None = None
        self._settled_at: float | None = None
        """From when on those that start together have spoken; ``None`` until the store answers."""
        self._grace_periods: tuple[GracePeriod, ...] = ()
        self.heard: Heard | None = None
        self.has_begun = False
        """Whether what is known was sure once."""

    def note_told(self) -> None:
        """Take in that this source has said something."""
        if self._told_at is None:
            self._told_at = time.monotonic()

    def known(self, last_limit: Millis | None) -> OtherMembers:
        """Return what is known of the others; ``last_limit`` holds while it is not sure."""
        heard = self.heard
        known = OtherMembers() if heard is None else heard.others
        if heard is None or heard.is_old:
            return unanswered(known, last_limit)
        return known if self._is_sure(heard) else unanswered(known, last_limit, awaited=True)

    def take(self, answer: Answer, asked_at: float, *, failed: bool) -> None:
        """Take in an answer; ``failed``: there was an error since the one before it."""
        before, slowest = self.heard, None
        if answer.slowest is not None:
            was = None if before is None else before.others.slowest
            since = was.since if was is not None and was.name == answer.slowest else self._clock.now()
            slowest = OtherMember(answer.slowest, since)
        others = OtherMembers(answer.minimum, slowest, answer.members, idle=answer.idle)
        heard = Heard(others, answer.coming, answer.now, asked_at, time.monotonic())
        if before is None:
            # Those that came while it was away have told nobody.
            self._settled_at = heard.answered_at + (store_waits.LATE_SETTLING if failed else 0)
        else:
            self._give_time(before, heard, failed=failed)
        self.heard = heard

    def _is_sure(self, heard: Heard) -> bool:
        """Return whether who is there had the time to say so: at first, and after the store was away."""
        if self._told_at is None or self._settled_at is None:
            return False
        if heard.asked_at < max(self._told_at + store_waits.SETTLING, self._settled_at):
            return False
        come_by = max(self._told_at, self._settled_at) + store_waits.COMING
        if heard.coming and not self.has_begun and time.monotonic() < come_by:
            return False
        self.has_begun = True
        return may_be_all(self._grace_periods, heard.others.members, time.monotonic())

    def _give_time(self, before: Heard, heard: Heard, *, failed: bool) -> None:
        """See whether others may seem to be gone that are not: they are given their time to speak again.

        After a time without answers nobody could speak; after a jump of the store's clock everybody seems silent; and
        what answers after an error may be another server, or have been emptied.
        """
        was_silent = heard.answered_at - before.answered_at > store_waits.SILENT_AFTER
        self._grace_periods = after_answer(
            self._grace_periods,
            failed=failed,
            is_odd=was_silent or heard.is_odd_after(before),
            members=before.others.members,
            before=before.answered_at,
            now=heard.answered_at,
            time_to_live=self._time_to_live,
        )
        if failed and was_silent and not self.has_begun:
            # Those that start together may not have been able to speak either.
            self._settled_at = heard.answered_at + store_waits.LATE_SETTLING


_log = logging.getLogger(__name__)


class HeartbeatClient:
    """Tells the store what this source has come to, and knows what the others have. For use by one thread."""

    def __init__(self, store: GroupStore, who: Identity) -> None:
        self._row = OwnRow(store, who)
        self._known = KnownMembers(who.time_to_live)
        self._report: GroupMember | None = None
        """``None`` until there is one: before, what another process of this member has told holds."""
        self._trouble: Exception | None = None
        self._wrong: UsageError | None = None
        self._answered, self._news = threading.Event(), threading.Event()
        self._hurry = self._leaving = self._left = False
        self._thread = threading.Thread(target=self._run, name=f"alignment group {who.group}", daemon=True)

    @property
    def member(self) -> str:
        """The name by which the others know it: another one when it turns out that two processes have the first."""
        return self._row.who.member

    @property
    def has_begun(self) -> bool:
        """Whether what is known of the others was sure once."""
        return self._known.has_begun

    def others(self, last_limit: Millis | None) -> OtherMembers:
        """Return what is known of the others; ``last_limit`` holds while the store does not answer.

        The first call waits for the first answer, ten seconds at most.

        Raises:
            UsageError: the group has another drift.
        """
        if self._thread.ident is None:
            self._thread.start()
            self._answered.wait(store_waits.FIRST_ANSWER)
        if self._wrong is not None:
            raise self._wrong
        return self._known.known(last_limit)

    @property
    def place(self) -> str:
        """Where the members meet, without what is secret."""
        return self._row.place

    @property
    def trouble(self) -> str | None:
        """Return why what is known of the others may be old, ``None`` if it is not."""
        heard = self._known.heard
        if heard is not None and not heard.is_old:
            return None
        return f"the store {self.place} does not answer" if self._trouble is None else str(self._trouble)

    def tell(self, report: GroupMember, *, waits: bool) -> None:
        """Have the others told; ``waits``: some of this source's splits wait for them."""
        self._known.note_told()
        if waits or report != self._report:
            self._news.set()
        self._report, self._hurry = report, waits

    def close(self) -> None:
        """Leave the group, within a second or not at all. Takes no lock, so that a signal's handler may call it."""
        self._leaving = True
        end = time.monotonic() + store_waits.LEAVING
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
                elif self._row.was_out():
                    self._row.join()
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
        self._row.leave()
        self._left = True

    def _come(self) -> None:
        """Join the group, which is of silent members with another drift if they have only not reached the store."""
        if self._row.join():
            self._rest(store_waits.LATE_SETTLING)
            self._row.join()

    def _exchange(self) -> None:
        asked_at, failed = time.monotonic(), self._trouble is not None
        self._known.take(self._row.exchange(self._report), asked_at, failed=failed)
        if failed:
            _log.warning("the store of the alignment group %s answers again", self._row.who.group)
        self._trouble = None
        self._answered.set()

    def _pause(self, taken: float) -> None:
        """Wait until the next statement is due, after one that took so many seconds: at rest later, but for news.

        Nobody hurries after trouble: where a store is down or overrun, tries are what keeps it there.
        """
        eased = min(max(store_waits.SHORTEST, store_waits.EASE * taken), store_waits.MOST_EASE)
        shortest = eased if self._trouble is None else store_waits.LONGEST
        self._rest(max(store_waits.LONGEST, shortest), hurry_after=shortest)

    def _rest(self, longest: float, hurry_after: float | None = None) -> None:
        rest = 0.0
        while rest < longest and not self._leaving:
            step = time.monotonic()
            if hurry_after is not None and rest >= hurry_after and (self._hurry or self._news.is_set()):
                return
            time.sleep(store_waits.SHORTEST / 4)
            rest += time.monotonic() - step
