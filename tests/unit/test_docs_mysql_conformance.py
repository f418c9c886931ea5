"""docs/mysql-conformance.md names tests for most cases, with columns and recordings that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.mysql_columns import SAMPLES
from tests.unit.marked_tests import marked

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| (.+) \| (.+) \|$", (ROOT / "docs/mysql-conformance.md").read_text(encoding="utf-8"), re.MULTILINE
)


def test_the_page_is_about_many_cases() -> None:
    assert len(ROWS) > 50
    assert sum("`test_" in here for _, here in ROWS) > 45


def test_what_a_named_test_is_given_exists() -> None:
    given = {each for _, here in ROWS for inside in re.findall(r"\((`.*?`)\)", here) for each in inside.split(", ")}
    recorded = {path.stem for path in (ROOT / "tests/unit/mysql/recorded").iterdir()}
    known = {f"`{name}`" for name in recorded | {each.name for each in SAMPLES}}
    assert given <= known, sorted(given - known)


def test_what_is_left_out_on_mariadb_is_reported_with_the_reason() -> None:
    left_out: dict[str, set[str]] = {}
    for test, (reason,) in marked("needs_mysql"):
        left_out.setdefault(reason, set()).add(test)
    page = (ROOT / "docs/mysql-conformance.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| (.+) \|$", page.partition("## What MariaDB does otherwise")[2], re.MULTILINE)
    assert {reason: set(re.findall(r"`(test_\w+)`", here)) for reason, here in rows[1:]} == left_out
