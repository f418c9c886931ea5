"""Whether a query is at rest, so that readers need not wait for it, and the lines of its log about that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from watermark_source.durations import count_text, format_duration
from watermark_source.spark.operator_watermarks import executed_batch
from watermark_source.status_model.status_json import parse_report

MOST_INTERVAL_MS: Final = 1_000
"""Idleness is announced of queries that look for rows at least this often: meanwhile readers continue without them."""


def is_at_rest(progress: Mapping[str, Any], batch: int) -> bool:
    """Return whether nothing of a query is under way after a batch, as of a progress event, and nothing comes.

    The event has to be of a trigger that started no batch: the watermark of the one before has closed all it can.
    """
    if "addBatch" in progress.get("durationMs", {}) or executed_batch(progress) != batch:
        return False
    sources = [parse_report(source.get("latestOffset")) for source in progress["sources"]]
    return bool(sources) and all(source is not None and source.is_at_rest for source in sources)


def awaited_text(interval: int) -> str:
    """Return why readers wait for a query at rest that looks for rows after this many milliseconds again."""
    return (
        f"wait for it nevertheless, because its trigger looks for rows only every {format_duration(interval)}, and "
        'those would be late. To have them not wait, write .trigger(processingTime="1 second"), or no trigger'
    )


def rest_text(progress: Mapping[str, Any]) -> str:
    """Return what readers do that do not wait for a query at rest."""
    # Before the first batch of a run Spark shows no state.
    of_state = [operator["numRowsTotal"] for operator in progress["stateOperators"]]
    rows = f", also from its {count_text(sum(of_state), 'row')} of state, such as open windows" if of_state else ""
    return (
        f"do not wait for it. What it writes later is late where they have passed it{rows}. To have them wait, leave "
        '.option("idleTimeout", …) out of one of its sources'
    )
