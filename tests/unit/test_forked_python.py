"""A program in the place of Python is as good as Python: surroundings, streams, its end; and nothing outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.forked_python import forked_python

_MODULE = """
import json, os, sys

if __name__ == "__main__":
    found = {"arguments": sys.argv[1:], "folder": os.getcwd(), "given": os.environ.get("GIVEN"), "path": sys.path[0],
             "imported": "answering" in sys.modules, "process": os.getpid(), "parent": os.getppid(),
             "has_imports": "fractions" in sys.modules}
    print(json.dumps(found), flush=True)
    print(f"read {sys.stdin.read()}", file=sys.stderr)
    sys.exit(3)
"""
_LONG = 60


@pytest.fixture(params=["Python", "a program"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a module with Python, or with the program of which it gets a copy."""
    (tmp_path / "answering.py").write_text(_MODULE, encoding="utf-8")
    forked = forked_python(tmp_path, copied=["answering"], imported=["fractions"])
    program = sys.executable if request.param == "Python" else forked
    started = []

    def one(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path), **variables},
            )
        )  # fmt: skip
        return started[-1]

    yield one
    for each in started:
        each.kill()
        each.communicate()


def _said(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def test_it_has_the_surroundings_and_streams_and_its_end_is_that_of_the_module(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    for given in ("one", "two"):
        process = start("-m", "answering", "1", given, GIVEN=given)
        said = _said(process)
        assert said["arguments"] == ["1", given]
        assert said["folder"] == str(tmp_path)
        assert said["parent"] == os.getpid()
        assert said["given"] == given
        assert said["path"] == str(tmp_path)
        assert not said["imported"]
        assert process.communicate("all of it", timeout=_LONG)[1] == "read all of it\n"
        assert process.returncode == 3


def test_it_ends_with_the_module_and_the_module_with_it(start: Callable[..., subprocess.Popen[str]]) -> None:
    killed, ended = start("-m", "answering"), start("-m", "answering")
    module = psutil.Process(_said(killed)["process"])
    killed.kill()
    module.wait(_LONG)
    os.kill(_said(ended)["process"], signal.SIGKILL)
    assert ended.wait(_LONG) != 0


def test_everything_else_is_python_itself(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("-c", "import os, sys; print(os.getpid(), sys.executable, sys.flags.isolated)")
    assert process.communicate(timeout=_LONG)[0].split() == [str(process.pid), sys.executable, "0"]


def test_a_copy_has_the_imports_of_a_process_that_ends_with_who_started_the_first_program(tmp_path: Path) -> None:
    (tmp_path / "answering.py").write_text(_MODULE, encoding="utf-8")
    program = forked_python(tmp_path, copied=["answering"], imported=["fractions"])
    starts_two = (
        "import subprocess, sys\n"
        f"for _ in range(2): subprocess.run([{str(program)!r}, '-m', 'answering'], stdin=subprocess.DEVNULL)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starts_two], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    ) as spark:  # fmt: skip
        first, second = _said(spark), _said(spark)
        assert first["parent"] == second["parent"] == spark.pid
        assert (first["has_imports"], second["has_imports"]) == (True, True)
        # A copy that has not quite ended looks like its server.
        servers = [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in (p.info["cmdline"] or ())]
        assert servers
    assert not psutil.wait_procs(servers, _LONG)[1]
