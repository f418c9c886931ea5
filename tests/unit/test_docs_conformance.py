"""docs/conformance.md lists as tested exactly the cases of Spark's suites that a test here is marked with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.unit.marked_tests import marked

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"


def listed() -> Iterator[tuple[str, str, str]]:
    """Return suite, case and what the page says of it."""
    suite = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            suite = line[3:]
        elif line.startswith("| ") and not line.startswith("| case |"):
            case, says = (cell.strip() for cell in line.strip("|").split(" | "))
            yield suite, case, says


def test_every_case_has_a_test_or_a_reason() -> None:
    says = {(suite, case): text for suite, case, text in listed()}
    assert len(says) > 90
    assert all(says.values())
    tested = {case for case, text in says.items() if text == "tested"}
    assert tested == {case for _, case in marked("spark_case")}
