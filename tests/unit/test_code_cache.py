"""Compiled code is found again wherever the package lies, and trouble with its files costs time only."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import watermark_source

ENGINE = Path(watermark_source.__file__).parent
CHOOSING = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "SPARK_LOCAL_DIRS", "PYTHONPATH")
SCRIPT = """
import logging
logging.basicConfig(format="%(message)s")
from connector.room import adding
hits = sum(adding.add.stats.cache_hits.values())
print(adding.__file__.rpartition("connector")[0], adding.add(20, 22), "loaded" if hits else "compiled")
"""
CONNECTOR = """
from watermark_source.machine_code.native import compiled
@compiled("int64(int64, int64)")
def add(a, b):
    return a + b
"""


def archive(folder: Path, *, also: str = "", changed: str = "connector/room/adding.py") -> Path:
    """Pack a connector and the engine as ``--py-files`` takes them, with one more comment in one source if asked."""
    folder.mkdir()
    packed = folder / "project.zip"
    with zipfile.ZipFile(packed, "w") as made:
        for name, text in sources().items():
            made.writestr(name, text + (f"# {also}\n" if name == changed else ""))
    return packed


def unpacked(folder: Path) -> Path:
    for name, text in sources().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def sources() -> dict[str, str]:
    """The files of a connector that adds, and what it needs of the engine, by path."""
    compiling = [ENGINE / "__init__.py", *sorted((ENGINE / "machine_code").glob("*.py"))]
    found = {str(each.relative_to(ENGINE.parent)): each.read_text() for each in compiling}
    return found | {
        "connector/__init__.py": "",
        "connector/room/__init__.py": "",
        "connector/room/adding.py": CONNECTOR,
    }


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


@pytest.mark.parametrize("changed", ["connector/room/adding.py", "watermark_source/machine_code/native.py"])
def test_an_archive_with_another_source_compiles_anew(changed: str, tmp_path: Path) -> None:
    chosen = {"NUMBA_CACHE_DIR": tmp_path / "chosen", "HOME": tmp_path / "home"}
    assert run(archive(tmp_path / "one"), **chosen)[0] == "compiled"
    assert run(archive(tmp_path / "other", also="another version", changed=changed), **chosen)[0] == "compiled"
    assert len(list((tmp_path / "chosen").iterdir())) == 2
    assert not (tmp_path / "home").exists()


def test_without_any_folder_it_compiles_and_says_so(tmp_path: Path) -> None:
    how, log = run(archive(tmp_path / "one"), NUMBA_CACHE_DIR="/dev/null/none")
    assert how == "compiled"
    assert log.count("set NUMBA_CACHE_DIR to a folder that can be written") == 1


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_damaged_code_is_compiled_again_once(suffix: str, tmp_path: Path) -> None:
    where = unpacked(tmp_path / "code")
    home = tmp_path / "home"
    run(where, HOME=home)
    (file,) = home.rglob(f"*.{suffix}")
    file.write_bytes(b"")
    how, log = run(where, HOME=home)
    assert how == "compiled"
    assert "cannot be read" in log
    assert run(where, HOME=home) == ("loaded", "")
