"""Every invariant names tests, and every test it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (I-\d+) \|.*\| (.*) \|$", (ROOT / "docs/invariants.md").read_text(), re.MULTILINE)


def test_all_twelve_invariants_name_a_test() -> None:
    assert [name for name, _ in ROWS] == [f"I-{n}" for n in range(1, 13)]
    assert all("`test_" in tests for _, tests in ROWS)


def test_every_named_test_exists() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = {name for _, tests in ROWS for name in re.findall(r"`(test_\w+)`", tests)}
    assert named <= defined, sorted(named - defined)
