"""The dashboard of Grafana and the alerts of Prometheus use metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from watermark_source.monitor.metrics import METRICS, MetricKind
from watermark_source.status_model.source_status import Status

FOLDER = Path(__file__).parents[3] / "examples" / "monitoring"
SUFFIXES = {
    MetricKind.GAUGE: ("",),
    MetricKind.COUNTER: ("_total",),
    MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count"),
}
LABELS = {f"watermark_source_{row.name}{suffix}": set(row.labels) for row in METRICS for suffix in SUFFIXES[row.kind]}
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
BOARD = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))


def expressions() -> Iterator[Any]:
    """Each expression, with the texts that name labels of its result."""
    for rule in RULES:
        yield pytest.param(rule["expr"], " ".join(rule["annotations"].values()), id=rule["alert"])
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']}: {target['refId']}")
    for each in BOARD["annotations"]["list"]:
        yield pytest.param(each["expr"], each["titleFormat"], id=f"annotation: {each['name']}")
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield pytest.param(variable["query"], "", id=f"${variable['name']}")


@pytest.mark.parametrize(("expression", "texts"), [*expressions()])
def test_an_expression_uses_metrics_and_labels_that_there_are(expression: str, texts: str) -> None:
    metrics = re.findall(r"watermark_source_\w+", expression)
    assert metrics
    assert set(metrics) <= LABELS.keys()
    for metric, matchers in re.findall(r"(watermark_source_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)[=!]", matchers)) <= LABELS[metric]
    labels = set.intersection(*(LABELS[metric] for metric in metrics))
    for listed in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        assert set(listed.split(", ")) <= labels
    named = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", texts))
    assert named <= labels
    assert set(re.findall(r'status="(\w+)"', expression)) <= {status.name.lower() for status in Status}


def test_every_alert_states_how_bad_it_is_and_what_was_seen() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 5
    for rule in RULES:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"].endswith(".")


def test_the_cases_of_the_alerts_name_alerts_and_metrics_that_there_are() -> None:
    text = (FOLDER / "alerts_test.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"watermark_source_\w+", text)) <= LABELS.keys()
    assert set(re.findall(r"alertname: (\w+)", text)) <= {rule["alert"] for rule in RULES}


def test_every_panel_has_a_place_and_an_expression_of_its_own() -> None:
    panels = BOARD["panels"]
    assert len({(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels}) == len(panels)
    assert len({each["id"] for each in panels}) == len(panels)
    every = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(set(every)) == len(every)
