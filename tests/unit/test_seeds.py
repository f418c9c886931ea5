"""A run by day is repeatable, and a long one is another each time and shows by which seeds."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import settings

from tests.by_night import BY_NIGHT_PAGE, by_night, by_night_page, is_long
from tests.conftest import SEEDS, pytest_addoption, pytest_report_header

ROOT = Path(__file__).parents[2]


def test_examples_are_the_same_in_each_run_by_day_and_others_in_each_long_one() -> None:
    assert settings.get_profile("usual").derandomize
    assert not settings.get_profile("long").derandomize
    assert not settings.get_profile("soak").derandomize


def test_the_header_of_a_report_shows_every_seed(pytestconfig: pytest.Config) -> None:
    named = {f"--{name.replace('_', '-')}" for name in vars(pytestconfig.option) if name.endswith("_seed")}
    assert named == set(SEEDS)
    assert re.findall(r"(\S+)=", pytest_report_header(pytestconfig)) == list(SEEDS)


@pytest.mark.parametrize(("goal", "seed"), [("test-long", "7"), ("soak", "$(date +%s)")])
def test_a_long_run_chooses_every_seed(goal: str, seed: str) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", goal, "SEED=7"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    (command,) = (line for line in shown.replace("\\\n", " ").splitlines() if "pytest tests" in line)
    assert [f"{name}={seed}" for name in SEEDS if f"{name}={seed}" not in command] == []
    # A number that no run passes is never larger than by day, and a test marked long runs with --long alone.
    given = {name: float(value) for name, value in re.findall(r"(--[a-z-]+)=([\d.]+)(?= )", command)}
    numbers = {name: options["default"] for name, options in declared_options().items() if "type" in options}
    # What a process may take is a limit, the same in each run.
    del numbers["--most-memory"]
    assert {name for name in numbers if name not in SEEDS and given.get(name, 0) < max(1, numbers[name])} == set()
    assert " --long " in command
    # By day none is given.
    by_day = subprocess.run(
        ["make", "--dry-run", "test"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert "-seed" not in by_day


def declared_options() -> dict[str, dict[str, Any]]:
    """Return the settings of each option that tests/conftest.py declares."""
    found: dict[str, dict[str, Any]] = {}
    parser = SimpleNamespace(addoption=lambda name, **settings: found.update({name: settings}))
    pytest_addoption(cast("pytest.Parser", parser))
    return found


def test_what_is_longer_by_nature_names_a_test_that_guards_the_same_by_day() -> None:
    by_day: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not any(is_long(node) for node in tree.body if isinstance(node, ast.Assign)):
            functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
            by_day.update(node.name for node in functions if not any(map(is_long, node.decorator_list)))
    named = {mark.by_day for mark in by_night()}
    missing = sorted(name for name in named if name.startswith("test_") and name not in by_day)
    assert not missing, f"no test that runs by day is named {missing}"
    assert len(named) > 30


def test_the_page_of_what_runs_by_night_has_every_mark() -> None:
    assert BY_NIGHT_PAGE.read_text(encoding="utf-8") == by_night_page()
