"""``doctor --mysql`` on a real server: the checks of load(), all of them, each with what mends it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_mysql_cdc_wm import DefaultSource
from services.local_server import free_ports
from services.mysql import MySql, mysql_service
from services.mysql_client import run
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import end_of_binlog
from tests.integration.mysql_streams import PASSWORD, RIGHTS, make_user
from watermark_source.command_line import main
from watermark_source.errors import UnsupportedFormatError

pytestmark = pytest.mark.service
Lines = dict[str, tuple[str, str]]
"""Verdict and text by the name of the check."""


@pytest.fixture(scope="module")
def server() -> Iterator[MySql]:
    """A server whose settings the tests change, and whose binlog leaves a database out."""
    with mysql_service(config={"binlog_ignore_db": "hidden", "sync_binlog": "1"}) as own:
        run(
            own.host, own.port, "CREATE DATABASE shop", "CREATE DATABASE hidden",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, name TEXT)",
            "CREATE TABLE shop.child (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)",
            "CREATE TABLE shop.keyless (id INT, name TEXT)",
            "CREATE TABLE shop.old (id INT PRIMARY KEY, name TEXT) ENGINE = MyISAM",
            "CREATE TABLE hidden.t (id INT PRIMARY KEY)", "CREATE VIEW shop.v AS SELECT * FROM shop.t",
        )  # fmt: skip
        make_user(own, "cdc", *RIGHTS)
        yield own


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATERMARK_SOURCE_PASSWORD", PASSWORD)


def words(server: MySql, **options: Any) -> list[str]:
    given = {"hostname": server.host, "port": server.port, "username": "cdc", "tables": "shop.t", **options}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def examined(capsys: pytest.CaptureFixture[str], server: MySql, expected: int, **options: Any) -> Lines:
    assert main(["doctor", "--mysql", *words(server, **options)]) == expected
    logged = capsys.readouterr()
    assert PASSWORD not in logged.out + logged.err
    *lines, total = logged.out.splitlines()
    assert total.startswith(f"{len(lines)} checks: ")
    return {line[9:33].strip(): (line[:9].strip(), line[34:]) for line in lines}


def not_ok(lines: Lines) -> dict[str, str]:
    # That the server leaves a database out is a warning always.
    return {name: verdict for name, (verdict, _) in lines.items() if verdict != "ok" and name != "binlog_do_db"}


def test_a_server_that_is_set_up_passes_every_check(capsys: pytest.CaptureFixture[str], server: MySql) -> None:
    lines = examined(capsys, server, 0)
    assert not not_ok(lines)
    assert lines["binlog_do_db"][0] == "warning"
    ((version,),) = run(server.host, server.port, "SELECT VERSION()")
    assert lines["server"][1].endswith(version)
    assert server.flavour.value in lines["server"][1]
    assert lines["login"][1] == "cdc, as the account cdc@%"
    assert lines["binlog_row_image"][1] == "FULL"
    assert lines["tables"] == ("ok", "shop.t")
    assert lines["SELECT"] == ("ok", "may be read")
    assert lines["columns"][1] == "id, name"
    assert lines["primary key"][1] == "(id)"
    kept = {Flavour.MYSQL: "30 d", Flavour.MARIADB: "until an administrator purges it"}
    assert lines["binlog kept"][1] == kept[server.flavour]
    assert "not verified" in lines["TLS"][1]
    assert "primary key" not in examined(capsys, server, 0, startingOffsets="latest")


def test_it_is_a_command(server: MySql) -> None:
    command = [sys.executable, "-m", "watermark_source", "doctor", "--mysql", *words(server)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ok       binlog_format            ROW\n" in done.stdout


def test_all_that_is_wrong_is_reported_at_once_with_the_statements(
    capsys: pytest.CaptureFixture[str], server: MySql
) -> None:
    run(server.host, server.port, "SET GLOBAL binlog_format = 'MIXED'", "SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    make_user(server, "poor", "SELECT ON shop.t", "REPLICATION CLIENT ON *.*")
    try:
        lines = examined(capsys, server, 1, username="poor", tables="shop.t,shop.gone")
        options = {"hostname": server.host, "port": str(server.port), "username": "poor", "password": PASSWORD}
        source = DefaultSource({**options, "tables": "shop.t,shop.gone"})
        with pytest.raises(UnsupportedFormatError) as at_load:
            source.schema()
    finally:
        run(server.host, server.port, "SET GLOBAL binlog_format = 'ROW'", "SET GLOBAL binlog_row_metadata = 'FULL'")
    assert not_ok(lines) == {
        "binlog_format": "FAILED", "binlog_row_metadata": "warning", "REPLICATION SLAVE": "FAILED",
        "tables": "FAILED", "logged databases": "skipped", "SELECT": "skipped", "columns": "skipped",
        "primary key": "skipped", "engine": "skipped", "binlog kept": "skipped", "column grants": "skipped",
        "foreign keys": "skipped", "tables left out": "skipped",
    }  # fmt: skip
    # What load() states is the first of these lines.
    assert lines["binlog_format"][1] == str(at_load.value)
    assert "binlog_format is MIXED, and must be ROW" in lines["binlog_format"][1]
    assert " binlog_row_metadata = 'FULL'" in lines["binlog_row_metadata"][1]
    assert "GRANT REPLICATION SLAVE" in lines["REPLICATION SLAVE"][1]
    assert "GRANT SELECT ON `shop`.`gone` TO 'poor'@'%'" in lines["tables"][1]
    assert lines["columns"][1] == "needs tables, which failed"


def test_the_statements_mend_what_they_are_for(capsys: pytest.CaptureFixture[str], server: MySql) -> None:
    run(server.host, server.port, "SET GLOBAL binlog_row_image = 'MINIMAL'")
    make_user(server, "poor", "INSERT ON shop.t")
    try:
        failed = [
            text for verdict, text in examined(capsys, server, 1, username="poor").values() if verdict == "FAILED"
        ]
        assert len(failed) == 4
        run(server.host, server.port, *(re.split("[.;] |$", text.split("On the server: ")[1])[0] for text in failed))
        assert not not_ok(examined(capsys, server, 0, username="poor"))
    finally:
        run(server.host, server.port, "SET GLOBAL binlog_row_image = 'FULL'")


def test_a_wrong_password_is_tried_once_and_an_unreachable_server_is_named(
    capsys: pytest.CaptureFixture[str], server: MySql, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_user(server, "strict", *RIGHTS)
    if server.flavour is Flavour.MYSQL:
        locks, opens = "ALTER USER 'strict'@'%' FAILED_LOGIN_ATTEMPTS 2 PASSWORD_LOCK_TIME 1", "DO 0"
    else:
        locks, opens = (f"SET GLOBAL max_password_errors = {errors}" for errors in (2, 4_294_967_295))
    run(server.host, server.port, locks)
    with monkeypatch.context() as patched:
        patched.setenv("WATERMARK_SOURCE_PASSWORD", "wr0ng-one")
        lines = examined(capsys, server, 1, username="strict")
    assert lines["server"] == ("ok", "answers")
    assert lines["login"][0] == "FAILED"
    assert "wr0ng-one" not in str(lines)
    assert set(not_ok(lines).values()) == {"FAILED", "skipped"}
    # A second failure would have locked it.
    assert not not_ok(examined(capsys, server, 0, username="strict"))
    run(server.host, server.port, opens)
    (port,) = free_ports(1)
    lines = examined(capsys, server, 1, port=port)
    assert lines["server"][0] == "FAILED"
    assert f"MySQL at 127.0.0.1:{port} cannot be reached" in lines["server"][1]
    assert lines["login"] == ("skipped", "needs server, which failed")


@pytest.mark.parametrize(
    ("tables", "check", "verdict", "message"),
    [
        ("shop.v", "tables", "FAILED", "shop.v is a view, not a table, and the binlog has no rows of it"),
        ("hidden.t", "logged databases", "FAILED", "leaves out the database hidden (binlog_ignore_db)"),
        (
            "shop.keyless",
            "primary key",
            "warning",
            "without a primary key: shop.keyless. Without snapshotChunkColumn the snapshot of each is one chunk",
        ),
        ("shop.old", "engine", "warning", "shop.old (MyISAM): only InnoDB shows a table as of one moment"),
    ],
)
def test_a_table_of_which_less_can_be_reported_is_named(
    capsys: pytest.CaptureFixture[str], server: MySql, tables: str, check: str, verdict: str, message: str
) -> None:
    lines = examined(capsys, server, int(verdict == "FAILED"), tables=tables)
    assert lines[check][0] == verdict
    assert message in lines[check][1]


def test_a_foreign_key_that_changes_rows_is_named_unless_they_are_logged(
    capsys: pytest.CaptureFixture[str], server: MySql
) -> None:
    verdict, text = examined(capsys, server, 0, tables="shop.child")["foreign keys"]
    ((version,),) = run(server.host, server.port, "SELECT VERSION()")
    if server.flavour is Flavour.MYSQL and tuple(map(int, version.split(".")[:2])) >= (9, 6):
        assert (verdict, text) == ("ok", "their changes are logged")
    else:
        assert verdict == "warning"
        assert "shop.child" in text


def test_a_query_begins_with_telling_what_it_may_lack(server: MySql, caplog: pytest.LogCaptureFixture) -> None:
    options = {"hostname": server.host, "port": str(server.port), "username": "cdc", "password": PASSWORD}
    DefaultSource({**options, "tables": "shop.t"}).schema()
    assert [": binlog_do_db: binlog_ignore_db is hidden" in text for text in caplog.messages] == [True]
    DefaultSource({**options, "tables": "shop.old"}).schema()
    assert "shop.old (MyISAM): only InnoDB shows a table as of one moment" in caplog.text


@pytest.mark.needs_mysql("has an id always")
def test_a_server_without_an_id_is_refused(capsys: pytest.CaptureFixture[str], server: MySql) -> None:
    run(server.host, server.port, "SET GLOBAL server_id = 0")
    try:
        lines = examined(capsys, server, 1)
    finally:
        run(server.host, server.port, "SET GLOBAL server_id = 1")
    assert "server_id is 0, and must be another number" in lines["server_id"][1]


def test_a_binlog_that_is_kept_too_shortly_is_reported(capsys: pytest.CaptureFixture[str], server: MySql) -> None:
    ((usual,),) = run(server.host, server.port, "SELECT @@GLOBAL.binlog_expire_logs_seconds")
    run(server.host, server.port, "SET GLOBAL binlog_expire_logs_seconds = 3600")
    try:
        lines = examined(capsys, server, 0)
    finally:
        run(server.host, server.port, f"SET GLOBAL binlog_expire_logs_seconds = {usual}")
    assert lines["binlog kept"][0] == "warning"
    assert lines["binlog kept"][1].startswith("for 1 h. ")
    assert " binlog_expire_logs_seconds = 604800" in lines["binlog kept"][1]


def test_a_place_that_the_binlog_has_not_is_reported(capsys: pytest.CaptureFixture[str], server: MySql) -> None:
    end = end_of_binlog(server)
    there = f'{{"file":"{end.file}","position":{end.position}}}'
    assert examined(capsys, server, 0, startingOffsets=there)["startingOffsets"] == ("ok", "is in the binlog")
    lines = examined(capsys, server, 1, startingOffsets='{"file":"binlog.999999","position":4}')
    assert f"begins in {end.file.partition('.')[0]}.000001" in lines["startingOffsets"][1]


def test_without_tls_rows_can_be_read_on_their_way(capsys: pytest.CaptureFixture[str], server: MySql) -> None:
    # Over TLS first: the server then knows the password, and takes it in the clear.
    examined(capsys, server, 0)
    lines = examined(capsys, server, 0, sslMode="disabled")
    assert lines["TLS"][0] == "warning"


@pytest.mark.needs_mysql("has no passwords that are only sent over TLS")
def test_a_password_that_is_not_sent_in_the_clear_is_reported_and_not_a_bug(
    capsys: pytest.CaptureFixture[str], server: MySql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    make_user(server, "fresh", *RIGHTS)
    lines = examined(capsys, server, 1, username="fresh", sslMode="disabled")
    assert lines["server"] == ("ok", "answers")
    assert lines["login"][0] == "FAILED"
    assert "accepts the password of the user 'fresh' only over TLS" in lines["login"][1]
    assert "Set sslMode to preferred or required" in lines["login"][1]


def test_foreign_keys_of_the_engine_log_nothing_and_are_named(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with mysql_service(config={"loose_innodb_native_foreign_keys": "ON"}) as own:
        run(
            own.host, own.port, "CREATE DATABASE shop", "CREATE TABLE shop.parent (id INT PRIMARY KEY)",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
            "INSERT INTO shop.parent VALUES (1)", "INSERT INTO shop.t VALUES (7, 1)",
        )  # fmt: skip
        make_user(own, "cdc", *RIGHTS)
        verdict, text = examined(capsys, own, 0)["foreign keys"]
        options = {"hostname": own.host, "port": str(own.port), "username": "cdc", "password": PASSWORD}
        DefaultSource({**options, "tables": "shop.t"}).schema()
    assert verdict == "warning"
    assert text.startswith("shop.t t_ibfk_1: what ON DELETE or ON UPDATE changes in a table is not in the binlog")
    assert text in caplog.text


def test_mariadb_is_checked_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    with mysql_service(flavour=Flavour.MARIADB, config={"log_slave_updates": "ON"}) as own:
        run(
            own.host, own.port, "CREATE DATABASE shop", "CREATE TABLE shop.parent (id INT PRIMARY KEY)",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, p INT, CONSTRAINT whole FOREIGN KEY (p) REFERENCES parent (id) "
            "ON DELETE SET NULL, CONSTRAINT refuses FOREIGN KEY (id) REFERENCES parent (id) ON UPDATE RESTRICT)",
        )  # fmt: skip
        make_user(own, "cdc", *RIGHTS)
        lines = examined(capsys, own, 0)
        assert "MariaDB" in lines["server"][1]
        assert lines["gtid_mode"][1] == "not needed with MariaDB"
        assert not_ok(lines).keys() - {"TLS"} == {"foreign keys", "sync_binlog"}
        assert "sync_binlog is 0: after a crash of the machine" in lines["sync_binlog"][1]
        assert lines["foreign keys"][1].startswith("shop.t whole: what ON DELETE or ON UPDATE changes")
