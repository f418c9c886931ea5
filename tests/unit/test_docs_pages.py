"""Every page of the docs names tests that exist, links that lead somewhere, and lines of prose that fit a screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.ivy import SPARK_KAFKA

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = {"test_idle_split_does_not_hold_back_the_group", "test_the_connector_conforms"}
"""Names that a page gives as a pattern for others."""
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.fixture(scope="module")
def defined() -> set[str]:
    """All tests, and the files they are in."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    texts = (path.read_text(encoding="utf-8") for path in files)
    return {name for text in texts for name in re.findall(r"^ *def (test_\w+)", text, re.MULTILINE)} | {
        path.stem for path in files
    }


@each_page
def test_every_named_test_exists(page: Path, defined: set[str]) -> None:
    named = set(re.findall(r"\btest_\w+", page.read_text(encoding="utf-8")))
    assert named - EXAMPLES <= defined, sorted(named - defined)


def headings(page: Path) -> set[str]:
    """What links to a page's headings end in."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not heading or heading in headings(target), link


@each_page
def test_a_package_of_spark_is_named_in_the_release_that_is_published(page: Path) -> None:
    # Spark publishes a package for Python before this one, if ever.
    named = set(re.findall(r"org\.apache\.spark:[\w.:-]+", page.read_text(encoding="utf-8")))
    assert named <= {str(SPARK_KAFKA)}


def prose(page: Path) -> Iterator[str]:
    """Its lines, except for those of tables, which cannot be wrapped, and of code."""
    is_code = False
    for line in page.read_text(encoding="utf-8").splitlines():
        is_code ^= line.startswith("```")
        if not is_code and not line.startswith("|"):
            yield line


@each_page
def test_prose_is_wrapped(page: Path) -> None:
    assert [line for line in prose(page) if len(line) > 120] == []


@each_page
def test_no_code_is_broken_behind_a_hyphen(page: Path) -> None:
    # Markdown puts a blank there: `make demo-` at the end of a line and `json` on the next are `make demo- json`.
    text = "\n".join(prose(page))
    assert not re.findall(r"`[^`\n]*\w-\n[^`\n]*`", text)
