"""The status a source reports with each progress: the last plan, told per split and with reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watermark_source.eventtime.watermark import MIN, Millis
from watermark_source.monitor.status import GroupStatus, SourceStatus, SplitView, Status
from watermark_source.monitor.why import Facts, Held, why
from watermark_source.planning.ends import Limit
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.spark.options import EngineOptions

_STATUS = {SplitStatus.ACTIVE: Status.ACTIVE, SplitStatus.IDLE: Status.IDLE, SplitStatus.PAUSED: Status.PAUSED}


@dataclass(frozen=True, slots=True)
class Seen:
    """What a status is made from: the last plan, what it was made of, and the rows counted so far."""

    plan: Plan
    observation: Observation
    rows: int
    future_rows: int


def source_status(seen: Seen, options: EngineOptions, format_name: str, now: Millis) -> SourceStatus:
    """Return the status after a plan."""
    state, limit = seen.plan.state, seen.plan.limit
    group = None
    if options.alignment_group is not None and options.alignment_max_drift is not None:
        group = GroupStatus(options.alignment_group, options.alignment_max_drift, state.limit, len(state.splits))
    return SourceStatus.of(
        _views(seen, options, limit, now),
        format_name=format_name,
        source_name=options.source_name,
        at=now,
        watermark=state.watermark,
        processing_time=state.use_processing_time,
        group=group,
        rows=seen.rows,
        future_rows=seen.future_rows,
    )


def _views(seen: Seen, options: EngineOptions, limit: Limit | None, now: Millis) -> Iterator[SplitView]:
    splits = seen.plan.state.splits
    held = {s: _order(t) for s, t in splits.items() if t.status is not SplitStatus.IDLE}
    lowest, highest = min(held.values(), default=MIN), max(held.values(), default=MIN)
    for split, state in splits.items():
        end = seen.observation.ends.get(split)
        status = _status(state, end, final=seen.observation.ends_are_final)
        holds_back = not options.processing_time and held.get(split) == lowest < highest
        drift = None if state.watermark is None or lowest == MIN else state.watermark - lowest
        resting = end is not None and end <= state.position
        yield SplitView(
            split=split,
            position=state.position,
            end=end,
            watermark=state.watermark,
            status=status,
            since=None if state.status is SplitStatus.ACTIVE else state.since,
            why=why(
                Facts(
                    status=status,
                    lag=None if end is None else max(0, end - state.position),
                    watermark=state.watermark,
                    # All of them, before the first has a watermark.
                    holds_back=holds_back or (state.watermark is None and not options.processing_time),
                    quiet=_quiet(state, options, now) if resting else None,
                    idle_timeout=options.idle_timeout,
                    held=_held(split, state, limit, options),
                    reading=state.position > state.observed,
                    waits_for_budget=not resting and state.position == state.observed,
                    waits_for_more=seen.plan.is_held,
                )
            ),
            drift=drift,
            holds_back=holds_back,
        )


def _quiet(state: SplitState, options: EngineOptions, now: Millis) -> int | None:
    if state.since is None:
        return None
    # An idle split has been idle since then, and quiet for the timeout before.
    return now - state.since + (options.idle_timeout or 0 if state.status is SplitStatus.IDLE else 0)


def _order(state: SplitState) -> int:
    return MIN if state.watermark is None else state.watermark


def _status(state: SplitState, end: int | None, *, final: bool) -> Status:
    if end is None:
        return Status.UNKNOWN
    if final and state.position >= end and state.status is SplitStatus.ACTIVE:
        return Status.FINISHED
    return _STATUS[state.status]


def _held(split: Split, state: SplitState, limit: Limit | None, options: EngineOptions) -> Held | None:
    drift = options.alignment_max_drift
    if state.status is not SplitStatus.PAUSED or limit is None or drift is None or limit.holder == split:
        return None
    ahead = None if state.watermark is None else state.watermark - (limit.watermark - drift)
    return Held(by=limit.holder, max_drift=drift, ahead=ahead)
