"""A connection whose answers are given: what a look-up makes of them needs no server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, Row
from pyspark_mysql_cdc_wm.client.login_settings import ClientSettings
from pyspark_mysql_cdc_wm.lookup.checked_server import CheckedServer
from pyspark_mysql_cdc_wm.options import mysql_options

Answer = Sequence[Row] | Exception


class RecordedConnection(MySqlConnection):
    """Answers each statement by the longest text that it begins with."""

    def __init__(self, answers: Mapping[str, Answer], version: str = "9.7.4") -> None:
        super().__init__(ClientSettings("db1", 3306, "cdc", ""))
        self._answers = answers
        self._version = version

    def rows(self, statement: str, *values: Any, if_slow: str | None = None) -> tuple[Row, ...]:
        answer = self._answers[max((each for each in self._answers if statement.startswith(each)), key=len)]
        if isinstance(answer, Exception):
            raise answer
        return tuple(answer)

    @property
    def server_version(self) -> str:
        return self._version


def checked_server(answers: Mapping[str, Answer], version: str = "9.7.4", **options: str) -> CheckedServer:
    given = {"hostname": "db1", "username": "cdc", "tables": "shop.t", **options}
    server = CheckedServer(mysql_options.parse(given))
    server.connection = RecordedConnection(answers, version)
    return server
