"""The status of a source after a plan: by split, with the reason of each, and of its alignment group. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from watermark_source.planning.announced import ObservedAnnouncements, WriterAt
from watermark_source.planning.announcement import NO_WRITER
from watermark_source.planning.backlog import Limit
from watermark_source.planning.group import FIRST, OwnSilence, drift_in_force
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import (
    HeldBy,
    Hold,
    PlanFacts,
    holds,
    holds_all_beginnings,
    split_facts,
    split_hold,
    without_holder,
    writer_hold,
    writers_of,
)
from watermark_source.planning.planner import Plan
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitState, SplitStatus
from watermark_source.planning.strategy import Percentile, WatermarkStrategy
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.spark.driver.plan_history import History
from watermark_source.spark.driver.task_reports import RowCounts
from watermark_source.spark.options import EngineOptions
from watermark_source.status_model.hold_texts import sentence, writer_sentence
from watermark_source.status_model.source_status import (
    STATUS_OF,
    BoundInForce,
    ChangeCounts,
    GroupStatus,
    Outline,
    SnapshotProgress,
    SourceStatus,
    SplitBacklog,
    SplitView,
    Status,
    Unprocessed,
    WriterView,
    reported_snapshots,
    reported_splits,
    reported_writers,
)
from watermark_source.words import NO_WORDS, Words


@dataclass(frozen=True, slots=True)
class Seen:
    """What a status is made from: the last plan, what it was made of, and the rows counted so far."""

    plan: Plan
    counts: RowCounts
    words: Words = NO_WORDS
    """Of the connector."""
    idled: Set[Split] = frozenset()
    """Splits that are idle, or were and have not caught up with the watermark since."""
    snapshots: tuple[SnapshotProgress, ...] = ()
    trouble: str | None = None
    """Why the last known positions of the alignment group's other sources may be old."""
    store: str | None = None
    """Where they meet."""
    own_silence: OwnSilence | None = None
    """The last time in which this source itself reported nothing to the group."""
    bound: BoundInForce | None = None
    """Where it is learned."""
    open_transactions: Set[Split] = frozenset()
    """Splits that hold the watermark, and whose next records are in an open transaction."""
    history: History = field(default_factory=History)
    clock_moved: int = 0
    """Milliseconds by which the wall clock is ahead of ``Clock.elapsed``."""

    def facts(self, options: EngineOptions) -> PlanFacts:
        """Return what decides who holds the watermark."""
        state = self.plan.state
        return PlanFacts(
            plan=self.plan,
            policy=options.policy.in_force(use_processing_time=state.use_processing_time).with_learned(state.learned),
            rows=self.counts.by_split,
            open_transactions=self.open_transactions,
            idled=self.idled,
        )


def source_status(seen: Seen, options: EngineOptions, format_name: str, now: Millis) -> SourceStatus:
    """Return the status after a plan."""
    facts = seen.facts(options)
    state, splits, policy = facts.state, seen.plan.watermarks.states, facts.policy
    held = holds(facts)
    elsewhere = seen.plan.observation.others.planned
    # Of the whole group: the slowest split here may itself wait for another source.
    lowest = min(facts.slowest.watermark, MAX if elsewhere is None else elsewhere)

    def outline(split: Split, at: SplitState) -> Outline:
        return Outline(split, _status(split, at, facts), facts.lag_of(split), split in held.splits, at.watermark)

    history, by_wall = seen.history, seen.clock_moved
    positions = {s: t.position for s, t in state.splits.items()}
    reported = reported_splits(
        [outline(s, t) for s, t in splits.items()],
        lambda of: _view(of, facts, seen, lowest=lowest, now=now),
        positions_are_rows=policy.on_loss.positions_are_rows,
    )
    announced = seen.plan.observation.announced
    writers = () if announced is None else tuple(writer_views(announced, writers_of(facts), held.first))
    unread = None if announced is None else unannounced(announced)
    whys = {writer.name: writer.why for writer in writers}
    named = tuple(
        replace(h, why=_why(h, facts, seen) if h.by is not HeldBy.WRITER else whys.get(h.name, unread or ""))
        for h in held.first
    )
    return SourceStatus(
        splits=reported.splits,
        counts=reported.counts,
        lag=reported.lag,
        quantiles=reported.quantiles,
        format_name=format_name,
        source_name=options.source_name,
        at=now,
        watermark=state.watermark,
        processing_time=state.use_processing_time,
        group=None if options.group is None else _group(options.group.name, facts, seen, now),
        rows=seen.counts.totals,
        late_cause=policy.strategy.cause_of_late_rows(late.longest) if (late := seen.counts.totals.late).rows else None,
        bound=seen.bound,
        snapshots=reported_snapshots(seen.snapshots),
        writers=reported_writers(writers),
        first_reading=next((hold.why for hold in named if (hold.by, hold.kind) == _FIRST_READING), None),
        unannounced=unread,
        unprocessed=_at_wall(history.unprocessed, by_wall),
        unread=_at_wall(history.arrivals.oldest(positions), by_wall),
        newest=history.newest,
        rows_at=None if history.arrivals.rows_at is None else history.arrivals.rows_at + by_wall,
        rows_after=None if history.arrivals.rows_after is None else history.arrivals.rows_after + by_wall,
        changes=ChangeCounts(history.watermark_changes, history.status_changes),
        idle_timeout=policy.idleness.timeout,
        out_of_orderness=policy.strategy.behind_newest,
        without_holder=without_holder(facts),
        slowest=named,
        more_holds=held.more,
        words=seen.words,
    )


_FIRST_READING = HeldBy.READING, HoldKind.BACKLOG


