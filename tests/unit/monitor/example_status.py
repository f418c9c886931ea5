"""A status with every kind of split in it, and the parts to build others from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from watermark_source.monitor.history import Point
from watermark_source.monitor.open_windows import open_window
from watermark_source.monitor.page_content import Page, QueryView
from watermark_source.monitor.three_clocks import diagnose, query_clocks
from watermark_source.monitor.window_facts import QueryAt, timeout_of
from watermark_source.planning.announcement import NO_WRITER
from watermark_source.planning.hold_kinds import HoldKind, SplitFacts, split_kind
from watermark_source.planning.holds import THE_ANNOUNCEMENTS, HeldBy, Hold, selected
from watermark_source.planning.range_report import RowTotals
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.planning.watermark import MIN, Millis
from watermark_source.status_model.source_status import (
    STATUS_OF,
    GroupStatus,
    Outline,
    SourceStatus,
    SplitBacklog,
    SplitView,
    Status,
    reported_snapshots,
    reported_splits,
    reported_writers,
)
from watermark_source.status_model.status_json import status_to_json
from watermark_source.words import Words

NOON = 1_795_262_400_000
"""2026-11-21 12:00:00 UTC."""
KAFKA = Words(
    split="partition",
    limit="maxOffsetsPerTrigger",
    event_time="eventTimeColumn and eventTimeFormat",
    profile="python -m watermark_source profile --kafka --kafka.bootstrap.servers HOST:9092 --subscribe TOPIC",
    watermarks="python -m watermark_source watermarks --kafka --kafka.bootstrap.servers HOST:9092 --topic TOPIC",
    from_start='.option("startingOffsets", "earliest")',
    at_rest='.option("watermarkStrategy", "ingestion")',
    marks="watermarkColumn",
    payload="valueSchema or keySchema has it (see valueMode)",
)


def split_view(number: int, status: Status = Status.ACTIVE, **fields: Any) -> SplitView:
    given: dict[str, Any] = {
        "position": 100,
        "end": 150,
        "watermark": NOON,
        "since": None,
        "why": "behind by 50 records",
    } | fields
    backlog = SplitBacklog(given.pop("position"), given.pop("end"), given.pop("uncounted", False))
    kind = given.pop("kind", None) or _kind(status, backlog, given["watermark"], given)
    return SplitView(split=Split("orders", number), backlog=backlog, status=status, kind=kind, **given)


def _kind(status: Status, backlog: SplitBacklog, watermark: int | None, given: dict[str, Any]) -> HoldKind:
    """Return what the planner would say of such a split: without ``quiet`` it has been read to its end for a second."""
    found = next((of for of, shown in STATUS_OF.items() if shown is status), SplitStatus.ACTIVE)
    mark, observed = None if watermark is None else Millis(watermark), backlog.position - given.get("unobserved", 0)
    lag = None if status is Status.UNKNOWN or backlog.end is None else backlog.end - backlog.position
    at = SplitState(backlog.position, observed, mark, found)
    return split_kind(SplitFacts(at=at, lag=lag, quiet=given.get("quiet", 1_000)))


def source_status(*splits: SplitView, **fields: Any) -> SourceStatus:
    given: dict[str, Any] = {
        "format_name": "aligned-kafka",
        "source_name": "orders",
        "at": NOON + 5_000,
        "watermark": NOON,
        "processing_time": False,
        "group": None,
    } | fields
    views = {view.split: view for view in splits}
    outlines = [Outline(view.split, view.status, view.lag, view.holds_back, view.watermark) for view in splits]
    counted = {"rows": "read", "late": "late"} | {f"{name}_rows": name for name in ("future", "undated", "malformed")}
    rows = RowTotals(**{name: given.pop(each) for each, name in counted.items() if each in given})
    reported = reported_splits(outlines, lambda outline: views[outline.split])
    given |= {
        "writers": reported_writers(given.get("writers", ())),
        "snapshots": reported_snapshots(given.get("snapshots", ())),
    }
    status = SourceStatus(**reported._asdict(), rows=rows, **({"words": KAFKA} | given))
    return status if "slowest" in given else replace(status, slowest=held_by(status))


def held_by(of: SourceStatus) -> tuple[Hold, ...]:
    """Return what holds the watermark of such a source."""
    counting = [view for view in of.splits if view.kind is not HoldKind.LEFT_OUT]
    if of.unannounced is not None:
        kind = HoldKind.NEVER if of.unannounced.endswith(NO_WRITER) else HoldKind.NO_ANSWER
        return (Hold(by=HeldBy.WRITER, name=THE_ANNOUNCEMENTS, kind=kind, why=of.unannounced),)
    if of.writers:
        first = min(of.writers, key=lambda writer: not writer.holds_back)
        quiet = None if first.since is None else of.at - first.since
        return (Hold(by=HeldBy.WRITER, name=first.name, kind=first.kind, quiet=quiet, why=first.why),)
    if of.first_reading is not None:
        return (Hold(by=HeldBy.READING, name="the first reading", kind=HoldKind.BACKLOG, why=of.first_reading),)
    if of.processing_time or not counting:
        return ()
    marks = sorted({MIN if view.watermark is None else view.watermark for view in counting})
    slowest = [v for v in counting if v.holds_back] or [v for v in counting if (v.watermark or MIN) == marks[0]]
    lead = marks[-1] - marks[0] if len(marks) > 1 else 0
    found = [
        Hold(
            name=str(view.split),
            kind=view.kind,
            watermark=view.watermark,
            quiet=view.quiet,
            timeout=timeout_of(view, of),
            is_last=lead == 0,
            why=view.why,
            began_behind=view.kind is HoldKind.NEVER and view.backlog.position > 0,
        )
        for view in slowest
    ]
    return tuple(found) if any(view.holds_back for view in counting) else selected(found, lead)


def checkout(**fields: Any) -> SourceStatus:
    """Six partitions: two paused, one idle, one that holds all back, one that was not asked yet."""
    given = {"group": GroupStatus("checkout", 120_000, NOON + 120_000, 9), "rows": 5_000_000, "future_rows": 3} | fields
    return source_status(
        split_view(
            0, Status.PAUSED, position=1_204_332, end=2_500_000, watermark=NOON + 119_000, since=NOON - 12_000,
            why="next record over 2 min ahead of orders-3 (alignmentMaxDrift)", drift=119_000,
        ),
        split_view(
            1, position=884_120, end=884_120, watermark=NOON + 3_000, since=NOON, drift=3_000,
            why="nothing to read for 1.2 s; idle after 30 s",
        ),
        split_view(
            2, Status.IDLE, position=12, end=12, watermark=None, since=NOON - 302_000,
            why="nothing to read for 5 min 32 s (idleTimeout 30 s)",
        ),
        split_view(3, position=700_001, end=812_345, drift=0, holds_back=True, why="behind by 112 344 records"),
        split_view(
            4, Status.PAUSED, position=700_001, end=700_341, watermark=NOON + 157_000, since=NOON - 3_700_000,
            why="2 min 37 s ahead of orders-3 (alignmentMaxDrift 2 min)", drift=157_000,
        ),
        split_view(10, Status.UNKNOWN, position=700_001, end=None, watermark=NOON + 7_000, drift=7_000,
                   why="no answer about its log"),
        **given,
    )  # fmt: skip


def view(*sources: SourceStatus, name: str = "sales", **fields: Any) -> QueryView:
    """A query with these sources on the page."""
    clocks = query_clocks({}, sources, NOON + 5_000)
    known = QueryAt(sources=sources, batch=7, applied=NOON)
    return QueryView(name=name, id="1", clocks=clocks, why=diagnose(clocks), open=open_window(known, None), **fields)


def page(*queries: QueryView, **fields: Any) -> Page:
    """What the page shows, five seconds after noon."""
    given: dict[str, Any] = {"at": NOON + 5_000, "queries": queries} | fields
    return Page(**given)


CHECKOUT = page(
    view(
        checkout(),
        held_since={"orders": NOON - 60_000},
        points={"orders": [Point(NOON + 1_000 * n, 5_000 * n, n) for n in range(5)]},
    )
)
"""One query, with lines over time."""


def progress_of(*statuses: SourceStatus, **fields: Any) -> dict[str, Any]:
    """A query's progress as Spark's JSON has it, with a foreign source first."""
    foreign = {"description": "KafkaV2[Subscribe[payments]]", "latestOffset": {"payments": {"0": 23}}}
    return {
        "id": "1d9a4d76-0c0b-4a1c-b6a4-5f0c4d8f0b11",
        "runId": "7f2d6f0e-6a44-4d0e-9f52-3f5ac5a4a0de",
        "name": "sales",
        "timestamp": "2026-11-21T12:00:05.000Z",
        "batchId": 7,
        "batchDuration": 12,
        "stateOperators": [],
        "sink": {"description": "noop", "numOutputRows": -1},
        "sources": [
            _source(foreign),
            *(_source({"description": "PythonMicroBatchStream", "latestOffset": status_to_json(s)}) for s in statuses),
        ],
    } | fields


def _source(fields: dict[str, Any]) -> dict[str, Any]:
    rates = {"numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    return {"startOffset": None, "endOffset": None} | rates | fields


def checkpoint(folder: Path, offsets: Sequence[str], commits: Sequence[int], *, version: str = "v1") -> Path:
    """Write what Spark writes; ``offsets`` has the first source's, ``commits`` the watermarks of the next batches."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"b3703a83-b7ae-45a0-94e8-77290fc92db1"}')
    before = 0
    for batch, offset in enumerate(offsets):
        planned = {"batchWatermarkMs": before, "batchTimestampMs": NOON, "conf": {}}
        line = offset if version == "v1" else f"orders:{offset}"
        (folder / "offsets" / str(batch)).write_text(f"{version}\n{json.dumps(planned)}\n{line}")
        if batch < len(commits):
            before = commits[batch]
            (folder / "commits" / str(batch)).write_text(f'v1\n{{"nextBatchWatermarkMs":{before}}}')
    return folder
