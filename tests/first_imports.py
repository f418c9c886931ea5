"""Processes of a run that begin at once import the files of tests from different ones on.

Python and pytest compile a file once, and keep what they have made. Processes that come to it at the same moment all
compile it: seconds of a core, in each of them, where none of the files has been compiled before.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest


def from_own_share(files: Sequence[Path], process: int, processes: int) -> list[Path]:
    """Return the files as one of several processes, numbered from 0, imports them: from its share of them on."""
    first = len(files) * process // processes
    return [*files[first:], *files[:first]]


def files_of_tests(named: Iterable[Path]) -> list[Path]:
    """Return the files of tests in these folders, and those that are named themselves."""
    return [file for place in named for file in (sorted(place.rglob("test_*.py")) if place.is_dir() else [place])]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import all that pytest is about to import. It reports what cannot be imported."""
    process: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if process is None:
        return
    named = [session.config.invocation_params.dir / each.partition("::")[0] for each in session.config.args]
    number, count = int(process["workerid"].removeprefix("gw")), int(process["workercount"])
    for file in from_own_share(files_of_tests(named), number, count):
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(session.config.rootpath).with_suffix("").parts))
