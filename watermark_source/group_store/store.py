"""The store: what a member tells the others of its group, and what it learns of them."""

from __future__ import annotations

import logging
import secrets
from typing import NamedTuple

from watermark_source.clock import Clock
from watermark_source.errors import CorruptDataError, shortened
from watermark_source.group_store import statements
from watermark_source.group_store.database import Database
from watermark_source.planning.group import LONGEST_NAME, GroupMember, counts_with, other_drift
from watermark_source.planning.group import other_drift as another_drift
from watermark_source.planning.watermark import Millis

_log = logging.getLogger(__name__)

LAST_MOMENT = Millis(253_402_300_799_999)
"""The last millisecond of the year 9999, the last that Spark writes."""
_MOST_LOGGED = 100


class Identity(NamedTuple):
    """Who meets: a source in a group."""

    group: str
    member: str
    """Tells it from all others, and stays the same across restarts."""
    source: str
    """What it is called."""
    max_drift: int | None
    """``None`` of one that goes with the system clock."""
    time_to_live: int
    writer: str = ""
    """The process that speaks for it: tells two apart that have one name, because a checkpoint was copied."""


class Answer(NamedTuple):
    """What the store tells of the other members that are alive."""

    minimum: Millis | None
    slowest: str | None
    members: int
    """How many have told anything."""
    coming: int
    """How many are about to."""
    now: Millis
    """What time it is by the database's clock."""
    drift: int | None
    """Of the first of them by name that has one and comes before this member."""
    idle: Millis | None
    """Highest watermark of those that are idle."""
    lasting: str | None = None
    """One of them whose row claims a time-to-live beyond the longest."""


class GroupStore:
    """What members tell each other in a database. Not for use by several threads at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._logged: set[str] = set()

    @property
    def shown(self) -> str:
        """Kind, host and name of the database: what else a URL has may be secret."""
        return self._database.shown

    def exchange(self, who: Identity, report: GroupMember | None, *, takes_over: bool = True) -> Answer | None:
        """Tell the others what this member has come to, and return what they have told.

        Args:
            who: the member.
            report: ``None`` while it has nothing to tell: what it told before, in another process, still holds.
            takes_over: whether its row may have been another process's until now.

        Returns:
            ``None`` if another process has taken its row.

        Raises:
            UnreachableError: the database does not answer.
            RefusedError: it does, and does not let us.
            CorruptDataError: it tells what no member writes.
        """
        told = report or GroupMember()
        own = {
            "group_name": who.group,
            "member": who.member,
            "writer": who.writer,
            # For people to read.
            "source": who.source[:LONGEST_NAME],
            "max_drift": who.max_drift,
            "status": statements.COMING if report is None else told.status.value,
            "watermark": told.watermark,
            "counts_with": counts_with(told),
            "time_to_live": who.time_to_live,
        }
        found = self._database.exchange(own, tells=report is not None, takes_over=takes_over)
        if found is None:
            return None
        answer = Answer._make(found)
        self._check_drift(answer.drift)
        if answer.minimum is not None:
            self._check("counts_with", answer.minimum, is_right=isinstance(answer.minimum, int))
            self._check("source", answer.slowest, is_right=isinstance(answer.slowest, str))
        if answer.idle is not None:
            self._check("watermark", answer.idle, is_right=isinstance(answer.idle, int))
        return self._bounded(answer)

    def _bounded(self, answer: Answer) -> Answer:
        """Return an answer in which no row of another program counts for longer, or as later, than a source's may."""
        if answer.lasting is not None:
            self._warn(
                f"has a row of {_printable(answer.lasting)} whose time_to_live is more than a day, which counts as a "
                "day; no source writes so much"
            )
        if answer.slowest is not None:
            answer = answer._replace(slowest=_printable(answer.slowest))
        if answer.minimum is not None and answer.minimum > LAST_MOMENT:
            self._warn(f"has a watermark after the year 9999, of {answer.slowest}: nobody goes by it")
            answer = answer._replace(minimum=None, slowest=None)
        if answer.idle is not None and answer.idle > LAST_MOMENT:
            self._warn("has an idle member with a watermark after the year 9999: nobody goes by it")
            answer = answer._replace(idle=None)
        return answer

    def _warn(self, what: str) -> None:
        """Log what a row says, once for each such row."""
        if what not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(what)
            _log.warning(
                "the store of the alignment group, %s, %s. If it was written by hand, delete it", self.shown, what
            )

    def join(self, who: Identity) -> bool:
        """Look whether the group has room for a member, and return whether others with another drift are silent.

        Raises:
            UsageError: its drift is not the group's.
            UnreachableError, RefusedError, CorruptDataError: as ``exchange``.
        """
        if who.max_drift is None:
            return False
        other, silent = (self._other_drift(who, who.max_drift, alive=alive) for alive in (True, False))
        self._check_drift(other)
        if other is not None:
            raise another_drift(who.source, who.max_drift, who.group, other)
        return silent is not None

    def leave(self, who: Identity) -> None:
        """Have the others forget this member, if it is not another process's by now. Raises as ``exchange``."""
        own = {"group_name": who.group, "member": who.member, "writer": who.writer}
        self._database.ask(statements.leave(self._database.dialect), own)

    def close(self) -> None:
        """Close the connection; the next call makes another."""
        self._database.close()

    def _other_drift(self, who: Identity, max_drift: int, *, alive: bool) -> int | None:
        statement = statements.other_drift(self._database.dialect, alive=alive)
        own = {"group_name": who.group, "member": who.member, "max_drift": max_drift}
        found: int | None = self._database.ask(statement, own)
        return found

    def _check_drift(self, found: object) -> None:
        self._check("max_drift", found, is_right=found is None or (isinstance(found, int) and found >= 0))

    def _check(self, column: str, found: object, *, is_right: bool) -> None:
        """See that a value is one that members write: SQLite takes any text for a number."""
        if not is_right:
            raise CorruptDataError(
                f"the store of the alignment group, {self.shown}, has in column {column} of table {statements.TABLE} "
                f"what no member writes, {shortened(repr(found))}: delete that row"
            )


