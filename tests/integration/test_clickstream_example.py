"""The example of clicks and users, run short as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.java import QUICK_START

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def test_every_click_finds_its_user() -> None:
    command = [sys.executable, "examples/clickstream_enrichment.py", "--clicks", "2000", "--users", "1000"]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": " ".join(QUICK_START)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=560, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "2 000 clicks, 0 of them without their user."
