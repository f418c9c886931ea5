"""Which transactions lie before an end of the binlog is known exactly, whatever is being committed at the time."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet, LogPosition, file_number
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from services.containers import Where
from services.mysql import MySqlPair, mysql_pair, mysql_service
from services.mysql_client import run
from services.wait_until import wait_until
from tests.integration.mysql_binlog import DEEP_RECURSION, Database, new_database, root
from tests.integration.mysql_writers import writers
from watermark_source.errors import ResponseTimeoutError, SourceError

pytestmark = pytest.mark.service

_log = logging.getLogger(__name__)
_SECONDS = 3


@pytest.fixture(scope="module")
def pair() -> Iterator[MySqlPair]:
    with mysql_pair(semi_synchronous=True) as made:
        yield made


@pytest.fixture
def source(pair: MySqlPair) -> Iterator[Database]:
    with new_database(pair.source) as made:
        made.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)")
        pair.wait_until_replica_has_all()
        yield made


@pytest.mark.parametrize("where", ["source", "replica"])
def test_it_is_known_on_a_source_and_on_a_replica(where: str, pair: MySqlPair, source: Database) -> None:
    asked = replace(source, server=getattr(pair, where))
    with writers(source, "t", count=8, keys=100_000):
        reported = dict(ends(asked))
    assert len(reported) > 50
    assert reported == dict(befores(asked, set(reported)))


def test_what_no_replica_has_received_is_not_planned(
    pair: MySqlPair, source: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_mysql_cdc_wm.lookup.committed_transactions._COMMIT_SECONDS", 1)
    with closing(MySqlConnection(root(pair.source))) as connection, ThreadPoolExecutor() as pool:
        status = LogStatus(connection)
        transactions = Transactions(connection, status)
        begun = transactions.end()
        run(pair.replica.host, pair.replica.port, "STOP REPLICA")
        inserted = pool.submit(source.run, "INSERT INTO t VALUES (1, 'one', 1)")
        wait_until(lambda: status.end() > begun, 60, "the transaction in the binlog")
        assert transactions.end() == begun
        with pytest.raises(ResponseTimeoutError, match="semi-synchronous replication"):
            Transactions(connection, status).end()
        assert not inserted.done()
        run(pair.replica.host, pair.replica.port, "START REPLICA")
        inserted.result(60)
        assert transactions.end() > begun


@pytest.mark.needs_mysql("has GTIDs always, of a form of its own")
def test_what_a_server_was_set_up_with_lies_before_all_its_files() -> None:
    with mysql_service(where=Where.LOCAL) as server, closing(MySqlConnection(root(server))) as connection:
        given = "11111111-2222-3333-4444-555555555555:1-7"
        run(server.host, server.port, f"SET GLOBAL gtid_purged = '+{given}'", "FLUSH BINARY LOGS", "CREATE DATABASE d")
        status = LogStatus(connection)
        end, executed = status.executed_end()
        assert GtidSet.parse(given) - executed == GtidSet()
        # Found in the binlog, as beside writers without a pause.
        assert Transactions(connection, status).before(end.number) == executed


def ends(asked: Database) -> Iterator[tuple[int, str]]:
    """Ask for ends of the binlog for some seconds, and until there were more than fifty."""
    with closing(MySqlConnection(root(asked.server))) as connection:
        transactions = Transactions(connection, LogStatus(connection))
        took, seen, until = [], set[int](), time.monotonic() + _SECONDS
        while (began := time.monotonic()) < until or len(seen) <= 50:
            assert began < until + 120, f"{len(seen)} ends"
            place = transactions.end().number
            took.append(time.monotonic() - began)
            seen.add(place)
            yield place, str(transactions.before(place))
            if len(took) % 50 == 0:
                asked.run("FLUSH BINARY LOGS")
            time.sleep(0.005)
    took.sort()
    _log.info(
        "%d ends, half within %.1f ms, the slowest %.1f ms", len(took), took[len(took) // 2] * 1e3, took[-1] * 1e3
    )


def befores(asked: Database, places: set[int]) -> Iterator[tuple[int, str]]:
    """Show what lies before some places, as the server lists its files."""
    left = sorted(places)
    files = [str(row[0]) for row in asked.run("SHOW BINARY LOGS")]
    # The server does not list files with events that are larger than its packets.
    files = [file for file in files if file_number(file) >= LogPosition.of(left[0]).file]
    with closing(MySqlConnection(root(asked.server))) as connection:
        before = LogStatus(connection).before_file(files[0])
    for file in files:
        for _, position, kind, _, _, text in asked.run(f"SHOW BINLOG EVENTS IN '{file}'"):
            if kind != "Gtid":
                continue
            begins = LogPosition(file_number(file), position).number
            while left and left[0] <= begins:
                yield left.pop(0), str(before)
            before |= GtidSet.parse(text.split("'")[1])
    yield from ((place, str(before)) for place in left)


@pytest.mark.needs_mysql("has GTIDs always, of a form of its own")
def test_what_lies_before_a_transaction_that_the_server_does_not_list_is_known(mysql_database: Database) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (id INT PRIMARY KEY, body VARBINARY(1024))", "FLUSH BINARY LOGS")
    database.run("INSERT INTO t VALUES (-1, 'before')")
    with closing(MySqlConnection(root(database.server))) as connection:
        end, executed = LogStatus(connection).executed_end()
    ((packet,),) = database.run("SELECT @@global.max_allowed_packet")
    database.run(
        DEEP_RECURSION, "SET SESSION binlog_transaction_compression = ON",
        "INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
        " SELECT i, RANDOM_BYTES(1024) FROM n",
    )  # fmt: skip
    try:
        database.run("SET GLOBAL max_allowed_packet = 1048576")
        with closing(MySqlConnection(root(database.server))) as connection:
            transactions = Transactions.of(connection, LogStatus(connection))
            assert transactions is not None
            with pytest.raises(SourceError, match="Event too big"):
                transactions._listed(database.since.file[:-6] + f"{end.file:06}", 4, end.offset)
            assert transactions.before(end.number) == executed
    finally:
        database.run(f"SET GLOBAL max_allowed_packet = {packet}")
