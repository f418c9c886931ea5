"""Whether there is a container engine, and what is done without one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.containers import Where, created, engine_is_here, last_lines
from services.errors import ServiceError
from services.postgres_container import ContainerPostgres


def test_an_engine_that_never_answers_is_given_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "engine")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        started = time.monotonic()
        assert not engine_is_here()
        assert time.monotonic() - started < 60


def test_no_engine_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent")
    assert not engine_is_here()
    assert created(Where.AUTO, ContainerPostgres, lambda: "local") == "local"


def test_who_asks_for_a_container_is_told_that_no_engine_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent")
    with pytest.raises(ServiceError, match=rf"^no container engine can be used at unix://{tmp_path}/absent: .*No such"):
        created(Where.CONTAINER, ContainerPostgres, lambda: "local")


_REFUSED = """
from services.postgres_container import ContainerPostgres
from services.containers import Where, created
print(created(Where.AUTO, ContainerPostgres, lambda: "local"))
created(Where.CONTAINER, ContainerPostgres, lambda: "local")
"""


def test_what_testcontainers_itself_refuses_is_no_reason_not_to_start_a_local_server() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _REFUSED],
        env=os.environ | {"TESTCONTAINERS_CONNECTION_MODE": "nonsense"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "local\n"
    assert "services.errors.ServiceError: no container engine can be used: " in done.stderr.splitlines()[-1]


def test_the_end_of_a_log_is_not_filled_by_who_asks_whether_it_answers() -> None:
    log = ["starting", "cause"]
    for n in range(100):
        log += [f"{n} connection of 10.0.0.{n} refused"]
    assert last_lines("\n".join([*log, "last"]), 4) == "starting\ncause\n99 connection of 10.0.0.99 refused\nlast"
    assert last_lines("a\nb\nc", 2) == "b\nc"
    assert last_lines("") == "(the log is empty)"
