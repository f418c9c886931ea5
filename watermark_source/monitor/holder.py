"""What a query's results wait for: what holds a source's watermark, a batch, or nothing; and since when. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from watermark_source.durations import age_text, count_text
from watermark_source.monitor.history import HolderSpan
from watermark_source.monitor.three_clocks import TOLERANCE, DelayVerdict, Diagnosis, QueryClocks
from watermark_source.monitor.window_facts import names_text
from watermark_source.planning.holds import Hold
from watermark_source.status_model.hold_causes import short_time
from watermark_source.status_model.hold_texts import subject
from watermark_source.status_model.source_status import SourceStatus

_WORTH_NAMING: Final = 1_000
"""Milliseconds from which it is stated how long something has held."""


def holding(source: SourceStatus) -> tuple[Hold, ...]:
    """Return what holds a source, or is the slowest of one that holds the others of its query."""
    return source.holds or source.slowest


def holders_text(source: SourceStatus) -> str:
    """Return the names of all that hold a source."""
    names = [subject(hold) for hold in holding(source)]
    return names_text(names) if not source.more_holds else f"{names[0]} and {len(names) - 1 + source.more_holds} more"


def slow_batch(of: QueryClocks, why: Diagnosis, *, is_committed: bool = False) -> HolderSpan | None:
    """Return the batch under way if results wait for it; ``None`` if they do not, or something holds the watermark.

    ``is_committed``: the batch that was committed last instead, by the clocks when it was.
    """
    batch = of.batch
    if batch is None or why.verdict is not DelayVerdict.BATCH_SLOW or of.held is not None:
        return None
    number, lasted = (batch.number, batch.lasted) if is_committed else (batch.number + 1, batch.running)
    if lasted is None or lasted <= TOLERANCE:
        return None
    return HolderSpan(f"batch {count_text(number)}", of.at - lasted, of.at)


class Since(NamedTuple):
    """Since when something holds."""

    at: int
    """Milliseconds since 1970-01-01 UTC."""
    is_least: bool = False
    """Whether it may have held before the first look."""


def begin_text(since: Since, at: int) -> str:
    """Return since when something has held, as of a moment in milliseconds."""
    return f"since {short_time(since.at, at)}{' or before' if since.is_least else ''}"


def since_text(since: Since, at: int) -> str:
    """Return since when something has held, and for how long at a moment in milliseconds."""
    begin, long = begin_text(since, at), at - since.at
    return f"{begin} ({'at least ' if since.is_least else ''}{age_text(long)})" if long >= _WORTH_NAMING else begin
