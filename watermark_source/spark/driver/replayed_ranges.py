"""Ranges that go back further than the last plan: to where the batch begins, and not beyond where its logs do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import replace

from watermark_source.errors import listed
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState

_log = logging.getLogger(__name__)


def reaching_back(
    starts: Mapping[Split, int], after: SourceState, earliest: Callable[[Set[Split]], Mapping[Split, int]] | None
) -> SourceState:
    """Return ``after`` with ranges that go back to ``starts``.

    ``earliest`` tells where logs begin now. It is given where rows that are gone are no error: they may be so many that
    to look for them would take thousands of tasks, and a plan that went past them has read none of them.
    """
    # Only to a lower one: a log that was created anew begins before the position its predecessor had.
    back = {s: start for s, start in starts.items() if s in after.splits and start < after.splits[s].observed}
    if back and earliest is not None:
        begins = earliest(back.keys())
        gone = {s: min(begins.get(s, 0), after.splits[s].observed) for s in back}
        skipped = [SplitRange(s, start, gone[s]) for s, start in back.items() if start < gone[s]]
        if skipped:
            _log.warning("failOnDataLoss is false, nobody looks for what is gone: %s", listed(skipped))
        back = {s: max(start, gone[s]) for s, start in back.items()}
    if not back:
        return after
    return replace(
        after, splits={**after.splits, **{s: replace(after.splits[s], observed=start) for s, start in back.items()}}
    )
