"""A connection that executes statements: it stays open, reconnects when lost, and limits each wait for a response."""

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

from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings, Tls, tls_context
from pyspark_mysql_cdc_wm.client.server_errors import (
    LOG_CANNOT_BE_READ,
    ErrorKind,
    code_of,
    kind_of,
    needs_tls,
    server_error,
    timed_out,
)
from watermark_source.errors import ResponseTimeoutError, SourceError, UnreachableError, WatermarkSourceError

_log = logging.getLogger(__name__)

LOCK_WAIT_SECONDS = 5
"""Limit in seconds of a look-up's wait for a table that another session has locked."""
_OF_EVERY_CONNECTION = (
    # The binlog's timestamps are UTC, so the session shows and compares them in UTC.
    "SET SESSION time_zone = '+00:00'"
    # The server's execution time limit would abort the SELECT of a large table.
    " /*!80000 , max_execution_time = 0 */ /*M!100100 , max_statement_time = 0 */"
    # The server's row limits would truncate that SELECT, or refuse it.
    " , sql_select_limit = 18446744073709551615, sql_big_selects = 1"
    # A generated invisible primary key cuts a snapshot into chunks, also where the server hides such keys.
    " /*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
)
_COM_BINLOG_DUMP = 0x12
# Position, flags (stop at the end of the binlog), server id, and no file name: the oldest file.
_DUMP_REQUEST = struct.pack("<IHI", 4, 1, 0)
_PAUSE_SECONDS = 0.25
_MOST_BYTES = 256 * 2**20
"""Limit on a response that is kept in memory: a server, or what poses as one, could send without end."""
NOT_UNDERSTOOD = (AssertionError, LookupError, ValueError, struct.error)
"""What PyMySQL raises at bytes that are not a response of a MySQL server."""
_NOTHING_VERIFIED = Tls()
_IDENTITY = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_id')"
Row = tuple[Any, ...]
_Response = TypeVar("_Response")


class MySqlConnection:
    """Executes statements on one server. It is not thread-safe."""

    def __init__(self, settings: LoginSettings) -> None:
        """Take the settings; the first statement connects."""
        self.settings = settings
        self._connection: Any = None
        self._limits_waits = False
        """Whether waits for locks are limited; each new connection limits them again."""

    def rows(self, statement: str, *values: Any, if_slow: str | None = None) -> tuple[Row, ...]:
        """Return the rows of a statement, with ``values`` in place of its ``%s``. Raises as ``together``."""
        return self._retried(lambda: self._query(statement, values), if_slow)

    def together(self, *statements: str) -> tuple[tuple[Row, ...], ...]:
        """Return the rows of several statements that one connection executes in order.

        After a failure that may pass (``ErrorKind.passes``) all statements are sent again from the first on, on a new
        connection if that one was lost: once at once, then until ``settings.patience_seconds`` are over.
        ``if_slow`` ends an error with advice on how to make the statement faster. With it, a statement that timed
        out is not sent again, because the server may still be executing it.

        Raises:
            ResponseTimeoutError: there was no response in time, and ``if_slow`` is given.
            SourceError: the server cannot be reached, or refuses.
        """
        return self._retried(lambda: tuple(self._query(statement, ()) for statement in statements), None)

    @contextlib.contextmanager
    def waiting_for_locks(self) -> Iterator[None]:
        """Limit waits for locked tables to ``LOCK_WAIT_SECONDS`` within a ``with`` block; ``LOCKED`` is the error then.

        This holds on the connections that replace this one too. The server's own limit is a year.
        """
        try:
            self._limits_waits = True
            self.rows(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}")
            yield
        finally:
            self._limits_waits = False
            try:
                if self._connection is not None:
                    self._query("SET SESSION lock_wait_timeout = DEFAULT", ())
            except (pymysql.MySQLError, OSError, *NOT_UNDERSTOOD):
                # The next connection begins with the default.
                self.close()

    def _retried(self, execute: Callable[[], _Response], if_slow: str | None) -> _Response:
        until: float | None = None
        warned = False
        while True:
            was_open = self._connection is not None
            try:
                return execute()
            except WatermarkSourceError:
                raise
            except (pymysql.MySQLError, OSError, *NOT_UNDERSTOOD) as failure:
                kind = kind_of(failure)
                if kind is ErrorKind.LOST:
                    self.close()
                if if_slow is not None and timed_out(failure):
                    raise ResponseTimeoutError(
                        f"{self.settings.where} did not answer within {self.settings.answer_seconds:g} s, and may "
                        f"still be executing the statement. {if_slow}"
                    ) from failure
                error = server_error(failure, self.settings.where, self.settings.username)
                if kind is None or not kind.passes:
                    raise error from failure
                if until is None:
                    until = time.monotonic() + self.settings.patience_seconds
                    # A connection that was open may have been lost long ago.
                    if was_open:
                        continue
                if time.monotonic() >= until:
                    raise error from failure
                if not warned:
                    _log.warning("%s; retrying for up to %g s", error, self.settings.patience_seconds)
                    warned = True
            time.sleep(_PAUSE_SECONDS)

    def one(self, statement: str, *values: Any, if_slow: str | None = None) -> Row | None:
        """Return the first row of a statement, ``None`` without rows; otherwise as ``rows``."""
        rows = self.rows(statement, *values, if_slow=if_slow)
        return rows[0] if rows else None

    def pin_server(self) -> str:
        """Return the server's identity, and refuse to connect to any other server from now on."""
        identity = _identity(self.rows(_IDENTITY))
        self.settings = replace(self.settings, server=identity)
        return identity

    @property
    def server_version(self) -> str:
        """The version that the server sent in the handshake."""
        if self._connection is None:
            self.rows("SELECT 1")
        return version_of(str(self._connection.get_server_info()))

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is MariaDB."""
        return "mariadb" in self.server_version.lower()

    def close(self) -> None:
        """End the connection; the next statement opens another."""
        if self._connection is not None:
            with contextlib.suppress(pymysql.MySQLError, OSError):
                self._connection.close()
            self._connection = None

    def _query(self, statement: str, values: tuple[Any, ...]) -> tuple[Row, ...]:
        if self._connection is None:
            self._connection = connected(self.settings)
            try:
                if self._limits_waits:
                    self._execute(f"SET SESSION lock_wait_timeout = {LOCK_WAIT_SECONDS}", ())
            except BaseException:
                # A connection without the limit must not execute statements.
                self.close()
                raise
        return self._execute(statement, values)

    def _execute(self, statement: str, values: tuple[Any, ...]) -> tuple[Row, ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return tuple(cursor.fetchall())


def connected(settings: LoginSettings) -> Any:
    """Return a connection of PyMySQL; retry for ``settings.patience_seconds`` while the server cannot be reached.

    Raises:
        SourceError: the server cannot be reached, or refuses the login, or is not ``settings.server``.
        OptionError: a certificate cannot be read.
    """
    until, warned = time.monotonic() + settings.patience_seconds, False
    given = settings.for_pymysql()
    while True:
        try:
            return _checked_identity(_Connection(init_command=_OF_EVERY_CONNECTION, **given), settings)
        except WatermarkSourceError:
            raise
        except RuntimeError as failure:
            # PyMySQL raises it when this login needs a package that is not installed.
            raise needs_tls(settings.where, settings.username) from failure
        except (pymysql.MySQLError, OSError, *NOT_UNDERSTOOD) as failure:
            error = server_error(failure, settings.where, settings.username)
            if not isinstance(error, UnreachableError | ResponseTimeoutError) or time.monotonic() > until:
                raise error from failure
        if not warned:
            _log.warning("%s; retrying for up to %g s", error, settings.patience_seconds)
            warned = True
        time.sleep(_PAUSE_SECONDS)


def check_may_dump(settings: LoginSettings) -> None:
    """Check that the user may dump the binlog: request a dump, and read the first packet of the response.

    Raises:
        RefusedError: the user lacks the privilege.
        SourceError: the server cannot be reached.
    """
    connection = connected(settings)
    try:
        connection._execute_command(_COM_BINLOG_DUMP, _DUMP_REQUEST)  # noqa: SLF001 - PyMySQL has no public name for it
        connection._read_packet()  # noqa: SLF001 - see above
    except (pymysql.MySQLError, OSError, *NOT_UNDERSTOOD) as failure:
        # The server reports other faults of the binlog only to users with the privilege.
        if code_of(failure) != LOG_CANNOT_BE_READ:
            raise server_error(failure, settings.where, settings.username) from failure
    finally:
        connection._force_close()  # noqa: SLF001 - close() would wait for a response


def _checked_identity(connection: Any, settings: LoginSettings) -> Any:
    if settings.server is None:
        return connection
    try:
        with connection.cursor() as cursor:
            cursor.execute(_IDENTITY)
            identity = _identity(cursor.fetchall())
    except BaseException:
        connection._force_close()  # noqa: SLF001 - close() would wait for a response
        raise
    if identity != settings.server:
        connection.close()
        raise SourceError(
            f"{settings.where} is another server now ({identity}) than when the query was started ({settings.server}). "
            "Start the query again: it continues with the new one"
        )
    return connection


def version_of(handshake: str) -> str:
    """Return a server's version. MariaDB before 11 sends ``5.5.5-`` before it, for old replicas refuse a 10."""
    return handshake.removeprefix("5.5.5-")


