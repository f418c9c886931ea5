"""The few statements that services themselves send to a server."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import pymysql
import pymysql.connections

from services.errors import ServiceError

_ANSWER_SECONDS = 5


@cache
def _unverified() -> ssl.SSLContext:
    """TLS where the server has it: one context for all connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class _Connection(pymysql.connections.Connection):  # type: ignore[misc]
    """The library loads the system's certificates for each connection, also where it verifies none: 35 ms of a core."""

    def _create_ssl_ctx(self, sslp: Any) -> Any:
        return super()._create_ssl_ctx(sslp) if sslp else _unverified()


def connect(host: str, port: int, **settings: Any) -> pymysql.Connection[Any]:
    """Connect with times in UTC, each statement its own transaction; as ``root`` without a password by default.

    Raises:
        pymysql.MySQLError: the server cannot be reached or refuses.
    """
    chosen = {
        "user": "root",
        "password": "",
        "charset": "utf8mb4",
        "autocommit": True,
        "init_command": _UTC,
        **settings,
    }
    return _Connection(host=host, port=port, **chosen)


def answers(host: str, port: int, *, seconds: int = _ANSWER_SECONDS) -> bool:
    """Whether a server lets ``root`` in and answers within ``seconds``."""
    try:
        with connect(host, port, connect_timeout=seconds, read_timeout=seconds) as connection:
            connection.ping(reconnect=False)
    except (pymysql.MySQLError, OSError):
        return False
    return True


def run(host: str, port: int, *statements: str, **settings: Any) -> tuple[tuple[Any, ...], ...]:
    """Run statements and return the rows of the last; ``settings`` as ``connect`` takes them.

    Raises:
        ServiceError: the server cannot be reached or refuses; the message names the statement.
    """
    statement = "the connection"
    try:
        with connect(host, port, **settings) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return tuple(cursor.fetchall())
    except (pymysql.MySQLError, OSError) as failure:
        raise ServiceError(f"{host}:{port} refuses {statement!r}: {failure}") from failure


_UTC = "SET time_zone = '+00:00'"