def _printable(name: object) -> str:
    """Return a member's name as one line: it goes into logs and the status."""
    return "".join(each if each.isprintable() else "?" for each in str(name))


# The row by which a source is a member of its group: one process at a time writes it.


class OwnRow:
    """Written by the thread that talks to the store."""

    def __init__(self, store: GroupStore, who: Identity) -> None:
        self._store = store
        self._who = who._replace(writer=secrets.token_hex(8))
        self._clock = Clock()
        self._is_ours = False
        """Whether this process has written it."""
        self._spoke_at: Millis | None = None

    @property
    def who(self) -> Identity:
        """Whose row it is: another member's when it turns out that two processes have the first."""
        return self._who

    @property
    def place(self) -> str:
        """Where it is, without what is secret."""
        return self._store.shown

    def join(self) -> bool:
        """Join the group; return whether members with another drift are there that have been silent for too long.

        Raises:
            UsageError: the group has another drift.
        """
        return self._store.join(self._who)

    def was_out(self) -> bool:
        """Whether the others may have gone on without this one, and with another drift: it comes as if it were new."""
        return self._spoke_at is not None and self._clock.now() - self._spoke_at > self._who.time_to_live

    def exchange(self, report: GroupMember | None) -> Answer:
        """Write what this source has come to, and return what the others have.

        Raises:
            UsageError: the group has another drift.
        """
        spoke_at = self._clock.now()
        while (answer := self._store.exchange(self._who, report, takes_over=not self._is_ours)) is None:
            self._take_another_name()
        self._is_ours, self._spoke_at = True, spoke_at
        if answer.drift is not None and self._who.max_drift not in (None, answer.drift):
            # They came at once, and neither saw the other when it looked.
            raise other_drift(self._who.source, self._who.max_drift or 0, self._who.group, answer.drift)
        return answer

    def leave(self) -> None:
        """Leave the group and the store."""
        try:
            self._store.leave(self._who)
        except Exception as trouble:  # noqa: BLE001 - as while it was there, and nobody is left to be told
            _log.debug("left the alignment group without a word: %s", trouble)
        finally:
            self._store.close()

    def _take_another_name(self) -> None:
        """Leave the row to the process that has taken it: both go by the checkpoint that one has copied."""
        self._who = self._who._replace(member=secrets.token_hex(6))
        self._is_ours = False
        _log.warning(
            "another process goes by this source's name in the alignment group %s, as after a copy of a checkpoint; it "
            "takes another one", self._who.group,
        )  # fmt: skip
