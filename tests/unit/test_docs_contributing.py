"""CONTRIBUTING.md names files that exist, and stays a page that is read to its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
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


def test_the_paths_of_the_page_are_found() -> None:
    assert "watermark_source/planning/offset.py" in PATHS


def test_the_page_is_short() -> None:
    assert len(PAGE.encode()) <= 10_240


def modules() -> Iterator[tuple[Path, str]]:
    """Yield the modules that the table of first changes names, each with a name that it has there, or an empty text."""
    for row in re.findall(r"^\| an? .*$", PAGE, re.MULTILINE):
        package = re.search(r"in `(connectors/\w+)`: ", row)
        for path, names in re.findall(r"`([\w/]+\.py)`(?: \(([^)]*)\))?", row):
            at = ROOT / path if package is None or path.startswith("tests/") else ROOT / package[1] / path
            yield from ((at, name) for name in re.findall(r"`(\w+)`", names) or [""])


def test_each_kind_of_change_has_its_modules_and_their_names() -> None:
    found = list(modules())
    assert len(found) > 25
    assert [(path, name) for path, name in found if name not in path.read_text(encoding="utf-8")] == []


def test_the_first_change_finds_its_places() -> None:
    places = {
        "tests/unit/monitor/test_listener.py": (
            "test_the_metrics_of_a_status_are_complete",
            '"watermark_source_lag_records"',
        ),
        "watermark_source/monitor/metrics.py": (
            "METRICS = (",
            '"alignment_max_allowed_timestamp_seconds"',
            "_GROUP.gauge(",
        ),
        "watermark_source/status_model/source_status.py": ("    others: int",),
        "docs/status.md": ("| `alignment_max_allowed_timestamp_seconds` |",),
    }
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in places}
    assert [(path, each) for path, all_of in places.items() for each in all_of if each not in texts[path]] == []
    assert not any("alignment_other_sources" in text for text in texts.values()), (
        "the example has been made: take another"
    )