def _identity(variables: Sequence[Row]) -> str:
    """Return the server's UUID, or on MariaDB, which has none, its ``server_id``.

    It differs between a server and its replicas, whose binlogs have other positions.
    """
    values = {str(name): str(value) for name, value in variables}
    return values.get("server_uuid") or f"server_id {values.get('server_id')}"


class _Result(pymysql.connections.MySQLResult):  # type: ignore[misc]
    """PyMySQL's result, which also decodes texts that are not UTF-8.

    Servers send some texts as they received them, in any character set: the statements in SHOW BINLOG EVENTS, and on
    MariaDB expressions in SHOW CREATE TABLE. PyMySQL fails at such a text in the middle of the response. This class
    decodes bytes that are not UTF-8 to lone surrogates.
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
    """PyMySQL's connection with ``_Result``, a limit on responses, and one TLS context for all that verify nothing.

    PyMySQL reads all certificates that the system trusts before each such connection. That takes 30 ms of a core, most
    of the time of a short task.
    """

    def _create_ssl_ctx(self, given: Any) -> ssl.SSLContext:
        return given if isinstance(given, ssl.SSLContext) else tls_context(_NOTHING_VERIFIED)

    _left = _MOST_BYTES
    """Bytes that may be read until the next command is sent; the login is the first response."""

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._left = _MOST_BYTES
        super()._execute_command(command, sql)

    def _read_bytes(self, num_bytes: int) -> bytes:
        self._left -= num_bytes
        if self._left < 0:
            self._force_close()
            raise SourceError(
                f"MySQL at {self.host}:{self.port} sent a response of more than {_MOST_BYTES // 2**20} MiB, which no "
                "look-up needs. Check that a MySQL server listens at the options hostname and port"
            )
        found: bytes = super()._read_bytes(num_bytes)
        return found

    def query(self, sql: str | bytes, unbuffered: bool = False) -> Any:
        """Send a statement, which may contain lone surrogates."""
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
