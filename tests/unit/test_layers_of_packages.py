"""Packages within connectors and the Spark side: each imports those its docstring names, and none imports back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import pyspark_aligned_kafka
import pyspark_mysql_cdc_wm
import watermark_source.spark


def folder_of(connector: ModuleType) -> Path:
    assert connector.__file__ is not None
    return Path(connector.__file__).parent


PARENTS = {
    folder_of(pyspark_aligned_kafka): ("pyspark_aligned_kafka", 7),
    folder_of(pyspark_mysql_cdc_wm): ("pyspark_mysql_cdc_wm", 8),
    folder_of(watermark_source.spark): ("watermark_source.spark", 8),
}
"""Each folder of packages, its name in imports, and how many there are."""
PACKAGES = sorted(found.parent for parent in PARENTS for found in parent.glob("*/__init__.py"))
each_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: f"{package.parent.name}/{package.name}")


def allowed(package: Path) -> set[str]:
    """The packages that the docstring says it imports."""
    line = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    (named,) = re.findall(r"\bImports (no other package|(?:``\w+``(?:, )?)+)\.$", line)
    return set(re.findall(r"``(\w+)``", named))


def imported(package: Path) -> Iterator[str]:
    """What follows the package's name in every import within the package."""
    parent, _ = PARENTS[package.parent]
    for source in package.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name[len(parent) :].split(".")[1] for name in modules if name.startswith(f"{parent}."))


@each_package
def test_a_package_imports_those_its_docstring_names_and_nothing_from_above(package: Path) -> None:
    assert set(imported(package)) - {package.name} == allowed(package)


@each_package
def test_importing_a_package_loads_nothing(package: Path) -> None:
    """Otherwise to import a light module of a package would be as slow as its heaviest."""
    assert len(ast.parse((package / "__init__.py").read_text()).body) == 1


@pytest.mark.parametrize("parent", PARENTS, ids=lambda parent: parent.name)
def test_no_package_imports_back(parent: Path) -> None:
    packages = {package.name: allowed(package) for package in PACKAGES if package.parent == parent}
    assert len(packages) == PARENTS[parent][1]
    assert set(TopologicalSorter(packages).static_order()) == set(packages)
