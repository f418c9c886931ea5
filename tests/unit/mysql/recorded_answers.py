"""A connection whose answers are given: what a look-up makes of them needs no server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, Row
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from pyspark_mysql_cdc_wm.lookup.checked_server import CheckedServer
from pyspark_mysql_cdc_wm.options import mysql_options

Answer = Sequence[Row] | Exception | Callable[..., "Answer"]
"""Rows, an error, or a function that gets the statement's values and returns one of these."""


def in_turn(*answers: Answer) -> Answer:
    """Return an answer that differs from call to call; the last one stays."""
    left = list(answers)
    return lambda *_: left.pop(0) if len(left) > 1 else left[0]


class RecordedConnection(MySqlConnection):
    """Answers each statement by the longest text that it begins with, and notes the statements."""

    def __init__(self, answers: Mapping[str, Answer], version: str = "9.7.4") -> None:
        super().__init__(LoginSettings("db1", 3306, "cdc", ""))
        self._answers = answers
        self._version = version
        self.sent: list[str] = []

    def rows(self, statement: str, *values: Any, if_slow: str | None = None) -> tuple[Row, ...]:
        self.sent.append(statement.strip())
        known = [each for each in self._answers if self.sent[-1].startswith(each)]
        assert known, f"no answer was recorded for {self.sent[-1]}"
        answer = self._answers[max(known, key=len)]
        while callable(answer):
            answer = answer(*values)
        if isinstance(answer, Exception):
            raise answer
        return tuple(answer)

    def together(self, *statements: str) -> tuple[tuple[Row, ...], ...]:
        return tuple(self.rows(statement) for statement in statements)

    @contextlib.contextmanager
    def waiting_for_locks(self) -> Iterator[None]:
        self.sent.append("SET SESSION lock_wait_timeout = 5")
        yield
        self.sent.append("SET SESSION lock_wait_timeout = DEFAULT")

    @property
    def server_version(self) -> str:
        return self._version


def checked_server(answers: Mapping[str, Answer], version: str = "9.7.4", **options: str) -> CheckedServer:
    given = {"hostname": "db1", "username": "cdc", "tables": "shop.t", **options}
    server = CheckedServer(mysql_options.parse(given))
    server.connection = RecordedConnection(answers, version)
    return server
