"""The packages of the engine import what CONTRIBUTING.md says they do, no more and no less; no connector another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import watermark_source

ENGINE = Path(watermark_source.__file__).parent
PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
ALLOWED = {
    package: set(re.findall(r"`(\w+)`", may_import))
    for package, may_import in re.findall(r"^\| `watermark_source/(\S+)` \|[^|]*\|([^|]*)\|$", PAGE, re.MULTILINE)
}
ROOT = ENGINE.parent
FOLDERS = {
    "watermark_source": set(),
    "connectors/pyspark_aligned_kafka": {"watermark_source"},
    "connectors/pyspark_mysql_cdc_wm": {"watermark_source"},
    "services": set(),
}
"""What each of our folders may import of the others."""
OURS = {path.rpartition("/")[2] for path in FOLDERS} | {"tests", "benchmarks", "examples", "docs"}


def modules_in(source: Path) -> Iterator[str]:
    """Every module that a file imports, or name of one."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(package: str) -> Iterator[str]:
    """What follows ``watermark_source`` in every import within a package, or in the modules beside all packages."""
    for source in ENGINE.glob(package if package == "*.py" else f"{package}/**/*.py"):
        yield from (name.split(".")[1] for name in modules_in(source) if name.startswith("watermark_source."))


def test_every_package_is_in_the_table() -> None:
    assert ALLOWED.keys() == {"*.py", *(found.parent.name for found in ENGINE.glob("*/__init__.py"))}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_what_the_table_says(package: str) -> None:
    own = {found.stem for found in ENGINE.glob("*.py")} if package == "*.py" else {package}
    assert set(imported(package)) - own == ALLOWED[package]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_connector_imports_another_and_the_engine_and_the_services_none(folder: str) -> None:
    files = list((ROOT / folder).rglob("*.py"))
    assert files
    found = {name.split(".")[0] for source in files for name in modules_in(source)} & OURS
    assert found - {folder.rpartition("/")[2]} == FOLDERS[folder]


@pytest.mark.parametrize("folder", [*FOLDERS, "benchmarks", "examples"])
def test_no_file_is_too_long_to_be_of_one_concept(folder: str) -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert [path for path, count in lines.items() if count > 600] == []
