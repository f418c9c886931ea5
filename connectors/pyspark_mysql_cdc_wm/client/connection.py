"""A connection that asks questions: kept open, opened anew when it was lost, every answer within a time limit."""

from __future__ import annotations

import contextlib
import logging
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pymysql
import pymysql.connections

from pyspark_mysql_cdc_wm.client.login_settings import ANSWER_SECONDS, ClientSettings
from pyspark_mysql_cdc_wm.client.server_errors import (
    LOG_CANNOT_BE_READ,
    ErrorKind,
    code_of,
    kind_of,
    needs_tls,
    server_error,
    timed_out,
)
from pyspark_mysql_cdc_wm.client.tls import Tls, tls_context
from watermark_source.errors import ResponseTimeoutError, SourceError, UnreachableError, WatermarkSourceError

_log = logging.getLogger(__name__)

LOCK_WAIT_SECONDS = 5
"""Seconds that a look-up waits for a table which another session has locked."""
_SESSION = (
    # Moments are told and compared as in the binlog.
    "SET SESSION time_zone = '+00:00'"
    # A limit that the server has for statements would end the SELECT of a large table.
    " /*!80000 , max_execution_time = 0 */ /*M!100100 , max_statement_time = 0 */"
    # Limits for rows would cut it, or refuse it.
    " , sql_select_limit = 18446744073709551615, sql_big_selects = 1"
    # A key that the server generated is one to cut a snapshot by, also where tables are shown without it.
    " /*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
)
_PAUSE_SECONDS = 0.25
NOT_UNDERSTOOD = (AssertionError, LookupError, ValueError, struct.error)
"""What PyMySQL raises at bytes that are no answer of a MySQL server."""
_NOTHING_VERIFIED = Tls()
_NAME = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_id')"
Row = tuple[Any, ...]
_Answer = TypeVar("_Answer")


class _Result(pymysql.connections.MySQLResult):  # type: ignore[misc]
    """PyMySQL's, which ends at a text that is not UTF-8, within the answer.

    Servers send some texts as they once got them, in any character set: the statements in SHOW BINLOG EVENTS, and on
    MariaDB expressions in SHOW CREATE TABLE. Bytes that are not UTF-8 are lone surrogates here.
    """

    converters: list[tuple[str | None, Any]]

    def _get_descriptions(self) -> None:
        super()._get_descriptions()
        self.converters = [
            (None, _text) if encoding not in {None, "ascii"} and converter is None else (encoding, converter)
            for encoding, converter in self.converters
        ]


def _text(sent: bytes) -> str:
    return sent.decode("utf-8", "surrogateescape")


class _Connection(pymysql.connections.Connection):  # type: ignore[misc]
    """PyMySQL's, except for texts (see ``_Result``), and for TLS that verifies nothing.

    Before each such connection PyMySQL reads all certificates the system trusts: 30 ms of a core, most of what a short
    task took.
    """

    def _create_ssl_ctx(self, given: Any) -> ssl.SSLContext:
        return given if isinstance(given, ssl.SSLContext) else tls_context(_NOTHING_VERIFIED)

    def query(self, sql: str | bytes, unbuffered: bool = False) -> Any:
        """Send a statement; names in it may be such texts."""
        sent = sql.encode("utf-8", "surrogateescape") if isinstance(sql, str) else sql
        return super().query(sent, unbuffered)

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        self._result = None
        result = _Result(self)
        if unbuffered:
            result.init_unbuffered_query()
        else:
            result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows


def connected(settings: ClientSettings) -> Any:
    """Return a connection of PyMySQL's; a server that cannot be reached is tried again as long as they say.

    Raises:
        SourceError: the server cannot be reached, or refuses, or is not the one it must be.
        OptionError: a certificate that cannot be read.
    """
    until, told = time.monotonic() + settings.patience_seconds, False
    given = settings.for_pymysql()
    while True:
        try:
            return _same(_Connection(init_command=_SESSION, **given), settings)
        except WatermarkSourceError:
            raise
        except RuntimeError as failure:
            # PyMySQL's word for a package that this login needs and that is not installed.
            raise needs_tls(settings.where, settings.username) from failure
        except (pymysql.MySQLError, OSError, *NOT_UNDERSTOOD) as failure:
            error = server_error(failure, settings.where, settings.username)
            if not isinstance(error, UnreachableError | ResponseTimeoutError) or time.monotonic() > until:
                raise error from failure
        if not told:
            _log.warning("%s; trying again for up to %g s", error, settings.patience_seconds)
            told = True
        time.sleep(_PAUSE_SECONDS)


def _same(connection: Any, settings: ClientSettings) -> Any:
    if settings.server is None:
        return connection
    try:
        with connection.cursor() as cursor:
            cursor.execute(_NAME)
            found = _name(cursor.fetchall())
    except BaseException:
        connection._force_close()  # noqa: SLF001 - close() would wait for an answer
        raise
    if found != settings.server:
        connection.close()
        raise SourceError(
            f"{settings.where} is another server now ({found}) than when the query was started ({settings.server}). "
            "Start the query again: it goes on with the new one"
        )
    return connection


def _name(variables: Sequence[Row]) -> str:
    """Return what tells a server from its replicas, whose binlogs have other positions; MariaDB has no UUID."""
    found = {str(name): str(value) for name, value in variables}
    return found.get("server_uuid") or f"server_id {found.get('server_id')}"


