"""A database server in which members of several drivers meet: any that SQLAlchemy knows."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    CursorResult,
    Engine,
    Index,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    IntegrityError,
    NoSuchModuleError,
    ProgrammingError,
    SQLAlchemyError,
)

from watermark_source.errors import OptionError, RefusedError, UnreachableError
from watermark_source.group_store import statements, store_waits
from watermark_source.group_store.statements import INDEX, TABLE
from watermark_source.planning.group import LONGEST_NAME

# The table of members as SQLAlchemy has it, for servers; SQLite's is in ``file_database``.


METADATA = MetaData()
_NAME = String(LONGEST_NAME)
MEMBERS = Table(
    TABLE,
    METADATA,
    Column("group_name", _NAME, primary_key=True),
    Column("member", _NAME, primary_key=True),
    Column("writer", String(32), nullable=False),
    Column("source", _NAME, nullable=False),
    Column("max_drift", BigInteger),
    Column("status", String(16), nullable=False),
    Column("watermark", BigInteger),
    Column("counts_with", BigInteger),
    Column("time_to_live", BigInteger, nullable=False),
    Column("seen", BigInteger, nullable=False),
    Index(INDEX, "group_name", "counts_with", "source"),
)
"""One row for each source that names a group. Times are milliseconds: ``watermark`` and ``counts_with``, which is null
of a member nobody waits for, of event time; ``seen`` of the database's own clock, so that nobody's clock has to agree
with anybody's. ``writer`` is the process that wrote the row last: two that have the same ``member``, because a
checkpoint was copied, see each other by it. ``file_database`` makes the same in SQLite."""


# Call limit: no call of a database's driver takes longer, whether the database is gone, frozen or only slow.


_OF_POSTGRESQL = {
    "connect_timeout": store_waits.ONE_CALL,
    "options": f"-c statement_timeout={store_waits.ONE_CALL * 1_000}",
}
_OF_MYSQL = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), store_waits.ONE_CALL)
_BY_DRIVER: Mapping[str, Mapping[str, Any]] = {
    "psycopg": _OF_POSTGRESQL,
    "psycopg2": _OF_POSTGRESQL,
    "pg8000": {"timeout": store_waits.ONE_CALL},
    "pymysql": _OF_MYSQL,
    "mysqldb": _OF_MYSQL,
}


def connect_arguments(url: URL) -> dict[str, Any]:
    """Return what a driver is told about time, but for what the URL says itself."""
    known = _BY_DRIVER.get(url.get_driver_name(), {})
    return {name: value for name, value in known.items() if name not in url.query}


@contextlib.contextmanager
def cut_when_late(connection: Callable[[], object]) -> Iterator[None]:
    """Cut the driver's connection, if it is one with a socket, whenever the block has taken so long.

    PostgreSQL's drivers wait for an answer without limit: a server that is frozen, or a machine that is gone without a
    word, would be waited for for ever.
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(store_waits.CUT_AFTER):
            _cut(connection())

    threading.Thread(target=watch, name="alignment store's time limit", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _cut(connection: object) -> None:
    # It may be closed meanwhile, whatever a driver raises then.
    with contextlib.suppress(Exception):
        number = connection.fileno()  # type: ignore[attr-defined]
        with contextlib.closing(socket.socket(fileno=number)) as cut:
            try:
                cut.shutdown(socket.SHUT_RDWR)
            finally:
                # The driver closes its descriptor itself.
                cut.detach()


_TRIES, _ANOTHER_TRY = 3, 0.05
_ACCEPTED = "must be the URL of a database, as SQLAlchemy writes them"
_REFUSALS = (ProgrammingError, DataError, IntegrityError)
"""What says that the database answers, and that the table, or what is in it, is not as it should be."""


class ServerDatabase:
    """``Database`` by SQLAlchemy."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._engine: Engine | None = None
        self._connection: object = None
        """The driver's own, for the time limit."""

    @property
    def dialect(self) -> str:
        """By which its statements are written."""
        return self._url.get_backend_name()

    @property
    def shown(self) -> str:
        """Kind, host and name: what else a URL has may be secret."""
        return f"{self.dialect} {self._url.host or ''}/{self._url.database or ''}"

    def exchange(self, own: Mapping[str, Any], *, tells: bool, takes_over: bool) -> tuple[Any, ...] | None:
        """As ``Database.exchange``: one statement where it can be, up to three in a transaction elsewhere."""
        with self._transaction() as connection:
            if self.dialect in statements.AT_ONCE:
                statement = statements.write_and_tell(self.dialect, tells=tells, takes_over=takes_over)
                found = _run(connection, statement, own).first()
                return None if found is None else tuple(found)
            changed = statements.change(self.dialect, tells=tells, takes_over=takes_over)
            if not _run(connection, changed, own).rowcount and not self._is_added(connection, own):
                return None
            return tuple(_run(connection, statements.answer(self.dialect), own).one())

    def ask(self, statement: str, parameters: Mapping[str, Any]) -> Any:
        """As ``Database.ask``."""
        with self._transaction() as connection:
            result = _run(connection, statement, parameters)
            return result.scalar() if result.returns_rows else None

    def close(self) -> None:
        """As ``Database.close``."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = self._connection = None

    def _is_added(self, connection: Connection, own: Mapping[str, Any]) -> bool:
        """Add a row; false if it is there, and another process's."""
        try:
            with connection.begin_nested():
                _run(connection, statements.add(self.dialect), own)
        except IntegrityError:
            if _run(connection, statements.taken(), own).first() is None:
                raise
            return False
        return True

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with cut_when_late(lambda: self._connection), self._opened().begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self._lost(error) from None
        except Exception:
            # A driver that fails in a way of its own may have left its connection in any state.
            self.close()
            raise

    def _opened(self) -> Engine:
        if self._engine is None:
            # The limits of time are the driver's, the table's making included.
            engine = create_engine(self._url, connect_args=connect_arguments(self._url))
            # One statement is a transaction by itself, and one question to the server instead of three. Several lock
            # no rows of others, which come at the same moment.
            at_once = self.dialect in statements.AT_ONCE
            engine = engine.execution_options(isolation_level="AUTOCOMMIT" if at_once else "READ COMMITTED")
            event.listen(engine, "connect", self._connected, insert=True)
            try:
                _create_table(engine)
            except BaseException:
                engine.dispose()
                raise
            self._engine = engine
        return self._engine

    def _connected(self, connection: object, _: object) -> None:
        self._connection = connection

    def _lost(self, error: SQLAlchemyError) -> UnreachableError | RefusedError:
        self.close()
        said = str(getattr(error, "orig", None) or error).strip().replace("\n", " ")
        if isinstance(error, _REFUSALS):
            return RefusedError(f"the store of the alignment group, {self.shown}, refuses: {said}")
        return UnreachableError(f"the store of the alignment group, {self.shown}, does not answer: {said}")


def server_database(given: str, *, example: str) -> ServerDatabase:
    """Return the database of a URL, checked as far as that goes without a connection.

    Raises:
        OptionError: it is no such URL, or the package for its database is missing.
    """
    try:
        url = make_url(given)
        dialect = url.get_dialect()
        dialect.import_dbapi()
        if dialect.is_async:
            raise OptionError(
                "alignmentStore", url.drivername, "is a driver for asynchronous programs only", example=example
            )
    except OptionError:
        raise
    except (ArgumentError, ValueError):
        # What cannot be read may have a password anywhere.
        raise OptionError("alignmentStore", None, f"{_ACCEPTED}, and this one is not", example=example) from None
    except NoSuchModuleError:
        seen = given.split(":", 1)[0]
        raise OptionError("alignmentStore", seen, f"{_ACCEPTED}, of one that it knows", example=example) from None
    except ImportError as error:
        raise OptionError(
            "alignmentStore", url.drivername, f"needs the package of that database: {error}", example=example
        ) from None
    return ServerDatabase(url)


def _run(connection: Connection, statement: str, parameters: Mapping[str, Any]) -> CursorResult[Any]:
    # A parameter that the statement does not name is none of its own.
    prepared = text(statement)
    named = {name: value for name, value in parameters.items() if name in prepared._bindparams}  # noqa: SLF001
    return connection.execute(prepared, named)


def _create_table(engine: Engine, tries: int = _TRIES) -> None:
    """Make the table if it is not there. Several members may come at once, and only one of them makes it."""
    try:
        METADATA.create_all(engine)
    except SQLAlchemyError:
        if tries == 1:
            raise
        time.sleep(_ANOTHER_TRY)
        _create_table(engine, tries - 1)
