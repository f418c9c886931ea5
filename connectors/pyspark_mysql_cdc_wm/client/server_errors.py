"""What a MySQL server or its driver says, as an error of the project's tree: what was found, and what mends it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto

import pymysql

from watermark_source.errors import (
    DataLossError,
    RefusedError,
    ResponseTimeoutError,
    SourceError,
    UnknownSplitError,
    UnreachableError,
    WatermarkSourceError,
    shortened,
)


class ErrorKind(Enum):
    """What an error's number means for whoever sent the statement."""

    NOT_LET_IN = auto()
    NO_PRIVILEGE = auto()
    UNKNOWN_NAME = auto()
    """A database or a table that does not exist."""
    NO_TLS = auto()
    UNREACHABLE = auto()
    """No connection was made: a later one may be."""
    LOST = auto()
    """The connection is over, or out of step: the statement may be sent again on another one."""
    FULL = auto()
    """The server takes no connection, or no statement, for the moment; the connection may stay."""
    INTERRUPTED = auto()
    """The statement was ended from outside, and the connection is in order: it may be sent again."""

    @property
    def passes(self) -> bool:
        """Whether the same statement may succeed a moment later, without a change to the server's settings."""
        return self in (ErrorKind.UNREACHABLE, ErrorKind.LOST, ErrorKind.FULL, ErrorKind.INTERRUPTED)


_NO_GLOBAL_PRIVILEGE = 1227
_KINDS: Mapping[int, ErrorKind] = {
    **dict.fromkeys(
        (
            1044,  # access denied to a database
            1045,  # access denied to a user
            1130,  # no user may log in from this host
            1251,
            1698,
            3118,  # users that log in by other means; a locked account
            1820,
            1862,  # a password that has expired
            3955,
            4151,  # locked after wrong passwords: MySQL, MariaDB
        ),
        ErrorKind.NOT_LET_IN,
    ),
    **dict.fromkeys((1142, 1143, _NO_GLOBAL_PRIVILEGE), ErrorKind.NO_PRIVILEGE),
    **dict.fromkeys((1049, 1146), ErrorKind.UNKNOWN_NAME),
    2026: ErrorKind.NO_TLS,
    **dict.fromkeys(
        (
            1042,  # the server cannot resolve our address
            2003,
            2005,  # of the client: cannot connect, unknown host
        ),
        ErrorKind.UNREACHABLE,
    ),
    **dict.fromkeys(
        (
            1043,  # a handshake that broke off
            1053,
            1077,
            1079,
            1080,  # the server is stopping
            1152,
            1184,  # aborted
            1154,
            1155,
            1156,
            1157,
            1158,
            1159,
            1160,
            1161,  # the server could not read or write its end
            1927,
            3169,  # KILL CONNECTION: MariaDB, MySQL
            4031,  # idle for longer than wait_timeout
            2006,
            2012,
            2013,
            2014,
            2027,
            2055,  # of the client: lost, out of step
        ),
        ErrorKind.LOST,
    ),
    **dict.fromkeys(
        (
            1040,  # max_connections
            1041,
            1135,  # no memory, no thread for another connection
            1047,  # a Galera node that is not ready
            1129,  # too many connections of this host broke off
            1203,
            1226,  # max_user_connections
            3032,  # offline_mode
        ),
        ErrorKind.FULL,
    ),
    **dict.fromkeys(
        (
            1028,  # ended while rows were sorted
            1317,  # KILL QUERY
            1969,
            3024,  # a limit for statements, of a proxy: MariaDB, MySQL
        ),
        ErrorKind.INTERRUPTED,
    ),
}
"""All numbers of servers and of the client that mean more than "it failed", which is all that others mean."""
_MENDS: Mapping[int, str] = {
    1040: "Close sessions, or on the server: SET GLOBAL max_connections = …",
    1047: "Wait until the node has joined the cluster",
    1129: "On the server: FLUSH HOSTS (MySQL: TRUNCATE TABLE performance_schema.host_cache)",
    1203: "Close sessions of the user, or raise its max_user_connections",
    1226: "Close sessions of the user, or on the server: ALTER USER … WITH MAX_USER_CONNECTIONS 0",
    3032: "On the server: SET GLOBAL offline_mode = OFF",
}
LOG_CANNOT_BE_READ = 1236
"""The server's number for all that keeps it from sending the binlog from a position."""
LOCKED = 1205
"""Its number for a lock that was not had within ``lock_wait_timeout``."""
CANNOT_BE_LISTED = 1220
"""Its number for what keeps it from executing SHOW BINLOG EVENTS."""


def kind_of(failure: BaseException) -> ErrorKind | None:
    """Return the kind of what PyMySQL raised, ``None`` for a statement that failed and will fail again."""
    code = code_of(failure)
    # PyMySQL's errors without a number, and its 0, are about a connection that is closed or out of step.
    return ErrorKind.LOST if not code else _KINDS.get(code)


