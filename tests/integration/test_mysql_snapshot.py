"""Snapshot, then binlog, while writers change the table: the stream states what the server holds, on every replay."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_mysql_cdc_wm.client import connection as mysql_connection
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from services.mysql_client import connect
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, root, shorten
from tests.integration.mysql_keep_alives import keep_alives
from tests.integration.mysql_lives import ALL, Change, Life, changes_of, data_of
from tests.integration.mysql_streams import MySqlStreams
from tests.integration.mysql_writers import writers
from watermark_source.errors import ResponseTimeoutError, UnsupportedFormatError
from watermark_source.status_model.status_json import status_from_json

pytestmark = pytest.mark.service

_log = logging.getLogger(__name__)
_TABLE = "CREATE TABLE {} (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"


def fill(database: Database, table: str = "t", rows: int = 2_000, *, declared: str = _TABLE) -> None:
    values = ", ".join(f"({2 * i}, 'n{i}', {i})" for i in range(rows))
    database.run(declared.format(table), f"INSERT INTO {table} VALUES {values}")


def applied(changes: Iterable[Change], table: dict[int, tuple[Any, ...]]) -> None:
    """Make a table what it is after some changes, which must fit it."""
    for version, number, kind, key, *rest in sorted(changes):
        row = (key, *rest)
        if kind in ("insert", "update_postimage"):
            assert kind != "insert" or key not in table, (version, number, kind, row)
            table[key] = row
        else:
            assert table[key] == row, (version, number, kind, row, table[key])
            if kind == "delete":
                del table[key]


@pytest.mark.timeout(3_600)
def test_every_replay_of_a_batch_gives_equal_rows_and_the_last_state_is_the_servers(
    mysql_database: Database, request: pytest.FixtureRequest
) -> None:
    wanted, seed = request.config.getoption("--snapshot-replays"), request.config.getoption("--snapshot-seed")
    replays = rows = 0
    while replays < wanted:
        done = snapshot_under_load(mysql_database, seed)
        replays, rows, seed = replays + done.replays, rows + done.rows, seed + 1
    _log.info("%d replays of %d rows up to seed %d", replays, rows, seed - 1)
    assert rows > replays * 500


class Replayed(NamedTuple):
    """Batches of a snapshot that were repeated, and the rows in them."""

    replays: int
    rows: int


def snapshot_under_load(database: Database, seed: int, *, declared: str = _TABLE, **options: Any) -> Replayed:
    """Stream a table of 5 000 rows, to which four writers write, and each batch again by another process a bit later.

    Rows are equal byte for byte, changes fit the table, and the table is the server's in the end.
    """
    database.run("DROP TABLE IF EXISTS t")
    fill(database, rows=5_000, declared=declared)
    chosen = {"snapshotChunkRows": 250, "snapshotParallelism": 2, **options}
    life, other = Life(database, **chosen), Life(database, **chosen)
    table: dict[int, tuple[Any, ...]] = {}
    replays = rows = after_snapshot = 0
    end: Mapping[str, Any] = life.reader.initialOffset()
    with writers(database, "t", keys=10_000, seed=100 * seed):
        while after_snapshot < 3:
            start, end = end, life.reader.latestOffset(end, ALL)
            first = life.batches(start, end)
            time.sleep(0.1)
            offsets = (json.loads(json.dumps(offset)) for offset in (start, end))
            assert as_bytes(first) == as_bytes(other.batches(*offsets))
            applied(changes_of(first), table)
            if "snapshot" in end:
                assert "wm" not in end
                replays, rows = replays + 1, rows + sum(batch.num_rows for batch in first)
            else:
                after_snapshot += 1
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        applied(life.changes(start, end), table)
    life.reader.stop()
    other.reader.stop()
    assert table == {row[0]: row for row in database.run("SELECT id, name, amount FROM t")}
    assert end["wm"] > 0
    return Replayed(replays, rows)


def as_bytes(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return a batch's rows, whose order states nothing, in one order, as Arrow has them on its way."""
    rows = pa.Table.from_batches(batches)
    rows = rows.sort_by([(name, "ascending") for name in ("_commit_version", "_change_number", "id", "_change_type")])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return bytes(sink.getvalue())


