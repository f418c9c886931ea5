"""The MySQL server that everything else relies on: it answers, it survives what tests do to it, and it goes away."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from services import mysql_program
from services.containers import Where
from services.debian import DebianRoot
from services.errors import ServiceError
from services.mysql import MySql, mysql_service
from services.mysql_client import answers, run
from services.mysql_local import LocalMySql
from services.mysql_program import Flavour, flavour_from_environment
from services.wait_until import wait_until
from tests.services.what_is_left import accepts, members

pytestmark = pytest.mark.service


def _run(server: MySql, *statements: str) -> tuple[tuple[object, ...], ...]:
    return run(server.host, server.port, *statements)


def test_its_binlog_has_row_events_that_describe_themselves_and_gtids(mysql: MySql) -> None:
    names = ["log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata"]
    expected: list[object] = [1, "ROW", "FULL", "FULL"]
    if isinstance(mysql, LocalMySql):
        # A container's server listens on its own address, of which one port is published.
        names.append("bind_address")
        expected.append("127.0.0.1")
    assert mysql.flavour is (flavour_from_environment() or Flavour.MYSQL), "it could not be had"
    if mysql.flavour is Flavour.MYSQL:
        names.append("gtid_mode")
        expected.append("ON")
    found = _run(mysql, "SELECT " + ", ".join(f"@@global.{name}" for name in names))
    assert found == (tuple(expected),)


def test_a_server_survives_what_tests_do_to_it_and_goes_when_the_block_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = {"binlog-row-metadata": "MINIMAL", "max_connections": "17"}
    with mysql_service(config=config, where=Where.LOCAL) as server:
        assert isinstance(server, LocalMySql)
        found = _run(server, "SELECT @@global.binlog_row_metadata, @@global.max_connections, @@global.binlog_format")
        assert found == (("MINIMAL", 17, "ROW"),)
        before = server.port
        _run(server, "CREATE DATABASE a", "CREATE TABLE a.t (id INT PRIMARY KEY)", "INSERT INTO a.t VALUES (7)")
        name = "server_uid" if server.flavour is Flavour.MARIADB else "server_uuid"
        identity = _run(server, f"SELECT @@{name}")
        server.kill()
        assert not accepts(before)
        server.start()
        assert server.port == before
        assert _run(server, "SELECT id FROM a.t") == ((7,),)
        server.restart()
        assert _run(server, "SELECT id FROM a.t") == ((7,),)
        assert _run(server, f"SELECT @@{name}") == identity
        server.pause()
        assert accepts(server.port)
        assert not answers(server.host, server.port, seconds=1)
        server.resume()
        assert answers(server.host, server.port)
        group = os.getpgid(server.pid)
        assert list(tmp_path.iterdir())
    assert not members(group)
    assert not accepts(before)
    assert not list(tmp_path.iterdir())


def test_what_a_data_folder_is_made_with_can_be_chosen_and_servers_differ_in_identity() -> None:
    with mysql_service(config={"lower_case_table_names": "1"}, where=Where.LOCAL) as server:
        _run(server, "CREATE DATABASE a", "CREATE TABLE a.T (id INT)")
        assert _run(server, "SHOW TABLES IN a") == (("t",),)
        with closing(LocalMySql(flavour=Flavour.MYSQL)) as other:
            other.start()
            identity = "SELECT @@server_uuid"
            assert _run(other, identity) != _run(server, identity)
            assert _run(other, "SELECT @@lower_case_table_names, @@gtid_executed") == ((0, ""),)


def test_mariadb_can_be_asked_for() -> None:
    with mysql_service(flavour=Flavour.MARIADB, where=Where.LOCAL) as server:
        assert server.flavour is Flavour.MARIADB
        ((version, metadata),) = _run(server, "SELECT VERSION(), @@global.binlog_row_metadata")
        assert "MariaDB" in str(version)
        assert metadata == "FULL"


_OWNER = """
import signal
from services.mysql import mysql_service
from services.containers import Where
with mysql_service(where=Where.LOCAL) as server:
    print(server.pid, server.port, flush=True)
    signal.pause()
"""


def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, port = owner.stdout.readline().split()
        group = os.getpgid(int(pid))
        assert accepts(int(port))
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not members(group), 60, f"end of process group {group}")
    wait_until(lambda: not accepts(int(port)), 60, "closing of the server's port")
    wait_until(lambda: not list(tmp_path.glob("mysql-*")), 60, "removal of the server's folder")


def test_a_server_that_ends_while_it_starts_shows_its_log() -> None:
    with closing(LocalMySql()) as server:
        server._settings.write_text(server._settings.read_text() + "datadir=/nowhere\n")
        with pytest.raises(ServiceError, match=r"(?s)MySQL ended with exit code .* while it started\..*/nowhere"):
            server.start()


def test_a_wrong_setting_is_refused_before_the_server_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ServiceError, match=r"(?s)MySQL cannot be had.*no_such_setting"):
        LocalMySql(config={"no_such_setting": "1"}, flavour=Flavour.MYSQL)
    assert not list(tmp_path.iterdir())


def test_a_machine_without_any_server_is_told_all_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(entry: str, packages: list[str], *, size: str, suite: str = "") -> DebianRoot:
        raise ServiceError(f"no {packages[0]} here")

    monkeypatch.setattr(mysql_program, "debian_root", nothing)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ServiceError) as refused:
        LocalMySql()
    for part in ("install it", "no mysqld", "no mysql-server-core here", "no mariadbd", "no mariadb-server-core here"):
        assert part in str(refused.value)
