"""A child process ends when asked, when told, and when its parent dies."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from services.errors import ServiceError
from services.java import java_command, javac_command
from services.local_server import ChildProcess, free_ports, run_to_end
from services.wait_until import wait_until


def _child(folder: Path, script: str) -> ChildProcess:
    return ChildProcess(["/bin/sh", "-c", script], folder=folder, log=folder / "log")


def test_a_child_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    child = _child(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    wait_until(lambda: child.last_lines() == "ready", 60, "the child's trap")
    child.stop(seconds=0.3)
    assert child.exit_code == -signal.SIGKILL
    assert not psutil.pid_exists(child.pid)


def test_a_child_that_obeys_is_not_killed(tmp_path: Path) -> None:
    child = _child(tmp_path, "trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done")
    wait_until(lambda: child.last_lines() == "ready", 60, "the child's trap")
    child.stop(seconds=60)
    assert child.exit_code == 7


def test_stopping_leaves_no_watcher_and_keeps_the_folder(tmp_path: Path) -> None:
    child = _child(tmp_path, "echo ready; exec sleep 60")
    wait_until(lambda: child.last_lines() == "ready", 60, "the child's start")
    child.kill()
    child.kill()
    wait_until(lambda: not _group_lives(child.pid), 60, "the end of the watcher")
    assert tmp_path.exists()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_log_holds_both_streams_and_its_end_is_shown(tmp_path: Path) -> None:
    child = _child(tmp_path, "for i in 1 2 3; do echo out $i; done; echo err >&2")
    wait_until(lambda: child.exit_code == 0, 60, "the child's end")
    child.kill()
    assert child.last_lines(2) == "out 3\nerr"


def test_a_short_command_that_fails_shows_its_output(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"the check failed with exit code 3:\nreason"):
        run_to_end(["/bin/sh", "-c", "echo reason >&2; exit 3"], folder=tmp_path, seconds=60, what="the check")


def test_a_short_command_that_hangs_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"the check did not end within 0\.2 s"):
        run_to_end(["/bin/sleep", "60"], folder=tmp_path, seconds=0.2, what="the check")


def test_waiting_ends_at_the_deadline_and_names_the_state() -> None:
    with pytest.raises(ServiceError, match=r"the moon is full: not reached within 0\.1 s"):
        wait_until(lambda: False, 0.1, "the moon is full")


def test_ports_are_free_different_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32_768
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_processes_of_one_run_of_tests_choose_among_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "4")
    remainders = []
    for worker in range(4):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{worker}")
        remainders.append({port % 4 for port in free_ports(20)})
    assert all(len(each) == 1 for each in remainders)
    assert len(set[int]().union(*remainders)) == 4


@pytest.mark.parametrize(
    ("banner", "refusal"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11; install a JDK or JRE 17 or newer"),
        ('java version "1.8.0_392"', "is Java 8; install"),
        ("no banner at all", "gave no version: no banner at all"),
    ],
)
def test_an_unusable_java_is_refused(
    banner: str, refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_java(tmp_path, banner)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ServiceError, match=refusal):
        java_command()


@pytest.mark.parametrize("banner", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "25" 2025-09-16'])
def test_a_recent_java_is_taken_from_java_home(banner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path, banner)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_command() == str(tmp_path / "bin" / "java")


def test_a_missing_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceError, match="no java found through PATH; install a JDK or JRE 17 or newer"):
        java_command()


def test_a_runtime_without_a_compiler_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path, 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ServiceError, match=r"has no compiler beside it .*Install a JDK 17 or newer"):
        javac_command()
    (tmp_path / "bin" / "javac").symlink_to(tmp_path / "bin" / "java")
    assert javac_command() == str(tmp_path / "bin" / "javac")


def _fake_java(home: Path, banner: str) -> None:
    command = home / "bin" / "java"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho '{banner}' >&2\n", encoding="utf-8")
    command.chmod(0o755)
