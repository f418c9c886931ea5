"""docs/monitoring.md names every metric there is, and every status."""

from __future__ import annotations

import re

from docs.generate import MONITORING_PAGE, monitoring_page
from watermark_source.monitor.metrics import METRICS, MetricKind
from watermark_source.status_model.source_status import REPORTED_SPLITS, Status

PAGE = MONITORING_PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_kinds_that_the_code_has() -> None:
    assert monitoring_page() == PAGE, "run: python docs/generate.py"


def test_every_metric_is_in_the_table_and_nothing_else() -> None:
    names = {
        f"watermark_source_{each.name}" + ("_total" if each.kind is MetricKind.COUNTER else "") for each in METRICS
    }
    listed = re.findall(r"^\|[^|]*\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {f"watermark_source_{name}" for name in listed} == names
    assert len(listed) == len(names)


def test_every_status_is_explained() -> None:
    assert re.findall(r"^\| ([A-Z]+) \|", PAGE, re.MULTILINE) == [status.name for status in Status]


def test_the_number_of_reported_splits_is_the_one_named() -> None:
    assert REPORTED_SPLITS == 100
