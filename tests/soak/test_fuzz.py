"""What fuzzing found worth keeping is survived, and compiled code makes of it what plain Python makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.fuzz.targets import COMPILED, SEEDS, TARGETS

_ROOT = Path(__file__).parents[2]
_SECONDS = 3_600


def outcomes(target: str, folders: list[Path], *options: str) -> list[str]:
    """Run every input in a process of its own; return a line for each."""
    command = [sys.executable, "-m", "tests.soak.fuzz.outcomes", target, *map(str, folders), *options]
    ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_SECONDS, check=False)
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0, (
        f"at input {lines[-1] if lines else None}: {ended.returncode}\n{ended.stderr[-3_000:]}"
    )
    return lines


@pytest.fixture
def folders(request: pytest.FixtureRequest, target: str) -> list[Path]:
    corpus = request.config.getoption("--corpus")
    found = [SEEDS / target, *([Path(corpus) / target] if corpus else [])]
    return [folder for folder in found if folder.exists()]


@pytest.mark.timeout(_SECONDS)
@pytest.mark.parametrize("target", TARGETS)
def test_every_kept_input_ends_in_a_result_or_a_declared_error(target: str, folders: list[Path]) -> None:
    found = outcomes(target, folders)
    assert len(found) >= 3
    if target in COMPILED:
        assert found == outcomes(target, folders, "--interpreted")
