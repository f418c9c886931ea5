"""A run by day is repeatable, and a long one is another each time and shows by which seeds."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

from tests.conftest import SEEDS, pytest_report_header

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
    # By day none is given.
    by_day = subprocess.run(
        ["make", "--dry-run", "test"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert "-seed" not in by_day


def test_what_is_longer_by_nature_names_a_test_that_guards_the_same_by_day() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py")}
    by_day, named = set(), set()
    for tree in trees.values():
        whole_file = any(_longs(node) for node in tree.body if isinstance(node, ast.Assign))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and not whole_file:
                by_day.update([node.name] if not any(map(_longs, node.decorator_list)) else [])
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.long"):
                named.update(str(ast.literal_eval(node.args[0])).split("; "))
    missing = sorted(name for name in named if name.startswith("test_") and name not in by_day)
    assert not missing, f"no test that runs by day is named {missing}"
    assert len(named) > 30


def _longs(node: ast.AST) -> bool:
    """Whether all of what a decorator or ``pytestmark`` marks is long: a parameter that is long leaves the others."""
    marks = [
        each for each in ast.walk(node) if isinstance(each, ast.Call) and ast.unparse(each.func).endswith("mark.long")
    ]
    params = [
        each for each in ast.walk(node) if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.param"
    ]
    return bool(marks) and not params
