"""What a server refuses for a moment is waited for, and what it sends in any character set is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pymysql
import pytest

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from pyspark_mysql_cdc_wm.lookup.table_columns import described
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice
from pyspark_mysql_cdc_wm.snapshot.consistent_view import ConsistentView
from services.errors import ServiceError
from services.mysql import MySql
from services.mysql_client import connect, run
from tests.integration.mysql_binlog import Database, end_of_binlog, root
from tests.integration.mysql_streams import PASSWORD, USER
from watermark_source.errors import UnreachableError
from watermark_source.planning.snapshot_ranges import Chunk

pytestmark = pytest.mark.service

_HELD = 10
"""MariaDB's least ``max_connections``."""
Lift = Callable[[], Any]


def settings_of(server: MySql) -> LoginSettings:
    return LoginSettings(server.host, server.port, USER, PASSWORD)


def many_sessions(server: MySql, held: ExitStack) -> Lift:
    own = held.enter_context(closing(connect(server.host, server.port)))

    def limit(sessions: int) -> None:
        with own.cursor() as cursor:
            cursor.execute(f"SET GLOBAL max_connections = {sessions}")

    held.callback(limit, 151)
    limit(_HELD)
    # Other sessions of the server count, too, and root has one more. Some that were closed may end only now.
    refused = 0
    while refused < 5:
        try:
            held.enter_context(closing(connect(server.host, server.port)))
            refused = 0
        except pymysql.err.OperationalError:
            refused += 1
            time.sleep(0.1)
    return lambda: limit(151)


def one_session_of_the_user(server: MySql, held: ExitStack) -> Lift:
    run(server.host, server.port, f"ALTER USER '{USER}'@'%' WITH MAX_USER_CONNECTIONS 1")
    session = pymysql.connect(host=server.host, port=server.port, user=USER, password=PASSWORD)
    held.callback(run, server.host, server.port, f"ALTER USER '{USER}'@'%' WITH MAX_USER_CONNECTIONS 0")
    return session._force_close


def offline(server: MySql, held: ExitStack) -> Lift:
    run(server.host, server.port, "SET GLOBAL offline_mode = ON")
    return lambda: run(server.host, server.port, "SET GLOBAL offline_mode = OFF")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (many_sessions, r"Too many connections.*SET GLOBAL max_connections"),
        (one_session_of_the_user, r"max_user_connections.*MAX_USER_CONNECTIONS"),
        pytest.param(offline, "SET GLOBAL offline_mode = OFF", marks=pytest.mark.needs_mysql("has no offline mode")),
    ],
)
def test_a_server_that_takes_no_connection_for_a_moment_is_waited_for(
    mysql_database: Database, fault: Callable[[MySql, ExitStack], Lift], message: str
) -> None:
    server = mysql_database.server
    settings = settings_of(server)
    with ExitStack() as held:
        lift = fault(server, held)
        try:
            with pytest.raises(UnreachableError, match=message), closing(MySqlConnection(settings)) as impatient:
                impatient.rows("SELECT 1")
            lifted = threading.Timer(1.0, lift)
            begun = time.monotonic()
            lifted.start()
            with closing(MySqlConnection(settings.patient)) as asked:
                assert asked.rows("SELECT 1") == ((1,),)
            assert time.monotonic() - begun > 0.5
            lifted.join()
        finally:
            lift()


@contextmanager
def killing(server: MySql, what: str, marked: str, times: int) -> Iterator[None]:
    """End what runs a statement with a mark in its text, so many times, while the block lasts."""

    running = f"SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{USER}' AND INFO LIKE '%{marked}%'"

    def ended_one() -> bool:
        if not (found := run(server.host, server.port, running)):
            return False
        try:
            run(server.host, server.port, f"KILL {what} {found[0][0]}")
        except ServiceError as error:
            if "Unknown thread id" not in str(error):
                raise
            # It was over in between.
            return False
        return True

    def end() -> None:
        for _ in range(times):
            while not ended_one():
                time.sleep(0.01)
            time.sleep(0.1)

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("what", ["QUERY", "CONNECTION"])
def test_a_statement_that_is_ended_from_outside_is_sent_again(mysql_database: Database, what: str) -> None:
    server = mysql_database.server
    mysql_database.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    statement = f"SELECT id FROM {mysql_database.name}.t WHERE SLEEP(5) = 0 /* {what} of ours */"
    with closing(MySqlConnection(settings_of(server).patient)) as asked:
        asked.rows("SELECT 1")
        with killing(server, what, f"{what} of ours", times=2):
            assert asked.rows(statement) == ((1,),)


