"""Each package imports what its docstring names, and nothing imports back."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARENTS = {
    ROOT / "watermark_source": "watermark_source",
    ROOT / "watermark_source" / "spark": "watermark_source.spark",
    ROOT / "connectors" / "pyspark_aligned_kafka": "pyspark_aligned_kafka",
    ROOT / "connectors" / "pyspark_mysql_cdc_wm": "pyspark_mysql_cdc_wm",
}
"""Each folder of packages, and its name in imports."""
PACKAGES = sorted(found.parent for parent in PARENTS for found in parent.glob("*/__init__.py"))
WITH_PUBLIC_NAMES = {"announcing"}
"""Packages whose users import from the package itself."""
FOLDERS = {
    "watermark_source": set[str](),
    "watermark_source_testing": {"watermark_source"},
    "connectors/pyspark_aligned_kafka": {"watermark_source"},
    "connectors/pyspark_mysql_cdc_wm": {"watermark_source"},
    "services": set[str](),
    "release": {"watermark_source"},
}
"""What each top-level folder may import of the others."""
OURS = {path.rpartition("/")[2] for path in FOLDERS} | {"tests", "benchmarks", "examples", "docs"}
each_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: f"{package.parent.name}/{package.name}")


def modules_in(source: Path) -> Iterator[str]:
    """Yield every module that a file imports, or name of one."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def allowed(package: Path) -> set[str]:
    """Return the packages and modules beside a package that its docstring names."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    (named,) = re.findall(r"\bImports (nothing beside it|(?:``\w+``[,\s]*)+)\.$", text, re.MULTILINE)
    return set(re.findall(r"``(\w+)``", named))


def imported(package: Path) -> set[str]:
    """Return what a package imports of the packages and modules beside it."""
    parent = PARENTS[package.parent]
    found = {name for source in package.rglob("*.py") for name in modules_in(source) if name.startswith(f"{parent}.")}
    return {name[len(parent) :].split(".")[1] for name in found} - {package.name}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    files = {}
    for folder in (
        ROOT / "watermark_source",
        ROOT / "watermark_source_testing",
        *(ROOT / "connectors").glob("pyspark_*"),
    ):
        for source in folder.rglob("*.py"):
            if source.name != "__init__.py":
                files[".".join(source.relative_to(folder.parent).with_suffix("").parts)] = source
    # Imports in functions and for types, too: each can be found out only by a reader of both.
    below = {
        name: {found for each in modules_in(source) for found in (each, each.rpartition(".")[0]) if found in files}
        for name, source in files.items()
    }
    tuple(TopologicalSorter({name: found - {name} for name, found in below.items()}).static_order())


@each_package
def test_a_package_imports_what_its_docstring_names(package: Path) -> None:
    assert imported(package) == allowed(package)


@each_package
def test_importing_a_package_loads_nothing(package: Path) -> None:
    """Otherwise importing a light module of a package would cost what its heaviest does."""
    if package.name not in WITH_PUBLIC_NAMES:
        assert len(ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body) == 1


@pytest.mark.parametrize("parent", PARENTS.values())
def test_no_package_imports_back(parent: str) -> None:
    folder = next(path for path, name in PARENTS.items() if name == parent)
    packages = {package.name: allowed(package) for package in PACKAGES if package.parent == folder}
    assert set(TopologicalSorter(packages).static_order()) >= set(packages)


def test_only_who_looks_imports_the_views() -> None:
    """They have an HTTP server and a terminal in them, which no driver of a query and no task needs."""
    files = [source for folder in FOLDERS for source in (ROOT / folder).rglob("*.py")]
    views = ROOT / "watermark_source" / "monitor"
    outside = (source for source in files if views not in source.parents)
    importers = {
        str(source.relative_to(ROOT))
        for source in outside
        if any(name.startswith("watermark_source.monitor") for name in modules_in(source))
    }
    assert importers == {
        "watermark_source/__init__.py",
        "watermark_source/command_line.py",
        "connectors/pyspark_aligned_kafka/profile.py",
        "connectors/pyspark_mysql_cdc_wm/server_side.py",
        "connectors/pyspark_mysql_cdc_wm/verify.py",
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_connector_imports_another_and_the_engine_and_the_services_none(folder: str) -> None:
    files = list((ROOT / folder).rglob("*.py"))
    assert files
    found = {name.split(".")[0] for source in files for name in modules_in(source)} & OURS
    assert found - {folder.rpartition("/")[2]} == FOLDERS[folder]


def constants_of(module: ast.Module) -> Iterator[str]:
    """Yield each name in capitals that a module sets, as often as it does so."""
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
            yield from (name for name in names if name.isupper())


@pytest.mark.parametrize("folder", [*FOLDERS, "benchmarks", "examples"])
def test_no_module_sets_a_constant_twice(folder: str) -> None:
    """The first value would be gone for functions above the second, too: two halves of a module may share a name."""
    counts = {path: Counter(constants_of(ast.parse(path.read_text("utf-8")))) for path in (ROOT / folder).rglob("*.py")}
    assert {path: twice for path, found in counts.items() if (twice := [n for n, k in found.items() if k > 1])} == {}


def test_prose_names_only_files_that_exist() -> None:
    """A module that was renamed or merged is looked for by the name that a docstring or a decision gives it."""
    folders = (*FOLDERS, "tests", "benchmarks", "examples", "docs")
    files = {f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.py")}
    prose = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    named = {
        name: path.name
        for path in (*prose, *(ROOT / "docs" / "decisions").glob("*.md"))
        for name in re.findall(r"`([\w/]+\.py)`", path.read_text(encoding="utf-8"))
    }
    assert named
    assert {name: by for name, by in named.items() if not any(file.endswith(f"/{name}") for file in files)} == {}
