from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import watermark_source
from watermark_source.eventtime.watermark import MAX, MIN, saturating_add


def test_time_begins_and_ends_where_64_bits_do() -> None:
    ends = np.iinfo(np.int64)
    assert (ends.min, ends.max) == (MIN, MAX)


@pytest.mark.parametrize(
    ("a", "b", "total"), [(1, 2, 3), (MAX, 1, MAX), (MAX, MAX, MAX), (MIN, -1, MIN), (MIN, MAX, -1)]
)
def test_addition_saturates_at_both_ends(a: int, b: int, total: int) -> None:
    assert saturating_add(a, b) == total


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("eventtime", {"watermark_source.eventtime"}),
        ("alignment", {"watermark_source.eventtime", "watermark_source.alignment"}),
    ],
)
def test_pure_packages_import_nothing_of_the_outside_world(package: str, allowed: set[str]) -> None:
    files = list((Path(watermark_source.__file__).parent / package).glob("*.py"))
    assert len(files) > 2
    allowed |= {"__future__", "collections.abc", "dataclasses", "enum", "typing"}
    allowed |= {"watermark_source.errors", "watermark_source.durations"}
    for path in files:
        for name in imported(path):
            assert any(name == root or name.startswith(f"{root}.") for root in allowed), f"{path.name} imports {name}"


def imported(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            names.append(node.module)
    return names