def _why(hold: Hold, facts: PlanFacts, seen: Seen) -> str:
    """Return the sentence about what holds the watermark."""
    if hold.split is None:
        return sentence(hold, seen.words)
    text = sentence(hold, seen.words, split_facts(hold.split, facts, holds=True))
    return text if hold.by is HeldBy.SPLIT else f"{hold.split} is paused: {text}"


def _group(name: str, facts: PlanFacts, seen: Seen, now: Millis) -> GroupStatus:
    state, others, own_drift = facts.state, seen.plan.observation.others, facts.policy.alignment.max_drift
    drift, elsewhere = drift_in_force(own_drift, others), others.slowest
    drift_of = None if drift == own_drift else others.drift_of
    reads_nothing, silence = holds_all_beginnings(state.group.limit, drift), seen.own_silence
    return GroupStatus(
        name,
        drift,
        limit=None if reads_nothing or state.group.limit == MAX else state.group.limit,
        members=len(state.splits),
        hold=reads_nothing,
        others=others.members,
        slowest=None if elsewhere is None else elsewhere.name,
        since=None if elsewhere is None else elsewhere.since,
        trouble=seen.trouble,
        store=seen.store,
        peers=others.peers,
        max_drift_of=drift_of,
        own_max_drift=None if drift_of is None else own_drift,
        own_silence=None if silence is None or now - silence.until >= _SILENCE_SHOWN else silence,
        **_lowest_of_group(seen.plan.limit, drift),
    )


_SILENCE_SHOWN = 600_000
"""Milliseconds for which the status names a time in which the source itself was silent."""


def _lowest_of_group(limit: Limit | None, drift: int | None) -> dict[str, Any]:
    """Return the lowest watermark of the alignment group, and whose it is; nothing where no member limits it."""
    if limit is None or drift is None or limit.watermark == MAX or holds_all_beginnings(limit.watermark, drift):
        return {}
    return {"minimum": limit.watermark - drift, "holder": str(limit.slowest)}


def writer_views(
    observed: ObservedAnnouncements, writers: Iterable[WriterAt], held: Sequence[Hold]
) -> Iterator[WriterView]:
    """Yield the rows of the status about writers: each with its reason, and whether it is one of those that hold."""
    holding = {hold.name for hold in held if hold.kind is not HoldKind.LEFT_OUT}
    for writer in writers:
        hold, newest = writer_hold(writer, observed), writer.writer.newest
        yield WriterView(
            name=hold.name,
            status=writer.status.value,
            why=writer_sentence(writer, observed),
            kind=hold.kind,
            holds_back=hold.name in holding,
            batch=None if newest is None else newest.batch,
            watermark=hold.watermark,
            announced=None if newest is None or newest.watermark == MAX else newest.watermark,
            since=None if newest is None else newest.written_at,
            rows_before_next=hold.lag,
            query=writer.writer.query,
        )


def unannounced(observed: ObservedAnnouncements) -> str | None:
    """Return why the watermark stands whatever the writers announced; ``None`` if it follows them."""
    if not observed.is_current:
        return observed.trouble or "the announcements are being read"
    return None if observed.table.writers or observed.by.names else NO_WRITER


def _at_wall(of: Unprocessed | None, moved: int) -> Unprocessed | None:
    return None if of is None else replace(of, arrived=of.arrived + moved)


def bound_in_force(plan: Plan, strategy: WatermarkStrategy) -> BoundInForce | None:
    """Return the bound that is learned, as of a plan."""
    learned = plan.state.learned
    if learned is None or not isinstance(strategy, Percentile):
        return None
    return BoundInForce(learned.bound, strategy.most, strategy.on_time)


def _view(of: Outline, facts: PlanFacts, seen: Seen, *, lowest: int, now: Millis) -> SplitView:
    split, state = of.split, seen.plan.watermarks.states[of.split]
    unread = seen.plan.watermarks.unread.get(split)
    # All of them, before the first has a watermark.
    holds = of.holds_back or (state.watermark is None and facts.policy.strategy.has_split_watermarks)
    about = split_facts(split, facts, holds=holds)
    hold = split_hold(split, facts, about)
    end = None if split in facts.growing else seen.plan.observation.logs.ends.get(split)
    newest = seen.plan.observation.logs.times.newest.get(split)
    return SplitView(
        split=split,
        backlog=SplitBacklog(state.position, end, not facts.policy.on_loss.positions_are_rows),
        watermark=state.watermark,
        status=of.status,
        since=None if state.status is SplitStatus.ACTIVE else state.since,
        why=sentence(hold, seen.words, about),
        kind=hold.kind,
        drift=None if state.watermark is None or lowest <= FIRST else state.watermark - lowest,
        late_rows=about.rows.late.rows,
        looked_ahead=None if unread is None else unread.until - state.position,
        holds_back=of.holds_back,
        unobserved=state.position - state.observed,
        quiet=hold.quiet,
        newest_in_log=None if newest is None else newest.event_time,
        idle_after=hold.timeout if facts.policy.idleness.learned else None,
        times=None if (times := seen.history.times.get(split)) is None else times.as_of(Millis(now - seen.clock_moved)),
    )


def _status(split: Split, at: SplitState, facts: PlanFacts) -> Status:
    logs = facts.plan.observation.logs
    end = logs.ends.get(split)
    if end is None:
        return Status.UNKNOWN
    is_final = logs.ends_are_final and split not in facts.growing
    if is_final and at.position >= end and at.status is SplitStatus.ACTIVE:
        return Status.FINISHED
    return STATUS_OF[at.status]