def test_a_snapshot_can_be_of_one_moment_whatever_is_written_while_it_is_read(mysql_database: Database) -> None:
    database = mysql_database
    begun = {}
    for name in ("t", "u"):
        fill(database, name, rows=1_500)
        begun[name] = {row[0]: row for row in database.run(f"SELECT id, name, amount FROM {name}")}
    chosen = {"tables": f"{database.name}.*", "snapshotChunkRows": 300, "snapshotParallelism": 3}
    life = Life(database, snapshotConsistency="table", idleTimeout="1 millisecond", **chosen)
    tables: dict[str, dict[int, tuple[Any, ...]]] = {"t": {}, "u": {}, "later": {}}
    end: Mapping[str, Any] = life.reader.initialOffset()
    fill(database, "later", rows=10)
    place = end["splits"]["binlog"]["0"]
    with writers(database, "t", count=2, keys=3_000), writers(database, "u", count=1, keys=3_000):
        for batch in range(4):
            if batch == 2:
                life.reader.stop()
                life = Life(database, snapshotConsistency="table", **chosen)
            start, end = end, life.reader.latestOffset(end, ALL)
            # The log does not continue, and is not idle: it is read once for all chunks, in one task.
            assert end["splits"]["binlog"]["0"] == place
            assert len(life.reader.partitions(dict(start), dict(end))) == 1
            first = life.batches(start, end)
            assert as_bytes(first) == as_bytes(life.batches(start, end))
            for row in data_of(first):
                assert row["_change_type"] == "insert"
                tables[row["_table"]][row["id"]] = (row["id"], row["name"], row["amount"])
        assert tables == {**begun, "later": {}}
        for _ in range(4):
            start, end = end, life.reader.latestOffset(end, ALL)
            apply_all(life.rows(start, end), tables)
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        apply_all(life.rows(start, end), tables)
    life.reader.stop()
    for name, table in tables.items():
        assert table == {row[0]: row for row in database.run(f"SELECT id, name, amount FROM {name}")}


def apply_all(rows: Iterable[Mapping[str, Any]], tables: Mapping[str, dict[int, tuple[Any, ...]]]) -> None:
    for name, table in tables.items():
        applied(
            (
                (
                    row["_commit_version"],
                    row["_change_number"],
                    row["_change_type"],
                    row["id"],
                    row["name"],
                    row["amount"],
                )
                for row in rows
                if row["_table"] == name
            ),
            table,
        )


def test_a_run_that_ends_reads_the_snapshot_and_the_binlog_up_to_its_beginning(mysql_streams: MySqlStreams) -> None:
    database = mysql_streams.database
    fill(database, rows=300)
    fill(database, "u", rows=250)
    frame = mysql_streams.source("t,u", snapshotChunkRows=100, snapshotParallelism=2)
    mysql_streams.run(frame, "all")
    database.run("UPDATE t SET amount = -1 WHERE id < 10", "DELETE FROM u WHERE id >= 100")
    mysql_streams.run(frame, "all")
    change = ("_commit_version", "_change_number", "_change_type", "id", "name", "amount")
    columns = (*change, "_table", "event_time", "_snapshot")
    found = mysql_streams.changes("all", columns)
    for name in ("t", "u"):
        table: dict[int, tuple[Any, ...]] = {}
        applied((tuple(row[:6]) for row in found if row["_table"] == name), table)
        assert table == {row[0]: row for row in database.run(f"SELECT id, name, amount FROM {name}")}
    assert len(found) == 300 + 250 + 2 * 5 + 200
    assert {row["event_time"].year for row in found[:550]} == {1970}
    assert [row["_snapshot"] for row in found] == [True] * 550 + [False] * 210


def test_snapshot_alone_ends_with_the_tables_as_they_were(mysql_database: Database) -> None:
    fill(mysql_database, rows=300)
    life = Life(mysql_database, startingOffsets="snapshot", snapshotChunkRows=100)
    end: Mapping[str, Any] = life.reader.initialOffset()
    found: list[Change] = []
    for after in ("UPDATE t SET amount = -1", "DO 0"):
        while (start := end) != (end := life.reader.latestOffset(end, ALL)):
            found += life.changes(start, end)
        mysql_database.run(after)
    life.reader.stop()
    assert len(found) == 300


