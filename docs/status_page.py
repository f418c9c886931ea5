"""docs/status.md, from the code: the fields of a status, the kinds of what holds a watermark, and the metrics."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from docs.generate_api import Member, publics
from watermark_source.durations import format_duration
from watermark_source.monitor.metrics import METRICS, MetricKind, MetricRow
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import NAMED, NOTABLE
from watermark_source.status_model.source_status import REPORTED_SPLITS

STATUS_PAGE = Path(__file__).parent / "status.md"
SECTIONS = {
    "watermark_source.status_model.source_status": (
        "SourceStatus SplitView SplitBacklog TimeInStatus GroupStatus WriterView SnapshotProgress BoundInForce "
        "Unprocessed ChangeCounts Quantiles"
    ),
    "watermark_source.planning.holds": "Hold",
    "watermark_source.planning.group": "Peer OwnSilence",
    "watermark_source.planning.range_report": "RowTotals LateRows",
    "watermark_source.planning.strategy": "LateCause",
}
"""The modules of the classes, and the classes."""
_WIDTH = 120
_HEAD = """\
<!-- Written by docs/generate.py from the code. -->
# Status fields and metrics

What `parse_progress` returns ([monitoring](monitoring.md#in-a-program)), and the metrics of
[Prometheus](monitoring.md#prometheus). Times are milliseconds since 1970-01-01 UTC, and durations milliseconds; an
unknown value is `None`. `REPORTED_SPLITS` is {0}, `NAMED` is {1}, and `NOTABLE` is {2}.
"""
_METRICS = """\
## Metrics

Every metric has the prefix `watermark_source_`. An unknown value has no sample, for example the watermark before the
first row, or after the [end of the stream](watermarks.md#the-end-of-a-stream). Only the partitions that are in a status
have metrics of their own.

| labels | metric | meaning |
|---|---|---|
"""


def status_page() -> str:
    """Return the whole page."""
    kinds = (f"| `{kind.value}` | {kind.meaning} |\n" for kind in HoldKind)
    return "".join([
        _HEAD.format(REPORTED_SPLITS, NAMED, format_duration(NOTABLE)),
        *_fields(),
        "\n## Kinds of what holds the watermark\n\n| `kind` | why it is not further |\n|---|---|\n",
        *kinds,
        f"\n{_METRICS}",
        *_metrics(),
    ])  # fmt: skip


def _fields() -> Iterator[str]:
    for module, names in SECTIONS.items():
        for public in publics(module, names):
            yield f"\n## `{public.name}`\n\n{textwrap.fill(_plain(public.own.doc), _WIDTH)}\n\n"
            yield "| field | meaning |\n|---|---|\n"
            yield from (_row(member) for member in public.members if "(" not in member.signature.partition(":")[0])


def _row(member: Member) -> str:
    declared = member.signature.partition(" = ")[0].replace("|", "\\|")
    return f"| `{declared}` | {_plain(member.doc)} |\n"


def _plain(doc: str) -> str:
    return " ".join(doc.replace("``", "`").split())


def _metrics() -> Iterator[str]:
    """Yield the rows of all metrics, those with equal labels together, which the first of them names."""
    by_labels: dict[tuple[str, ...], list[MetricRow]] = {}
    for row in METRICS:
        by_labels.setdefault(row.labels, []).append(row)
    for labels, rows in by_labels.items():
        for row in rows:
            named = ", ".join(f"`{label}`" for label in labels) if row is rows[0] else ""
            name = row.name + ("_total" if row.kind is MetricKind.COUNTER else "")
            kind = " A histogram." if row.kind is MetricKind.HISTOGRAM else ""
            yield f"| {named} | `{name}` | {row.meaning}{kind} |\n"
