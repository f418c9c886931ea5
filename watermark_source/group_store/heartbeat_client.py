"""HeartbeatClient: a thread that keeps one source a member of its alignment group, and alone uses the store."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from watermark_source.clock import Clock
from watermark_source.group_store import statements, store_waits
from watermark_source.group_store.store import Answer, Identity, MemberRow, OwnRow, Store
from watermark_source.planning.group import (
    SILENT_FROM,
    GroupMember,
    OtherMember,
    OtherMembers,
    OwnSilence,
    Peer,
    incomplete,
    silent_names,
)
from watermark_source.planning.watermark import Millis

_log = logging.getLogger(__name__)


class HeartbeatClient:
    """Publishes a source's reports, and returns the latest state of the other members. Its caller is one thread."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self._row = OwnRow(store, identity)
        self._known = KnownMembers(identity.time_to_live)
        self._report: GroupMember | None = None
        """``None`` until the first report: until then the row keeps the report of an earlier process."""
        self._trouble: Exception | None = None
        self._answered, self._report_changed = threading.Event(), threading.Event()
        self._silence_changed = threading.Event()
        self._apart: frozenset[str] = frozenset()
        """Other members that count otherwise than by the store."""
        self._splits_wait = self._leaving = self._left = False
        self._list_at = 0.0
        """When the members are listed next, in seconds of the monotonic clock."""
        self._list_failed = False
        """Whether the last list was an error: what it showed of the store, such as an emptied one, is in no answer."""
        self._thread = threading.Thread(target=self._run, name=f"alignment group {identity.group}", daemon=True)

    @property
    def member(self) -> str:
        """The member's name in the group. It changes when two processes turn out to use the same name."""
        return self._row.identity.member

    @property
    def has_begun(self) -> bool:
        """Whether the state of the others was complete once."""
        return self._known.has_begun

    @property
    def location(self) -> str:
        """The store's location, without secrets."""
        return self._row.store.location

    @property
    def trouble(self) -> str | None:
        """Why the state of the others may be outdated, ``None`` if it is current."""
        last = self._known.last_answer
        if last is not None and not last.is_old:
            return None
        return f"the store {self.location} does not answer" if self._trouble is None else str(self._trouble)

    @property
    def own_silence(self) -> OwnSilence | None:
        """The last time, longer than a healthy store's silence, in which this source did not report."""
        return self._known.own_silence

    def others(self, last_limit: Millis | None) -> OtherMembers:
        """Return the state of the others; ``last_limit`` stays in force while it is incomplete or outdated.

        The first call waits for the store's first answer, ten seconds at most.
        """
        if self._thread.ident is None:
            self._thread.start()
            self._answered.wait(store_waits.FIRST_ANSWER)
        return self._known.state(last_limit)

    def publish(self, report: GroupMember, *, waits: bool, apart: Set[str] = frozenset()) -> None:
        """Publish a report with the next statement.

        Args:
            report: of this source.
            waits: whether some splits of this source wait for the others.
            apart: other members that the answers leave out from then on (``OtherMembers.apart``).
        """
        self._known.note_report()
        if waits or report != self._report or apart != self._apart:
            self._report_changed.set()
        self._report, self._splits_wait, self._apart = report, waits, frozenset(apart)

    def wait(self, seconds: float) -> None:
        """Wait, at most until the silence of another member has begun or ended since the last call."""
        if self._silence_changed.wait(seconds):
            self._silence_changed.clear()

    def close(self) -> None:
        """End the reports, and return within a second. It takes no lock, so that a signal handler may call it.

        The others wait for a member that is stopped as for one that was killed, for its time to live: it may be about
        to start again. One that has finished leaves the group.
        """
        self._leaving = True
        end = time.monotonic() + store_waits.LEAVING
        while self._thread.is_alive() and not self._left and time.monotonic() < end:
            time.sleep(0.01)

    def _run(self) -> None:
        while not self._leaving:
            self._report_changed.clear()
            begun = time.monotonic()
            try:
                self._exchange()
            except Exception as error:  # noqa: BLE001 - a database's driver may raise any error; the query continues
                if self._trouble is None:
                    _log.warning("%s. Until it answers, the last known alignment limit stays in force", error)
                self._trouble = error
            self._pause(time.monotonic() - begun)
        self._row.end(self._report)
        self._left = True

    def _exchange(self) -> None:
        requested_at, failed = time.monotonic(), self._trouble is not None
        apart = self._apart
        answer = self._row.exchange(self._report, tuple(sorted(apart)))
        self._known.update(answer, requested_at, apart=apart, failed=failed or self._list_failed)
        self._list_failed = False
        if failed:
            _log.warning("the store of the alignment group %s answers again", self._row.identity.group)
        self._trouble = None
        self._answered.set()
        self._list_members()

    def _list_members(self) -> None:
        """List the members if that is due: once a second, and when one may have become silent."""
        begun = time.monotonic()
        if begun < self._list_at:
            return
        before = silent_names(self._known.peers)
        try:
            self._known.peers = peers_of(self._row.store.members(self._row.identity))
        except Exception as error:  # noqa: BLE001 - a database's driver may raise any; no plan depends on the list
            # An old list would show the silence of another time.
            self._known.peers, self._list_failed = (), True
            _log.debug("the members of the group could not be listed: %s", error)
        if silent_names(self._known.peers) != before:
            self._silence_changed.set()
        until_silent = (SILENT_FROM - peer.silent for peer in self._known.peers if not peer.is_silent)
        soonest = min(_LISTED_EVERY, *(left / 1_000 for left in until_silent), math.inf)
        now = time.monotonic()
        self._list_at = now + max(store_waits.SHORTEST, store_waits.EASE * (now - begun), soonest)

    def _pause(self, duration: float) -> None:
        """Wait until the next statement is due, after a statement that took ``duration`` seconds.

        A changed report shortens the pause. After an error it is the longest: retries would keep an overloaded store
        down.
        """
        eased = min(max(store_waits.SHORTEST, store_waits.EASE * duration), store_waits.MOST_EASE)
        shortest = eased if self._trouble is None else store_waits.LONGEST
        rest, longest = 0.0, max(store_waits.LONGEST, shortest)
        while rest < longest and not self._leaving:
            step = time.monotonic()
            if rest >= shortest and (self._splits_wait or self._report_changed.is_set()):
                return
            time.sleep(store_waits.SHORTEST / 4)
            if self._trouble is None:
                self._list_members()
            rest += time.monotonic() - step


