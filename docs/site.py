"""Builds the docs as a site with search, by Zensical, into ``build/site/site`` (``make site``).

The pages keep their places, so that every link between them is the one that the repository has. The navigation is that
of ``docs/README.md``: the pages to use the sources, then those to change or extend them. A link that leads nowhere
fails the build. ``llms.txt`` lists the pages for programs (llmstxt.org).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "README.md"
BUILD = ROOT / "build" / "site"
LLMS = "llms.txt"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
_OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
_SETTINGS = """\
[project]
site_name = "watermark_source"
site_description = "Kafka and MySQL sources for Spark Structured Streaming, with a watermark per partition"
docs_dir = "src"
site_dir = "site"
use_directory_urls = false
nav = [
{nav}
]

[project.theme]
font = false
language = "en"
features = ["navigation.sections", "navigation.top", "search.highlight", "content.code.copy"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
"""


class Entry(NamedTuple):
    """A page in the navigation."""

    page: str
    """Its path in the repository."""
    about: str
    """The line of the index that links it, as text."""


def navigation() -> Mapping[str, list[Entry]]:
    """Return the pages of each part of the index, in its order. A group in a part is named after it: ``Time``."""
    parts: dict[str, list[Entry]] = {"Overview": [Entry("README.md", "what it is, and a first job")]}
    part = ""
    for line in re.sub(r"\n  +", " ", INDEX.read_text(encoding="utf-8")).splitlines():
        if line.startswith("## "):
            part = line[3:]
        elif line.endswith(":") and not line.startswith("-"):
            part = line[:-1]
        elif line.startswith("- "):
            about = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line[2:])
            pages = (repository_path(INDEX, link) for link in LINK.findall(line))
            parts.setdefault(part, []).extend(Entry(page, about) for page in pages)
    return parts


def repository_path(page: Path, link: str) -> str:
    """Return where a page's link leads, as a path in the repository."""
    return (page.parent / link).resolve().relative_to(ROOT).as_posix()


def pages() -> list[Path]:
    """Return every page of the site."""
    return [*(ROOT / name for name in _OUTSIDE if name.endswith(".md")), *sorted((ROOT / "docs").rglob("*.md"))]


def linked_files() -> Iterator[str]:
    """Yield the files that are no pages, and that a page links to."""
    for page in pages():
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in link and not link.endswith(".md"):
                yield repository_path(page, link)


def title(page: str) -> str:
    """Return the heading of a page."""
    found = re.search(r"^# (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, page
    return found[1].replace("`", "")


def settings() -> str:
    """Return the settings of the site."""
    lines = []
    for part, entries in navigation().items():
        listed = ", ".join(f'{{ "{title(entry.page)}" = "{entry.page}" }}' for entry in entries)
        lines.append(f'  {{ "{part}" = [{listed}] }},')
    return _SETTINGS.format(nav="\n".join(lines))


def llms() -> str:
    """Return the list of pages for programs."""
    summary = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")[1].split())
    lines = [f"# watermark_source\n\n> {summary}"]
    for part, entries in navigation().items():
        lines.append(f"\n## {part}\n")
        lines += [f"- [{title(entry.page)}]({address(entry.page)}): {entry.about}" for entry in entries]
    return "\n".join(lines) + "\n"


def address(page: str) -> str:
    """Return where the site has a page."""
    folder, _, name = page.rpartition("/")
    html = "index.html" if name == "README.md" else name.removesuffix(".md") + ".html"
    return f"{folder}/{html}" if folder else html


def lay_out(target: Path) -> None:
    """Copy pages, and the files they link to, into a folder."""
    for path in [*(page.relative_to(ROOT).as_posix() for page in pages()), *linked_files()]:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target / path)


def main() -> int:
    """Build the site; exit status 1 if a link leads nowhere."""
    if find_spec("zensical") is None:
        sys.stderr.write("zensical is not installed; run: make site\n")
        return 1
    shutil.rmtree(BUILD, ignore_errors=True)
    lay_out(BUILD / "src")
    (BUILD / "zensical.toml").write_text(settings(), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=BUILD, check=False).returncode:  # noqa: S603  (our own arguments)
        return 1
    (BUILD / "site" / LLMS).write_text(llms(), encoding="utf-8")
    missing = [page for entries in navigation().values() for page, _ in entries if not _is_built(page)]
    sys.stdout.write(f"the site is in {BUILD / 'site'}\n")
    return 1 if missing else 0


def _is_built(page: str) -> bool:
    return (BUILD / "site" / address(page)).exists()


if __name__ == "__main__":
    sys.exit(main())
