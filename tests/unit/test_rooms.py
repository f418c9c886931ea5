"""The rooms of the connectors and of the Spark side: each imports those its docstring names, and none imports back."""

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


def house_of(connector: ModuleType) -> Path:
    assert connector.__file__ is not None
    return Path(connector.__file__).parent


HOUSES = {
    house_of(pyspark_aligned_kafka): ("pyspark_aligned_kafka", 7),
    house_of(pyspark_mysql_cdc_wm): ("pyspark_mysql_cdc_wm", 8),
    house_of(watermark_source.spark): ("watermark_source.spark", 8),
}
"""Each folder with rooms, its name in imports, and how many there are."""
ROOMS = sorted(found.parent for house in HOUSES for found in house.glob("*/__init__.py"))
each_room = pytest.mark.parametrize("room", ROOMS, ids=lambda room: f"{room.parent.name}/{room.name}")


def allowed(room: Path) -> set[str]:
    """The rooms that the docstring says it imports."""
    line = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    (named,) = re.findall(r"\bImports (no other room|(?:``\w+``(?:, )?)+)\.$", line)
    return set(re.findall(r"``(\w+)``", named))


def imported(room: Path) -> Iterator[str]:
    """What follows the package's name in every import within the room."""
    house, _ = HOUSES[room.parent]
    for source in room.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name[len(house) :].split(".")[1] for name in modules if name.startswith(f"{house}."))


@each_room
def test_a_room_imports_the_rooms_its_docstring_names_and_nothing_from_above(room: Path) -> None:
    assert set(imported(room)) - {room.name} == allowed(room)


@each_room
def test_opening_a_room_loads_nothing(room: Path) -> None:
    """The way to a light file of a room would be as heavy as the heaviest otherwise."""
    assert len(ast.parse((room / "__init__.py").read_text()).body) == 1


@pytest.mark.parametrize("house", HOUSES, ids=lambda house: house.name)
def test_no_room_imports_back(house: Path) -> None:
    rooms = {room.name: allowed(room) for room in ROOMS if room.parent == house}
    assert len(rooms) == HOUSES[house][1]
    assert set(TopologicalSorter(rooms).static_order()) == set(rooms)