_LISTED_EVERY = 0.9 * store_waits.LONGEST
"""Seconds between two lists of the members, which only the status needs."""


def peers_of(rows: Sequence[MemberRow]) -> tuple[Peer, ...]:
    """Return the members to list, the most silent first."""
    first = sorted(filter(_is_row_of_a_source, rows), key=lambda row: (-row.silent, row.source))[: statements.LISTED]
    return tuple(
        Peer(name, status, watermark, max(0, silent), is_waited_for=silent <= limit, time_to_live=limit)
        for name, status, watermark, limit, silent, *_ in first
    )


def _is_row_of_a_source(row: MemberRow) -> bool:
    """Return whether its values are of the types that sources write; a row of another program is not listed."""
    numbers = (row.time_to_live, row.silent, 0 if row.watermark is None else row.watermark)
    return isinstance(row.source, str) and isinstance(row.status, str) and all(isinstance(n, int) for n in numbers)


_JUMP = 1.0
"""The store's clock was set if it advanced by this many seconds more, or fewer, than the monotonic clock."""


class TimedAnswer(NamedTuple):
    """An answer of the store with its times. Immutable: one thread replaces it while another reads it."""

    others: OtherMembers
    coming: int
    store_time: Millis
    requested_at: float
    """Seconds of the monotonic clock, as ``answered_at``."""
    answered_at: float

    @property
    def is_old(self) -> bool:
        """Whether the store counts as silent since this answer."""
        return time.monotonic() - self.answered_at >= store_waits.SILENT_AFTER

    def clock_was_set_since(self, previous: TimedAnswer) -> bool:
        """Return whether the store's clock was set between two answers.

        The store reads its clock at some moment between request and answer, which bounds the time that has passed.
        """
        passed = (self.store_time - previous.store_time) / 1_000
        at_least, at_most = self.requested_at - previous.answered_at, self.answered_at - previous.requested_at
        return not at_least - _JUMP <= passed <= at_most + _JUMP


