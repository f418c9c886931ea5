"""docs/conformance.md lists as tested exactly the cases of Spark's suites that a test here is marked with."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
MARK = "spark_case"


def listed() -> Iterator[tuple[str, str, str]]:
    """Return suite, case and what the page says of it."""
    suite = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            suite = line[3:]
        elif line.startswith("| ") and not line.startswith("| case |"):
            case, says = (cell.strip() for cell in line.strip("|").split(" | "))
            yield suite, case, says


def marked(module: ModuleType) -> Iterator[tuple[str, str]]:
    for test in vars(module).values():
        for mark in getattr(test, "pytestmark", []) if callable(test) else []:
            if mark.name == MARK:
                yield mark.args
            elif mark.name == "parametrize":
                yield from (m.args for p in mark.args[1] for m in _marks(p) if m.name == MARK)


def _marks(parameters: object) -> tuple[object, ...]:
    # A tuple is a value, or what pytest.param makes.
    return tuple(getattr(parameters, "marks", ()))


def modules() -> Iterator[ModuleType]:
    for file in sorted(ROOT.glob("tests/*/**/test_*.py")):
        if MARK in file.read_text(encoding="utf-8") and file != Path(__file__):
            yield importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def test_every_case_has_a_test_or_a_reason() -> None:
    says = {(suite, case): text for suite, case, text in listed()}
    assert len(says) > 90
    assert all(says.values())
    tested = {case for case, text in says.items() if text == "tested"}
    assert tested == {case for module in modules() for case in marked(module)}
