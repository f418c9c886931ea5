"""Moments in the binlog: where a query begins at one, and how far a limit of event time lets it be read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, LogPosition
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_bounds import BinlogBounds
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from pyspark_mysql_cdc_wm.lookup.time_index import BinlogTimeIndex
from pyspark_mysql_cdc_wm.options import mysql_options
from pyspark_mysql_cdc_wm.options.start import StartAtTime
from pyspark_mysql_cdc_wm.source import MySqlSource
from services.containers import Where
from services.mysql import MySql, mysql_service
from tests.integration.mysql_binlog import Database, new_database, purge_before_end, root
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import PASSWORD, RIGHTS, USER, make_user
from watermark_source.errors import DataLossError
from watermark_source.planning.backlog import backlog_of
from watermark_source.planning.group_limit import aligned_ends
from watermark_source.planning.observation import LogTimes, Observation, ObservedLogs
from watermark_source.planning.policy import Alignment, PlanPolicy
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SplitState
from watermark_source.planning.watermark import Millis

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"
_ELSEWHERE = Split("elsewhere", 0)


@pytest.fixture(scope="module")
def server() -> Iterator[MySql]:
    """One of the module's own: its files begin with what is written here."""
    with _new_server() as made:
        yield made


@contextmanager
def _new_server() -> Iterator[MySql]:
    with mysql_service(where=Where.LOCAL) as made:
        make_user(made, USER, *RIGHTS)
        yield made


@pytest.fixture(scope="module")
def history(server: MySql) -> Iterator[tuple[Database, list[tuple[int, int]]]]:
    """A table of one transaction a row, in five files, and the commit time (ms) and id of each."""
    with new_database(server) as database:
        database.run(_TABLE)
        for number in range(50):
            database.run(f"INSERT INTO t VALUES ({number}, 'n', 0)")
            if number % 5 == 0:
                time.sleep(0.05)
            if number % 10 == 9:
                # The second in which a file begins is all that it states of its time.
                time.sleep(1.1)
                database.run("FLUSH BINARY LOGS", f"INSERT INTO t VALUES ({100 + number}, 'n', 0)")
        yield database, read(database, startingOffsets="earliest")


