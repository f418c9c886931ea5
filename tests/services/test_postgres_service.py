"""The PostgreSQL server of tests: it answers, it survives what tests do to it, and it goes away."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from services import postgres_local
from services.containers import Where
from services.errors import ServiceError
from services.postgres import postgres_service
from services.postgres_client import answers, run
from services.postgres_local import LocalPostgres
from services.wait_until import wait_until
from tests.services.what_is_left import accepts

pytestmark = pytest.mark.service


def test_rows_survive_kill_9_and_the_address_stays_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with postgres_service(config={"max_connections": "17"}, where=Where.LOCAL) as server:
        assert isinstance(server, LocalPostgres)
        port = server.port
        assert run(server.host, port, "SHOW max_connections") == [("17",)]
        run(server.host, port, "CREATE TABLE t (id INT)", "INSERT INTO t VALUES (7)")
        server.kill()
        assert not accepts(port)
        server.start()
        assert (server.port, run(server.host, port, "SELECT id FROM t")) == (port, [(7,)])
        server.restart()
        assert run(server.host, port, "SELECT id FROM t") == [(7,)]
        below = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        assert len(below) > 2
    assert psutil.wait_procs(below, timeout=60)[1] == []
    assert not accepts(port)
    assert not list(tmp_path.iterdir())


def test_a_frozen_server_accepts_and_does_not_answer() -> None:
    with closing(LocalPostgres()) as server:
        server.start()
        server.pause()
        assert accepts(server.port)
        assert not answers(server.host, server.port, seconds=2)
        server.resume()
        assert answers(server.host, server.port)


_OWNER = """
import signal
from services.postgres import postgres_service
from services.containers import Where
with postgres_service(where=Where.LOCAL) as server:
    print(server.port, flush=True)
    signal.pause()
"""


def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout is not None
        port = int(owner.stdout.readline())
        assert accepts(port)
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not accepts(port), 60, "closing of the server's port")
    wait_until(lambda: not list(tmp_path.glob("postgres-*")), 60, "removal of the server's folder")


def test_a_wrong_setting_ends_the_start_with_the_servers_own_words() -> None:
    with (
        closing(LocalPostgres(config={"no_such_setting": "1"})) as server,
        pytest.raises(ServiceError, match=r"(?s)ended with exit code .*no_such_setting"),
    ):
        server.start()


def test_a_machine_without_any_server_is_told_all_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(entry: str, packages: list[str], *, size: str) -> None:
        raise ServiceError(f"no {packages[0]} here")

    monkeypatch.setattr(postgres_local, "debian_root", nothing)
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **where: None if name == "postgres" else found(name, **where))
    with pytest.raises(ServiceError) as refused:
        LocalPostgres()
    for part in ("install it", "no postgres on PATH", "no postgresql here"):
        assert part in str(refused.value)
