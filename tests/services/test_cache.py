"""An entry of the cache is complete or absent, whatever happens while it is made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services import cache
from services.cache import cache_folder, cached
from services.errors import ServiceError
from services.ivy import Module, jars
from services.wait_until import wait_until

_SMALL = Module("org.slf4j", "slf4j-simple", "1.7.36")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _fill(folder: Path) -> None:
    (folder / "file").write_text("whole", encoding="utf-8")


def _must_not_fill(folder: Path) -> None:
    raise AssertionError(f"{folder} is filled a second time")


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "watermark-source"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/watermark-source")


def test_an_entry_is_filled_once() -> None:
    first = cached("entry", _fill)
    assert (first / "file").read_text(encoding="utf-8") == "whole"
    assert cached("entry", _must_not_fill) == first


def test_a_fill_that_fails_leaves_nothing() -> None:
    def fail(folder: Path) -> None:
        _fill(folder)
        raise ServiceError("half-way")

    with pytest.raises(ServiceError, match="half-way"):
        cached("entry", fail)
    assert [path.name for path in cache_folder().iterdir()] == ["entry.lock"]


_SLOW = """
import sys, time
from services.cache import cached
def fill(folder):
    (folder / "file").write_text("half")
    print("half", flush=True)
    time.sleep(float(sys.argv[1]))
    (folder / "file").write_text("whole")
cached("entry", fill)
"""


def _start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def test_a_killed_fill_is_not_taken_for_complete() -> None:
    with _start(_SLOW, "60") as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "half\n"
        killed.kill()
    entry = cached("entry", _fill)
    assert (entry / "file").read_text(encoding="utf-8") == "whole"
    assert sorted(path.name for path in cache_folder().iterdir()) == ["entry", "entry.lock"]


def test_a_second_process_waits_for_the_first() -> None:
    with _start(_SLOW, "0.5") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "half\n"
        entry = cached("entry", _must_not_fill)
    assert (entry / "file").read_text(encoding="utf-8") == "whole"


def test_a_process_that_hangs_while_it_fills_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_WAIT_SECONDS", 0.2)
    with _start(_SLOW, "60") as hangs:
        assert hangs.stdout is not None
        assert hangs.stdout.readline() == "half\n"
        with pytest.raises(ServiceError, match=r"another process holds .*entry\.lock"):
            cached("entry", _must_not_fill)
        hangs.kill()


_DOWNLOAD = f"""
from services.ivy import Module, jars
jars("jars", [Module({_SMALL.organisation!r}, {_SMALL.name!r}, {_SMALL.revision!r})])
"""


def _logs() -> list[Path]:
    return list(cache_folder().glob("jars.part-*/ivy/ivy.log"))


@pytest.mark.service
def test_a_killed_download_is_taken_up_again_and_leaves_no_process() -> None:
    with _start(_DOWNLOAD) as killed:
        # The log is there before the download is: it is under way once it has written something.
        wait_until(lambda: any(log.stat().st_size for log in _logs()), 120, "the start of the download")
        (log,) = _logs()
        killed.send_signal(signal.SIGKILL)
    wait_until(lambda: not log.exists(), 60, "the end of the orphaned download")
    found = jars("jars", [_SMALL])
    assert [path.name for path in found] == ["slf4j-api-1.7.36.jar", "slf4j-simple-1.7.36.jar"]
    assert {path.name for path in cache_folder().iterdir()} == {"jars", "jars.lock"}


@pytest.mark.service
def test_a_module_that_does_not_exist_is_named_and_says_what_to_do() -> None:
    missing = Module("org.slf4j", "slf4j-simple", "0.0.1")
    with pytest.raises(ServiceError, match=r"(?s)slf4j-simple:0\.0\.1 .*not found.*WATERMARK_SOURCE_IVY_SETTINGS"):
        jars("jars", [missing])
    assert os.listdir(cache_folder()) == ["jars.lock"]
