"""The tests that bear a marker, each with what the marker states."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def marked(name: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the test and the marker's arguments, for each marker of a name on a test or on one of its parameters."""
    for file in sorted(ROOT.glob("tests/*/**/test_*.py")):
        if f"mark.{name}(" in file.read_text(encoding="utf-8"):
            module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
            for test, function in vars(module).items():
                for mark in getattr(function, "pytestmark", []) if callable(function) else []:
                    if mark.name == name:
                        yield test, mark.args
                    elif mark.name == "parametrize":
                        yield from ((test, m.args) for p in mark.args[1] for m in _marks(p) if m.name == name)


def _marks(parameters: object) -> tuple[Any, ...]:
    # A tuple is a value, or what pytest.param makes.
    return tuple(getattr(parameters, "marks", ()))
