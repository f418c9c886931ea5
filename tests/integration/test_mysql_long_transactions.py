"""A compressed transaction of several packets is read as it arrives; a dump that breaks off in it continues there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, dumped, dumped_without
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from services.containers import ContainerServer
from services.mysql import MySql
from services.mysql_client import run
from tests.integration.mysql_binlog import DEEP_RECURSION, Database, new_database, root

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]

_ROWS = 30_000
"""Of each of two."""


def _status(database: Database) -> tuple[str, int]:
    with closing(MySqlConnection(root(database.server))) as connection:
        status = LogStatus(connection)
        return status.base(), status.end().number


def _end_the_dumps(database: Database, how: str = "KILL") -> None:
    server = database.server
    for number, *_, command in run(server.host, server.port, "SELECT id, command FROM information_schema.processlist"):
        if str(command).startswith("Binlog Dump"):
            run(server.host, server.port, f"{how} {number}")


def _blocks(database: Database, way: str, start: int, end: int, before: str) -> Iterator[PlacedBlock]:
    settings, base = root(database.server), _status(database)[0]
    if way == "by place":
        return dumped(settings, base, start, end)
    return dumped_without(settings, base, GtidSet.parse(before), end)


@pytest.fixture(scope="module")
def written(mysql: MySql) -> Iterator[tuple[Database, int, int, str]]:
    """Two long transactions between two short ones: begin and end, and the transactions before."""
    with new_database(mysql) as database:
        database.run("CREATE TABLE t (id INT PRIMARY KEY, body VARBINARY(1024))")
        _, start = _status(database)
        ((before,),) = database.run("SELECT @@global.gtid_executed")
        long = (
            f"INSERT INTO t WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
            " SELECT i, RANDOM_BYTES(1024) FROM n"
            for first, last in ((0, _ROWS - 1), (_ROWS, 2 * _ROWS - 1))
        )
        database.run(
            DEEP_RECURSION, "INSERT INTO t VALUES (-1, 'before')",
            "SET SESSION binlog_transaction_compression = ON", *long, f"INSERT INTO t VALUES ({2 * _ROWS}, 'after')",
        )  # fmt: skip
        yield database, start, _status(database)[1], before


@pytest.mark.needs_mysql("does not compress transactions")
@pytest.mark.parametrize("way", ["by place", "by GTIDs"])
def test_its_rows_come_once_and_in_order_though_the_dump_breaks_off_at_every_block(
    written: tuple[Database, int, int, str], way: str, caplog: pytest.LogCaptureFixture
) -> None:
    database, start, end, before = written

    def wanted(table: TableMap) -> list[str] | None:
        return ["id"] if (table.database, table.table) == (database.name, "t") else None

    decoder = ChangeDecoder(database.charsets, wanted)
    ids: list[int] = []
    numbers: list[int] = []
    versions: set[int] = set()
    parts = 0
    with caplog.at_level(logging.INFO):
        for block in _blocks(database, way, start, end, before):
            for changes in decoder.decode(block.memory, block.events, block.file, block.places):
                ids += changes.column("id").to_pylist()
                numbers += changes.numbers.tolist()
                versions |= set(changes.versions.tolist())
            parts += block.part is not None
            _end_the_dumps(database)
    assert ids == list(range(-1, 2 * _ROWS + 1))
    assert numbers == [0, *range(_ROWS), *range(_ROWS), 0]
    assert len(versions) == 4
    assert parts > 8
    # The proxy before a container takes so much at once that some ends come when all is on its way.
    often = 1 if isinstance(database.server, ContainerServer) else 4
    assert len([each for each in caplog.messages if "resuming after" in each]) > often


@pytest.mark.needs_mysql("has GTIDs always, of a form of its own")
def test_a_dump_that_was_killed_and_ends_as_if_it_were_complete_continues(mysql_database: Database) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (id INT PRIMARY KEY, body LONGBLOB)")
    executed = "SELECT @@global.gtid_executed"
    ((before,),) = database.run(executed)
    # More than can be on its way.
    ((until,),) = database.run(*(f"INSERT INTO t VALUES ({i}, REPEAT('x', 4000000))" for i in range(12)), executed)
    ((after,),) = database.run("INSERT INTO t VALUES (12, 'left out')", executed)
    _, end = _status(database)
    left_out = GtidSet.parse(before) | (GtidSet.parse(after) - GtidSet.parse(until))
    decoder = ChangeDecoder(database.charsets, lambda table: ["id"] if table.database == database.name else None)
    ids: list[int] = []
    for block in dumped_without(root(database.server), _status(database)[0], left_out, end):
        if not ids:
            _end_the_dumps(database, "KILL QUERY")
        for changes in decoder.decode(block.memory, block.events, block.file, block.places):
            ids += changes.column("id").to_pylist()
    assert ids == list(range(12))