_ROWS, _PART = 4_000, 50
"""Rows of 15 kB: more than the server can send before they are taken."""


def chunk(database: Database, view: ConsistentView, table: TableName, *, by_key: bool) -> Iterator[tuple[int, Any]]:
    with closing(MySqlConnection(settings_of(database.server).patient)) as asked:
        columns = described(asked, {table}, ColumnChoice())[table]
    names = list(columns.by_name)
    return view.rows(
        table,
        [columns.by_name[name] for name in names],
        [columns.type_by_name[name] for name in names],
        key=columns.key_columns,
        chunked_by=columns.chunk_columns if by_key else (),
        keys=Chunk(None, None),
    )


@pytest.mark.parametrize("engine", ["InnoDB", "MyISAM"])
@pytest.mark.parametrize("by_key", [True, False])
def test_rows_of_a_chunk_whose_statement_is_killed_come_once_or_the_task_fails(
    mysql_database: Database, engine: str, caplog: pytest.LogCaptureFixture, *, by_key: bool
) -> None:
    server, table = mysql_database.server, TableName(mysql_database.name, "t")
    values = ", ".join(f"({n}, REPEAT('x', 15000))" for n in range(_ROWS))
    mysql_database.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, v TEXT) ENGINE = {engine}", f"INSERT INTO t VALUES {values}"
    )
    with closing(ConsistentView(settings_of(server).patient, batch_rows=_PART)) as view:
        view.hold({table})
        parts = chunk(mysql_database, view, table, by_key=by_key)
        _, (first, _) = next(parts)
        found = first.to_pylist()
        # A change since then is not in the view.
        if engine == "InnoDB":
            mysql_database.run("DELETE FROM t WHERE id = 1")
        with killing(server, "QUERY", "FROM `%`.`t`", times=1):
            pass
        if engine == "InnoDB" and by_key:
            for _, (ids, _) in parts:
                found += ids.to_pylist()
            assert found == list(range(_ROWS))
            assert "reading the rest of" in caplog.text
        else:
            # Which rows came is not certain: another SELECT may see others, or in another order.
            with pytest.raises(UnreachableError, match="was killed or hit a limit"):
                list(parts)


def test_a_connection_that_the_server_ended_for_its_idleness_is_replaced(mysql_database: Database) -> None:
    with closing(MySqlConnection(settings_of(mysql_database.server))) as asked:
        asked.rows("SET SESSION wait_timeout = 1")
        time.sleep(2.2)
        assert asked.rows("SELECT 1") == ((1,),)


def run_as_bytes(database: Database, charset: str, statement: str) -> None:
    with connect(database.server.host, database.server.port, database=database.name) as session:
        session.query(f"SET NAMES {charset}")
        session.query(statement.encode("latin-1"))


@pytest.mark.needs_mysql("shows statements in UTF-8, what is none as question marks")
def test_a_statement_in_another_character_set_keeps_no_user_from_listing_events(mysql_database: Database) -> None:
    server = mysql_database.server
    mysql_database.run("CREATE TABLE other (id INT PRIMARY KEY)")
    start = end_of_binlog(server)
    run_as_bytes(mysql_database, "latin1", "ALTER TABLE other COMMENT 'Größe'")
    with closing(MySqlConnection(root(server))) as connection:
        status = LogStatus(connection)
        end, executed = status.executed_end()
        transactions = Transactions.of(connection, status)
        assert transactions is not None
        assert transactions.before(end.number) == executed
        gtid, query = connection.rows(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.position}")
        assert status.begins_transaction(start.file, gtid[1])
        assert not status.begins_transaction(start.file, query[1])
        # Such a text goes back as it came.
        assert "Gr\udcf6\udcdfe" in query[5]
        assert connection.rows("SELECT CONVERT(%s USING binary)", "Gr\udcf6") == ((b"Gr\xf6",),)


def test_a_table_with_an_expression_in_another_character_set_is_described(mysql_database: Database) -> None:
    run_as_bytes(mysql_database, "binary", "CREATE TABLE t (id INT, k VARBINARY(10) AS (CONCAT('\xe4', id)))")
    with closing(MySqlConnection(root(mysql_database.server))) as connection:
        ((_, shown),) = connection.rows(f"SHOW CREATE TABLE {mysql_database.name}.t")
    assert "concat(" in shown.lower()
