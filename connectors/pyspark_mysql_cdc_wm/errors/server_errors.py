"""What a MySQL server or its driver says, as an error of the project's tree: what was found, and what mends it."""

from __future__ import annotations

from watermark_source.errors import (
    RefusedError,
    ResponseTimeoutError,
    SourceError,
    UnknownSplitError,
    UnreachableError,
    shortened,
)

ACCESS_DENIED = 1045
_NOT_LET_IN = frozenset({1044, ACCESS_DENIED, 1251, 1698, 3118})
"""Access denied to a database or a user, and users that log in by other means."""
_NO_GLOBAL_PRIVILEGE = 1227
_NO_PRIVILEGE = frozenset({1142, 1143, _NO_GLOBAL_PRIVILEGE})
_UNKNOWN = frozenset({1049, 1146})
LOST = frozenset({1053, 2006, 2013, 2014, 2055})
"""A server that is stopping, and of the client: a connection that is there no more, or out of step."""
_NO_TLS = 2026
_NOT_THERE = frozenset({2003, 2005})
"""Of the client: cannot connect, unknown host."""
REFUSALS = _NOT_LET_IN | _NO_PRIVILEGE
LOG_CANNOT_BE_READ = 1236
"""The server's number for all that keeps it from sending the binlog from a position."""
LOCKED = 1205
"""Its number for a lock that was not had within ``lock_wait_timeout``."""
CANNOT_BE_LISTED = 1220
"""Its number for what keeps it from executing SHOW BINLOG EVENTS."""


def server_error(failure: BaseException, where: str, user: str) -> SourceError:
    """Return the error for what PyMySQL raised. It knows no password, so none can be in it.

    ``where`` is for example ``MySQL at db1:3306``.
    """
    code = code_of(failure)
    said = shortened(failure.args[1] if code is not None and len(failure.args) > 1 else failure)
    if code in _NOT_LET_IN:
        return RefusedError(
            f"{where} does not let the user {user!r} in: {said}. Check the options username and password, and on the "
            f"server: ALTER USER '{user}'@'%' IDENTIFIED BY '…'"
        )
    if code in _NO_PRIVILEGE:
        return RefusedError(f"{where} refuses the user {user!r}: {said}. On the server: {_grant(user, code)}")
    if code in _UNKNOWN:
        return UnknownSplitError(f"{where}: {said}. Check the option tables")
    if code in LOST | _NOT_THERE | {_NO_TLS} or isinstance(failure, OSError):
        return _unreachable(failure, where, said, without_tls=code == _NO_TLS or "[SSL" in said)
    return SourceError(f"{where}: {said}" + ("" if code is None else f" (error {code})"))


def needs_tls(where: str, user: str) -> RefusedError:
    """Return the error for a login without TLS whose password the server does not take in the clear."""
    return RefusedError(
        f"{where} takes the password of the user {user!r} only over TLS, or encrypted with the package cryptography, "
        "which is not installed. Set sslMode to preferred or required, or install it on the driver and every executor: "
        "pip install cryptography"
    )


def _unreachable(failure: BaseException, where: str, said: str, *, without_tls: bool) -> SourceError:
    if isinstance(failure, TimeoutError):
        return ResponseTimeoutError(f"{where} did not answer in time: {said}")
    if without_tls:
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
        code_of(failure) in LOST and isinstance(failure.__context__, TimeoutError)
    )


def code_of(failure: BaseException | None) -> int | None:
    """Return the number of a server's or client's error, ``None`` where there is none."""
    if failure is None:
        return None
    first = failure.args[0] if failure.args else None
    return first if isinstance(first, int) and not isinstance(failure, OSError) else None