class MySqlConnection:
    """Asks one server. Not for several threads."""

    def __init__(self, settings: ClientSettings) -> None:
        """Take the settings; the first question connects."""
        self.settings = settings
        self._connection: Any = None
        self._variables: dict[str, str] = {}
        """Of the session, by name: set again on each new connection."""

    def rows(self, statement: str, *values: Any, if_slow: str | None = None) -> tuple[Row, ...]:
        """Return the rows of a statement; its ``%s`` are filled in with values. Raises as ``together``."""
        return self._repeated(lambda: self._ask(statement, values), if_slow)

    def together(self, *statements: str) -> tuple[tuple[Row, ...], ...]:
        """Return the rows of statements that one connection must execute, one after another.

        What fails and may succeed a moment later (``ErrorKind.passes``) is sent again: at once, and then for as long as
        the settings' patience goes. So is all of several statements, from the first on, on another connection if that
        one was lost. Where ``if_slow`` says what mends it, a statement that took too long is not sent again: the server
        may be executing the first still.

        Raises:
            ResponseTimeoutError: there was no answer in time, and ``if_slow`` is given.
            SourceError: the server cannot be reached, or refuses.
        """
        return self._repeated(lambda: tuple(self._ask(each, ()) for each in statements), None)

    @contextlib.contextmanager
    def variable(self, name: str, value: str) -> Iterator[None]:
        """Set a variable of the session, also of the connections that replace this one, until the end."""
        try:
            self._variables[name] = value
            self.rows(f"SET SESSION {name} = {value}")
            yield
        finally:
            del self._variables[name]
            try:
                if self._connection is not None:
                    self._ask(f"SET SESSION {name} = DEFAULT", ())
            except (pymysql.MySQLError, OSError, *NOT_UNDERSTOOD):
                # The next one has the default.
                self.close()

    def _repeated(self, ask: Callable[[], _Answer], if_slow: str | None) -> _Answer:
        until: float | None = None
        told = False
        while True:
            had = self._connection is not None
            try:
                return ask()
            except WatermarkSourceError:
                raise
            except (pymysql.MySQLError, OSError, *NOT_UNDERSTOOD) as failure:
                kind = kind_of(failure)
                if kind is ErrorKind.LOST:
                    self.close()
                if if_slow is not None and timed_out(failure):
                    raise ResponseTimeoutError(
                        f"{self.settings.where} did not answer within {ANSWER_SECONDS} s, and may be at it still. "
                        f"{if_slow}"
                    ) from failure
                error = server_error(failure, self.settings.where, self.settings.username)
                if kind is None or not kind.passes:
                    raise error from failure
                if until is None:
                    until = time.monotonic() + self.settings.patience_seconds
                    # An old connection may have been lost long ago.
                    if had:
                        continue
                if time.monotonic() >= until:
                    raise error from failure
                if not told:
                    _log.warning("%s; trying again for up to %g s", error, self.settings.patience_seconds)
                    told = True
            time.sleep(_PAUSE_SECONDS)

    def one(self, statement: str, *values: Any, if_slow: str | None = None) -> Row | None:
        """Return the first row of a statement, ``None`` if there is none; as ``rows``."""
        found = self.rows(statement, *values, if_slow=if_slow)
        return found[0] if found else None

    def stay(self) -> str:
        """Return what tells this server from its replicas; from now on no other one is asked."""
        name = _name(self.rows(_NAME))
        self.settings = replace(self.settings, server=name)
        return name

    @property
    def server_version(self) -> str:
        """What the server said it is when the connection was made."""
        if self._connection is None:
            self.rows("SELECT 1")
        return str(self._connection.get_server_info())

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is MariaDB."""
        return "mariadb" in self.server_version.lower()

    def close(self) -> None:
        """End the connection; the next question opens another."""
        if self._connection is not None:
            with contextlib.suppress(pymysql.MySQLError, OSError):
                self._connection.close()
            self._connection = None

    def _ask(self, statement: str, values: tuple[Any, ...]) -> tuple[Row, ...]:
        if self._connection is None:
            self._connection = connected(self.settings)
            try:
                for name, value in self._variables.items():
                    self._execute(f"SET SESSION {name} = {value}", ())
            except BaseException:
                # One with some of the variables alone is no substitute.
                self.close()
                raise
        return self._execute(statement, values)

    def _execute(self, statement: str, values: tuple[Any, ...]) -> tuple[Row, ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return tuple(cursor.fetchall())


# Whether a user may dump the binlog: it is asked for, without what reads it.


_DUMP = 0x12
# Position, flags (end at the end), server id, and no file: the oldest.
_ASKED = struct.pack("<IHI", 4, 1, 0)


def check_may_dump(settings: ClientSettings) -> None:
    """Ask for the binlog, and look at the first answer.

    Raises:
        RefusedError: the user may not.
        SourceError: the server cannot be reached.
    """
    connection = connected(settings)
    try:
        connection._execute_command(_DUMP, _ASKED)  # noqa: SLF001 - PyMySQL has no public name for it
        connection._read_packet()  # noqa: SLF001 - see above
    except (pymysql.MySQLError, OSError, *NOT_UNDERSTOOD) as failure:
        # What else is wrong with the binlog is told to those who may have it.
        if code_of(failure) != LOG_CANNOT_BE_READ:
            raise server_error(failure, settings.where, settings.username) from failure
    finally:
        connection._force_close()  # noqa: SLF001 - close() would wait for an answer


@contextlib.contextmanager
def waiting_for_locks(connection: MySqlConnection) -> Iterator[None]:
    """Wait at most ``LOCK_WAIT_SECONDS`` for a locked table, not the server's year; it then answers ``LOCKED``."""
    with connection.variable("lock_wait_timeout", str(LOCK_WAIT_SECONDS)):
        yield
