"""Errors of a MySQL server or of PyMySQL, as errors of the project's tree: what was seen, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto

import pymysql

from watermark_source.errors import (
    RefusedError,
    ResponseTimeoutError,
    SourceError,
    UnknownSplitError,
    UnreachableError,
    UnskippableLossError,
    WatermarkSourceError,
    shortened,
)


class ErrorKind(Enum):
    """What an error's number means for the sender of the statement."""

    LOGIN_REFUSED = auto()
    """The server refuses the login."""
    NO_PRIVILEGE = auto()
    UNKNOWN_NAME = auto()
    """A database or a table that does not exist."""
    NO_TLS = auto()
    UNREACHABLE = auto()
    """No connection was made; a later attempt may succeed."""
    LOST = auto()
    """The connection is closed, or out of step; the statement can be sent again on another one."""
    FULL = auto()
    """The server accepts no connection, or no statement, for now; an open connection can stay open."""
    INTERRUPTED = auto()
    """The statement was killed or hit a time limit that is not ours, and the connection is in order; it can be sent
    again. ``ConsistentView`` and ``MySqlConnection`` do."""

    @property
    def passes(self) -> bool:
        """Whether the same statement may succeed later without a change to the server's settings."""
        return self in (ErrorKind.UNREACHABLE, ErrorKind.LOST, ErrorKind.FULL, ErrorKind.INTERRUPTED)


_NO_GLOBAL_PRIVILEGE = 1227
_NUMBERS: Mapping[ErrorKind, tuple[int, ...]] = {
    ErrorKind.LOGIN_REFUSED: (
        1044, 1045,  # access denied to a database, to a user
        1130,  # no user may log in from this host
        1251, 1698, 3118,  # another authentication method; a locked account
        1820, 1862,  # an expired password
        3955, 4151,  # locked after wrong passwords: MySQL, MariaDB
    ),
    ErrorKind.NO_PRIVILEGE: (1142, 1143, _NO_GLOBAL_PRIVILEGE),
    ErrorKind.UNKNOWN_NAME: (1049, 1146),
    ErrorKind.NO_TLS: (2026,),
    ErrorKind.UNREACHABLE: (
        1042,  # the server cannot resolve the client's address
        2003, 2005,  # of PyMySQL: cannot connect, unknown host
    ),
    ErrorKind.LOST: (
        1043,  # a handshake that broke off
        1053, 1077, 1079, 1080,  # the server is stopping
        1152, 1184,  # aborted
        *range(1154, 1162),  # the server could not read from the connection, or write to it
        1927, 3169,  # KILL CONNECTION: MariaDB, MySQL
        4031,  # idle for longer than wait_timeout
        2006, 2012, 2013, 2014, 2027, 2055,  # of PyMySQL: lost, out of step
    ),
    ErrorKind.FULL: (
        1040,  # max_connections
        1041, 1135,  # no memory, no thread for another connection
        1047,  # a Galera node that is not ready
        1129,  # too many connections of this host broke off
        1203, 1226,  # max_user_connections
        3032,  # offline_mode
    ),
    ErrorKind.INTERRUPTED: (
        1028,  # killed while rows were sorted
        1317,  # KILL QUERY
        1969, 3024,  # a time limit for statements, set by a proxy: MariaDB, MySQL
    ),
}  # fmt: skip
"""Error numbers of servers and of PyMySQL; any other number means that the statement failed."""
_KINDS = {number: kind for kind, numbers in _NUMBERS.items() for number in numbers}
_REMEDIES: Mapping[int, str] = {
    1040: "Close sessions, or on the server: SET GLOBAL max_connections = …",
    1047: "Wait until the node has joined the cluster",
    1129: "On the server: FLUSH HOSTS (MySQL: TRUNCATE TABLE performance_schema.host_cache)",
    1203: "Close sessions of the user, or raise its max_user_connections",
    1226: "Close sessions of the user, or on the server: ALTER USER … WITH MAX_USER_CONNECTIONS 0",
    3032: "On the server: SET GLOBAL offline_mode = OFF",
}
_NO_SUCH_FILE = "Could not find first log file"
_PURGED = (_NO_SUCH_FILE, "purged required")
"""Parts of the server's error texts for a file that it no longer has."""


_NO_SUCH_POSITION = ("position > file size", "impossible position", "bogus data in log event")
"""Parts of the server's error texts for a position that its binlog does not have."""


_OTHER_GTID_MODE = re.compile(r"when @@GLOBAL\.GTID_MODE = (ON|OFF)\b")
"""The server's error text for a transaction that was written in the other mode, with or without a GTID."""


LOG_CANNOT_BE_READ = 1236
"""The server's error number when it cannot send the binlog from a position."""
LOCKED = 1205
"""The server's error number when a lock was not granted within ``lock_wait_timeout``."""
CANNOT_BE_LISTED = 1220
"""The server's error number when it cannot execute SHOW BINLOG EVENTS."""


def kind_of(failure: BaseException) -> ErrorKind | None:
    """Return the kind of an error of PyMySQL, ``None`` for a statement that would fail again."""
    code = code_of(failure)
    # PyMySQL raises errors without a number, or with 0, when the connection is closed or out of step.
    return ErrorKind.LOST if not code else _KINDS.get(code)


