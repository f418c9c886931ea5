"""Compiled code is found again wherever the package lies, and trouble with its files costs time only."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pyspark_aligned_kafka

PACKAGE = Path(pyspark_aligned_kafka.__file__).parent
CHOOSING = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "SPARK_LOCAL_DIRS", "PYTHONPATH")
SCRIPT = """
import logging
logging.basicConfig(format="%(message)s")
from pyspark_aligned_kafka.records import native
add = native.compiled("int64(int64, int64)")(eval("lambda a, b: a + b"))
hits = sum(add.stats.cache_hits.values())
print(native.__file__.rpartition("pyspark_aligned_kafka")[0], add(20, 22), "loaded" if hits else "compiled")
"""


def archive(folder: Path, *, also: str = "") -> Path:
    """Pack the package as ``--py-files`` takes it, with one more comment if asked."""
    folder.mkdir()
    packed = folder / "project.zip"
    with zipfile.ZipFile(packed, "w") as made:
        for source in PACKAGE.rglob("*.py"):
            text = source.read_text() + (f"# {also}\n" if source.name == "bounds.py" else "")
            made.writestr(str(source.relative_to(PACKAGE.parent)), text)
    return packed


def run(where: Path, **environment: str | Path) -> tuple[str, str]:
    """Run the script with the package from one place; return its last line, and its log."""
    kept = {name: value for name, value in os.environ.items() if name not in CHOOSING}
    # Nobody's home, unless the test has one: what this machine keeps is not part of it.
    chosen = {"HOME": "/dev/null", "PYTHONPATH": where, **environment}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**kept, **{name: str(value) for name, value in chosen.items()}},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    place, answer, how = done.stdout.split()
    assert place.startswith(str(where))
    assert answer == "42"
    return how, done.stderr


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "HOME", "SPARK_LOCAL_DIRS"])
def test_code_compiled_from_one_archive_serves_another_with_the_same_source(variable: str, tmp_path: Path) -> None:
    chosen = {variable: tmp_path / "kept"}
    assert run(archive(tmp_path / "one"), **chosen) == ("compiled", "")
    assert run(archive(tmp_path / "other"), **chosen) == ("loaded", "")


def test_an_archive_with_another_source_compiles_anew(tmp_path: Path) -> None:
    chosen = {"NUMBA_CACHE_DIR": tmp_path / "chosen", "HOME": tmp_path / "home"}
    assert run(archive(tmp_path / "one"), **chosen)[0] == "compiled"
    assert run(archive(tmp_path / "other", also="another version"), **chosen)[0] == "compiled"
    assert len(list((tmp_path / "chosen").iterdir())) == 2
    assert not (tmp_path / "home").exists()


def test_without_any_folder_it_compiles_and_says_so(tmp_path: Path) -> None:
    how, log = run(archive(tmp_path / "one"), NUMBA_CACHE_DIR="/dev/null/none")
    assert how == "compiled"
    assert log.count("set NUMBA_CACHE_DIR to a folder that can be written") == 1


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_damaged_code_is_compiled_again_once(suffix: str, tmp_path: Path) -> None:
    run(PACKAGE.parent, HOME=tmp_path)
    (file,) = tmp_path.rglob(f"*.{suffix}")
    file.write_bytes(b"")
    how, log = run(PACKAGE.parent, HOME=tmp_path)
    assert how == "compiled"
    assert "cannot be read" in log
    assert run(PACKAGE.parent, HOME=tmp_path) == ("loaded", "")
