"""PURE. Late rows as they stand in a status report."""

from __future__ import annotations

from typing import Any

from watermark_source.monitor.report_fields import Fields
from watermark_source.planning.late_rows import BOUNDS_MS, LateRows

_BUCKETS = (*map(str, BOUNDS_MS), "more")


def late_to_json(late: LateRows) -> dict[str, Any] | None:
    """Return how many there were, how far the last and all together were behind, and how many in each bucket."""
    if not late.rows:
        return None
    behind = {bucket: rows for bucket, rows in zip(_BUCKETS, late.histogram, strict=True) if rows}
    return {"rows": late.rows, "longest": late.longest, "total": late.total, "behind": behind}


def late_from_json(fields: Fields) -> LateRows:
    """Read what ``late_to_json`` wrote."""
    behind = fields.child("behind")
    histogram = tuple(behind.optional_integer(bucket) or 0 for bucket in _BUCKETS)
    return LateRows(histogram, fields.integer("longest"), fields.integer("total"))