def read(database: Database, **options: Any) -> list[tuple[int, int]]:
    """Return the commit time and the id of all that a new query reads."""
    life = Life(database, **options)
    start = life.reader.initialOffset()
    rows = life.rows(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()
    return [(round(row["_commit_timestamp"].timestamp() * 1_000_000) // 1_000, row["id"]) for row in rows]


def test_a_query_begins_with_the_first_transaction_at_a_moment_or_after(
    history: tuple[Database, list[tuple[int, int]]],
) -> None:
    database, changes = history
    assert len(changes) == 55
    for committed, _ in changes[::6]:
        for moment in (committed, committed + 1):
            wanted = [change for change in changes if change[0] >= moment]
            if wanted:
                assert read(database, startingTimestamp=moment) == wanted


def test_after_the_last_transaction_it_begins_at_the_end(history: tuple[Database, list[tuple[int, int]]]) -> None:
    database, changes = history
    for moment in (changes[-1][0] + 1, 1_000 * round(time.time() + 3_600)):
        life = Life(database, startingTimestamp=moment)
        start = life.reader.initialOffset()
        assert life.rows(start, life.reader.latestOffset(start, ALL)) == []


@pytest.mark.needs_mysql("logs in which second a statement began, and no commit times")
def test_a_limit_of_event_time_is_passed_by_one_transaction_at_most(
    history: tuple[Database, list[tuple[int, int]]],
) -> None:
    database, changes = history
    source = _source(database)
    connector = source.open()
    assert connector.time_index is not None
    policy = PlanPolicy(alignment=Alignment(max_drift=100))
    (position,) = connector.starts.initial_positions(frozenset({BINLOG})).values()
    watermark: Millis | None = None
    delivered: list[tuple[int, int]] = []
    passed = stood_still = 0
    for limit in range(changes[0][0] - 500, changes[-1][0] + 200, 97):
        # A member of the group in another source would be as this one: it has a watermark, and no rows here.
        splits = {BINLOG: SplitState(position, position, watermark), _ELSEWHERE: SplitState(0, 0, Millis(limit - 100))}
        ends = connector.bounds.end_positions(frozenset({BINLOG}))
        newest = connector.time_index.newest({BINLOG})
        logs = ObservedLogs(asked_at=Millis(0), ends={**ends, _ELSEWHERE: 0}, times=LogTimes(newest=newest))
        seen = Observation(now=Millis(0), logs=logs)
        backlog = backlog_of(splits, seen, policy, connector.time_index, connector.row_index)
        end = aligned_ends(splits, seen, backlog).ends.get(BINLOG, position)
        stretch, reached = _read(source, position, end)
        beyond = [at for at, _ in stretch if at - 1 > limit]
        assert len(beyond) <= 1
        passed += len(beyond)
        stood_still += end == position
        delivered += stretch
        position, watermark = end, reached or watermark
        left = [at for at, _ in changes[len(delivered) :]]
        assert not left or left[0] - 1 > limit, "the limit let it go on"
    assert delivered == changes
    # Gaps in time are crossed by one transaction, and some limits let none pass.
    assert passed > 0
    assert stood_still > 0


def test_a_group_of_its_own_holds_no_one(history: tuple[Database, list[tuple[int, int]]]) -> None:
    database, changes = history
    grouped = {"alignmentGroup": "g", "alignmentMaxDrift": "10 ms"}
    assert read(database, startingOffsets="earliest", **grouped) == changes
    snapshot = Life(database, **grouped)
    start = snapshot.reader.initialOffset()
    assert len(snapshot.rows(start, snapshot.reader.latestOffset(start, ALL))) == len(changes)


def test_a_moment_before_what_was_purged_is_data_loss() -> None:
    # Other tests need what is purged here.
    with _new_server() as server, new_database(server) as database:
        database.run(_TABLE)
        # MariaDB's binlog has the second alone.
        moment = 1_000 * int(time.time())
        database.run("INSERT INTO t VALUES (1, 'one', 1)")
        time.sleep(1.1)
        database.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 'two', 2)")
        assert [row for _, row in read(database, startingTimestamp=moment)] == [1, 2]
        purge_before_end(database)
        with pytest.raises(DataLossError, match=rf"startingTimestamp = {moment} .* earlier changes were purged"):
            Life(database, startingTimestamp=moment).reader.initialOffset()
        assert [row for _, row in read(database, startingTimestamp=moment, failOnDataLoss="false")] == [2]


def test_a_file_that_says_it_was_begun_long_before_hides_no_transaction(server: MySql) -> None:
    """As one that a statement began which took an hour, or one on a replica that was an hour behind."""
    begin_file = "SET timestamp = UNIX_TIMESTAMP() - 3600", "FLUSH BINARY LOGS", "SET timestamp = DEFAULT"
    with new_database(server) as database:
        database.run(
            _TABLE, *begin_file, "INSERT INTO t VALUES (1, 'n', 0)", "INSERT INTO t VALUES (2, 'n', 0)",
            *begin_file, "INSERT INTO t VALUES (3, 'n', 0)",
        )  # fmt: skip
        changes = read(database, startingOffsets="earliest")
        moment = next(committed for committed, row in changes if row == 2)
        assert read(database, startingTimestamp=moment) == [change for change in changes if change[0] >= moment]
        database.run("FLUSH BINARY LOGS")
        assert read(database, startingTimestamp=moment) == [change for change in changes if change[0] >= moment]


@pytest.mark.needs_mysql("has GTIDs always, of a form of its own")
def test_what_is_committed_while_a_moment_is_looked_for_comes(server: MySql) -> None:
    class Busy(Transactions):
        """Those of a server that is written to after each look at its end."""

        def newest_end(self) -> tuple[LogPosition, bool]:
            found = super().newest_end()
            database.run("INSERT INTO t SELECT COUNT(*), 'n', 0 FROM t")
            return found

    with new_database(server) as database, closing(MySqlConnection(root(server))) as connection:
        database.run(_TABLE)
        status = LogStatus(connection)
        moment = (status.now() or 0) + 1
        while (status.now() or 0) <= moment:
            time.sleep(0.001)
        busy = Busy(connection, status)
        times = BinlogTimeIndex(connection, status, busy)
        bounds = BinlogBounds(status, busy, times, StartAtTime(moment), by_commit=True, fail_on_data_loss=True)
        (begin,) = bounds.initial_positions(frozenset({BINLOG})).values()
        rows, _ = _read(_source(database), begin, status.end().number)
        assert [row for _, row in rows] == [0]


def _source(database: Database) -> MySqlSource:
    server = database.server
    return MySqlSource.of(mysql_options.parse(
        {
            "hostname": server.host, "port": str(server.port), "username": USER, "password": PASSWORD,
            "tables": f"{database.name}.t", "startingOffsets": "earliest",
        }
    ))  # fmt: skip


def _read(source: MySqlSource, start: int, end: int) -> tuple[list[tuple[int, int]], Millis | None]:
    """Read a stretch: the commit time and id of each row, and the watermark after it."""
    found, reached = list[Any](), 0
    for batch in source.range_reader.read([SplitRange(BINLOG, start, end)] if end > start else []):
        reached = max(reached, batch.reached or 0)
        if batch.rows:
            times = (micros // 1_000 for micros in batch.event_time.cast("int64").to_pylist())
            found += zip(times, batch.columns[0].to_pylist(), strict=True)
    return found, Millis(reached // 1_000 - 1) if reached else None