def server_error(failure: BaseException, where: str, user: str) -> SourceError:
    """Return the error for what PyMySQL raised. It knows no password, so none can be in it.

    ``where`` is for example ``MySQL at db1:3306``.
    """
    code = code_of(failure)
    said = shortened(failure.args[1] if code is not None and len(failure.args) > 1 else failure)
    kind = kind_of(failure)
    if kind is ErrorKind.NOT_LET_IN:
        return RefusedError(
            f"{where} does not let the user {user!r} in: {said}. Check the options username and password, and on the "
            f"server: ALTER USER '{user}'@'%' IDENTIFIED BY '…'"
        )
    if kind is ErrorKind.NO_PRIVILEGE:
        return RefusedError(f"{where} refuses the user {user!r}: {said}. On the server: {_grant(user, code)}")
    if kind is ErrorKind.UNKNOWN_NAME:
        return UnknownSplitError(f"{where}: {said}. Check the option tables")
    if kind is not None:
        return _unreachable(failure, where, said, kind)
    return SourceError(f"{where}: {said}" + ("" if code is None else f" (error {code})"))


def needs_tls(where: str, user: str) -> RefusedError:
    """Return the error for a login without TLS whose password the server does not take in the clear."""
    return RefusedError(
        f"{where} takes the password of the user {user!r} only over TLS, or encrypted with the package cryptography, "
        "which is not installed. Set sslMode to preferred or required, or install it on the driver and every executor: "
        "pip install cryptography"
    )


def _unreachable(failure: BaseException, where: str, said: str, kind: ErrorKind) -> SourceError:
    if isinstance(failure, TimeoutError):
        return ResponseTimeoutError(f"{where} did not answer in time: {said}")
    code = code_of(failure) or 0
    if kind is ErrorKind.FULL:
        mends = f". {_MENDS[code]}" if code in _MENDS else ""
        return UnreachableError(f"{where} takes no more for now: {said} (error {code}){mends}")
    if kind is ErrorKind.INTERRUPTED:
        return UnreachableError(f"{where}: a statement was ended from outside: {said} (error {code})")
    if kind is ErrorKind.NO_TLS or "[SSL" in said:
        return UnreachableError(
            f"{where}: no connection with TLS: {said}. Check the options sslMode, sslCa and sslCert, and that the "
            "server's certificate is for the option hostname"
        )
    return UnreachableError(
        f"{where} cannot be reached: {said}. Check the options hostname and port, that the server runs, and that it "
        "listens on that address (bind_address)"
    )


def _grant(user: str, code: int | None) -> str:
    """Return the statement that gives a user what was lacking, and no more."""
    rights = "REPLICATION SLAVE, REPLICATION CLIENT ON *.*" if code == _NO_GLOBAL_PRIVILEGE else "SELECT ON …"
    return f"GRANT {rights} TO '{user}'@'%'"


def timed_out(failure: BaseException) -> bool:
    """Return whether there was no answer in time; PyMySQL takes the connection for lost then."""
    return isinstance(failure, TimeoutError) or (
        kind_of(failure) is ErrorKind.LOST and isinstance(failure.__context__, TimeoutError)
    )


def code_of(failure: BaseException | None) -> int | None:
    """Return the number of a server's or client's error, ``None`` where there is none."""
    if failure is None:
        return None
    first = failure.args[0] if failure.args else None
    return first if isinstance(first, int) and not isinstance(failure, OSError) else None


# What a MySQL server says when it ends a dump of the binlog, as an error of the project's tree.


_GONE = ("Could not find first log file", "purged required")
_OTHER = ("position > file size", "impossible position", "bogus data in log event")
"""What the server says of a place that its binlog has not."""
_OTHER_MODE = re.compile(r"when @@GLOBAL\.GTID_MODE = (ON|OFF)\b")
"""What it says of a transaction that was written in the other mode, with or without a GTID: it sends none of those."""


def dump_error(code: int, text: str, at: str, where: str, user: str) -> WatermarkSourceError:
    """Return the error for an error packet in a dump.

    Args:
        code: the server's number.
        text: what it says.
        at: how far the binlog was read, for example ``binlog binlog.000003 position 157``.
        where: as of ``server_error``.
        user: who has logged in.
    """
    if code == LOG_CANNOT_BE_READ and any(each in text for each in _GONE):
        return DataLossError(
            f"{at}: the binlog from here on, if it went on, was purged before it was read. Set failOnDataLoss to false "
            "to go on with what is left, and binlog_expire_logs_seconds on the server to keep it longer"
        )
    failure = pymysql.err.OperationalError(code, text)
    if kind_of(failure) is not None:
        return server_error(failure, where, user)
    advice = _advice(text) if code == LOG_CANNOT_BE_READ else ""
    return SourceError(f"{at}: the server ended the dump: {code} {text}{advice}")


def _advice(text: str) -> str:
    """What is to be done about a binlog that cannot be read, as the end of a message; empty if nobody knows."""
    if any(each in text for each in _OTHER):
        return ". Was the binlog reset (RESET BINARY LOGS AND GTIDS)? Then begin a new query"
    if mode := _OTHER_MODE.search(text):
        return (
            f". It was written before gtid_mode was {mode[1]}. On the server: SET GLOBAL gtid_mode = "
            f"{mode[1]}_PERMISSIVE, start the query again, and set it to {mode[1]} once the query has gone on"
        )
    return ""
