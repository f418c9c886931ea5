"""The connector's rooms: each imports only those that its first line names, and none imports back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pyspark_mysql_cdc_wm

HOUSE = Path(pyspark_mysql_cdc_wm.__file__).parent
ROOMS = sorted(found.parent.name for found in HOUSE.glob("*/__init__.py"))


def allowed(room: str) -> set[str]:
    """The rooms that the first line says it imports."""
    line = ast.get_docstring(ast.parse((HOUSE / room / "__init__.py").read_text())) or ""
    (named,) = re.findall(r" Imports (no other room|(?:``\w+``(?:, )?)+)\.$", line)
    return set(re.findall(r"``(\w+)``", named))


def imported(room: str) -> Iterator[str]:
    """What follows the package's name in every import within the room."""
    for source in (HOUSE / room).glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name.split(".")[1] for name in modules if name.split(".")[0] == HOUSE.name)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_the_rooms_its_first_line_names_and_nothing_from_above(room: str) -> None:
    assert set(imported(room)) - {room} == allowed(room)


@pytest.mark.parametrize("room", ROOMS)
def test_opening_a_room_loads_nothing(room: str) -> None:
    """The way to a light file of a room would be as heavy as the heaviest otherwise."""
    assert len(ast.parse((HOUSE / room / "__init__.py").read_text()).body) == 1


def test_no_room_imports_back() -> None:
    assert len(ROOMS) == 8
    assert set(TopologicalSorter({room: allowed(room) for room in ROOMS}).static_order()) == set(ROOMS)
