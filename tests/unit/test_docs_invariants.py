"""Every invariant names tests; that they exist is looked at for all pages (test_docs_pages.py)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (I-\d+) \|.*\| (.*) \|$", (ROOT / "docs/invariants.md").read_text(), re.MULTILINE)


def test_all_invariants_name_a_test() -> None:
    assert [name for name, _ in ROWS] == [f"I-{n}" for n in range(1, 14)]
    assert all("`test_" in tests for _, tests in ROWS)
