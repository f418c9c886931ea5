"""The observer: what a plan is made of, from the connector, the tasks and the other sources of the group.

The life of an observation, all of it in the runner's thread; the order is what makes it right:

1. ``Membership.others``: what the heartbeat thread knows of the group, before the ends of this source's logs.
2. ``AvailableNowEnds.tables``: what there is to take snapshots of, before the ends.
3. ``Logs.poll``: which splits there are, and where they end. What the watch's thread found silent since the last plan
   counts. ``with_chunks`` adds the next chunks of snapshots.
4. ``Announcements.poll``: what the writers announced, after the ends; ``wait_for_next`` may ask for both again.
5. ``with_histories``: leaders. Where the last plan is kept (``KeptPlan``) that is all; else ``_whole`` adds first
   positions, open transactions where needed, and
6. ``TaskReports.collect``: what tasks saw in the last batch, from the report server's thread, or read again.
7. ``dated``, ``uncommitted`` and ``reached`` answer the planner, which asks only in plans that need it (``Lookups``).
8. ``note``: the plan is made, and the polls up to the next one follow from it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from watermark_source.clock import Clock
from watermark_source.contract.lineage import Lineage
from watermark_source.contract.stream import Connector, OpenTransactions, Snapshots
from watermark_source.errors import SourceError, listed
from watermark_source.planning.announced import ObservedAnnouncements
from watermark_source.planning.announced_group import check_writers
from watermark_source.planning.catch_up import begins
from watermark_source.planning.combined_watermark import are_idle, due_now, passed_over, reached_by
from watermark_source.planning.group import OtherMembers
from watermark_source.planning.holds import PlanFacts
from watermark_source.planning.lineage import Cut, cut, led_by_earlier
from watermark_source.planning.loss import created_again, partings
from watermark_source.planning.observation import (
    BatchLimits,
    Observation,
    ObservedLogs,
    ObservedSnapshots,
    PlanHistory,
)
from watermark_source.planning.planner import Plan, ranges_of
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.snapshot_ranges import completed, snapshot_split, unfinished
from watermark_source.planning.split import SAMPLE, Split, SplitRange, sample
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.planning.status_transitions import SHORTEST_IDLE_TIMEOUT, Pauses
from watermark_source.planning.watermark import MIN, Millis
from watermark_source.spark.driver.announcements import Announcements
from watermark_source.spark.driver.group_membership import Membership
from watermark_source.spark.driver.logs import Logs, TimeAtDiscovery
from watermark_source.spark.driver.look_ahead import FirstLooks
from watermark_source.spark.driver.offsets import ReplicaPositions
from watermark_source.spark.driver.pace import LastPlan, exceeds, splits_behind
from watermark_source.spark.driver.run_bounds import AvailableNowEnds
from watermark_source.spark.driver.task_reports import TaskReports

_log = logging.getLogger(__name__)

# Snapshots as an observation: the next chunks of unfinished ones, logs that are new, logs that were dropped.


def with_chunks(
    logs: ObservedLogs,
    state: SourceState,
    snapshots: Snapshots,
    there: Set[str],
    *,
    to_end: bool,
    first: bool,
    may_wait: bool,
) -> tuple[ObservedLogs, ObservedSnapshots]:
    """Return the next chunks of snapshots, and the logs with their ends; none where no snapshot is left.

    Args:
        logs: the other logs.
        state: the state of a source that takes snapshots.
        snapshots: returns the chunks.
        there: the tables to snapshot, listed before the ends in ``logs`` were requested.
        to_end: plan all chunks that are left.
        first: this is the first plan of a process, whose user may have chosen other logs than before.
        may_wait: the state's positions are those that the snapshots so far are as of.
    """
    lower = unfinished(state.snapshots)
    if not lower and snapshots.nothing_follows:
        ends = {s: t.position for s, t in state.splits.items() if s in logs.ends}
        return replace(logs, ends=ends, times=replace(logs.times, reached={})), ObservedSnapshots()
    known = state.snapshots.frontiers.keys() | (state.snapshots.complete or frozenset())
    found, missing = there - known, lower.keys() - there
    dropped = snapshots.dropped(missing) if missing else missing
    waiting: Set[Split] = frozenset()
    if snapshots.one_moment and may_wait and state.watermark is None and lower.keys() - dropped:
        # A log that is found now may not have existed at that moment.
        found, waiting = frozenset(), logs.ends.keys() | logs.unknown
    # Unfinished snapshots come first: a log that is found now may wait for the end of the log of changes, and would
    # keep the turn until then.
    lower = {log: key for log, key in {**lower, **dict.fromkeys(sorted(found))}.items() if log not in dropped}
    if dropped:
        _log.warning("%s: gone before the snapshot was read to its end; nothing more comes of it", listed(dropped))
    if first:
        # If one is chosen again later, the changes in between are missing: its snapshot begins again.
        dropped |= {log for log in completed(state.snapshots) if not snapshots.is_wanted(log)}
    if not lower:
        return logs, ObservedSnapshots(dropped=dropped, waiting=waiting)
    chunks = snapshots.next_chunks(lower, to_end=to_end)
    positions = {s: state.splits[s].position if s in state.splits else 0 for s in map(snapshot_split, lower)}
    ends = {s: position + len(chunks.get(s.log, ())) for s, position in positions.items()}
    upcoming = ObservedSnapshots(chunks=chunks, found=found, dropped=dropped, waiting=waiting)
    return replace(logs, ends={**logs.ends, **ends}), upcoming


# Epochs as an observation: of logs that have another leader than the one of the rows that were read.


def with_histories(logs: ObservedLogs, state: SourceState, lineage: Lineage | None) -> ObservedLogs:
    """Return the logs with the epochs of those whose leader has changed; without a lineage none has.

    A leader of an earlier epoch is a broker that is cut off from the others: its ends do not count. That of a log
    without an id may as well be the leader of a log created again.
    """
    if lineage is None:
        return logs
    anew = created_again(state.ids, logs)
    if anew:
        lineage.forget(anew.keys())
    here = state.splits
    if anew or not here.keys() <= logs.ends.keys():
        here = {s: SplitState(0, 0) if s.log in anew else t for s, t in here.items() if s in logs.ends}
    added = {s: SplitState(start, start) for s, start in logs.added.items()}
    histories = lineage.histories({**here, **added} if added else here)
    cut_off = {s for s in led_by_earlier(here, histories) if s.log in state.ids}
    if cut_off:
        ends = {s: end for s, end in logs.ends.items() if s not in cut_off}
        histories = {s: history for s, history in histories.items() if s not in cut_off}
        logs = replace(logs, ends=ends, unknown=logs.unknown | cut_off)
    return replace(logs, histories=dict(histories))


class EndsSeen:
    """Where logs ended at the plans of this process, and in whose epochs: rows that were still to be read may go."""

    def __init__(self) -> None:
        self._ends: dict[Split, int] = {}
        self._leaders: dict[Split, int] = {}
        """The newest epoch, of logs that had another one than the row before their position."""

    def cuts(self, logs: ObservedLogs, state: SourceState) -> Mapping[Split, Cut]:
        """Return where logs do not have the rows any more that an earlier plan has seen, and note the ends of now."""
        anew, found = created_again(state.ids, logs), dict[Split, Cut]()
        for split, history in logs.histories.items():
            epoch = state.splits[split].epoch if split in state.splits else None
            known = {self._leaders.get(split), None if epoch is None else epoch.number} - {None}
            if split in self._ends and split.log not in anew and known:
                leader = max(number for number in known if number is not None)
                if (at := cut(self._ends[split], leader, history)) is not None:
                    found[split] = at
        self._ends |= logs.ends
        self._leaders |= {split: history[0].number for split, history in logs.histories.items()}
        return found


# The pauses of splits that a process has observed: they decide when a split is idle, and are in no offset.


_CLOSE = SHORTEST_IDLE_TIMEOUT // 3
"""Milliseconds between two plans. Of rows that both found, the pause between them is less than twice that: they need
not be waited for longer than ``SHORTEST``."""


class PauseMemory:
    """The pauses that one process has observed. The offset records that a split is idle, so a replay needs none."""

    def __init__(self) -> None:
        self._pauses: dict[Split, Pauses] = {}
        self._ends: dict[Split, int] = {}
        """The ends at the previous plan."""
        self._asked_at: Millis | None = None
        """When the previous plan requested them."""
        self._without_rows: dict[Split, Millis] = {}
        """When the ends were requested last before the plan that found rows: the rows have come since."""

    def timeouts(self, state: SourceState, logs: ObservedLogs) -> Mapping[Split, int]:
        """Take in which splits have rows now, and return how long each of the others must be quiet to be idle.

        When the rows of a backlog came is not known: only splits that were read to their end,
        and have rows after it, show pauses. Between two plans that are far apart, as by long batches, a pause may pass
        unseen: rows that both found show none, and one that was seen may have been longer by the time between plans.
        """
        found: dict[Split, int] = {}
        before_plan, self._asked_at = self._asked_at, logs.asked_at
        are_close = before_plan is not None and logs.asked_at - before_plan <= _CLOSE
        for split, at in state.splits.items():
            known, end = self._pauses.get(split, Pauses()), logs.ends.get(split)
            if end is None:
                continue
            before = self._ends.get(split)
            was_at_its_end = before is not None and before <= at.position
            self._ends[split] = end
            if end <= at.position:
                found[split] = known.timeout
                continue
            if was_at_its_end and not logs.ends_are_final and at.status is not SplitStatus.PAUSED:
                pause = self._longest_pause(split, at, known, logs.asked_at)
                if pause is not None or are_close:
                    self._pauses[split] = known.after(pause)
            if before_plan is not None:
                self._without_rows[split] = before_plan
        return found

    def _longest_pause(self, split: Split, at: SplitState, known: Pauses, asked_at: Millis) -> int | None:
        """Return for how long there may have been no row; ``None`` if no plan saw that there was none."""
        if at.since is None or at.observed < at.position:
            return None
        # An idle split has been idle since then, and was quiet for its timeout before.
        seen = max(0, asked_at - at.since) + (known.timeout if at.status is SplitStatus.IDLE else 0)
        earliest = self._without_rows.get(split)
        return seen if earliest is None else max(seen, asked_at - earliest)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Observer:
    """Makes observations; decides nothing."""

    connector: Connector
    policy: PlanPolicy
    clock: Clock
    logs: Logs
    ends: AvailableNowEnds
    reports: TaskReports
    membership: Membership
    replica: ReplicaPositions
    pauses: PauseMemory | None
    looks: FirstLooks | None
    announcements: Announcements | None
    _ends_seen: EndsSeen = field(default_factory=EndsSeen, init=False)
    _others_at_discovery: TimeAtDiscovery = field(init=False)

    def __post_init__(self) -> None:
        self._others_at_discovery = TimeAtDiscovery(self.connector.discovery)

    def observe(self, state: SourceState, limit: ReadLimit, last: LastPlan) -> Observation:
        """Return the outside world for the plan that begins in ``state``."""
        # Before the ends: an idle source follows the others only past rows that its logs do not have by now.
        others = self.membership.others(state.group, self.reports.server.run)
        followed = self._followed(state, others, last)
        tables = frozenset() if state.snapshots.complete is None else self.ends.tables()
        logs = self.ends.logs or self._logs_now(state, limit, last)
        logs, snapshots = self._with_snapshots(logs, state, tables, limit, is_first=last.is_first)
        logs = self._with_lineage(logs, state, snapshots.found)
        # After the ends: a batch that reads up to them closes what the writers announced of rows before them.
        announced = self._announced(state, logs)
        if self._comes_with_rows(state, logs, limit):
            logs = self._with_lineage(self._logs_now(state, limit, last), state, snapshots.found)
            announced = self._announced(state, logs)
        timeouts = {} if self.pauses is None else self.pauses.timeouts(state, logs)
        observation = Observation(
            now=self.clock.wall(),
            logs=logs,
            snapshots=snapshots,
            others=others,
            followed=followed,
            announced=announced,
            limits=BatchLimits(
                max_rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
                one_batch=isinstance(limit, ReadAllAvailable) or self.replica.has_moved,
            ),
            history=PlanHistory(
                since_rows=None if last.rows_at is None else Millis(logs.asked_at - last.rows_at),
                asked_before=last.asked_at,
                rest=last.rest.lasted(logs.asked_at),
                since_batch_without_rows=(
                    None if last.without_rows_at is None else Millis(logs.asked_at - last.without_rows_at)
                ),
                idle_timeouts=timeouts,
            ),
        )
        if last.kept is not None and last.kept.again(state, observation) is not None:
            # What else there is to find out would be the same, too.
            return observation
        observation = self._whole(observation, state, limit, last)
        if announced is None and (last.newest_mattered or self.membership.turns.promises_more):
            return self.dated(observation, state)
        return self._looking_ahead(observation, state)

    def _with_lineage(self, logs: ObservedLogs, state: SourceState, snapshots: Set[str]) -> ObservedLogs:
        """Add where new splits begin, and what changed leaders mean for the logs that were read."""
        added = self.added(logs.ends.keys() - state.splits.keys(), snapshots)
        return with_histories(replace(logs, added=added), state, self.connector.lineage)

    def _whole(self, observation: Observation, state: SourceState, limit: ReadLimit, last: LastPlan) -> Observation:
        """Add what only a plan needs that may find something to do."""
        logs = observation.logs
        if self.connector.lineage is not None:
            logs = replace(logs, cuts=self._ends_seen.cuts(logs, state))
        earliest = self._earliest(state, logs, limit, last)
        looks = {} if self.looks is None else self.looks.of(state, logs, self.policy.future_cap(observation.now))
        logs = replace(logs, earliest=earliest, times=replace(logs.times, looks=looks))
        return replace(
            observation,
            logs=self._with_open_ends(logs, state),
            seen=self.reports.collect(
                state, logs.ends.keys() | logs.unknown, self.replica.reading, is_first=last.is_first
            ),
            history=replace(observation.history, combined=self._combined(state, logs, last)),
        )

    def dated(self, observation: Observation, state: SourceState) -> Observation:
        """Add the newest event times of all that is to be read, unless they are there; the ends are asked for again."""
        logs, snapshots = observation.logs, observation.snapshots
        if not logs.times.newest:
            # Snapshots have no end but that of their chunks, of which one that was just found may have none yet.
            undated = set(map(snapshot_split, snapshots.chunks.keys() | snapshots.found))
            logs = self.logs.with_newest(logs, splits_behind(state, logs.ends) - undated)
            # An end that was asked for again may be that of another leader.
            logs = with_histories(logs, state, self.connector.lineage)
        return self._looking_ahead(replace(observation, logs=logs), state)

    def _with_open_ends(self, logs: ObservedLogs, state: SourceState) -> ObservedLogs:
        """Add the ends with rows of open transactions, for the plan that records up to where a source catches up."""
        transactions = self.connector.transactions
        after = self.policy.after_catch_up
        if transactions is None or after is None or not begins(state, after) or logs.unknown or logs.ends_are_final:
            return logs
        answers = transactions.ends(logs.ends.keys())
        return replace(logs, open_ends={split: answers.get(split) for split in logs.ends})

    def uncommitted(self, observation: Observation, planned: SourceState, state: SourceState) -> Observation | None:
        """Return what a plan has to be made of again, as it would pass over rows of open transactions; else nothing."""
        transactions = self.connector.transactions
        if transactions is None or not (asked := passed_over(state, planned, observation.logs)):
            return None
        answers = transactions.ends(asked.keys())
        # What has no answer may have some.
        opened = {s for s, end in asked.items() if s not in answers or answers[s] > end}
        return replace(observation, logs=replace(observation.logs, uncommitted=opened)) if opened else None

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        """Return how far event time will be in the ranges of a planned batch, as far as that can be known."""
        return self.logs.reached(ranges)

    def close(self) -> None:
        """Ask no more."""
        self.logs.close()
        if self.announcements is not None:
            self.announcements.close()

    def added(self, splits: Set[Split], snapshots: Set[str]) -> Mapping[Split, int]:
        """Return where splits begin that are new."""
        begun = {split for split in map(snapshot_split, snapshots) if split in splits}
        others = splits - begun
        positions = self.connector.starts.added_positions(others) if others else {}
        return {**positions, **dict.fromkeys(begun, 0)}

    def _announced(self, state: SourceState, logs: ObservedLogs) -> ObservedAnnouncements | None:
        if self.announcements is None:
            return None
        found = self.announcements.poll(state, logs, self.policy.future_cap(self.clock.wall()))
        check_writers(found, self.membership.turns.queries)
        return found

    def _comes_with_rows(self, state: SourceState, logs: ObservedLogs, limit: ReadLimit) -> bool:
        """Wait a moment for an announcement of the rows to be read; return whether one came."""
        if self.announcements is None or not self.policy.sends_markers or exceeds(state, logs.ends, limit):
            return False
        return self.announcements.wait_for_next(state, logs, self.policy.future_cap(self.clock.wall()))

    def _followed(self, state: SourceState, others: OtherMembers, last: LastPlan) -> Millis | None:
        reached = reached_by(others) if self.policy.idleness.follows_group else None
        if reached is None or self.ends.logs is not None or not are_idle(state.splits):
            return None
        rest, interval = last.rest.lasted(self.clock.elapsed()), self.policy.watermark_interval
        return self._others_at_discovery.as_of(reached, due_now(state.watermark, rest, interval))

    def _looking_ahead(self, observation: Observation, state: SourceState) -> Observation:
        logs = observation.logs
        if self.policy.strategy.rows_ahead is None or logs.ends_are_final:
            return observation
        if not (splits_behind(state, logs.ends) or ranges_of(state)):
            return observation
        return replace(observation, logs=replace(logs, all_found_now=self.logs.all_found_now()))

    def _combined(self, state: SourceState, logs: ObservedLogs, last: LastPlan) -> Millis | None:
        """Return the combined watermark of the last plan, or an earlier one, before a look that has ended.

        Looks may take longer than batches.
        """
        # A run with an end does not learn of splits that are found later. A split that was unknown when that watermark
        # was computed may have earlier rows.
        known = state.splits.keys()
        if logs.ends_are_final or not (logs.ends.keys() <= known and logs.unknown <= known):
            return None
        if logs.all_found or last.combined is None:
            return last.combined
        return self.logs.combined_at_discovery(last.combined, state.watermark)

    def _logs_now(self, state: SourceState, limit: ReadLimit, last: LastPlan) -> ObservedLogs:
        read_up_to = last.read_up_to if state is last.state else {}
        logs = self.logs.poll(state, last.rest.lasted(self.clock.elapsed()), read_up_to)
        if logs.ends == read_up_to:
            return logs
        behind = splits_behind(state, logs.ends)
        if not self.connector.positions_are_rows or not exceeds(state, logs.ends, limit):
            return self.logs.with_preview(logs, behind)
        # Without alignment they only show how far away the end of a long backlog may be.
        return self.logs.with_newest(
            logs, behind if self.policy.alignment.max_drift is not None else sample(behind, SAMPLE)
        )

    def _with_snapshots(
        self, logs: ObservedLogs, state: SourceState, tables: Set[str], limit: ReadLimit, *, is_first: bool
    ) -> tuple[ObservedLogs, ObservedSnapshots]:
        snapshots = self.connector.snapshots
        if snapshots is None or state.snapshots.complete is None:
            if snapshots is not None and snapshots.come_first and is_first:
                _log.warning(
                    "the query of this checkpoint did not begin with snapshots and takes none: no table is read whole, "
                    "or again. For that, begin a new query"
                )
            return logs, ObservedSnapshots()
        to_end, may_wait = isinstance(limit, ReadAllAvailable), not self.replica.has_moved
        logs, upcoming = with_chunks(logs, state, snapshots, tables, to_end=to_end, first=is_first, may_wait=may_wait)
        self.reports.snapshots.forget(upcoming.dropped)
        self.reports.snapshots.add_snapshots(
            (unfinished(state.snapshots).keys() | upcoming.found) - upcoming.dropped, state, snapshots
        )
        return logs, upcoming

    def _earliest(
        self, state: SourceState, logs: ObservedLogs, limit: ReadLimit, last: LastPlan
    ) -> Mapping[Split, int]:
        """Ask where logs begin that are others than those that were read, or when retention may have passed us.

        That is after a time away, and with a long backlog.
        """
        ends, anew = logs.ends, created_again(state.ids, logs)
        asked = set(partings(state.splits, logs))
        if anew:
            asked |= {s for s in state.splits.keys() & ends.keys() if s.log in anew}
        has_backlog = exceeds(state, ends, limit) if self.connector.positions_are_rows else last.is_behind
        if last.is_first or has_backlog:
            asked |= splits_behind(state, ends) & state.splits.keys()
        return self.connector.bounds.earliest_positions(asked) if asked else {}


# Open transactions behind the ends of splits that hold the watermark: no idleTimeout helps against these.


_LOOK_AGAIN = 5_000
"""Milliseconds for which a split that holds the watermark has nothing to read before this is looked up, and between two
look-ups."""


class OpenTransactionsAtHolders:
    """Finds out whether the next records of splits that hold the watermark are in open transactions.

    A look-up shows that there are records behind an end. They may have been written since that end was requested; that
    they cannot be read is known once an end requested after the look-up is still the same.
    """

    def __init__(self, transactions: OpenTransactions | None, policy: PlanPolicy, clock: Clock) -> None:
        self._transactions = transactions
        self._policy = policy
        self._clock = clock
        self._looked: Mapping[Split, int] = {}
        """The splits of the last look-up, and the ends behind which it searched."""
        self._found: Set[Split] = frozenset()
        """The splits among them with records behind their ends."""
        self._looked_at: Millis | None = None

    def after(self, planned: Plan) -> Set[Split]:
        """Return the splits whose next records are in open transactions, as of a plan."""
        if self._transactions is None:
            return frozenset()
        logs, splits = planned.observation.logs, planned.state.splits
        same = {s for s in self._found if s in splits and splits[s].position == self._looked[s] == logs.ends.get(s)}
        known = same - logs.stale if self._looked_at is not None and logs.asked_at >= self._looked_at else set[Split]()
        held = {s: splits[s].position for s in (*logs.uncommitted, *same) if s in splits}
        due = self._looked_at is None or self._clock.elapsed() - self._looked_at >= _LOOK_AGAIN
        if due or any(self._looked.get(s) != end for s, end in held.items()):
            self._look_up({**_quiet_holders(planned, self._policy), **held}, self._transactions)
        return known

    def _look_up(self, holding: Mapping[Split, int], transactions: OpenTransactions) -> None:
        self._looked, self._found = holding, frozenset()
        try:
            answers = transactions.ends(holding.keys()) if holding else {}
            self._found = {s for s, end in holding.items() if s in answers and answers[s] > end}
        except SourceError as error:
            _log.debug("open transactions could not be looked up: %s", error)
        self._looked_at = self._clock.elapsed()


def _quiet_holders(planned: Plan, policy: PlanPolicy) -> dict[Split, int]:
    """Return the ends of the slowest splits, if they have had nothing to read for a while and others are ahead."""
    facts = PlanFacts(plan=planned, policy=policy)
    slowest, splits = facts.slowest, planned.state.splits
    if slowest.watermark != MIN and not slowest.lead:
        return {}
    quiet = {split: facts.quiet_of(split) or 0 for split in slowest.splits}
    return {split: splits[split].position for split, millis in quiet.items() if millis >= _LOOK_AGAIN}
