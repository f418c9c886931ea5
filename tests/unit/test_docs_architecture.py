"""docs/architecture.md names functions, classes and files that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MODULES = [path for folder in ("watermark_source", "connectors") for path in (ROOT / folder).rglob("*.py")]
NAMED = sorted(set(re.findall(r"`(\w+)\.([A-Za-z_.]+)`", PAGE)) - {("__init__", "py")})
PATHS = sorted(set(re.findall(r"`((?:watermark_source|watermark_source_testing|connectors|services)/[\w/.-]+)`", PAGE)))


def names_in(body: list[ast.stmt], before: str = "") -> Iterator[str]:
    """Yield the functions, classes and constants of a module, methods as ``Class.method``."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield before + node.name
            yield from names_in(node.body, f"{before}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield before + node.name
        elif isinstance(node, ast.Assign):
            yield from (before + each.id for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield before + node.target.id


def test_the_names_of_the_page_are_found() -> None:
    assert ("planner", "plan") in NAMED
    assert len(NAMED) > 30


@pytest.mark.parametrize(("module", "name"), NAMED, ids=map(".".join, NAMED))
def test_each_step_has_its_function(module: str, name: str) -> None:
    places = [path for path in MODULES if path.stem == module]
    assert any(name in names_in(ast.parse(path.read_text(encoding="utf-8")).body) for path in places)


@pytest.mark.parametrize("path", PATHS)
def test_each_package_exists(path: str) -> None:
    assert (ROOT / path).exists()
