"""The site has every page in its navigation, users' pages first, and every file that a page links to."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from docs import site

ROOT = Path(__file__).parents[2]
DOCS = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md")} - {"docs/README.md"}


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [entry.page for entries in site.navigation().values() for entry in entries]
    assert len(set(listed)) == len(listed)
    assert set(listed) == DOCS | {"README.md", "CONTRIBUTING.md", "docs/decisions/README.md"}


def test_the_pages_of_users_come_before_those_of_maintainers() -> None:
    *for_users, last = site.navigation().items()
    assert last[0] == "To change or extend them"
    assert [part for part, _ in for_users] == ["Overview", "Start", "Time", "Sources and operators", "Operation"]
    maintained = {entry.page for entry in last[1]}
    assert {"docs/decisions/README.md", "docs/invariants.md", "docs/conformance.md"} <= maintained


def test_the_settings_are_toml_and_name_pages_by_their_headings() -> None:
    project = tomllib.loads(site.settings())["project"]
    listed = [page for part in project["nav"] for pages in part.values() for page in pages]
    named = {path: name for page in listed for name, path in page.items()}
    assert named["docs/quickstart.md"] == "Quickstart"
    assert not project["theme"]["font"], "no font is loaded from elsewhere"


def test_the_list_for_programs_has_every_page_of_the_navigation() -> None:
    text = site.llms()
    assert text.startswith("# watermark_source\n\n> Kafka and MySQL sources for Spark")
    for entries in site.navigation().values():
        for entry in entries:
            assert f"]({site.address(entry.page)}): " in text
    assert "](docs/decisions/index.html): " in text


@pytest.mark.parametrize("page", site.pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_is_a_page_or_a_file_of_the_site(page: Path, whole: set[str]) -> None:
    links = [link for link in site.LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert {site.repository_path(page, link) for link in links} - whole == set()


def test_a_search_leaves_records_out(tmp_path: Path) -> None:
    """A search for "silent partition" found three decisions above the pages that say what to write."""
    site.lay_out(tmp_path)
    pages = {page.relative_to(tmp_path).as_posix(): page.read_text("utf-8") for page in tmp_path.rglob("*.md")}
    searched = {path for path, text in pages.items() if not text.startswith("---\nsearch:\n  exclude: true\n---\n\n# ")}
    assert searched == DOCS | {
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/README.md",
        "docs/decisions/README.md",
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files that the site is built from."""
    folder = tmp_path_factory.mktemp("site")
    site.lay_out(folder)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
