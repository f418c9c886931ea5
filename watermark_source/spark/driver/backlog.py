"""What of the logs is not read yet."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState


def splits_behind(state: SourceState, ends: Mapping[Split, int]) -> Set[Split]:
    """Return the splits with rows to read."""
    return {s for s, end in ends.items() if s not in state.splits or end > state.splits[s].position}


def exceeds(state: SourceState, ends: Mapping[Split, int], limit: ReadLimit) -> bool:
    """Return whether there is more to read than one batch may take."""
    if not isinstance(limit, ReadMaxRows):
        return False
    backlog = sum(end - state.splits[s].position if s in state.splits else end for s, end in ends.items())
    return bool(backlog > limit.max_rows)
