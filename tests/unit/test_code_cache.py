"""Compiled code is found again wherever the package lies, and trouble with its files costs time only."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import watermark_source
from watermark_source.machine_code import code_cache
from watermark_source.machine_code.built_library import CHOICE

ENGINE = Path(watermark_source.__file__).parent
CHOOSING = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "SPARK_LOCAL_DIRS", "PYTHONPATH")
SCRIPT = """
import logging
logging.basicConfig(format="%(message)s")
from connector.room import adding
answer = adding.add(20, 22)
hits = sum(adding.add._run.stats.cache_hits.values())
print(adding.__file__.rpartition("connector")[0], answer, "loaded" if hits else "compiled")
"""
CONNECTOR = """
from watermark_source.machine_code.native import compiled
@compiled("int64(int64, int64)")
def add(a, b):
    return a + b
@compiled("int64(int64, int64)")
def subtract(a, b):
    return a - b
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
    compiling = [ENGINE / f"{name}.py" for name in ("__init__", "errors", "installation")]
    compiling += sorted((ENGINE / "machine_code").glob("*.py"))
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
    chosen = {"HOME": "/dev/null", "PYTHONPATH": where, CHOICE: "numba", **environment}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**kept, **{name: str(value) for name, value in chosen.items()}},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    place, answer, how = done.stdout.split()
    assert place.startswith(str(where))
    assert answer == "42"
    return how, done.stderr


@pytest.mark.parametrize(
    "variable",
    [
        pytest.param(
            "NUMBA_CACHE_DIR",
            marks=pytest.mark.long("test_a_folder_made_for_compiled_code_is_this_users_alone_whatever_the_umask"),
        ),
        pytest.param("HOME", marks=pytest.mark.long("test_damaged_code_is_compiled_again_once")),
        "SPARK_LOCAL_DIRS",
    ],
)
def test_code_compiled_from_one_archive_serves_another_with_the_same_source(variable: str, tmp_path: Path) -> None:
    chosen = {variable: tmp_path / "kept"}
    how, log = run(archive(tmp_path / "one"), **chosen)
    assert how == "compiled"
    (line,) = log.splitlines()
    assert line.startswith(
        "compiling what this query decodes with, once on this machine: later processes read it from "
    )
    assert run(archive(tmp_path / "other"), **chosen) == ("loaded", "")


@pytest.mark.parametrize("changed", ["connector/room/adding.py", "watermark_source/machine_code/native.py"])
def test_an_archive_with_another_source_compiles_anew(changed: str, tmp_path: Path) -> None:
    chosen = {"NUMBA_CACHE_DIR": tmp_path / "chosen", "HOME": tmp_path / "home"}
    assert run(archive(tmp_path / "one"), **chosen)[0] == "compiled"
    assert run(archive(tmp_path / "other", also="another version", changed=changed), **chosen)[0] == "compiled"
    assert len(list((tmp_path / "chosen").iterdir())) == 2
    assert not (tmp_path / "home").exists()


def test_only_functions_that_are_called_are_compiled(tmp_path: Path) -> None:
    run(unpacked(tmp_path / "code"), HOME=tmp_path / "home")
    (kept,) = (tmp_path / "home").rglob("*.nbi")
    assert ".add-" in kept.name


def test_processes_that_need_one_function_at_once_compile_it_once(tmp_path: Path) -> None:
    where, home = unpacked(tmp_path / "code"), tmp_path / "home"
    with ThreadPoolExecutor(3) as pool:
        ran = list(pool.map(lambda _: run(where, HOME=home)[0], range(3)))
    assert sorted(ran) == ["compiled", "loaded", "loaded"]


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


def test_code_that_another_user_may_have_put_there_is_not_run(tmp_path: Path) -> None:
    where, shared, home = unpacked(tmp_path / "code"), tmp_path / "shared", tmp_path / "home"
    assert run(where, NUMBA_CACHE_DIR=shared)[0] == "compiled"
    (folder,) = shared.iterdir()
    folder.chmod(0o777)
    how, log = run(where, NUMBA_CACHE_DIR=shared, HOME=home)
    assert how == "compiled"
    assert log.count("as another user may have put it there: others may write to") == 1
    assert "set NUMBA_CACHE_DIR to one of this user's own" in log


def test_a_temporary_file_that_vanishes_leaves_the_folder_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o700)
    (folder / "a.nbi").write_bytes(b"")
    # As where another process renames a file between the list and the look at it.
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda each: iter([*listed(each), each / "tmp.of.another"]))
    assert code_cache._foreign(folder) is None
    with pytest.raises(FileNotFoundError):
        code_cache._foreign(tmp_path / "none")


def test_a_chosen_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    how, log = run(archive(tmp_path / "one"), NUMBA_CACHE_DIR="/dev/null/none", HOME=tmp_path / "home")
    assert how == "compiled"
    assert log.count("no compiled code is kept in /dev/null/none/") == 1
    assert (tmp_path / "home").exists()


@pytest.mark.parametrize("file", ["a.nbi", "b.1.nbc"])
def test_a_folder_and_all_in_it_must_be_this_users_own_and_not_writable_by_others(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o755)
    (folder / file).write_bytes(b"")
    assert code_cache._foreign(folder) is None
    for place, mode in ((folder, 0o775), (folder, 0o757), (folder / file, 0o666)):
        before = place.stat().st_mode
        place.chmod(mode)
        assert "others may write to" in str(code_cache._foreign(folder))
        place.chmod(before)
    # In a folder that others cannot enter, a file of any mode is this user's alone.
    (folder / file).chmod(0o666)
    folder.chmod(0o700)
    assert code_cache._foreign(folder) is None
    with monkeypatch.context() as other_user:
        own = os.geteuid()
        other_user.setattr(os, "geteuid", lambda: own + 1)
        assert f"{folder} belongs to the user {own}, and this is {own + 1}" in str(code_cache._foreign(folder))
    (tmp_path / "link").symlink_to(folder)
    assert "is not a folder" in str(code_cache._foreign(tmp_path / "link"))


def test_a_folder_made_for_compiled_code_is_this_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert run(archive(tmp_path / "one"), NUMBA_CACHE_DIR=tmp_path / "kept")[0] == "compiled"
        assert run(archive(tmp_path / "other"), NUMBA_CACHE_DIR=tmp_path / "kept") == ("loaded", "")
    finally:
        os.umask(before)
