"""What Spark's daemon of Python workers loads before it forks them."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from watermark_source.machine_code import code_cache
from watermark_source.spark.executor import worker_daemon


def test_a_decoder_that_is_not_compiled_yet_is_left_to_the_task_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def load(name: str) -> object:
        loaded.append(name)
        return SimpleNamespace(DefaultSource=SimpleNamespace(task_module=f"{name}.tasks"))

    monkeypatch.setattr(importlib, "import_module", load)
    monkeypatch.setattr(code_cache, "folder", {"compiled": tmp_path / "a", "new": tmp_path / "b"}.get)
    for name in "a", "b":
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "decode.nbi").touch()
    for package in "compiled", "new", "not kept":
        worker_daemon._preload(package)
    assert loaded == ["compiled", "compiled.tasks", "new", "not kept", "not kept.tasks"]
