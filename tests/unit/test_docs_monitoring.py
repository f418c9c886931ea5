"""docs/monitoring.md explains every status, and docs/status.md is what the code generates."""

from __future__ import annotations

import re
from pathlib import Path

from docs.status_page import STATUS_PAGE, status_page
from tests.unit.monitor.example_pages import PAGES
from watermark_source.monitor.metrics import METRICS, MetricKind
from watermark_source.status_model.source_status import REPORTED_SPLITS, Status

PAGE = (Path(__file__).parents[2] / "docs/monitoring.md").read_text(encoding="utf-8")


def test_the_page_of_fields_is_what_the_code_generates() -> None:
    assert STATUS_PAGE.read_text(encoding="utf-8") == status_page(), "run: python docs/generate.py"


def test_every_metric_is_in_the_table_and_nothing_else() -> None:
    names = {
        f"watermark_source_{each.name}" + ("_total" if each.kind is MetricKind.COUNTER else "") for each in METRICS
    }
    listed = re.findall(r"^\|[^|]*\| `(\w+)` \|", status_page(), re.MULTILINE)
    assert {f"watermark_source_{name}" for name in listed} == names
    assert len(listed) == len(names)


def test_the_example_of_the_terminal_has_the_words_of_a_verdict() -> None:
    (query,) = PAGES["held-back"].queries
    example = re.search(r"^    ◆ .*(?:\n    .+){4}", PAGE, re.MULTILINE)
    assert example is not None
    for shown, line in zip(example[0].splitlines(), query.verdict.lines, strict=False):
        words = shown.strip().removesuffix(" …")
        assert re.sub(r"[0-9:]{8}", "", line).startswith(re.sub(r"[0-9:]{8}", "", words))


def test_every_status_is_explained() -> None:
    assert re.findall(r"^\| ([A-Z]+) \|", PAGE, re.MULTILINE) == [status.name for status in Status]


def test_the_number_of_reported_splits_is_the_one_named() -> None:
    assert REPORTED_SPLITS == 100