@pytest.mark.parametrize("key", ["BIGINT UNSIGNED", "BIGINT", "TINYINT"])
def test_keys_at_the_edges_of_their_type_are_read_once(key: str, mysql_database: Database) -> None:
    edges = {
        "BIGINT UNSIGNED": [0, 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1],
        "BIGINT": [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1],
        "TINYINT": [-128, -1, 0, 127],
    }[key]
    database = mysql_database
    rows = ", ".join(f"({edge}, 'n', 0)" for edge in edges)
    database.run(_TABLE.format("t").replace("INT", key, 1), f"INSERT INTO t VALUES {rows}")
    life = Life(database, snapshotChunkRows=2, snapshotParallelism=2)
    end: Mapping[str, Any] = life.reader.initialOffset()
    database.run("UPDATE t SET amount = 1")
    found: list[Change] = []
    while (start := end) != (end := life.reader.latestOffset(end, ALL)):
        found += life.changes(start, end)
        database.run("UPDATE t SET amount = amount + 1") if "snapshot" in end else None
    life.reader.stop()
    table: dict[int, tuple[Any, ...]] = {}
    applied(found, table)
    assert sorted(map(int, table)) == edges
    assert {row[2] for row in table.values()} == {database.run("SELECT MAX(amount) FROM t")[0][0]}


@pytest.mark.parametrize("rows", [0, 1, 25])
def test_one_batch_can_take_the_whole_snapshot(mysql_database: Database, rows: int) -> None:
    mysql_database.run(_TABLE.format("t"), *(f"INSERT INTO t VALUES ({i}, 'n', 0)" for i in range(rows)))
    life = Life(mysql_database, snapshotChunkRows=2, snapshotParallelism=2)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ReadAllAvailable())
    assert end["snapshot"] == {f"{mysql_database.name}.t": [None]}
    assert [change[3] for change in sorted(life.changes(start, end))] == list(range(rows))
    # Nothing is written meanwhile; the snapshot is complete all the same, and shows it by the watermark it held, where
    # the server's clock shows one.
    done = life.reader.latestOffset(end, ALL)
    assert "wm" not in end
    if mysql_database.server.flavour is Flavour.MYSQL:
        assert abs(done["wm"] - 1_000 * time.time()) < 60_000
    else:
        assert "wm" not in done
    assert "snapshot" not in done
    life.reader.stop()


def test_the_status_of_a_table_says_that_there_is_more_and_not_how_many_rows(mysql_database: Database) -> None:
    fill(mysql_database, rows=100)
    life = Life(mysql_database, snapshotChunkRows=20, snapshotParallelism=2)
    start: Mapping[str, Any] = life.reader.initialOffset()
    life.reader.latestOffset(start, ALL)
    report = life.reader.reportLatestOffset()
    assert report is not None
    status = status_from_json(report)
    life.reader.stop()
    table = next(view for view in status.splits if view.split.log == f"{mysql_database.name}.t")
    assert (table.lag, table.why, status.lag) == (None, "has more to read", None)


def test_a_table_with_a_unique_key_and_no_primary_one_is_read_as_one_without_a_key(mysql_database: Database) -> None:
    database = mysql_database
    rows = "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)"
    database.run("CREATE TABLE t (id INT NOT NULL UNIQUE, name VARCHAR(40), amount BIGINT)", rows)
    life = Life(database)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    # The binlog names the unique key where a primary one would be.
    database.run("UPDATE t SET amount = -1 WHERE id = 2")
    assert sorted((row["id"], row["amount"]) for row in life.rows(start, end)) == [(1, 1), (2, -1), (3, 3)]
    life.reader.stop()