def code_of(failure: BaseException | None) -> int | None:
    """Return the error number of the server or of PyMySQL, ``None`` if the error has none."""
    if failure is None:
        return None
    first = failure.args[0] if failure.args else None
    return first if isinstance(first, int) and not isinstance(failure, OSError) else None


def timed_out(failure: BaseException) -> bool:
    """Return whether there was no response in time, which PyMySQL reports as a lost connection."""
    return isinstance(failure, TimeoutError) or (
        kind_of(failure) is ErrorKind.LOST and isinstance(failure.__context__, TimeoutError)
    )


def server_error(failure: BaseException, where: str, user: str) -> SourceError:
    """Return the error for one that PyMySQL raised, whose text never has the password.

    ``where`` names the server, for example ``MySQL at db1:3306``.
    """
    code = code_of(failure)
    message = shortened(failure.args[1] if code is not None and len(failure.args) > 1 else failure)
    kind = kind_of(failure)
    if kind is ErrorKind.LOGIN_REFUSED:
        return RefusedError(
            f"{where} refuses the login of the user {user!r}: {message}. Check the options username and password, and "
            f"on the server: ALTER USER '{user}'@'%' IDENTIFIED BY '…'"
        )
    if kind is ErrorKind.NO_PRIVILEGE:
        return RefusedError(f"{where} refuses the user {user!r}: {message}. On the server: {_grant(user, code)}")
    if kind is ErrorKind.UNKNOWN_NAME:
        return UnknownSplitError(f"{where}: {message}. Check the option tables")
    if kind is not None:
        return _unreachable(failure, where, message, kind)
    return SourceError(f"{where}: {message}" + ("" if code is None else f" (error {code})"))


def needs_tls(where: str, user: str) -> RefusedError:
    """Return the error for a login whose password must not be sent in clear text, on a connection without TLS."""
    return RefusedError(
        f"{where} accepts the password of the user {user!r} only over TLS, or encrypted with the package cryptography, "
        "which is not installed. Set sslMode to preferred or required, or install it on the driver and every executor: "
        "pip install cryptography"
    )


def dump_error(code: int, text: str, reached: str, where: str, user: str) -> WatermarkSourceError:
    """Return the error for an error packet in a dump.

    Args:
        code: the server's error number.
        text: the server's error text.
        reached: how far the binlog was read, for example ``binlog binlog.000003 position 157``.
        where: the server's name, as for ``server_error``.
        user: the user of the login.
    """
    if code == LOG_CANNOT_BE_READ and any(part in text for part in _PURGED):
        seen = "purged the binlog after this position before it was read"
        other = ""
        if _NO_SUCH_FILE in text:
            # The server answers the same for a purged file and for one that it never wrote.
            seen = "does not have this file of the binlog: it was purged before it was read, or never written"
            other = ". After RESET BINARY LOGS AND GTIDS, or on another server, begin a new query"
        return UnskippableLossError(
            f"{reached}: the server {seen}. Raise binlog_expire_logs_seconds on the server to keep it longer{other}"
        )
    failure = pymysql.err.OperationalError(code, text)
    if kind_of(failure) is not None:
        return server_error(failure, where, user)
    advice = _advice(text) if code == LOG_CANNOT_BE_READ else ""
    return SourceError(f"{reached}: the server ended the dump: {code} {text}{advice}")


def _advice(text: str) -> str:
    """Return what to do about a binlog that cannot be read, as the end of a message; empty for an unknown text."""
    if any(part in text for part in _NO_SUCH_POSITION):
        return ". Was the binlog reset (RESET BINARY LOGS AND GTIDS)? Then begin a new query"
    if mode := _OTHER_GTID_MODE.search(text):
        return (
            f". It was written before gtid_mode was {mode[1]}. On the server: SET GLOBAL gtid_mode = "
            f"{mode[1]}_PERMISSIVE, start the query again, and set it to {mode[1]} once the query has read on"
        )
    return ""


def _unreachable(failure: BaseException, where: str, message: str, kind: ErrorKind) -> SourceError:
    if isinstance(failure, TimeoutError):
        return ResponseTimeoutError(f"{where} did not answer in time: {message}")
    code = code_of(failure) or 0
    if kind is ErrorKind.FULL:
        remedy = f". {_REMEDIES[code]}" if code in _REMEDIES else ""
        return UnreachableError(f"{where} accepts no more for now: {message} (error {code}){remedy}")
    if kind is ErrorKind.INTERRUPTED:
        return UnreachableError(f"{where}: a statement was killed or hit a limit: {message} (error {code})")
    if kind is ErrorKind.NO_TLS or "[SSL" in message:
        return UnreachableError(
            f"{where}: no connection with TLS: {message}. Check the options sslMode, sslCa and sslCert, and that the "
            "server's certificate is for the option hostname"
        )
    return UnreachableError(
        f"{where} cannot be reached: {message}. Check the options hostname and port, that the server runs, and that it "
        "listens on that address (bind_address)"
    )


def _grant(user: str, code: int | None) -> str:
    """Return the GRANT statement for the privilege that the user lacks."""
    rights = "REPLICATION SLAVE, REPLICATION CLIENT ON *.*" if code == _NO_GLOBAL_PRIVILEGE else "SELECT ON …"
    return f"GRANT {rights} TO '{user}'@'%'"