class KnownMembers:
    """The other members as the store reported them, and whether that is all of them.

    The heartbeat thread writes it, and the planning thread reads it.
    """

    def __init__(self, time_to_live: int) -> None:
        self._clock = Clock()
        self._time_to_live = time_to_live / 1_000
        self._reported_at: float | None = None
        """When this source reported first, in seconds of the monotonic clock."""
        self._settled_at: float | None = None
        """When every member that started with this source has had time to report; ``None`` until the store answers."""
        self._grace_periods: tuple[GracePeriod, ...] = ()
        self.peers: tuple[Peer, ...] = ()
        """The members as they were listed last."""
        self.own_silence: OwnSilence | None = None
        self.last_answer: TimedAnswer | None = None
        self.has_begun = False
        """Whether the state was complete once."""

    def note_report(self) -> None:
        """Record that this source has reported."""
        if self._reported_at is None:
            self._reported_at = time.monotonic()

    def state(self, last_limit: Millis | None) -> OtherMembers:
        """Return the state of the others; ``last_limit`` stays in force while it is incomplete or outdated."""
        last = self.last_answer
        others = OtherMembers() if last is None else replace(last.others, peers=self.peers)
        if last is None or last.is_old:
            return incomplete(others, last_limit)
        return others if self._check_complete(last) else incomplete(others, last_limit, awaited=True)

    def update(self, answer: Answer, requested_at: float, *, failed: bool, apart: frozenset[str] = frozenset()) -> None:
        """Record an answer without the members ``apart``; ``failed``: a request failed since the previous answer."""
        previous, slowest = self.last_answer, None
        if answer.slowest is not None:
            was = None if previous is None else previous.others.slowest
            since = was.since if was is not None and was.name == answer.slowest else self._clock.now()
            slowest = OtherMember(answer.slowest, since)
        drift, drift_of = answer.drift, answer.drift_of
        others = OtherMembers(
            answer.minimum, slowest, answer.members, idle=answer.idle, drift=drift, drift_of=drift_of, apart=apart
        )
        last = TimedAnswer(others, answer.coming, answer.now, requested_at, time.monotonic())
        if previous is None:
            # Members that started during an outage of the store have not reported yet.
            self._settled_at = last.answered_at + (store_waits.LATE_SETTLING if failed else 0)
        else:
            self._open_grace_periods(previous, last, failed=failed)
            lasted = last.answered_at - previous.answered_at
            if lasted > store_waits.SILENT_AFTER:
                waited = lasted <= self._time_to_live
                self.own_silence = OwnSilence(self._clock.wall(), round(1_000 * lasted), waited)
        self.last_answer = last

    def _check_complete(self, last: TimedAnswer) -> bool:
        """Return whether every member has had time to report: after the start, and after an outage of the store."""
        if self._reported_at is None or self._settled_at is None:
            return False
        if last.requested_at < max(self._reported_at + store_waits.SETTLING, self._settled_at):
            return False
        wait_until = max(self._reported_at, self._settled_at) + store_waits.COMING
        if last.coming and not self.has_begun and time.monotonic() < wait_until:
            return False
        self.has_begun = True
        return may_be_all(self._grace_periods, last.others.members, time.monotonic())

    def _open_grace_periods(self, previous: TimedAnswer, last: TimedAnswer, *, failed: bool) -> None:
        """Give members that seem absent time to report again, where their absence may be the store's fault.

        During an outage no member could report. After a jump of the store's clock every member seems silent. And after
        an error another server may answer, or the table may have been emptied.
        """
        was_silent = last.answered_at - previous.answered_at > store_waits.SILENT_AFTER
        known, is_suspect = self._grace_periods, was_silent or last.clock_was_set_since(previous)
        self._grace_periods = after_answer(
            known, previous, last.answered_at, self._time_to_live, failed=failed, is_suspect=is_suspect
        )
        if failed and was_silent and not self.has_begun:
            # Members that started with this source may not have been able to report either.
            self._settled_at = last.answered_at + store_waits.LATE_SETTLING


class GracePeriod(NamedTuple):
    """Until a moment, an answer with fewer than ``members`` others counts as incomplete."""

    members: int
    until: float
    """Seconds of the monotonic clock."""


def after_answer(
    periods: Sequence[GracePeriod],
    before: TimedAnswer,
    now: float,
    time_to_live: float,
    *,
    failed: bool,
    is_suspect: bool,
) -> tuple[GracePeriod, ...]:
    """Return the grace periods after an answer. Pure: moments are seconds of the monotonic clock.

    Args:
        periods: the periods before the answer.
        before: the answer before it.
        now: when it arrived.
        time_to_live: seconds that absent members get to report again.
        failed: whether a request failed since the previous answer: no member may have been able to report meanwhile.
        is_suspect: whether the answer may be incomplete for another reason.
    """
    still_open = [period for period in periods if period.until > before.answered_at]
    if failed:
        # An outage extends the open periods by its duration. Time between good answers does not: with a store that is
        # slow, or fails now and then, a period would never end.
        lasted = now - before.answered_at
        still_open = [period._replace(until=period.until + lasted) for period in still_open]
    if not (failed or is_suspect):
        return tuple(still_open)
    members = before.others.members
    return (*(period for period in still_open if period.members > members), GracePeriod(members, now + time_to_live))


def may_be_all(periods: Sequence[GracePeriod], members: int, now: float) -> bool:
    """Return whether an answer with this many other members counts as complete."""
    return all(members >= period.members or now >= period.until for period in periods)
