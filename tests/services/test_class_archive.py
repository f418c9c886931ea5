"""An archive of classes makes a JVM start sooner; without one it starts all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from services import spark_start


def test_a_first_run_that_takes_too_long_keeps_no_program_from_starting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "slow_first_run.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(spark_start, "_SECONDS", 2)
    *flags, archive = spark_start.class_archive("slow", [], "slow_first_run", ("-Xint",))
    assert flags[0] == "-Xint"
    made = Path(archive.removeprefix("-XX:SharedArchiveFile="))
    assert not made.exists()
    assert "timed out" in (made.parent / "log").read_text()
