"""The demo on MySQL, run short as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from services.spark_start import quick_spark

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


@pytest.mark.long("test_what_was_delivered_is_what_the_server_holds")
def test_the_demo_shows_its_progress_and_loses_no_row_where_a_copy_by_select_does() -> None:
    command = [sys.executable, "examples/mysql_changes.py", "--rows", "3000", "--seconds", "2"]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": quick_spark()}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search("Traceback|WARN|BrokenPipe", done.stdout + done.stderr)
    assert re.search(
        r"^ *\d+ s  the (tables are|binlog is) read; [\d ]+ transactions written", done.stdout, re.MULTILINE
    )
    found = re.fullmatch(
        r"A copy by SELECT at the start silently lost ([\d ]+) of [\d ]+ rows in their last state \(\d+ %\); "
        r"this source's copy lost 0\.",
        done.stdout.splitlines()[-1],
    )
    assert found, done.stdout
    assert found[1] != "0"
