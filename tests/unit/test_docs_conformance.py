"""docs/conformance.md lists exactly the cases of Spark's suites that a test here is marked with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.marked_tests import marked

PAGE = (Path(__file__).parents[2] / "docs/conformance.md").read_text(encoding="utf-8")


def listed() -> Iterator[tuple[str, str]]:
    """Yield suite and case."""
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        for case in re.findall(r"^- (.+)$", section, re.MULTILINE):
            yield section.splitlines()[0], case


def test_each_case_of_the_page_has_a_test() -> None:
    cases = set(listed())
    assert len(cases) > 90
    assert cases == {case for _, case in marked("spark_case")}
