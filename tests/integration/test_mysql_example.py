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


def test_the_demo_shows_its_progress_and_ends_with_an_equal_copy() -> None:
    command = [sys.executable, "examples/mysql_changes.py", "--rows", "3000", "--seconds", "2"]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": quick_spark()}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^shop\.orders_(eu|us) +\[[#.]+\] ", done.stdout, re.MULTILINE)
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"The server's tables have [\d ]+ rows, and the copy is equal in every row\.", last)
