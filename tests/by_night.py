"""What ``make test`` leaves to ``make test-long``: tests/by-night.md, written from the marks (``make docs``)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
BY_NIGHT_PAGE = ROOT / "tests" / "by-night.md"
_MARK = "pytest.mark.long"
_HEAD = """\
<!-- Written by docs/generate.py from the tests. -->
# What runs by night alone

`make test-long` runs what is listed here, `make test` what guards the same by day: a test, or some of the parameters.
A fault of a mechanism shows by day; at night it is looked for again with more kills, seeds and rows, on the other
server, and in each form that a user may write. `make test-long` also raises every number that
[conftest.py](conftest.py) declares, and runs what [guarded.py](guarded.py) leaves out while nothing that it guards has
changed. The session that tests share interprets plans by day; at night Spark generates Java for them, as it does for
users, and by day too in sessions that tests start in other processes.
"""


@dataclass(frozen=True)
class ByNight:
    """A mark: on a test, or on some of the parameters of tests."""

    file: Path
    marked: str
    """The test, or the fixture, function or name at the top of the file whose parameters bear the mark."""
    is_whole: bool
    by_day: str


def by_night() -> Iterator[ByNight]:
    """Yield every mark, in the order of files and lines."""
    for file in sorted((ROOT / "tests").rglob("*.py")):
        code = file.read_text(encoding="utf-8")
        if f"{_MARK[7:]}(" in code:
            yield from (
                ByNight(file.relative_to(ROOT), _name(top), not _is_of_parameters(top, call), str(call.args[0].value))
                for top in ast.parse(code).body
                for call in _calls(top)
                if isinstance(call.args[0], ast.Constant)
            )


def is_long(node: ast.AST) -> bool:
    """Whether a decorator, or ``pytestmark``, marks all as long: where one parameter is long, the others run."""
    return bool(_calls(node)) and "pytest.param" not in ast.unparse(node)


def by_night_page() -> str:
    """Return the page: a table with a line for each test, by file."""
    lines = [_HEAD]
    for file, marks in groupby(by_night(), lambda mark: mark.file):
        lines.append(f"\n## {file.relative_to('tests')}\n\n| by night | by day |\n|---|---|\n")
        lines += dict.fromkeys(map(_row, marks))
    return "".join(lines)


def _row(mark: ByNight) -> str:
    by_day = f"`{mark.by_day}`" if mark.by_day.isidentifier() else mark.by_day
    marked = "all" if mark.marked == "pytestmark" else f"`{mark.marked}`"
    return f"| {marked}{'' if mark.is_whole else ', more parameters'} | {by_day} |\n"


def _calls(node: ast.AST) -> list[ast.Call]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Call) and ast.unparse(each.func) == _MARK]


def _name(top: ast.stmt) -> str:
    if isinstance(top, ast.FunctionDef):
        return top.name
    assert isinstance(top, ast.Assign)
    return ast.unparse(top.targets[0])


def _is_of_parameters(top: ast.stmt, call: ast.Call) -> bool:
    whole: Iterable[ast.AST] = top.decorator_list if isinstance(top, ast.FunctionDef) else [top]
    return not any(call in _calls(each) and is_long(each) for each in whole)
