"""The packages of the engine import what CONTRIBUTING.md says they do, no more and no less."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import watermark_source

HOUSE = Path(watermark_source.__file__).parent
PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
ALLOWED = {
    package: set(re.findall(r"`(\w+)`", may_import))
    for package, may_import in re.findall(r"^\| `watermark_source/(\S+)` \|[^|]*\|([^|]*)\|$", PAGE, re.MULTILINE)
}


def imported(package: str) -> Iterator[str]:
    """What follows ``watermark_source`` in every import within a package, or in the modules beside all packages."""
    for source in HOUSE.glob(package if package == "*.py" else f"{package}/*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name.split(".")[1] for name in modules if name.startswith("watermark_source."))


def test_every_package_is_in_the_table() -> None:
    assert ALLOWED.keys() == {"*.py", *(found.parent.name for found in HOUSE.glob("*/__init__.py"))}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_what_the_table_says(package: str) -> None:
    own = {found.stem for found in HOUSE.glob("*.py")} if package == "*.py" else {package}
    assert set(imported(package)) - own == ALLOWED[package]
