"""A query continues with another server that holds the same transactions: by their GTIDs, and each exactly once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet, Source
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from services.mysql import MySqlPair, mysql_pair
from services.mysql_client import run
from services.mysql_local import LocalMySql
from tests.integration.mysql_binlog import Database, new_database, root
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS, USER, make_user
from watermark_source.errors import DataLossError, OffsetError, OptionError, SourceError

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"


@pytest.fixture(scope="module")
def pair() -> Iterator[MySqlPair]:
    with mysql_pair() as made:
        make_user(made.source, USER, *RIGHTS)
        made.wait_until_replica_has_all()
        yield made


@pytest.fixture
def database(pair: MySqlPair) -> Iterator[Database]:
    with new_database(pair.source) as made:
        made.run(_TABLE)
        yield made


def caught_up(pair: MySqlPair, database: Database, *statements: str) -> None:
    """Run statements on the source, and wait for the replica."""
    database.run(*statements)
    pair.wait_until_replica_has_all()


@contextmanager
def stopped(pair: MySqlPair) -> Iterator[None]:
    """Let the replica apply nothing until the block is left."""
    run(pair.replica.host, pair.replica.port, "STOP REPLICA")
    try:
        yield
    finally:
        run(pair.replica.host, pair.replica.port, "START REPLICA")


def on(server: LocalMySql, database: Database) -> Database:
    return replace(database, server=server)


def test_what_was_not_read_on_one_server_is_read_on_the_other(pair: MySqlPair, database: Database) -> None:
    here = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = here.reader.initialOffset()
    database.run("INSERT INTO t VALUES (1, 'one', 1)", "INSERT INTO t VALUES (2, 'two', 2)")
    first = here.reader.latestOffset(start, ALL)
    read = here.changes(start, first)
    assert [change[3] for change in read] == [1, 2]
    database.run("INSERT INTO t VALUES (3, 'three', 3)", "UPDATE t SET amount = 9 WHERE id = 1")
    pair.wait_until_replica_has_all()
    there = Life(on(pair.replica, database))
    # The batch that was not done is repeated: the same changes, though the log has others by now.
    again = there.changes(start, first)
    assert [change[1:] for change in again] == [change[1:] for change in read]
    second = there.reader.latestOffset(first, ALL)
    assert second["system"] != first["system"]
    rest = there.changes(first, second)
    assert [change[2:] for change in rest] == [
        ("insert", 3, "three", 3), ("update_preimage", 1, "one", 1), ("update_postimage", 1, "one", 9),
    ]  # fmt: skip
    versions = [change[0] for change in (*read, *again, *rest)]
    assert versions == sorted(versions)
    # Another process continues by positions, and to the server it began on.
    database.run("INSERT INTO t VALUES (4, 'four', 4)")
    pair.wait_until_replica_has_all()
    later = Life(on(pair.replica, database))
    third = later.reader.latestOffset(second, ALL)
    found = later.changes(second, third)
    assert [change[3] for change in found] == [4]
    back = Life(database)
    assert [change[1:] for change in back.changes(second, third)] == [change[1:] for change in found]
    database.run("INSERT INTO t VALUES (5, 'five', 5)")
    fourth = back.reader.latestOffset(third, ALL)
    last = back.changes(third, fourth)
    assert [change[3] for change in last] == [5]
    assert last[0][0] > found[0][0] > versions[-1]


def test_a_limit_of_rows_holds_before_and_after_the_first_batch_on_the_other(
    pair: MySqlPair, database: Database
) -> None:
    limit = ReadMaxRows(2)
    here = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = here.reader.initialOffset()
    caught_up(pair, database, *(f"INSERT INTO t VALUES ({key}, 'name', 0)" for key in range(1, 8)))
    first = here.reader.latestOffset(start, limit)
    second = here.reader.latestOffset(first, limit)
    assert [change[3] for change in here.changes(start, first)] == [1, 2]
    there = Life(on(pair.replica, database))
    assert [change[3] for change in there.changes(start, first)] == [1, 2]
    assert [change[3] for change in there.changes(first, second)] == [3, 4]
    # What was read elsewhere may lie anywhere before the end of this log, so it cannot be cut before.
    third = there.reader.latestOffset(second, limit)
    assert [change[3] for change in there.changes(second, third)] == [5, 6, 7]
    caught_up(pair, database, *(f"INSERT INTO t VALUES ({key}, 'name', 0)" for key in range(8, 12)))
    fourth = there.reader.latestOffset(third, limit)
    assert [change[3] for change in there.changes(third, fourth)] == [8, 9]


def test_transactions_of_the_other_server_and_another_order_are_no_matter(pair: MySqlPair, database: Database) -> None:
    here = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = here.reader.initialOffset()
    database.run("INSERT INTO t VALUES (1, 'one', 1)")
    pair.wait_until_replica_has_all()
    uuid, executed = executed_on(pair.source)
    replica = on(pair.replica, database)
    with stopped(pair):
        # The replica has the second transaction before the first, and one of its own before both.
        replica.run("INSERT INTO t VALUES (100, 'own', 100)")
        applied(replica, f"{uuid}:{executed + 2}", "INSERT INTO t VALUES (3, 'three', 3)")
        applied(replica, f"{uuid}:{executed + 1}", "INSERT INTO t VALUES (2, 'two', 2)")
        database.run("INSERT INTO t VALUES (2, 'two', 2)")
        first = here.reader.latestOffset(start, ALL)
        database.run("INSERT INTO t VALUES (3, 'three', 3)")
        second = here.reader.latestOffset(first, ALL)
        assert [change[3] for change in here.changes(start, first)] == [1, 2]
        there = Life(replica)
        assert [change[3] for change in there.changes(start, first)] == [1, 2]
        assert [change[3] for change in there.changes(first, second)] == [3]
        # What no one has read yet.
        third = there.reader.latestOffset(second, ALL)
        assert [change[3] for change in there.changes(second, third)] == [100]
        assert [change[3] for change in there.changes(first, there.reader.latestOffset(first, ALL))] == [100, 3]
        replica.run("DELETE FROM t WHERE id = 100")
    pair.wait_until_replica_has_all()
    # Both servers hold the same again: another test purges what the replica has written by itself.
    own, wrote = executed_on(pair.replica)
    for number in range(1, wrote + 1):
        applied(database, f"{own}:{number}")


def executed_on(server: LocalMySql) -> tuple[str, int]:
    ((uuid, executed),) = run(server.host, server.port, "SELECT @@server_uuid, @@global.gtid_executed")
    return str(uuid), GtidSet.parse(str(executed)).ranges[Source(str(uuid))][-1][1]


def applied(database: Database, gtid: str, *statements: str) -> None:
    database.run(f"SET gtid_next = '{gtid}'", "BEGIN", *statements, "COMMIT", "SET gtid_next = 'AUTOMATIC'")


def test_no_row_is_late_where_the_other_servers_clock_is_behind(pair: MySqlPair, database: Database) -> None:
    here = Life(database, startingOffsets="latest")
    start = here.reader.initialOffset()
    # As if the clock here were an hour ahead.
    start["wm"] = round(time.time() * 1_000) + 3_600_000
    start["splits"]["binlog"]["0"] = start["splits"]["binlog"]["0"][:2]
    caught_up(pair, database, "INSERT INTO t VALUES (1, 'one', 1)")
    life = Life(on(pair.replica, database))
    (row,) = life.rows(start, life.reader.latestOffset(start, ALL))
    assert row["event_time"].timestamp() * 1_000 > start["wm"]
    assert row["_commit_timestamp"].timestamp() * 1_000 < start["wm"]


@pytest.mark.parametrize("consistency", ["batch", "table"])
def test_a_snapshot_continues_on_the_other_server(consistency: str, pair: MySqlPair, database: Database) -> None:
    database.run("INSERT INTO t VALUES " + ", ".join(f"({i}, 'n', {i})" for i in range(100)))
    options = {"snapshotChunkRows": 30, "snapshotParallelism": 1, "snapshotConsistency": consistency}
    here = Life(database, **options)
    offset: Mapping[str, Any] = here.reader.initialOffset()
    first = here.reader.latestOffset(offset, ALL)
    read = here.changes(offset, first)
    database.run("UPDATE t SET amount = amount + 1000 WHERE id % 10 = 0", "DELETE FROM t WHERE id = 95")
    pair.wait_until_replica_has_all()
    there = Life(on(pair.replica, database), **options)
    # As of where the batch was planned, whatever was changed since.
    assert sorted(change[2:] for change in there.changes(offset, first)) == sorted(change[2:] for change in read)
    table, versions = {change[3]: change[5] for change in read}, {change[3]: change[0] for change in read}
    offset = first
    for _ in range(6):
        end = there.reader.latestOffset(offset, ALL)
        for version, _, kind, key, _, amount in sorted(there.changes(offset, end)):
            assert (kind == "insert") == (key not in table)
            assert version >= versions.get(key, 0)
            versions[key] = version
            if kind == "delete":
                del table[key]
            else:
                table[key] = amount
        offset = end
    assert "snapshot" not in offset
    assert table == dict(database.run("SELECT id, amount FROM t"))


def test_a_run_that_ends_fixes_its_end_when_the_replica_has_all_that_was_read(
    pair: MySqlPair, database: Database
) -> None:
    here = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = here.reader.initialOffset()
    caught_up(pair, database, "INSERT INTO t VALUES (1, 'one', 1)")
    there = Life(on(pair.replica, database))
    with stopped(pair):
        database.run("INSERT INTO t VALUES (2, 'two', 2)")
        end = here.reader.latestOffset(start, ALL)
        there.reader.prepareForTriggerAvailableNow()
    planned = there.reader.latestOffset(end, ALL)
    assert there.changes(end, planned) == []
    caught_up(pair, database, "INSERT INTO t VALUES (3, 'three', 3)")
    later = Life(on(pair.replica, database))
    assert [change[3] for change in later.changes(planned, later.reader.latestOffset(planned, ALL))] == [3]


def test_a_server_that_lacks_what_was_read_is_refused(
    pair: MySqlPair, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.wait_until_replica_has_all()
    with stopped(pair):
        here = Life(database, startingOffsets="latest")
        start: Mapping[str, Any] = here.reader.initialOffset()
        uuid, executed = executed_on(pair.source)
        database.run("INSERT INTO t VALUES (1, 'one', 1)", "INSERT INTO t VALUES (2, 'two', 2)")
        end = here.reader.latestOffset(start, ALL)
        there = Life(on(pair.replica, database))
        monkeypatch.setattr("pyspark_mysql_cdc_wm.lookup.replicas._CATCH_UP_SECONDS", 1)
        lacks = f"lacks transactions that the query has read: {uuid}:{executed + 1}-{executed + 2}[.] "
        with pytest.raises(OffsetError, match=lacks):
            there.reader.partitions(start, end)
        with pytest.raises(OffsetError, match=lacks):
            there.reader.latestOffset(end, ALL)
        monkeypatch.undo()
    # A replica that is behind is waited for.
    assert len(there.changes(start, end)) == 2


def test_a_server_that_has_purged_what_comes_next_is_a_loss(pair: MySqlPair, database: Database) -> None:
    here = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = here.reader.initialOffset()
    database.run("INSERT INTO t VALUES (1, 'one', 1)")
    end = here.reader.latestOffset(start, ALL)
    caught_up(pair, database, "INSERT INTO t VALUES (2, 'two', 2)")
    replica = on(pair.replica, database)
    replica.run("FLUSH BINARY LOGS")
    ((last, *_),) = replica.run("SHOW BINARY LOG STATUS")
    replica.run(f"PURGE BINARY LOGS TO '{last}'")
    with pytest.raises(DataLossError, match="were purged from its binlog"):
        Life(replica).reader.partitions(start, end)
    with pytest.raises(DataLossError, match="were purged from its binlog"):
        Life(replica).reader.latestOffset(end, ALL)


def test_a_binlog_that_was_reset_is_refused_however_long_it_is_again() -> None:
    with closing(LocalMySql()) as server:
        server.start()
        make_user(server, USER, *RIGHTS)
        with new_database(server) as database:
            database.run(_TABLE)
            here = Life(database, startingOffsets="latest")
            start: Mapping[str, Any] = here.reader.initialOffset()
            database.run("INSERT INTO t VALUES (1, 'one', 1)")
            end = here.reader.latestOffset(start, ALL)
            database.run("RESET BINARY LOGS AND GTIDS")
            # What changes nothing would not be logged.
            change = "ON DUPLICATE KEY UPDATE amount = amount + 1"
            rows = [f"INSERT INTO t VALUES ({i}, REPEAT('x', 40), 0) {change}" for i in range(40)]
            # Fewer transactions than before, then more in fewer files, then more in as many.
            for statements in ((), rows, ("FLUSH BINARY LOGS", *rows)):
                database.run("DO 1", *statements)
                with pytest.raises(OffsetError, match="RESET BINARY LOGS AND GTIDS"):
                    Life(database).reader.partitions(end, end)
                with pytest.raises(OffsetError, match="RESET BINARY LOGS AND GTIDS"):
                    Life(database).reader.latestOffset(end, ALL)
            # Where a file begins, a transaction begins again: one that had not been read, after others of that kind.
            database.run("RESET BINARY LOGS AND GTIDS", rows[0], "FLUSH BINARY LOGS")
            going_on = Life(database, startingOffsets="latest")
            start = going_on.reader.initialOffset()
            end = going_on.reader.latestOffset(start, ALL)
            database.run("RESET BINARY LOGS AND GTIDS")
            with pytest.raises(OffsetError, match=r"does not have .*RESET BINARY LOGS AND GTIDS"):
                going_on.reader.latestOffset(end, ALL)
            database.run(*rows[:3], "FLUSH BINARY LOGS", rows[0])
            with pytest.raises(OffsetError, match=r"does not continue at the position .*RESET BINARY LOGS AND GTIDS"):
                Life(database).reader.latestOffset(end, ALL)


def test_a_file_that_ends_while_a_query_stands_still_is_no_matter(database: Database) -> None:
    life = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    database.run("INSERT INTO t VALUES (1, 'one', 1)")
    end = life.reader.latestOffset(start, ALL)
    database.run("FLUSH BINARY LOGS")
    going_on = Life(database)
    nothing = going_on.reader.latestOffset(end, ALL)
    assert going_on.rows(end, nothing) == []
    database.run("INSERT INTO t VALUES (2, 'two', 2)")
    assert [change[3] for change in going_on.changes(nothing, going_on.reader.latestOffset(nothing, ALL))] == [2]


def test_a_first_batch_that_was_not_done_is_refused_elsewhere(pair: MySqlPair, database: Database) -> None:
    here = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = here.reader.initialOffset()
    caught_up(pair, database, "INSERT INTO t VALUES (1, 'one', 1)")
    end = here.reader.latestOffset(start, ALL)
    there = Life(on(pair.replica, database), startingOffsets="latest")
    # Spark asks for the beginning again.
    with pytest.raises(OffsetError, match="the first batch of the query was planned on"):
        there.reader.partitions(there.reader.initialOffset(), end)


@pytest.mark.parametrize("tagged", [False, True])
def test_a_new_query_begins_at_a_set(pair: MySqlPair, database: Database, *, tagged: bool) -> None:
    tag = ":nightly" if tagged else ""
    database.run(
        "INSERT INTO t VALUES (1, 'one', 1)", f"SET gtid_next = 'AUTOMATIC{tag}'", "INSERT INTO t VALUES (2, 'two', 2)"
    )
    ((left_out,),) = database.run("SELECT @@global.gtid_executed")
    database.run(f"SET gtid_next = 'AUTOMATIC{tag}'", "INSERT INTO t VALUES (3, 'three', 3)")
    database.run("INSERT INTO t VALUES (4, 'four', 4)")
    life = Life(database, startingOffsets=json.dumps({"gtid": left_out}))
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    assert [change[3] for change in life.changes(start, end)] == [3, 4]
    assert [change[3] for change in Life(database).changes(start, end)] == [3, 4]
    assert GtidSet.parse(end["done"]) == GtidSet.parse(database.run("SELECT @@global.gtid_executed")[0][0])
    database.run("INSERT INTO t VALUES (5, 'five', 5)")
    assert [change[3] for change in life.changes(end, life.reader.latestOffset(end, ALL))] == [5]


def test_a_set_that_the_server_does_not_have_is_refused(database: Database) -> None:
    unknown = "11111111-2222-3333-4444-555555555555:1-7"
    life = Life(database, startingOffsets=json.dumps({"gtid": unknown}))
    with pytest.raises(OptionError, match=f"the server has not executed {unknown}; it has executed "):
        life.reader.initialOffset()


def test_another_server_behind_the_same_address_is_noticed(pair: MySqlPair, database: Database) -> None:
    here = Life(database, startingOffsets="latest")
    start: Mapping[str, Any] = here.reader.initialOffset()
    caught_up(pair, database, "INSERT INTO t VALUES (1, 'one', 1)")
    end = here.reader.latestOffset(start, ALL)
    there = Life(on(pair.replica, database))
    for partition in here.reader.partitions(start, end):
        with pytest.raises(SourceError, match=r"is another server now .* Start the query again"):
            list(there.reader.read(partition))
    with closing(MySqlConnection(root(pair.source))) as connection:
        connection.pin_server()
        connection.settings = replace(connection.settings, port=pair.replica.port)
        assert connection.rows("SELECT 1") == ((1,),)
        connection.close()
        with pytest.raises(SourceError, match=r"is another server now"):
            connection.rows("SELECT 1")


def test_an_offset_without_a_set_goes_on_where_it_was_made_only(pair: MySqlPair, database: Database) -> None:
    here = Life(database, startingOffsets="latest")
    start = here.reader.initialOffset()
    caught_up(pair, database, "INSERT INTO t VALUES (1, 'one', 1)")
    del start["done"]
    assert [change[3] for change in here.changes(start, here.reader.latestOffset(start, ALL))] == [1]
    with pytest.raises(OffsetError, match="was made without GTIDs"):
        Life(on(pair.replica, database)).reader.latestOffset(start, ALL)
