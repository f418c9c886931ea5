"""Drives the planner over a simulated log as the runner does: plan, encode, decode, read, fold, restart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from tests.simulation.announcements import Announcements
from tests.simulation.log import Row, SimulatedLog
from watermark_source.planning.combined_watermark import passed_over
from watermark_source.planning.disorder import NOTHING_SEEN, DisorderSegment, RangeSummary
from watermark_source.planning.kept_plan import KeptPlan
from watermark_source.planning.observation import (
    BatchLimits,
    FirstLook,
    LogTimes,
    Observation,
    ObservedLogs,
    PlanHistory,
)
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.planner import Plan, plan, ranges_of
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import NewestTime, Split, SplitRange
from watermark_source.planning.split_watermarks import RowsAhead
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.strategy import TasksObserve, WatermarkStrategy
from watermark_source.planning.watermark import MAX, MIN, Millis
from watermark_source.spark.driver.pace import Rest
from watermark_source.spark.executor.event_time_observer import DisorderCount
from watermark_source.spark.read_tasks import beginnings_of

CODEC = OffsetCodec(source="simulated", name="log")
START = 1_700_000_000_000


@dataclass(frozen=True)
class Batch:
    """One batch as it went out."""

    before: SourceState
    after: SourceState
    rows: Mapping[Split, list[Row]]
    plan: Plan
    observation: Observation

    def watermarks_after(self, policy: PlanPolicy) -> dict[Split, int | None]:
        """Each split's watermark once this batch's rows are folded in."""
        cap = self.after.future_cap
        return {
            split: watermark_after(split, state, self.rows.get(split, []), cap, policy.strategy)
            for split, state in self.after.splits.items()
        }


@dataclass(frozen=True)
class Frozen:
    ends: Mapping[Split, int]
    newest: Mapping[Split, NewestTime | None]
    at: Millis


def watermark_after(
    split: Split, state: SplitState, rows: list[Row], future_cap: Millis | None, strategy: WatermarkStrategy
) -> Millis | None:
    """Return a split's watermark once the rows that its batch reads are folded in."""
    advance = strategy.on_range(split, state.kept, RangeSummary(highest(rows, future_cap)), future_cap)
    return max((w for w in (state.watermark, advance.watermark) if w is not None), default=None)


def highest(rows: list[Row], future_cap: Millis | None) -> Millis | None:
    """What a task reports: the highest event time not beyond the cap."""
    times = [row.event_time for row in rows if future_cap is None or row.event_time <= future_cap]
    return Millis(max(times)) if times else None


def summary(rows: list[Row], state: SourceState, wanted: SplitRange, *, counts_disorder: bool) -> RangeSummary:
    """What a task reports about a range of the batch that ends in ``state``."""
    marks = [row.mark for row in rows if row.mark is not None]
    marked = [m for m in marks if state.future_cap is None or m <= state.future_cap]
    segments = disorder(rows, state, wanted) if counts_disorder else ()
    return RangeSummary(highest(rows, state.future_cap), Millis(max(marked)) if marked else None, segments)


def disorder(rows: list[Row], state: SourceState, wanted: SplitRange) -> tuple[DisorderSegment, ...]:
    dated = [row for row in rows if state.future_cap is None or row.event_time <= state.future_cap]
    count = DisorderCount(wanted.start, beginnings_of([wanted], state).get(wanted.split))
    if dated:
        count.add(np.array([row.event_time * 1_000 for row in dated]), np.array([row.position for row in dated]))
    return count.segments()


