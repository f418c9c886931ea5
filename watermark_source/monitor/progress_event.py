"""What a progress event of Spark tells of sources and of rows that operators dropped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from watermark_source.errors import UsageError
from watermark_source.monitor.source_status import SourceStatus
from watermark_source.monitor.status_json import status_from_json


def parse_progress(progress: Mapping[str, Any] | str | None) -> tuple[SourceStatus, ...]:
    """Return the status of each source of this project in a query's progress, in the query's order.

    Args:
        progress: ``query.lastProgress``, the JSON of it or of a listener's progress event, or either one parsed.
            ``None``, as before the first batch, has no sources.

    Raises:
        UsageError: text that is not JSON; a report of this project that is broken or of a newer version.
    """
    sources = _as_mapping(progress).get("sources", ())
    reports = (_report_in(source.get("latestOffset")) for source in sources)
    return tuple(status_from_json(report) for report in reports if report is not None)


def late_rows(progress: Mapping[str, Any] | str | None) -> int:
    """Return what the progress' batch dropped as late, over all stateful operators (``numRowsDroppedByWatermark``).

    A window aggregation counts groups, not rows: Spark aggregates the rows of a batch before it drops any.
    """
    operators = _as_mapping(progress).get("stateOperators", ())
    return sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators)


_SIGNATURE = {"v", "format", "source", "splits"}


def _as_mapping(progress: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
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


def _report_in(latest: object) -> Mapping[str, Any] | None:
    """Return the report, or ``None`` if this is the latest offset of somebody else's source."""
    if isinstance(latest, str):
        try:
            latest = json.loads(latest)
        except ValueError:
            return None
    return latest if isinstance(latest, Mapping) and latest.keys() >= _SIGNATURE else None
