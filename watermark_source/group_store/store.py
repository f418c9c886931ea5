"""Store: where the members of an alignment group report their watermarks to each other, by a row each."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from watermark_source.errors import CorruptDataError, RefusedError, UnreachableError, printable, shortened
from watermark_source.group_store import statements
from watermark_source.planning.group import LONGEST_NAME, GroupMember, MemberStatus, counts_with
from watermark_source.planning.watermark import LAST_MOMENT, Millis

_log = logging.getLogger(__name__)

_MOST_WARNINGS = 100


class Identity(NamedTuple):
    """A source as a member of a group."""

    group: str
    member: str
    """Unique in the group, and the same across restarts."""
    source: str
    """The source's name, for people."""
    max_drift: int | None
    """Milliseconds; ``None`` for a source whose event time is the system clock."""
    time_to_live: int
    """Milliseconds without a report after which the others no longer wait for the member."""
    writer: str = ""
    """The process that writes the row. It distinguishes two processes of one member, as after a checkpoint's copy."""
    apart: tuple[str, ...] = ()
    """Members that are left out of ``Answer.minimum`` and ``slowest``; a store may leave out none."""


class Answer(NamedTuple):
    """The store's summary of the group's other members that are alive. The order is that of ``statements.others``."""

    minimum: Millis | None
    """Lowest watermark of the members that count; ``None`` if no member counts."""
    slowest: str | None
    """Source name of the member with that watermark."""
    members: int
    """How many members have reported."""
    coming: int
    """How many members have joined and not reported yet."""
    now: Millis
    """The database's clock."""
    drift: int | None
    """Lowest max drift of the members in milliseconds; ``None`` if none has one."""
    drift_of: str | None
    """Source name of the member with that drift."""
    idle: Millis | None
    """Highest watermark of the idle members."""
    lasting: str | None = None
    """Source name of a member whose row has a time-to-live beyond the longest that sources write."""


class MemberRow(NamedTuple):
    """One other member of the group, alive or not. The order is that of ``statements.members``."""

    source: str
    """Source name."""
    status: str
    """That of its last report (``MemberStatus``), or ``coming``."""
    watermark: Millis | None
    time_to_live: int
    """Milliseconds."""
    silent: int
    """Milliseconds since it wrote its row, by the store's clock."""
    member: str = ""
    """As ``writer`` that of ``Identity``; empty if the store does not show it, so that no caller can delete the row."""
    writer: str = ""


class Store(Protocol):
    """Where the members of alignment groups exchange watermarks: one row a member, which only that member writes.

    A class of this shape can replace the database: a package registers it as an entry point of ``STORES``. One thread
    of a source uses it. Every call answers or raises within six seconds; a source whose store does not answer keeps its
    last limit. Each method raises ``UnreachableError`` if the store does not answer, and ``RefusedError`` if it answers
    with a refusal.
    """

    @property
    def location(self) -> str:
        """Kind, host and name of the store, for the status and for logs: nothing secret."""

    def exchange(self, identity: Identity, report: GroupMember | None, *, takes_over: bool = True) -> Answer | None:
        """Write a member's row in one step, and return the summary of the group's other living members.

        A member is alive until its row is older than its ``time_to_live``, by the store's clock.

        Args:
            identity: the member.
            report: the member's report; with ``None`` an existing row keeps its last report, and a new row counts as
                ``Answer.coming`` for the others.
            takes_over: whether the row may belong to another process (``Identity.writer``) so far.

        Returns:
            ``None`` if the row belongs to another process and ``takes_over`` is false; nothing was written.
        """

    def members(self, identity: Identity) -> Sequence[MemberRow]:
        """Return the group's other members, for the status: also those that are silent, while their rows exist."""

    def leave(self, identity: Identity) -> None:
        """Delete a member's row, unless it belongs to another process by now."""

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""


