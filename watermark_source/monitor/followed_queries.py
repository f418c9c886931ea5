"""What is kept of the running queries, between one progress event and the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from watermark_source.monitor.elapsed import Totals, add_elapsed
from watermark_source.monitor.status import SourceStatus


@dataclass(frozen=True, slots=True)
class Followed:
    """What is kept of one source."""

    status: SourceStatus
    elapsed: Totals = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FollowedQuery:
    """What is kept of one running query."""

    run: str
    """Id of the run: a query that is started again keeps its own id, and events of two runs may overlap."""
    label: str
    late_rows: int = 0
    """What its stateful operators dropped as late since the listener follows it; see ``late_rows``."""
    sources: Mapping[str, Followed] = field(default_factory=dict)


def fold(query: FollowedQuery, statuses: tuple[SourceStatus, ...], late: int) -> FollowedQuery:
    """Take in what one progress says."""
    sources = dict(query.sources)
    for status in statuses:
        known = sources.get(status.source_name)
        sources[status.source_name] = (
            Followed(status) if known is None else Followed(status, add_elapsed(known.elapsed, known.status, status))
        )
    return replace(query, late_rows=query.late_rows + late, sources=sources)
