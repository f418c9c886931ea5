"""Processes that name one group see each other, and what dead ones left counts for nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from watermark_source.errors import InternalError
from watermark_source.group_store.local_members import LocalMembers

_PROGRAM = """
import sys
from pathlib import Path
from watermark_source.group_store.local_members import LocalMembers
present = LocalMembers(Path(sys.argv[1]), sys.argv[2])
present.write(sys.argv[2] * 3)
print(len(present.texts()), flush=True)
sys.stdin.read()
present.close()
"""


@contextmanager
def another(folder: Path, group: str = "g") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that is there, and how many others it has seen."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(folder), group], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_processes_of_a_group_see_each_other_until_they_leave(tmp_path: Path) -> None:
    own = LocalMembers(tmp_path, "g")
    assert len(own.texts()) == 0
    with another(tmp_path) as (process, seen), another(tmp_path, "elsewhere") as (_, seen_elsewhere):
        assert (seen, seen_elsewhere, len(own.texts())) == (1, 0, 1)
        assert own.texts() == ["ggg"]
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        assert len(own.texts()) == 0
    own.close()


def test_who_was_killed_is_gone_at_once_and_so_is_what_he_left(tmp_path: Path) -> None:
    own = LocalMembers(tmp_path, "g")
    with another(tmp_path) as (process, _):
        os.kill(process.pid, signal.SIGSTOP)
        # One that is held is there all the same.
        assert len(own.texts()) == 1
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        (folder,) = tmp_path.iterdir()
        assert len(list(folder.iterdir())) == 2
        assert len(own.texts()) == 0
        assert len(list(folder.iterdir())) == 1
    own.close()


def test_an_earlier_life_of_this_process_is_no_one_else_and_names_say_nothing(tmp_path: Path) -> None:
    own, again = LocalMembers(tmp_path, "../../g"), LocalMembers(tmp_path, "../../g")
    assert (len(own.texts()), len(again.texts())) == (0, 0)
    own.close()
    own.close()
    again.close()
    (folder,) = tmp_path.iterdir()
    assert (folder.parent, list(folder.iterdir()), folder.stat().st_mode & 0o777) == (tmp_path, [], 0o700)


def test_a_text_is_reported_whole_or_refused(tmp_path: Path) -> None:
    own = LocalMembers(tmp_path, "g")
    with pytest.raises(InternalError, match="4098 bytes"):
        own.write("ä" * 2_049)
    own.write("ä" * 2_048)
    (file,) = next(tmp_path.iterdir()).iterdir()
    assert file.read_text() == "ä" * 2_048
    own.close()
