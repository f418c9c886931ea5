"""CONTRIBUTING.md sends nobody to a file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATHS = sorted(
    set(re.findall(r"[`(]((?:watermark_source|connectors|services|benchmarks|docs|tests)/[\w/.-]+)[`)]", PAGE))
)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_table_of_changes_is_among_what_is_looked_at() -> None:
    assert "watermark_source/planning/offset.py" in PATHS
