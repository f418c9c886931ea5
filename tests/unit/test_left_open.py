"""What a test leaves open fails it, also where a collection of garbage finds it; beside Spark it is counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CONFTEST = """
import pytest
from tests.left_open import count_beside_spark, found_in_its_file, pytest_sessionfinish, take_counts

def pytest_collection_modifyitems(items):
    count_beside_spark(items)

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line("left open: " + take_counts(terminalreporter))
    return (yield)
"""
_FILES = {
    "a_dropped": """
import socket

def test_drops():
    socket.create_server(("127.0.0.1", 0))
""",
    "b_cycle": """
import socket

def test_keeps_in_a_cycle():
    cycle = [socket.create_server(("127.0.0.1", 0))]
    cycle.append(cycle)
""",
    "c_closed": """
import socket

def test_closes():
    socket.socket().close()
""",
    "d_1_kept": """
import builtins, socket

def test_keeps_in_a_cycle_for_another_file():
    builtins.kept = [socket.create_server(("127.0.0.1", 0))]
    builtins.kept.append(builtins.kept)
""",
    "d_2_dropped": """
import builtins

def test_drops_it():
    del builtins.kept
""",
    "d_thread": """
import threading

def test_raises_in_a_thread():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
""",
}
_OF_SPARK = """
import pytest

@pytest.mark.spark
def test_of_spark():
    pass
"""


def failing(folder: Path, **more: str) -> tuple[set[str], str]:
    """Return the files that fail as this project's tests are run, and the report."""
    (folder / "conftest.py").write_text(_CONFTEST)
    for name, text in {**_FILES, **more}.items():
        (folder / f"test_{name}.py").write_text(text)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "-p", "pytest_timeout",
         "-p", "no:cacheprovider", folder],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    return set(re.findall(r"^(?:FAILED|ERROR) \S*test_(\w+)\.py", run.stdout, re.MULTILINE)), run.stdout


def test_what_a_file_leaves_open_fails_it_in_a_run_without_spark(tmp_path: Path) -> None:
    failed, report = failing(tmp_path)
    assert failed == {"a_dropped", "b_cycle", "d_thread"}, report
    # Frozen with the first of two files, and found at the end.
    assert re.search(r"^left open: elsewhere 1$", report, re.MULTILINE), report


def test_beside_spark_it_is_counted_and_an_exception_in_a_thread_fails(tmp_path: Path) -> None:
    failed, report = failing(tmp_path, e_spark=_OF_SPARK)
    assert failed == {"d_thread"}, report
    assert re.search(r"^left open: \S*test_a_dropped.py 1, \S*test_b_cycle.py 1, elsewhere 1$", report, re.MULTILINE), (
        report
    )
    assert "warnings summary" not in report
