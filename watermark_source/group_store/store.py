"""The store: a database in which members meet, opened when it is first needed and again after it was lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    IntegrityError,
    NoSuchModuleError,
    ProgrammingError,
    SQLAlchemyError,
)

from watermark_source.alignment.group import LONGEST_NAME, GroupMember, counts_with
from watermark_source.alignment.group import other_drift as another_drift
from watermark_source.errors import CorruptDataError, OptionError, RefusedError, UnreachableError, shortened
from watermark_source.eventtime.watermark import Millis
from watermark_source.group_store.open_file import OpenFile
from watermark_source.group_store.statements import exchange, leave, other_drift, writes_and_tells_at_once
from watermark_source.group_store.table import COMING, MEMBERS, METADATA
from watermark_source.group_store.time_limit import connect_arguments, cut_when_late

_BUSY_MS = 2_000
"""How long SQLite waits for another writer."""
_ANOTHER_TRY = 0.05
_ACCEPTED = "must be the URL of a database, as SQLAlchemy writes them"
_REFUSALS = (ProgrammingError, DataError, IntegrityError)
"""What says that the database answers, and that the table, or what is in it, is not as it should be."""
_EXAMPLE = "postgresql+psycopg://user@host/database"


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


class GroupStore:
    """One connection to the database. Not for use by several threads at once."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._engine: Engine | None = None
        self._connection: object = None
        """The driver's own, for the time limit."""
        self._file: OpenFile | None = None

    @property
    def shown(self) -> str:
        """Kind, host and name of the database: what else a URL has may be secret."""
        return f"{self._url.get_backend_name()} {self._url.host or ''}/{self._url.database or ''}"

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
            "status": COMING if report is None else told.status.value,
            "watermark": told.watermark,
            "counts_with": counts_with(told),
            "time_to_live": who.time_to_live,
        }
        with self._transaction() as connection:
            found = exchange(connection, own, tells=report is not None, takes_over=takes_over)
        if found is None:
            return None
        answer = Answer._make(found)
        self._check_drift(answer.drift)
        if answer.minimum is not None:
            self._check("counts_with", answer.minimum, is_right=isinstance(answer.minimum, int))
            self._check("source", answer.slowest, is_right=isinstance(answer.slowest, str))
        if answer.idle is not None:
            self._check("watermark", answer.idle, is_right=isinstance(answer.idle, int))
        return answer

    def join(self, who: Identity) -> bool:
        """Look whether the group has room for a member, and return whether others with another drift are silent.

        Raises:
            UsageError: its drift is not the group's.
            UnreachableError, RefusedError, CorruptDataError: as ``exchange``.
        """
        if who.max_drift is None:
            return False
        with self._transaction() as connection:
            other, silent = (
                other_drift(connection, who.group, who.member, who.max_drift, alive=alive) for alive in (True, False)
            )
        self._check_drift(other)
        if other is not None:
            raise another_drift(who.source, who.max_drift, who.group, other)
        return silent is not None

    def leave(self, who: Identity) -> None:
        """Have the others forget this member, if it is not another process's by now. Raises as ``exchange``."""
        with self._transaction() as connection:
            leave(connection, who.group, who.member, who.writer)

    def close(self) -> None:
        """Close the connection; the next call makes another."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = self._connection = self._file = None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        if self._file is not None and not self._file.is_in_place:
            self.close()
            raise UnreachableError(
                f"the store of the alignment group, {self.shown}, does not answer: its file was removed while open"
            )
        # A file has no socket that could be waited for.
        limit = contextlib.nullcontext() if self._is_file else cut_when_late(lambda: self._connection)
        try:
            with limit, self._opened().begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self._lost(error) from None
        except Exception:
            # A driver that fails in a way of its own may have left its connection in any state.
            self.close()
            raise

    @property
    def _is_file(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    def _opened(self) -> Engine:
        if self._engine is None:
            # The limits of time are the driver's, the table's making included.
            engine = create_engine(self._url, connect_args=connect_arguments(self._url))
            # One statement is a transaction by itself, and one question to the server instead of three. Several lock
            # no rows of others, which come at the same moment.
            at_once = writes_and_tells_at_once(engine.dialect)
            engine = engine.execution_options(isolation_level="AUTOCOMMIT" if at_once else "READ COMMITTED")
            event.listen(engine, "connect", self._connected, insert=True)
            try:
                _create_table(engine)
                if self._is_file:
                    self._file = OpenFile(_path_of(self._connection))
            except BaseException:
                engine.dispose()
                raise
            self._engine = engine
        return self._engine

    def _connected(self, connection: object, _: object) -> None:
        self._connection = connection
        if self._is_file:
            _for_many_processes(connection)

    def _check_drift(self, found: object) -> None:
        self._check("max_drift", found, is_right=found is None or (isinstance(found, int) and found >= 0))

    def _check(self, column: str, found: object, *, is_right: bool) -> None:
        """See that a value is one that members write: SQLite takes any text for a number."""
        if not is_right:
            raise CorruptDataError(
                f"the store of the alignment group, {self.shown}, has in column {column} of table {MEMBERS.name} what "
                f"no member writes, {shortened(repr(found))}: delete that row"
            )

    def _lost(self, error: SQLAlchemyError) -> UnreachableError | RefusedError:
        self.close()
        said = str(getattr(error, "orig", None) or error).strip().replace("\n", " ")
        if isinstance(error, _REFUSALS):
            return RefusedError(f"the store of the alignment group, {self.shown}, refuses: {said}")
        return UnreachableError(f"the store of the alignment group, {self.shown}, does not answer: {said}")


def store_url(text: str) -> URL:
    """Return the URL of a store, checked as far as that goes without a connection.

    Raises:
        OptionError: it is no such URL, or the package for its database is missing.
    """
    try:
        url = make_url(text)
        dialect = url.get_dialect()
        dialect.import_dbapi()
        if dialect.is_async:
            raise OptionError(
                "alignmentStore", url.drivername, "is a driver for asynchronous programs only", example=_EXAMPLE
            )
        if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
            raise OptionError("alignmentStore", None, "a database in memory is nobody else's", example=_EXAMPLE)
    except OptionError:
        raise
    except (ArgumentError, ValueError):
        # What cannot be read may have a password anywhere.
        raise OptionError("alignmentStore", None, f"{_ACCEPTED}, and this one is not", example=_EXAMPLE) from None
    except NoSuchModuleError:
        seen = text.split(":", 1)[0]
        raise OptionError("alignmentStore", seen, f"{_ACCEPTED}, of one that it knows", example=_EXAMPLE) from None
    except ImportError as error:
        raise OptionError(
            "alignmentStore", url.drivername, f"needs the package of that database: {error}", example=_EXAMPLE
        ) from None
    return url


def _create_table(engine: Engine, tries: int = 3) -> None:
    """Make the table if it is not there. Several members may come at once, and only one of them makes it."""
    try:
        METADATA.create_all(engine)
    except SQLAlchemyError:
        if tries == 1:
            raise
        time.sleep(_ANOTHER_TRY)
        _create_table(engine, tries - 1)


def _path_of(connection: object) -> str:
    """Return where a connection's file is: the URL may say it in several ways."""
    _, _, path = connection.execute("PRAGMA database_list").fetchone()  # type: ignore[attr-defined]
    return str(path)


def _for_many_processes(connection: object) -> None:
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")  # type: ignore[attr-defined]
    connection.execute("PRAGMA journal_mode = WAL")  # type: ignore[attr-defined]
    # Members tell everything again within a second: nothing in there has to outlive a crash of the machine.
    connection.execute("PRAGMA synchronous = OFF")  # type: ignore[attr-defined]
