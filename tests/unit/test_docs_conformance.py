"""docs/conformance.md lists as tested exactly the cases of Spark's suites that a test here is marked with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.unit.marked_tests import marked

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"


def listed() -> Iterator[tuple[str, str, str]]:
    """Return suite, case and what the page states of it."""
    suite = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            suite = line[3:]
        elif line.startswith("| ") and not line.startswith("| case |"):
            case, message = (cell.strip() for cell in line.strip("|").split(" | "))
            yield suite, case, message


def test_every_case_has_a_test_or_a_reason() -> None:
    message = {(suite, case): text for suite, case, text in listed()}
    assert len(message) > 90
    assert all(message.values())
    tested = {case for case, text in message.items() if text == "tested"}
    assert tested == {case for _, case in marked("spark_case")}
