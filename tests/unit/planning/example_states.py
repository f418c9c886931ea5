"""Small states and observations for the planner's unit tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from tests.simulation.log import SimulatedLog
from watermark_source.planning.backlog import Backlog, backlog_of
from watermark_source.planning.observation import (
    BatchLimits,
    LogTimes,
    Observation,
    ObservedLogs,
    ObservedSnapshots,
    PlanHistory,
)
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import NewestTime, Split
from watermark_source.planning.state import Returning, SplitState, SplitStatus
from watermark_source.planning.watermark import Millis

A, B, C = Split("log", 0), Split("log", 1), Split("log", 2)
NOW = Millis(1_700_000_000_000)


def log_of(*event_times: Iterable[int]) -> SimulatedLog:
    log = SimulatedLog(len(event_times))
    for split, times in zip(log.splits.values(), event_times, strict=True):
        split.append(times)
    return log


def at(position: int, watermark: int | None = None, **changes: Any) -> SplitState:
    """A split at a position, everything before it observed."""
    return SplitState(position, position, None if watermark is None else Millis(watermark), **changes)


BEHIND = at(1, 90, returning=Returning.READ)
"""Came back from idleness, and was read."""
AWAITED = replace(BEHIND, returning=Returning.AWAITED)
"""Came back from idleness just now."""


def idle(watermark: int | None) -> SplitState:
    return at(1, watermark, status=SplitStatus.IDLE, since=Millis(5))


def observed(now: Millis, ends: Mapping[Split, int], **changes: Any) -> Observation:
    """An observation of logs that were asked now; each change goes to the part that has a field of its name."""

    def part(of: type[Any], **given: Any) -> Any:
        return of(**given, **{f.name: changes.pop(f.name) for f in fields(of) if f.name in changes})

    parts = {
        "logs": part(ObservedLogs, asked_at=now, ends=ends, times=part(LogTimes)),
        "snapshots": part(ObservedSnapshots),
        "limits": part(BatchLimits),
        "history": part(PlanHistory),
    }
    return Observation(now=now, **parts, **changes)


def observation(log: SimulatedLog, **changes: Any) -> Observation:
    newest = changes.pop("newest", None)
    times = log.newest(log.splits) if newest is None else {s: NewestTime(at) for s, at in newest.items()}
    return observed(**{"now": NOW, "ends": log.ends(), "newest": times, **changes})


def backlog(
    log: SimulatedLog, splits: dict[Split, SplitState], policy: PlanPolicy, *, index: bool = True, **changes: Any
) -> Backlog:
    return backlog_of(splits, observation(log, **changes), policy, log if index else None)
