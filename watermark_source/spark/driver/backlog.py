"""What of the logs is not read yet."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.split_status import SplitEvent, rest_event
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.spark.connector.transactions import OpenTransactions


def splits_behind(state: SourceState, ends: Mapping[Split, int]) -> Set[Split]:
    """Return the splits with rows to read."""
    return {s for s, end in ends.items() if s not in state.splits or end > state.splits[s].position}


def exceeds(state: SourceState, ends: Mapping[Split, int], limit: ReadLimit) -> bool:
    """Return whether there is more to read than one batch may take."""
    if not isinstance(limit, ReadMaxRows):
        return False
    backlog = sum(end - state.splits[s].position if s in state.splits else end for s, end in ends.items())
    return bool(backlog > limit.max_rows)


def uncommitted(
    state: SourceState,
    logs: ObservedLogs,
    idle_timeouts: Mapping[Split, int],
    policy: PlanPolicy,
    transactions: OpenTransactions | None,
) -> Set[Split]:
    """Return the splits that would not hold the watermark, and that have rows whose transaction is open.

    Those are the ones that would turn idle now, and while there are rows that move the watermark the idle ones too; all
    that are at their end if the clock may move their watermark, or this may be the end of the stream.
    """
    if transactions is None:
        return frozenset()
    moves = bool(splits_behind(state, logs.ends)) or any(t.position > t.observed for t in state.splits.values())

    def is_asked(name: Split, split: SplitState) -> bool:
        if policy.strategy.watermark_lag is not None or policy.final_watermark:
            return True
        if split.status is SplitStatus.IDLE:
            return moves
        timeout = policy.idleness.timeout_of(name, idle_timeouts)
        quiet = rest_event(split, logs.asked_at, timeout) is SplitEvent.QUIET
        return split.status is SplitStatus.ACTIVE and quiet

    asked = {s: t.position for s, t in state.splits.items() if logs.ends.get(s) == t.position and is_asked(s, t)}
    return transactions.behind(asked) if asked else frozenset()
