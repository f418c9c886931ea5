"""Source status as JSON: writes and reads the report that Spark includes in progress events. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from watermark_source.errors import UsageError
from watermark_source.planning.range_report import BOUNDS_MS, NONE_LATE, LateRows, RowTotals
from watermark_source.planning.split import Split
from watermark_source.status_model.json_fields import Fields, from_json, to_json
from watermark_source.status_model.source_status import (
    Quantiles,
    SnapshotProgress,
    SourceStatus,
    SplitBacklog,
    SplitView,
    Status,
    WriterView,
)

VERSION = 1
_SIGNATURE = {"v", "format", "source", "splits"}
_BUCKETS = (*map(str, BOUNDS_MS), "more")
_BY_NAME = ("splits", "counts", "quantiles", "rows", "snapshots", "writers")
"""Fields of a status that are keys by name, or several keys."""


def status_to_json(of: SourceStatus) -> dict[str, Any]:
    """Return the report: strings, integers, ``true`` and nested objects, without keys for ``None``.

    Equal states give equal text. Splits are nested as in Spark's Kafka offsets: ``{"orders": {"0": {…}}}``.
    """
    splits: dict[str, dict[str, Any]] = defaultdict(dict)
    for view in sorted(of.splits, key=attrgetter("split")):
        splits[view.split.log][str(view.split.number)] = to_json(view.backlog) | to_json(view, "split", "backlog")
    by_name = {
        "late": late_to_json(of.rows.late),
        "undatedRows": of.rows.undated,
        "malformedRows": of.rows.malformed,
        "snapshots": {snapshot.log: to_json(snapshot, "log") for snapshot in of.snapshots},
        "writers": {writer.name: to_json(writer, "name") for writer in of.writers},
        "quantiles": {status.value: to_json(of.quantiles[status]) for status in Status if status in of.quantiles},
    }
    return {
        "v": VERSION,
        **to_json(of, *_BY_NAME),
        "counts": {status.value: n for status in Status if (n := of.counts.get(status, 0))},
        "rows": of.rows.read,
        "futureRows": of.rows.future,
        "splits": dict(splits),
        **{key: value for key, value in by_name.items() if value},
    }


def status_from_json(report: Mapping[str, Any]) -> SourceStatus:
    """Read what ``status_to_json`` wrote.

    Raises:
        UsageError: the object is no such report, or a report of another version.
    """
    fields = Fields(report)
    version = fields.integer("v")
    if version != VERSION:
        raise UsageError(
            f"status report of version {version}; this monitor reads version {VERSION}: "
            "use the release of the project that the query runs with"
        )
    logs, counts = fields.child("splits"), fields.child("counts")
    snapshots, writers, quantiles = (
        fields.child(key) if key in fields else Fields({}) for key in ("snapshots", "writers", "quantiles")
    )
    views = (
        _split_from_json(Split(log, numbers.number(key)), numbers.child(key))
        for log in logs
        for numbers in (logs.child(log),)
        for key in numbers
    )
    return from_json(
        SourceStatus,
        fields,
        splits=tuple(sorted(views, key=attrgetter("split"))),
        counts={counts.word(letter, letter, Status): counts.integer(letter) for letter in counts},
        quantiles={
            quantiles.word(letter, letter, Status): from_json(Quantiles, quantiles.child(letter))
            for letter in quantiles
        },
        rows=RowTotals(
            read=fields.integer("rows"),
            future=fields.integer("futureRows"),
            undated=fields.optional_integer("undatedRows") or 0,
            malformed=fields.optional_integer("malformedRows") or 0,
            late=late_from_json(fields.child("late")) if "late" in fields else NONE_LATE,
        ),
        snapshots=tuple(from_json(SnapshotProgress, snapshots.child(log), log=log) for log in snapshots),
        writers=tuple(from_json(WriterView, writers.child(name), name=name) for name in writers),
    )


def _split_from_json(split: Split, fields: Fields) -> SplitView:
    return from_json(SplitView, fields, split=split, backlog=from_json(SplitBacklog, fields))


def late_to_json(late: LateRows) -> dict[str, Any] | None:
    """Return the report's fields for late rows: their number, longest and total lag in ms, and a histogram."""
    if not late.rows:
        return None
    behind = {bucket: rows for bucket, rows in zip(_BUCKETS, late.histogram, strict=True) if rows}
    return {"rows": late.rows, "longest": late.longest, "total": late.total, "behind": behind}


def late_from_json(fields: Fields) -> LateRows:
    """Read what ``late_to_json`` wrote."""
    behind = fields.child("behind")
    histogram = tuple(behind.optional_integer(bucket) or 0 for bucket in _BUCKETS)
    return LateRows(histogram, fields.integer("longest"), fields.integer("total"))


# Progress events of Spark: the statuses of sources, and the rows that operators dropped.


def parse_progress(progress: Mapping[str, Any] | str | None) -> tuple[SourceStatus, ...]:
    """Return the status of each source of this project in a query's progress, in the query's order.

    Args:
        progress: ``query.lastProgress``, or a listener's progress event, as JSON or parsed. ``None``, which Spark
            returns before the first batch, has no sources.

    Raises:
        UsageError: the text is not JSON, or a report of this project is corrupt or of another version.
    """
    sources = event_of(progress).get("sources", ())
    statuses = (parse_report(source.get("latestOffset")) for source in sources)
    return tuple(status for status in statuses if status is not None)


def parse_report(latest: object) -> SourceStatus | None:
    """Return the status in a source's latest offset; ``None`` for that of another project's source.

    Raises:
        UsageError: it is a report of this project that is corrupt or of another version.
    """
    if isinstance(latest, str):
        try:
            latest = json.loads(latest)
        except ValueError:
            return None
    return status_from_json(latest) if isinstance(latest, Mapping) and latest.keys() >= _SIGNATURE else None


def late_rows(progress: Mapping[str, Any] | str | None) -> int:
    """Return the late rows that stateful operators dropped in the progress' batch (``numRowsDroppedByWatermark``).

    A window aggregation counts groups, not rows: Spark aggregates the rows of a batch before it drops any.
    """
    operators = event_of(progress).get("stateOperators", ())
    return sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators)


def event_of(progress: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    """Return a progress event as a mapping; empty for ``None``, which Spark returns before the first batch."""
    if progress is None:
        return {}
    parsed: object = progress
    if isinstance(progress, str):
        try:
            parsed = json.loads(progress)
        except ValueError as error:
            raise UsageError(f"a query's progress is expected as JSON; seen: {progress[:80]!r} ({error})") from None
    if not isinstance(parsed, Mapping):
        raise UsageError(f"a query's progress is expected as a JSON object; seen: {type(parsed).__name__}")
    event: Mapping[str, Any] = parsed.get("progress", parsed)
    return event