class Driver:
    """A query on one source. Everything but ``text``, the last offset written, is lost in a restart."""

    def __init__(
        self,
        log: SimulatedLog,
        policy: PlanPolicy,
        *,
        max_rows: int | None = None,
        index: bool = True,
        starts: Mapping[Split, int] | None = None,
        final: bool = False,
        dated: bool = False,
        without_newest: Set[int] = frozenset(),
        previews: bool = False,
        looks: bool = False,
        ahead: RowsAhead | None = None,
        announcements: Announcements | None = None,
    ) -> None:
        """Start a query.

        ``dated``: the log's system dates rows when it writes them, and shows its time with its ends.
        ``without_newest``: numbers of the splits whose newest row the system does not show, as a broker does while that
        row is in an open transaction.
        ``ahead``: what reads ahead, with ``looks_ahead``.
        ``looks``: without an index the driver looks at the first rows of what nothing is known of.
        ``previews``: the system shows an event time of the rows that are planned, of some splits the highest.
        """
        self.announcements = announcements
        self.previews = previews
        self.ahead = ahead
        self.without_newest = without_newest
        self._states_time = dated
        self.log = log
        self.policy = policy
        self.max_rows = max_rows
        self.index = index and policy.strategy.looks_up_times
        self.looks = looks and not self.index
        self.now = START
        self.batches: list[Batch] = []
        self.losses: list[str] = []
        first = {s: SplitState(p, p) for s, p in (starts or dict.fromkeys(log.splits, 0)).items()}
        self.text = json.dumps(CODEC.encode(SourceState(splits=first)))
        self.restart(final=final)

    def restart(self, *, final: bool = False) -> None:
        """Begin a new process from the last offset; with ``final`` one whose ends are fixed now."""
        self._memory: tuple[str, SourceState] | None = None
        self._kept: KeptPlan | None = None
        if self.announcements is not None:
            self.announcements.restart(self.state())
        self._reports: dict[SplitRange, RangeSummary] = {}
        self._has_planned = False
        self._rows_at: int | None = None
        self._rest = Rest()
        self._asked: Millis | None = None
        self._silent: set[Split] = set()
        self._frozen = Frozen(self.log.ends(), self.log.newest(self.log.splits), Millis(self.now)) if final else None

    def state(self) -> SourceState:
        """The state of the last plan. What its batch read is folded into this, and ``text``, by the next plan only."""
        if self._memory is not None and self._memory[0] == self.text:
            return self._memory[1]
        state = CODEC.decode(json.loads(self.text))
        self._memory = (self.text, state)
        return state

    def be_away(self, split: Split, millis: int) -> None:
        """Let time pass in which a split cannot be reached, by no one, and no plan is made."""
        self.now += millis
        self._silent.add(split)

    def observe(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Observation:
        state, frozen = self.state(), self._frozen
        known = self.log.splits.keys() if frozen is None else frozen.ends.keys()
        added = known - state.splits.keys()
        logs = ObservedLogs(
            asked_at=Millis(self.now) if frozen is None else frozen.at,
            ends=self.log.ends(self.log.splits.keys() - unknown) if frozen is None else frozen.ends,
            unknown=unknown & self.log.splits.keys() if frozen is None else frozenset(),
            silent=frozenset(self._silent) if frozen is None else frozenset(),
            earliest=self.log.earliest(),
            added={s: self.log.splits[s].earliest for s in added if s in self.log.splits},
            ends_are_final=frozen is not None,
            times=LogTimes(
                reached=dict.fromkeys(known, Millis(self.now) if frozen is None else frozen.at)
                if self._states_time
                else {},
                newest=self._newest(known),
                # As if rows had come to the others since.
                settled={s for s in known if s.number % 2} if frozen is None else frozenset(),
                looks=self._looked_at(state) if self.looks else {},
            ),
        )
        return Observation(
            now=Millis(self.now),
            logs=logs,
            seen={r.split: self._reported(r, state) for r in ranges_of(state)},
            announced=None if self.announcements is None else self.announcements.observed(state),
            limits=BatchLimits(max_rows=None if one_batch else self.max_rows, one_batch=one_batch),
            history=PlanHistory(
                since_rows=None if self._rows_at is None else Millis(self.now - self._rows_at),
                asked_before=self._asked,
                rest=self._rest.lasted(Millis(self.now)),
            ),
        )

    def _newest(self, known: Set[Split]) -> dict[Split, NewestTime | None]:
        if not self.index:
            return {}
        newest = self.log.newest(known) if self._frozen is None else self._frozen.newest
        return {s: None if s.number in self.without_newest else at for s, at in newest.items()}

    def _looked_at(self, state: SourceState) -> dict[Split, FirstLook]:
        """Of every third split nothing, as where rows are missing."""
        found: dict[Split, FirstLook] = {}
        for split in self.log.splits.keys() - {s for s, t in state.splits.items() if t.step is not None}:
            position = state.splits[split].position if split in state.splits else self.log.splits[split].earliest
            rows = self.log.rows(SplitRange(split, position, position + 5))
            if split.number % 3 != 2 and len(rows) > 1:
                advanced = max(row.event_time for row in rows[1:]) - rows[0].event_time
                found[split] = FirstLook(Millis(rows[0].event_time), rows[-1].position - rows[0].position, advanced)
        return found

    def step(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Plan:
        """Plan once; if there is a batch, write its offset and read its rows."""
        observation = self.observe(one_batch=one_batch, unknown=unknown)
        before = self.state()
        index = self.log if self.index else None
        planned = plan(
            before, observation, self.policy, index, ahead=self.ahead, lookups=self, is_first=not self._has_planned
        )
        if self._kept is not None and (kept := self._kept.again(before, observation)) is not None:
            # Whatever has happened since, it would have been planned no otherwise.
            assert kept.plan == planned
            assert (kept.plan.member(), kept.plan.reach()) == (planned.member(), planned.reach())
        observation = planned.observation
        self._has_planned, self._asked = True, observation.logs.asked_at
        self._silent.clear()
        if planned.has_rows:
            self._rows_at = self.now
        self._rest = self._rest.after(is_batch=planned.is_batch, asked_at=observation.now)
        self.losses += [loss.text for loss in planned.losses]
        if not planned.is_batch:
            self._memory = (self.text, planned.state)
            self._kept = KeptPlan.of(planned, before, self.policy)
            if self._kept is not None:
                self._check_kept(self._kept)
            return planned
        self._kept = None
        self._write(planned, observation, before)
        return planned

    def _check_kept(self, kept: KeptPlan) -> None:
        """Up to its end a kept plan is what a fresh plan would be, and after it there is none."""
        state, seen = kept.plan.state, kept.plan.observation
        end = min(kept.until, seen.logs.asked_at + 1_000_000)
        for asked_at in {(seen.logs.asked_at + end) // 2, end}:
            passed = asked_at - seen.logs.asked_at
            later = replace(
                seen,
                now=Millis(seen.now + passed),
                logs=replace(seen.logs, asked_at=Millis(asked_at)),
                history=replace(
                    seen.history,
                    since_rows=None if seen.history.since_rows is None else Millis(seen.history.since_rows + passed),
                    asked_before=seen.logs.asked_at,
                    rest=Millis(passed),
                    since_batch_without_rows=Millis(passed),
                    combined=Millis(MIN + passed),
                ),
            )
            again = kept.again(state, later)
            fresh = plan(state, later, self.policy, self.log if self.index else None, ahead=self.ahead, lookups=self)
            assert again is not None
            assert again.plan == fresh
            assert again.plan.observation == fresh.observation
        if kept.until < MAX:
            after = replace(seen, logs=replace(seen.logs, asked_at=Millis(kept.until + 1)))
            assert kept.again(state, after) is None
            assert plan(state, after, self.policy, self.log if self.index else None, lookups=self).state != state

    def dated(self, observation: Observation, state: SourceState) -> Observation:
        """Every observation has the newest event times that the log can show."""
        return observation

    def uncommitted(self, observation: Observation, planned: SourceState, state: SourceState) -> Observation | None:
        asked = passed_over(state, planned, observation.logs)
        opened = self.log.uncommitted() & asked.keys()
        return replace(observation, logs=replace(observation.logs, uncommitted=opened)) if opened else None

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Of every third split nothing; of the others the highest event time, or that of the last row."""
        if not self.previews:
            return {}
        rows = {r.split: self.log.rows(r) for r in ranges}
        times = {s: [row.event_time for row in found] for s, found in rows.items() if found and s.number % 3 != 2}
        return {s: Millis(max(found) if s.number % 3 else found[-1]) for s, found in times.items()}

    def run(self, *, at_most: int = 10_000) -> int:
        """Plan until there is nothing to send; return the number of batches."""
        for count in range(at_most):
            if not self.step().is_batch:
                return count
        raise AssertionError(f"still sending after {at_most} batches")

    def _write(self, planned: Plan, observation: Observation, before: SourceState) -> None:
        text = json.dumps(CODEC.encode(planned.state))
        assert text != self.text, "a batch whose offset is not new"
        self.text = text
        after = CODEC.decode(json.loads(text))
        assert after == planned.state
        self._memory = (text, planned.state)
        # From the written offset alone, as every replay of the batch.
        rows = {r.split: self.log.rows(r) for r in ranges_of(after)}
        self._reports = {r: self._summary(r, after) for r in ranges_of(after)}
        self.batches.append(Batch(before, after, rows, planned, observation))

    def _reported(self, wanted: SplitRange, state: SourceState) -> RangeSummary:
        """What a task reported, or what a second look shows in a process that has no report."""
        if wanted in self._reports:
            return self._reports[wanted]
        gone = wanted.split not in self.log.splits
        return NOTHING_SEEN if gone else self._summary(wanted, state)

    def _summary(self, wanted: SplitRange, state: SourceState) -> RangeSummary:
        counts_disorder = self.policy.strategy.tasks_observe is TasksObserve.DISORDER
        return summary(self.log.rows(wanted), state, wanted, counts_disorder=counts_disorder)
