"""The settings that are recommended: the local-only one on request, and none that switches off a check."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from watermark_source import recommended_conf
from watermark_source.spark.session_conf import (
    CHECKPOINT_MANAGER,
    OUR_DAEMON,
    UNIX_SOCKETS,
    WORKER_DAEMON,
)

PAGE = Path(__file__).parents[3] / "docs" / "speed.md"


def test_the_manager_of_local_checkpoints_comes_on_request_alone() -> None:
    assert CHECKPOINT_MANAGER not in recommended_conf()
    assert recommended_conf(local_checkpoints=True).keys() - recommended_conf().keys() == {CHECKPOINT_MANAGER}


def test_the_daemon_of_workers_comes_on_request_alone_for_py_files_are_not_there_when_it_starts() -> None:
    assert WORKER_DAEMON not in recommended_conf()
    assert recommended_conf(installed_on_executors=True)[WORKER_DAEMON] == OUR_DAEMON


def test_the_daemon_has_the_decoders_before_it_forks_and_leaves_standard_output_to_spark() -> None:
    decoders = [f"{package}.reading.range_reader" for package in ("pyspark_aligned_kafka", "pyspark_mysql_cdc_wm")]
    program = f"""
import sys
from {OUR_DAEMON} import preload
preload()
sys.stderr.write(repr([name in sys.modules for name in {decoders}]))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("[True, True]", "")


def test_a_package_that_prints_or_fails_when_it_is_imported_keeps_the_daemon_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "pyspark_talks.py").write_text("print('hello')")
    (tmp_path / "pyspark_fails.py").write_text("raise RuntimeError")
    done = subprocess.run(
        [sys.executable, "-c", f"from {OUR_DAEMON} import preload; preload()"],
        check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (done.stderr, done.stdout) == ("hello\n", "")


def test_no_check_is_switched_off_and_the_java_options_of_the_user_stay() -> None:
    settings = recommended_conf(local_checkpoints=True, installed_on_executors=True)
    assert [each for each in settings.items() if "arrow" in str(each).lower() or "JavaOptions" in each[0]] == []


def test_unix_sockets_are_left_out_where_python_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert recommended_conf()[UNIX_SOCKETS] == "true"
    monkeypatch.delattr(socket, "AF_UNIX")
    assert UNIX_SOCKETS not in recommended_conf()


def test_every_setting_has_its_measurement_on_the_page_about_speed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    settings = recommended_conf(local_checkpoints=True, installed_on_executors=True)
    assert [each for each in (*settings, settings[CHECKPOINT_MANAGER]) if each not in page] == []
