"""ServerDatabase: a group's members in a database server, which drivers share, through SQLAlchemy."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    CursorResult,
    Engine,
    Index,
    MetaData,
    PrimaryKeyConstraint,
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

from watermark_source.errors import SourceError
from watermark_source.group_store import failures, statements, store_waits
from watermark_source.group_store.statements import COLUMNS, INDEX, INDEXED, KEY, NULLABLE, TABLE, TEXTS

METADATA = MetaData()
_COLUMNS = [
    Column(name, String(TEXTS[name]) if name in TEXTS else BigInteger, nullable=name in NULLABLE) for name in COLUMNS
]
MEMBERS = Table(TABLE, METADATA, *_COLUMNS, PrimaryKeyConstraint(*KEY), Index(INDEX, *INDEXED))
"""One row for each source of a group; ``file_database`` creates the same table in SQLite.

``watermark`` and ``counts_with`` are event times in milliseconds; ``counts_with`` is null if no member waits for the
source. ``seen`` is in milliseconds of the database's own clock, so that the drivers' clocks need not agree. ``writer``
identifies the process that wrote the row last: two processes with the same ``member``, as after a copy of a checkpoint,
detect each other by it.
"""

_ACCEPTED = "must be the URL of a database in SQLAlchemy's form"
_REFUSALS = (ProgrammingError, DataError, IntegrityError)
"""Errors of a database that answers."""


class ServerDatabase:
    """Implements ``Database``."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._engine: Engine | None = None
        self._connection: object = None
        """The connection of the database's driver, which ``cut_when_late`` closes."""

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the SQL dialect."""
        return self._url.get_backend_name()

    @property
    def location(self) -> str:
        """Kind, host and name for logs and errors. The rest of the URL may hold secrets."""
        return f"{self.dialect} {self._url.host or ''}/{self._url.database or ''}"

    def exchange(self, row: Mapping[str, Any], *, has_report: bool, takes_over: bool) -> tuple[Any, ...] | None:
        """Implement ``Database.exchange``: one statement where the dialect can, else up to three in a transaction."""
        if self.dialect in statements.AT_ONCE:
            statement = statements.write_and_read(self.dialect, has_report=has_report, takes_over=takes_over)
            return next(iter(self.rows(statement, row)), None)
        with self._transaction() as connection:
            update = statements.update(self.dialect, has_report=has_report, takes_over=takes_over)
            if not _run(connection, update, row).rowcount and not self._insert(connection, row):
                return None
            return tuple(_run(connection, statements.others(self.dialect), row).one())

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Implement ``Database.rows``."""
        with self._transaction() as connection:
            result = _run(connection, statement, parameters)
            return [tuple(row) for row in result.all()] if result.returns_rows else []

    def close(self) -> None:
        """Implement ``Database.close``."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = self._connection = None

    def _insert(self, connection: Connection, row: Mapping[str, Any]) -> bool:
        """Insert a row; return false if the row exists, which means that another process has written it."""
        try:
            with connection.begin_nested():
                _run(connection, statements.insert(self.dialect), row)
        except IntegrityError:
            if _run(connection, statements.OWN_ROW, row).first() is None:
                raise
            return False
        return True

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with cut_when_late(lambda: self._connection), self._open().begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self._declared(error) from None
        except Exception:
            # After an error that SQLAlchemy does not wrap, the driver's connection may be in any state.
            self.close()
            raise

    def _open(self) -> Engine:
        if self._engine is None:
            # The driver enforces its time limits on the statement that creates the table, too.
            engine = create_engine(self._url, connect_args=connect_arguments(self._url))
            # With AUTOCOMMIT one statement is one round trip instead of three. Several statements at READ COMMITTED
            # lock no rows of members that write at the same moment.
            at_once = self.dialect in statements.AT_ONCE
            engine = engine.execution_options(isolation_level="AUTOCOMMIT" if at_once else "READ COMMITTED")
            event.listen(engine, "connect", self._keep_connection, insert=True)
            try:
                failures.create(partial(METADATA.create_all, engine), SQLAlchemyError)
            except BaseException:
                engine.dispose()
                raise
            self._engine = engine
        return self._engine

    def _keep_connection(self, connection: object, _: object) -> None:
        self._connection = connection

    def _declared(self, error: SQLAlchemyError) -> SourceError:
        self.close()
        reason = str(getattr(error, "orig", None) or error).strip().replace("\n", " ")
        named = failures.refused if isinstance(error, _REFUSALS) else failures.unanswered
        return named(self.location, reason)


def server_database(given: str) -> ServerDatabase:
    """Return the database of a URL, validated without connecting.

    Raises:
        OptionError: the URL is invalid, or the package for its database is not installed.
    """
    try:
        url = make_url(given)
        dialect = url.get_dialect()
        dialect.import_dbapi()
    except (ArgumentError, ValueError):
        # A text that cannot be parsed may hold a password anywhere, so the error does not quote it.
        raise failures.not_accepted(None, f"{_ACCEPTED}, and this one is not") from None
    except NoSuchModuleError:
        accepted = f"{_ACCEPTED}, with a database that SQLAlchemy supports"
        raise failures.not_accepted(given.split(":", 1)[0], accepted) from None
    except ImportError as error:
        raise failures.not_accepted(url.drivername, f"needs the package of that database: {error}") from None
    if dialect.is_async:
        raise failures.not_accepted(url.drivername, "is a driver for asynchronous programs only")
    return ServerDatabase(url)


def _run(connection: Connection, statement: str, parameters: Mapping[str, Any]) -> CursorResult[Any]:
    # SQLAlchemy refuses parameters that a statement does not name.
    prepared = text(statement)
    named = {name: value for name, value in parameters.items() if name in prepared._bindparams}  # noqa: SLF001
    return connection.execute(prepared, named)


_OF_POSTGRESQL = {
    "connect_timeout": store_waits.ONE_CALL,
    "options": f"-c statement_timeout={store_waits.ONE_CALL * 1_000}",
}
_OF_MYSQL = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), store_waits.ONE_CALL)
_BY_DRIVER: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("psycopg", "psycopg2"), _OF_POSTGRESQL),
    "pg8000": {"timeout": store_waits.ONE_CALL},
    **dict.fromkeys(("pymysql", "mysqldb"), _OF_MYSQL),
}


def connect_arguments(url: URL) -> dict[str, Any]:
    """Return the driver's time-out arguments, without those the URL already sets."""
    known = _BY_DRIVER.get(url.get_driver_name(), {})
    return {name: value for name, value in known.items() if name not in url.query}


@contextlib.contextmanager
def cut_when_late(connection: Callable[[], object]) -> Iterator[None]:
    """Shut the connection's socket down each time the block has run for ``store_waits.CUT_AFTER`` seconds.

    It ends every wait for a database that is frozen, unreachable or slow: PostgreSQL's drivers wait for an answer
    without a time limit of their own. A driver's connection without a socket is left alone.
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
    # The connection may be closed meanwhile, and drivers raise various errors then.
    with contextlib.suppress(Exception):
        number = connection.fileno()  # type: ignore[attr-defined]
        with contextlib.closing(socket.socket(fileno=number)) as cut:
            try:
                cut.shutdown(socket.SHUT_RDWR)
            finally:
                # The driver closes the descriptor.
                cut.detach()
