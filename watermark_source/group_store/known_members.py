"""KnownMembers: what one member knows of the others, and whether all that are there had the time to report."""

from __future__ import annotations

import time
from typing import NamedTuple

from watermark_source.alignment.other_members import OtherMember, OtherMembers, unanswered
from watermark_source.clock import Clock
from watermark_source.eventtime.watermark import Millis
from watermark_source.group_store import store_waits
from watermark_source.group_store.member_exchange import Answer
from watermark_source.group_store.outage_grace import GracePeriod, after_answer, may_be_all

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
