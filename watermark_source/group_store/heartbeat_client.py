"""HeartbeatClient: keeps one source a member of its group, by a thread of its own that alone talks to the store."""

from __future__ import annotations

import logging
import threading
import time

from watermark_source.alignment.group import GroupMember
from watermark_source.alignment.other_members import OtherMembers
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import Millis
from watermark_source.group_store import store_waits
from watermark_source.group_store.known_members import KnownMembers
from watermark_source.group_store.member_exchange import GroupStore, Identity
from watermark_source.group_store.own_row import OwnRow

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