class Database(Protocol):
    """One connection, which the first call opens and the next call after a failure reopens. Not thread-safe.

    Every call may raise:
        UnreachableError: the database does not answer.
        RefusedError: the database answers with a refusal.
    """

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the SQL dialect, by which ``statements`` are chosen."""

    @property
    def location(self) -> str:
        """Kind, host and name for logs and errors. The rest of the URL may hold secrets."""

    def exchange(self, row: Mapping[str, Any], *, has_report: bool, takes_over: bool) -> Sequence[Any] | None:
        """Write a member's row, and return the summary of the other members' rows, in the order of ``Answer``.

        Args:
            row: the member's row.
            has_report: whether the row carries a report. If not, an existing row keeps its last report.
            takes_over: whether the row may belong to another process, as after a restart.

        Returns:
            ``None`` if the row belongs to another process; nothing was written.
        """

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """Run a statement, and return the rows that it returns, if any."""

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""


class GroupStore(Store):
    """``Store`` in a table of a database. It checks the rows, as other programs may have written some."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._logged: set[str] = set()

    @property
    def location(self) -> str:
        """Kind, host and name of the database. The rest of its URL may hold secrets."""
        return self._database.location

    def exchange(self, identity: Identity, report: GroupMember | None, *, takes_over: bool = True) -> Answer | None:
        """Write a member's row, and return the summary of the other members' rows.

        Args:
            identity: the member.
            report: the member's report; with ``None`` an existing row keeps its last report, that of an earlier
                process for example.
            takes_over: whether the row may belong to another process so far.

        Returns:
            ``None`` if another process has taken the row over.

        Raises:
            UnreachableError: the database does not answer.
            RefusedError: the database answers with a refusal.
            CorruptDataError: a row holds a value that members do not write.
        """
        state = report or GroupMember()
        row = identity._asdict() | {
            "group_name": identity.group,
            "apart": statements.listed(identity.apart),
            "source": identity.source[:LONGEST_NAME],
            "status": statements.COMING if report is None else state.status.value,
            "watermark": state.watermark,
            "counts_with": counts_with(state),
        }
        others = self._database.exchange(row, has_report=report is not None, takes_over=takes_over)
        if others is None:
            return None
        if takes_over:
            self._forget(identity)
        answer = Answer._make(others)
        if answer.drift is not None:
            self._check("max_drift", answer.drift, is_valid=isinstance(answer.drift, int) and answer.drift >= 0)
            self._check("source", answer.drift_of, is_valid=isinstance(answer.drift_of, str))
        if answer.minimum is not None:
            self._check("counts_with", answer.minimum, is_valid=isinstance(answer.minimum, int))
            self._check("source", answer.slowest, is_valid=isinstance(answer.slowest, str))
        if answer.idle is not None:
            self._check("watermark", answer.idle, is_valid=isinstance(answer.idle, int))
        return self._bounded(answer)

    def members(self, identity: Identity) -> Sequence[MemberRow]:
        """Return the group's other members, also those that are silent. Raises as ``exchange``."""
        own = {"group_name": identity.group, "member": identity.member}
        return [MemberRow._make(row) for row in self._database.rows(statements.members(self._database.dialect), own)]

    def leave(self, identity: Identity) -> None:
        """Delete a member's row, unless it belongs to another process by now. Raises as ``exchange``."""
        own = {"group_name": identity.group, "member": identity.member, "writer": identity.writer}
        self._database.rows(statements.LEAVE, own)

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._database.close()

    def _forget(self, identity: Identity) -> None:
        """Delete the rows of members that have long been silent; the store works with them as well."""
        with contextlib.suppress(UnreachableError, RefusedError):
            self._database.rows(statements.forget(self._database.dialect), {"group_name": identity.group})

    def _bounded(self, answer: Answer) -> Answer:
        """Limit what a row of another program can do: no such row counts longer, or later, than a source's row may."""
        if answer.lasting is not None:
            self._warn(
                f"has a row of {printable(answer.lasting)} whose time_to_live is more than a day, which counts as a "
                "day; no source writes so much"
            )
        if answer.slowest is not None:
            answer = answer._replace(slowest=printable(answer.slowest))
        if answer.drift_of is not None:
            answer = answer._replace(drift_of=printable(answer.drift_of))
        if answer.minimum is not None and answer.minimum > LAST_MOMENT:
            self._warn(f"has a watermark after the year 9999, of {answer.slowest}: it is ignored")
            answer = answer._replace(minimum=None, slowest=None)
        if answer.idle is not None and answer.idle > LAST_MOMENT:
            self._warn("has an idle member with a watermark after the year 9999: it is ignored")
            answer = answer._replace(idle=None)
        return answer

    def _warn(self, what: str) -> None:
        """Log a fault of the store's content, once for each text."""
        if what not in self._logged and len(self._logged) < _MOST_WARNINGS:
            self._logged.add(what)
            _log.warning(
                "the store of the alignment group, %s, %s. If it was written by hand, delete it", self.location, what
            )

    def _check(self, column: str, value: object, *, is_valid: bool) -> None:
        """Raise for an invalid value: SQLite stores text in a column of numbers."""
        if not is_valid:
            raise CorruptDataError(
                f"the store of the alignment group, {self.location}, has in column {column} of table "
                f"{statements.TABLE} a value that no member writes, {shortened(repr(value))}: delete that row"
            )


class OwnRow:
    """The row of this source, which one process at a time writes. For use by one thread."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self.store = store
        self.identity = identity._replace(writer=secrets.token_hex(8))
        """The member that owns the row. Its name changes when another process has taken the first name over."""
        self._is_written = False
        """Whether this process has written the row."""

    def exchange(self, report: GroupMember | None, apart: tuple[str, ...] = ()) -> Answer:
        """Write this source's report, and return the summary of the other members."""
        self.identity = self.identity._replace(apart=apart)
        while (answer := self.store.exchange(self.identity, report, takes_over=not self._is_written)) is None:
            self._take_new_name()
        self._is_written = True
        return answer

    def end(self, last: GroupMember | None) -> None:
        """Close the store, and leave the last report there: the process that comes next is waited for as after a kill.

        A member that has finished has nothing more to say, so its row is deleted. A failure is only logged.
        """
        try:
            if last is not None and last.status is MemberStatus.FINISHED:
                self.store.leave(self.identity)
            elif last is not None:
                # The next process may have the row by now: then nothing is written.
                self.store.exchange(self.identity, last, takes_over=False)
        except Exception as error:  # noqa: BLE001 - a database's driver may raise any error
            _log.debug("the last report to the alignment group was not written: %s", error)
        finally:
            self.store.close()

    def _take_new_name(self) -> None:
        """Leave the row to the process that has taken it over: both processes run from copies of one checkpoint."""
        self.identity = self.identity._replace(member=secrets.token_hex(6))
        self._is_written = False
        _log.warning(
            "another process uses this source's name in the alignment group %s, as after a copy of a checkpoint; this "
            "source takes a new name", self.identity.group,
        )  # fmt: skip
