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
extra_css = ["site.css"]
extra_javascript = ["site.js"]
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


_NOT_SEARCHED = """\
---
search:
  exclude: true
---

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


def unsearched() -> list[str]:
    """Return the pages that a search leaves out: records of decisions and changes, with the words of the pages."""
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    return ["CHANGELOG.md", *(page.relative_to(ROOT).as_posix() for page in records)]


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


# What the theme leaves out for readers with a keyboard, or without sharp eyes.

_STYLE = """\
/* The theme's own has a contrast below 4.5, on its ground and on that of the page in the navigation. */
[data-md-color-scheme=default]{--md-typeset-a-color:#2f45c5;--md-accent-fg-color:#2f45c5}
[data-md-color-scheme=slate]{--md-typeset-a-color:#9db0ff;--md-accent-fg-color:#9db0ff}
"""
_SCRIPT = """\
// The theme puts a wide table into a box that scrolls, which no key reaches, and a link without a name before each line
// of code.
const reach = () => {
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((box) => { box.tabIndex = 0; });
  document.querySelectorAll("a[href^='#__codelineno']").forEach((line) => line.removeAttribute("href"));
};
new MutationObserver(reach).observe(document.body, {childList: true, subtree: true});
reach();
"""


def lay_out(target: Path) -> None:
    """Copy pages, and the files they link to, into a folder."""
    target.mkdir(parents=True, exist_ok=True)
    (target / "site.css").write_text(_STYLE, encoding="utf-8")
    (target / "site.js").write_text(_SCRIPT, encoding="utf-8")
    for path in [*(page.relative_to(ROOT).as_posix() for page in pages()), *linked_files()]:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target / path)
    for path in unsearched():
        page = target / path
        page.write_text(_NOT_SEARCHED + page.read_text(encoding="utf-8"), encoding="utf-8")


def build(folder: Path) -> Path | None:
    """Build the site in a folder, and return where it is; ``None`` if a link leads nowhere or a page is missing."""
    lay_out(folder / "src")
    (folder / "zensical.toml").write_text(settings(), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=folder, check=False).returncode:  # noqa: S603  (our own arguments)
        return None
    built = folder / "site"
    (built / LLMS).write_text(llms(), encoding="utf-8")
    there = ((built / address(page)).exists() for entries in navigation().values() for page, _ in entries)
    return built if all(there) else None


def main() -> int:
    """Build the site; exit status 1 if a link leads nowhere."""
    shutil.rmtree(BUILD, ignore_errors=True)
    built = build(BUILD)
    if built is not None:
        sys.stdout.write(f"the site is in {built}\n")
    return built is None


if __name__ == "__main__":
    sys.exit(main())
