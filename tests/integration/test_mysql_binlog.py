"""A real server's binlog to changes: order, transactions, shapes of tables, compression, and how a dump ends."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from pyspark_mysql_cdc_wm.binlog.event_headers import START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet
from pyspark_mysql_cdc_wm.client.dump import BinlogDump, FilePosition
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings, Tls, TlsMode
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder, Changes
from pyspark_mysql_cdc_wm.records.row_events import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from services.containers import Where
from services.local_server import free_ports
from services.mysql import MySql, mysql_service
from tests.integration.mysql_binlog import Database, new_database, python_rows, root
from watermark_source.errors import (
    DataLossError,
    RefusedError,
    UnreachableError,
    UnsupportedFormatError,
)

pytestmark = pytest.mark.service

_INSERTS = frozenset({EventType.WRITE_ROWS, EventType.WRITE_ROWS_V1})
_TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount DECIMAL(12,2), at DATETIME(6))"
_COMPRESSED = "SET SESSION binlog_transaction_compression = ON"


def _flat(found: list[Changes]) -> list[tuple[int, list[Any]]]:
    return [
        (kind, row) for each in found for kind, row in zip(each.images.kinds.tolist(), python_rows(each), strict=True)
    ]


def _transactions(found: list[Changes]) -> list[int]:
    return [number for each in found for number in each.transactions.tolist()]


def _insert(first: int, count: int) -> str:
    rows = ", ".join(f"({i}, 'name {i}', {i}.25, '2024-05-07 01:02:03.{i:06}')" for i in range(first, first + count))
    return f"INSERT INTO t VALUES {rows}"


def _history(database: Database, *before: str) -> None:
    database.run(_TABLE)
    database.run(
        *before, _insert(0, 500), "UPDATE t SET name = CONCAT(name, '!') WHERE id < 100", "BEGIN",
        "DELETE FROM t WHERE id >= 400", _insert(1000, 20), "COMMIT",
    )  # fmt: skip


def test_changes_come_in_order_with_rows_before_and_after(mysql: MySql) -> None:
    with new_database(mysql) as database:
        _history(database)
        found = _flat(list(database.changes("t", batch_rows=64)))
    kinds = [kind for kind, _ in found]
    assert kinds == [INSERT] * 500 + [UPDATE_BEFORE, UPDATE_AFTER] * 100 + [DELETE] * 100 + [INSERT] * 20
    assert [row[0] for _, row in found[500:700:2]] == [row[0] for _, row in found[501:700:2]] == list(range(100))
    assert [row[1] for _, row in found[500:700]] == [f"name {i}{mark}" for i in range(100) for mark in ("", "!")]


@pytest.mark.needs_mysql("does not compress transactions")
def test_compressed_transactions_hold_the_same_changes(mysql: MySql) -> None:
    with new_database(mysql) as database:
        _history(database, _COMPRESSED)
        with closing(database.dump()) as dump:
            kinds = {kind for block in dump.blocks() for kind in block.events[:, TYPE].tolist()}
        assert EventType.TRANSACTION_PAYLOAD in kinds
        assert not kinds & {EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS}
        packed = list(database.changes("t"))
    with new_database(mysql) as database:
        _history(database)
        plain = list(database.changes("t"))
    assert _flat(packed) == _flat(plain)
    assert _transactions(packed) == _transactions(plain)


@pytest.mark.needs_mysql("does not compress transactions")
def test_a_compressed_transaction_with_a_tag_in_its_identifier_is_one_as_well(mysql: MySql) -> None:
    with new_database(mysql) as database:
        database.run(_TABLE, "SET SESSION gtid_next = 'AUTOMATIC:tag'", _COMPRESSED, _insert(1, 3), _insert(9, 1))
        with closing(database.dump()) as dump:
            kinds = [kind for block in dump.blocks() for kind in block.events[:, TYPE].tolist()]
        found = list(database.changes("t"))
    assert kinds.count(EventType.GTID_TAGGED) == kinds.count(EventType.TRANSACTION_PAYLOAD) == 2
    assert [row[0] for _, row in _flat(found)] == [1, 2, 3, 9]
    assert len(set(_transactions(found))) == 2
    assert all(time > 1_600_000_000_000_000 for each in found for time in each.committed.tolist())


@pytest.mark.needs_mysql("does not compress transactions")
def test_a_large_compressed_transaction_among_small_ones(mysql: MySql) -> None:
    with new_database(mysql) as database:
        database.run("CREATE TABLE t (id INT PRIMARY KEY, body LONGBLOB)")
        database.run("INSERT INTO t VALUES (1, 'small')")
        database.run(_COMPRESSED, "INSERT INTO t VALUES (2, RANDOM_BYTES(1024)), (3, REPEAT('abc', 3000000))")
        database.run("INSERT INTO t VALUES (4, 'small')", _COMPRESSED, "DELETE FROM t WHERE id = 4")
        found = _flat(list(database.changes("t")))
        (two,) = database.run("SELECT body FROM t WHERE id = 2")
    assert [(kind, row[0]) for kind, row in found] == [(INSERT, 1), (INSERT, 2), (INSERT, 3), (INSERT, 4), (DELETE, 4)]
    assert found[1][1][1] == two[0]
    assert found[2][1][1] == b"abc" * 3_000_000


def test_an_event_of_several_packets_is_put_together(mysql: MySql) -> None:
    with new_database(mysql) as database:
        database.run("CREATE TABLE t (id INT PRIMARY KEY, body LONGBLOB)")
        database.run("INSERT INTO t VALUES (1, REPEAT('0123456789', 3400000))", "INSERT INTO t VALUES (2, 'after')")
        found = _flat(list(database.changes("t")))
    assert [row for _, row in found] == [[1, b"0123456789" * 3_400_000], [2, b"after"]]


def test_blocks_are_large_where_the_server_does_not_pause(mysql: MySql) -> None:
    with new_database(mysql) as database:
        database.run("CREATE TABLE t (id INT PRIMARY KEY, body LONGBLOB)")
        database.run(*(f"INSERT INTO t VALUES ({i}, REPEAT('x', 100000))" for i in range(90)))
        with closing(database.dump()) as dump:
            sizes = [int(block.events[-1, STOP] - block.events[0, START]) for block in dump.blocks()]
    assert sum(sizes) > 9_000_000
    assert len(sizes) <= 8


@pytest.mark.needs_mysql("logs in which second a statement began, and no commit times")
def test_commit_times_are_the_servers_and_never_go_back(mysql: MySql) -> None:
    with new_database(mysql) as database:
        database.run(_TABLE)
        ((begin,),) = database.run("SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")
        for i in range(20):
            database.run(_insert(2 * i, 2))
        ((end,),) = database.run("SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")
        found = list(database.changes("t"))
    times = [time for each in found for time in each.committed.tolist()]
    assert len(times) == 40
    assert begin <= times[0]
    assert times == sorted(times)
    assert times[-1] <= end
    assert len({number for each in found for number in each.transactions.tolist()}) == 20
    assert times[::2] == times[1::2]


def test_a_table_that_changes_its_shape_is_read_in_each_of_them(mysql: MySql) -> None:
    with new_database(mysql) as database:
        database.run(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 2)",
            "ALTER TABLE t ADD COLUMN b VARCHAR(5) DEFAULT 'new', MODIFY a BIGINT UNSIGNED, ALGORITHM=COPY",
            "INSERT INTO t VALUES (2, 18446744073709551615, 'b')", "ALTER TABLE t DROP COLUMN a",
            "INSERT INTO t VALUES (3, 'c')",
        )  # fmt: skip
        found = list(database.changes("t"))
    assert [(each.names, python_rows(each)) for each in found] == [
        (("id", "a"), [[1, 2]]), (("id", "a", "b"), [[2, 18446744073709551615, "b"]]), (("id", "b"), [[3, "c"]]),
    ]  # fmt: skip


def test_tables_changed_by_one_statement_are_kept_apart(mysql: MySql) -> None:
    with new_database(mysql) as database:
        for name in ("t", "u", "unwanted"):
            database.run(
                f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(9))", f"INSERT INTO {name} VALUES (1, '{name}')"
            )
        database.run("UPDATE t, u, unwanted SET t.v = 't!', u.v = 'u!', unwanted.v = 'x'")
        found = list(database.changes("t", "u"))
    by_table: dict[str, list[Any]] = {"t": [], "u": []}
    for each in found:
        by_table[each.table.table] += python_rows(each)
    assert by_table == {"t": [[1, "t"], [1, "t"], [1, "t!"]], "u": [[1, "u"], [1, "u"], [1, "u!"]]}


def test_hundreds_of_openings_of_a_table_do_not_lose_its_description(mysql: MySql) -> None:
    with new_database(mysql) as database:
        database.run("CREATE TABLE t (id INT PRIMARY KEY)")
        # A new number for the table each time.
        database.run(*(each for i in range(300) for each in ("FLUSH TABLES t", f"INSERT INTO t VALUES ({i})")))
        found = _flat(list(database.changes("t")))
    assert [row for _, row in found] == [[i] for i in range(300)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pymysql.*")
def test_another_decoder_of_the_binlog_agrees(mysql: MySql) -> None:
    with new_database(mysql) as database:
        _history(database)
        ours = _flat(list(database.changes("t")))
        theirs = _by_mysql_replication(database)
    assert theirs == ours


def _by_mysql_replication(database: Database) -> list[tuple[int, list[Any]]]:
    settings = {"host": database.server.host, "port": database.server.port, "user": "root", "password": ""}
    reader = BinLogStreamReader(
        connection_settings=settings, server_id=4711, log_file=database.since.file, log_pos=database.since.position,
        resume_stream=True, only_schemas=[database.name],
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )  # fmt: skip
    found: list[tuple[int, list[Any]]] = []
    for event in reader:
        for row in event.rows:
            if isinstance(event, UpdateRowsEvent):
                found.append((UPDATE_BEFORE, list(row["before_values"].values())))
                found.append((UPDATE_AFTER, list(row["after_values"].values())))
            else:
                kind = INSERT if isinstance(event, WriteRowsEvent) else DELETE
                found.append((kind, list(row["values"].values())))
    reader.close()
    return found


def test_positions_lead_to_the_rest(mysql: MySql) -> None:
    with new_database(mysql) as database:
        database.run(_TABLE, _insert(1, 1), _insert(2, 1), "FLUSH BINARY LOGS", _insert(3, 1))
        with closing(database.dump()) as dump:
            events = [row for block in dump.blocks() for row in block.events.tolist()]
            place = FilePosition(dump.file, dump.position)
        assert sum(row[TYPE] in _INSERTS for row in events) == 3
        database.run(_insert(4, 1))
        assert [row[0] for _, row in _flat(list(database.changes("t", since=place)))] == [4]


@pytest.mark.needs_mysql("has GTIDs always, of a form of its own")
def test_a_set_of_identifiers_skips_what_it_holds(mysql: MySql) -> None:
    with new_database(mysql) as database:
        database.run(_TABLE, _insert(1, 1))
        ((executed,),) = database.run("SELECT @@GLOBAL.gtid_executed")
        held = GtidSet.parse(executed).encoded()
        database.run(_insert(2, 1))
        assert [row[0] for _, row in _flat(list(database.changes("t", since=held)))] == [2]


def test_a_file_that_is_gone_is_a_loss(mysql: MySql) -> None:
    with (
        new_database(mysql) as database,
        closing(database.dump(FilePosition("binlog.999999"))) as dump,
        pytest.raises(DataLossError, match=r"binlog.999999 position 4: .* does not have this file .* never written"),
    ):
        list(dump.blocks())


def test_least_metadata_is_refused_with_the_remedy() -> None:
    config = {"binlog_row_metadata": "MINIMAL"}
    with mysql_service(config=config, where=Where.LOCAL) as server, new_database(server) as database:
        database.run(_TABLE, _insert(1, 1))
        with pytest.raises(UnsupportedFormatError, match="SET PERSIST binlog_row_metadata = 'FULL'"):
            list(database.changes("t"))
        database.run("SET GLOBAL binlog_row_metadata = FULL", "SET SESSION binlog_row_image = MINIMAL")
        decoder = ChangeDecoder(database.charsets, lambda table: None)
        with closing(database.dump()) as dump:
            for block in dump.blocks():
                assert not list(decoder.decode(block.memory, block.events, block.file))


def test_who_may_not_read_the_binlog_learns_the_reason(mysql: MySql) -> None:
    with new_database(mysql) as database:
        user = f"{database.name}_user"
        database.run(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'right'")
        settings = replace(root(mysql), username=user, tls=Tls(TlsMode.REQUIRED))
        with pytest.raises(RefusedError, match="Access denied") as refused:
            BinlogDump(replace(settings, password="wrong"), database.since)
        assert "wrong" not in str(refused.value)
        with (
            closing(BinlogDump(replace(settings, password="right"), database.since)) as dump,
            pytest.raises(RefusedError, match="REPLICATION SLAVE"),
        ):
            list(dump.blocks())
        database.run(f"GRANT REPLICATION SLAVE ON *.* TO '{user}'@'%'", _TABLE, _insert(1, 1))
        with closing(BinlogDump(replace(settings, password="right"), database.since)) as dump:
            assert any(kind in _INSERTS for block in dump.blocks() for kind in block.events[:, TYPE].tolist())
        database.run(f"DROP USER '{user}'@'%'")


def test_a_server_that_is_not_there_and_a_position_that_cannot_be_named() -> None:
    (port,) = free_ports(1)
    settings = LoginSettings("127.0.0.1", port, "root", "")
    with pytest.raises(UnreachableError, match=f"MySQL at 127.0.0.1:{port} cannot be reached: .*refused"):
        BinlogDump(settings, FilePosition("binlog.000001"))
    with pytest.raises(UnsupportedFormatError, match=r"position 4294967296: a dump cannot begin above 4 GB of a file"):
        BinlogDump(settings, FilePosition("binlog.000001", 2**32))


def test_rows_that_are_not_whole_are_refused(mysql: MySql) -> None:
    with new_database(mysql) as database:
        database.run("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 2)")
        database.run("SET SESSION binlog_row_image = MINIMAL", "UPDATE t SET a = 3")
        with pytest.raises(UnsupportedFormatError, match=r"binlog .*table .* position .*binlog_row_image"):
            list(database.changes("t"))