def test_the_server_hears_of_a_view_while_the_binlog_is_searched_for_where_a_table_without_a_key_was_dropped(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = mysql_database
    fill(database, rows=2, declared="CREATE TABLE {} (id INT, name VARCHAR(40), amount BIGINT)")
    life = Life(database)
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    database.run("UPDATE t SET amount = 5")
    passes = keep_alives(database.server, monkeypatch)
    assert sorted((row["id"], row["amount"]) for row in life.rows(start, end)) == [(0, 5), (2, 5)]
    life.reader.stop()
    # Searched, and then undone.
    assert len(passes) == 2
    assert all(kept and all(kept) for kept in passes), passes


def test_a_limit_that_the_server_has_for_statements_is_not_for_looking_up_where_chunks_end(
    mysql_database: Database,
) -> None:
    is_mysql = mysql_database.server.flavour is Flavour.MYSQL
    limit, value = ("max_execution_time", 50) if is_mysql else ("max_statement_time", 0.05)
    mysql_database.run(f"SET GLOBAL {limit} = {value}")
    try:
        with closing(MySqlConnection(root(mysql_database.server))) as connection:
            # One that is cut off returns 1 (MySQL), or is an error (MariaDB).
            assert connection.one("SELECT SLEEP(0.3)") == (0,)
    finally:
        mysql_database.run(f"SET GLOBAL {limit} = 0")


@pytest.mark.parametrize("limit", ["sql_select_limit", "max_join_size"])
def test_limits_that_the_server_has_for_rows_are_not_for_chunks(mysql_database: Database, limit: str) -> None:
    fill(mysql_database, rows=23)
    life = Life(mysql_database, snapshotChunkRows=5)
    end: Mapping[str, Any] = life.reader.initialOffset()
    keys = []
    mysql_database.run(f"SET GLOBAL {limit} = 3")
    try:
        while (start := end) != (end := life.reader.latestOffset(end, ALL)) and "snapshot" in start:
            keys += [row["id"] for row in life.rows(start, end)]
        life.reader.stop()
    finally:
        mysql_database.run(f"SET GLOBAL {limit} = DEFAULT")
    assert sorted(keys) == [2 * i for i in range(23)]


def test_where_a_chunk_ends_is_asked_once_if_that_takes_too_long(
    mysql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(mysql_database, rows=23)
    # So that a locked table keeps the server from answering.
    shorten(monkeypatch, answer_seconds=6)
    monkeypatch.setattr(mysql_connection, "LOCK_WAIT_SECONDS", 600)
    life = Life(mysql_database, snapshotChunkRows=5)
    offset: Mapping[str, Any] = life.reader.initialOffset()
    server = mysql_database.server
    waiting = (
        f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%{mysql_database.name}_._t_ %OFFSET 5'"
    )
    with connect(server.host, server.port, database=mysql_database.name) as holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLES t WRITE")
        with pytest.raises(
            ResponseTimeoutError,
            match=r"did not answer within .* a chunk of 5 rows of .*\.t ends: .* snapshotChunkRows",
        ):
            life.reader.latestOffset(offset, ALL)
        cursor.execute(waiting)
        assert cursor.fetchall() == ((1,),)
        cursor.execute("UNLOCK TABLES")
    life.reader.stop()


def test_a_table_that_somebody_has_locked_is_waited_for_while_the_binlog_is_read_on(
    mysql_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    fill(mysql_database, "locked")
    fill(mysql_database, rows=3)
    life = Life(mysql_database, tables=f"{mysql_database.name}.t,{mysql_database.name}.locked")
    server = mysql_database.server
    with connect(server.host, server.port, database=mysql_database.name) as holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLES locked WRITE")
        offset: Mapping[str, Any] = life.reader.initialOffset()
        read = 0
        for _ in range(3):
            begun = time.monotonic()
            end = life.reader.latestOffset(offset, ALL)
            # A server's answer is waited for for two minutes, and then the query ended.
            assert time.monotonic() - begun < 60
            read += 0 if end == offset else len(life.rows(offset, end))
            offset = end
            mysql_database.run(f"INSERT INTO t VALUES ({1_000 + read}, 'later', 1)")
        assert read >= 5
        assert f"{mysql_database.name}.locked is locked, or about to be altered: its snapshot waits" in caplog.text
        cursor.execute("UNLOCK TABLES")
    for _ in range(20):
        end = life.reader.latestOffset(offset, ALL)
        read += 0 if end == offset else len(life.rows(offset, end))
        offset = end
    assert read == 2_000 + 3 + 3


def test_rows_of_several_packets_are_read(mysql_database: Database) -> None:
    full = 2**24 - 1
    # A row is its number, as text, behind the size of that, and bytes behind theirs. The second and the last fill their
    # packets: an empty one ends each.
    sizes = (5, full - 6, full - 5, 3, 2 * full - 11)
    mysql_database.run("CREATE TABLE t (id INT PRIMARY KEY, name LONGBLOB)")
    ((limit,),) = mysql_database.run("SELECT @@GLOBAL.max_allowed_packet")
    mysql_database.run(f"SET GLOBAL max_allowed_packet = {2**26}")
    for number, size in enumerate(sizes):
        mysql_database.run(f"INSERT INTO t VALUES ({number}, REPEAT(CHAR({65 + number}), {size}))")
    mysql_database.run(f"SET GLOBAL max_allowed_packet = {limit}")
    life = Life(mysql_database)
    start: Mapping[str, Any] = life.reader.initialOffset()
    found = {row["id"]: row["name"] for row in life.rows(start, life.reader.latestOffset(start, ALL))}
    life.reader.stop()
    assert {number: (len(name), set(name)) for number, name in found.items()} == {
        number: (size, {65 + number}) for number, size in enumerate(sizes)
    }


def test_keys_of_the_year_0_are_read_once_and_on_every_replay(mysql_database: Database) -> None:
    mysql_database.run(
        "CREATE TABLE t (day DATE, at DATETIME(3), n INT, PRIMARY KEY (day, at))", "SET sql_mode = ''",
        "INSERT INTO t VALUES ('0000-00-00', '0000-00-00', 0), ('0000-01-01', '0000-01-01 00:00:00.001', 1),"
        " ('0000-05-06', '0000-05-06 01:02:03.004', 2), ('0000-05-06', '2024-02-29', 3),"
        " ('0001-01-01', '0001-01-01', 4)",
    )  # fmt: skip
    life = Life(mysql_database, rowFormat="json", snapshotChunkRows=1, snapshotParallelism=1)
    end: Mapping[str, Any] = life.reader.initialOffset()
    found = []
    while (start := end) != (end := life.reader.latestOffset(end, ALL)) and "snapshot" in end:
        mysql_database.run("SET sql_mode = ''", "UPDATE t SET n = n + 10 WHERE day < '0000-06-01'")
        once = life.rows(start, end)
        assert life.rows(start, end) == once
        found += once
    found += life.rows(start, end)
    state: dict[str, int] = {}
    for row in sorted(found, key=lambda row: (row["_commit_version"], row["_change_number"])):
        values = json.loads(row["_row"])
        key = f"{values['day']} {values['at']}"
        if row["_change_type"] in ("insert", "update_postimage"):
            assert row["_change_type"] != "insert" or key not in state
            state[key] = values["n"]
        else:
            assert state.pop(key) == values["n"]
    life.reader.stop()
    held = mysql_database.run("SELECT CAST(day AS CHAR), CAST(at AS CHAR), n FROM t")
    assert state == {f"{day} {at}".replace("0000-00-00 0000-00-00 00:00:00.000", "None None"): n for day, at, n in held}


def test_a_key_that_is_no_date_ends_a_snapshot_and_the_binlog(mysql_database: Database) -> None:
    mysql_database.run("CREATE TABLE t (day DATE PRIMARY KEY)")
    following = Life(mysql_database, startingOffsets="latest")
    place = following.reader.initialOffset()
    mysql_database.run(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "INSERT INTO t VALUES ('0000-00-00'), ('2024-02-31'), ('2024-05-00')",
    )
    refused = r"table .*[.]t column day: a key of 2024-02-31, which is not a calendar date: .* or leave the table out"
    for life, start in ((Life(mysql_database), {}), (following, place)):
        begin = start or life.reader.initialOffset()
        with pytest.raises(UnsupportedFormatError, match=refused):
            life.rows(begin, life.reader.latestOffset(begin, ALL))
        life.reader.stop()


def test_a_key_that_becomes_a_date_is_another_key(mysql_database: Database) -> None:
    mysql_database.run(
        "CREATE TABLE t (day DATE PRIMARY KEY)", "SET sql_mode = ''", "INSERT INTO t VALUES ('0000-00-00')"
    )
    life = Life(mysql_database, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    mysql_database.run("SET sql_mode = ''", "UPDATE t SET day = '2024-05-07'")
    rows = life.rows(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()
    assert [(row["_change_type"], row["day"] is None) for row in rows] == [("delete", True), ("insert", False)]
