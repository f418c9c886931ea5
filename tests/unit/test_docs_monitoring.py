"""docs/monitoring.md names every metric there is, and every status."""

from __future__ import annotations

import re
from pathlib import Path

from watermark_source.monitor.prometheus import StatusCollector
from watermark_source.monitor.status import REPORTED_SPLITS, Status

PAGE = (Path(__file__).parents[2] / "docs/monitoring.md").read_text(encoding="utf-8")


def test_every_metric_is_in_the_table_and_nothing_else() -> None:
    families = StatusCollector(tuple).collect()
    names = {each.name + ("_total" if each.type == "counter" else "") for each in families}
    listed = re.findall(r"^\|[^|]*\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {f"watermark_source_{name}" for name in listed} == names
    assert len(listed) == len(names)


def test_every_status_is_explained() -> None:
    assert re.findall(r"^\| ([A-Z]+) \|", PAGE, re.MULTILINE) == [status.name for status in Status]


def test_the_number_of_reported_splits_is_the_one_named() -> None:
    assert REPORTED_SPLITS == 100
