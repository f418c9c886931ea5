"""The few statements that services themselves send to PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg

from services.errors import ServiceError

USER = "postgres"
_ANSWER_SECONDS = 5


def connect(host: str, port: int, *, seconds: int = _ANSWER_SECONDS) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect as the first user, who has no password, each statement its own transaction.

    Raises:
        psycopg.Error: the server cannot be reached or refuses.
    """
    return psycopg.connect(
        host=host, port=port, user=USER, dbname=USER, connect_timeout=seconds, autocommit=True
    )  # fmt: skip


def answers(host: str, port: int, *, seconds: int = _ANSWER_SECONDS) -> bool:
    """Whether a server lets the first user in; a frozen one does not within ``seconds``, of which it takes two."""
    try:
        connect(host, port, seconds=seconds).close()
    except (psycopg.Error, OSError):
        return False
    return True


def run(host: str, port: int, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements and return the rows of the last.

    Raises:
        ServiceError: the server cannot be reached or refuses; the message names the statement.
    """
    statement = "the connection"
    try:
        with connect(host, port) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description is not None else []
    except (psycopg.Error, OSError) as failure:
        raise ServiceError(f"{host}:{port} refuses {statement!r}: {failure}") from failure
