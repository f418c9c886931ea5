"""The kit's harnesses of ``mysql-cdc-wm``: a table of each check's own on the run's server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import ClassVar

from pyspark_mysql_cdc_wm import DefaultSource
from services.mysql import MySql
from services.mysql_program import Flavour, flavour_from_environment
from tests.integration.mysql_binlog import end_of_binlog, new_database, purge_before_end
from tests.integration.mysql_streams import PASSWORD, RIGHTS, USER, make_user
from watermark_source_testing import Ability, Harness, Row

_FEW = 100
"""So many rows are transactions of their own; of more, thousands are one."""
_AT_ONCE = 10_000


# MariaDB does not log commit times.
_TIMES = frozenset(() if flavour_from_environment() is Flavour.MARIADB else (Ability.TIME_INDEX,))


class MySqlHarness(Harness):
    """By commit times. The binlog is all tables', and its server's clock continues: it is never quiet."""

    source = DefaultSource
    abilities = frozenset({Ability.LOSS, Ability.REMOTE, Ability.SECRETS, Ability.ROW_INDEX, Ability.CUTTER}) | _TIMES
    value_column = "id"
    unreachable_options: ClassVar = {"port": "1"}
    secrets = (PASSWORD,)

    def __init__(self, mysql: MySql) -> None:
        self._open = ExitStack()
        make_user(mysql, USER, *RIGHTS)
        self.database = self._open.enter_context(new_database(mysql))
        self.database.run("CREATE TABLE t (id BIGINT PRIMARY KEY, at DATETIME)")
        self.since = end_of_binlog(mysql)

    @property
    def options(self) -> Mapping[str, str]:
        server = self.database.server
        return {
            "hostname": server.host, "port": str(server.port), "username": USER, "password": PASSWORD,
            "tables": f"{self.database.name}.t",
            "startingOffsets": json.dumps({"file": self.since.file, "position": self.since.position}),
        }  # fmt: skip

    @property
    def options_at_end(self) -> Mapping[str, str]:
        return {**self.options, "startingOffsets": "latest"}

    def write(self, split: int, rows: Sequence[Row]) -> None:
        at_once = 1 if len(rows) <= _FEW else _AT_ONCE
        inserts = []
        for first in range(0, len(rows), at_once):
            values = ", ".join(f"({r.value}, FROM_UNIXTIME({r.event_time // 1_000}))" for r in rows[first:][:at_once])
            inserts.append(f"INSERT INTO t VALUES {values}")
        self.database.run(*inserts)

    def lose(self, split: int) -> None:
        self.database.run("FLUSH BINARY LOGS")
        purge_before_end(self.database)

    def close(self) -> None:
        self._open.close()


class MySqlColumnHarness(MySqlHarness):
    """By a column of the table."""

    abilities = MySqlHarness.abilities - _TIMES | {Ability.CHOSEN_TIMES}

    @property
    def options(self) -> Mapping[str, str]:
        return {**super().options, "eventTimeColumn": "at"}
