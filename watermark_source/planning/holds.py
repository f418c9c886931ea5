"""What holds the combined watermark of a source: who, why, and for how long. Pure.

``holds`` answers it from the members that ``combined`` counts. The status has the answer as codes; log, terminal, page,
``why_open`` and history show it in the words of ``status_model/hold_texts.py``, and none of them decides it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple

from watermark_source.planning.announced import (
    ObservedAnnouncements,
    WriterAt,
    announced_at,
    holding_writers,
    writers_at,
)
from watermark_source.planning.catch_up import reads_first
from watermark_source.planning.combined_watermark import positions_of
from watermark_source.planning.group import FIRST, OtherMember, drift_in_force
from watermark_source.planning.hold_kinds import (
    AlignmentWait,
    Behind,
    HoldKind,
    SplitFacts,
    split_kind,
    writer_kind,
)
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.range_report import NO_ROWS, RowTotals
from watermark_source.planning.snapshot_ranges import snapshot_split, unfinished
from watermark_source.planning.split import Split
from watermark_source.planning.split_watermarks import left_out, waited_for
from watermark_source.planning.state import SourceState, SplitState, SplitStatus, is_left_out
from watermark_source.planning.strategy import WatermarkStrategy
from watermark_source.planning.watermark import MAX, MIN, Millis, is_moment, saturating_add

NOTABLE: Final = 10_000
"""Milliseconds by which others must be ahead of the slowest member before it holds them: by less they take turns."""
NAMED: Final = 3
"""How many of many that hold are named."""
THE_ANNOUNCEMENTS: Final = "the announcements"
"""What holds a watermark that no writer has announced, or whose announcements cannot be read."""


class HeldBy(Enum):
    """Who holds a watermark. The value is its word in reports."""

    SPLIT = "split"
    WRITER = "writer"
    """One that announces watermarks."""
    SOURCE = "source"
    """Another source of the alignment group."""
    READING = "reading"
    """What is read first: snapshots, or the logs up to the ends that they had at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A member that the combined watermark waits for, or could wait for. Durations are milliseconds."""

    name: str
    kind: HoldKind
    """Why it is not further."""
    by: HeldBy = HeldBy.SPLIT
    split: Split | None = field(default=None, compare=False)
    """The split, or of an alignment group the one that waits; ``None`` in a report."""
    watermark: int | None = None
    lag: int | None = None
    """Unread rows; ``None`` if their number is unknown."""
    quiet: int | None = None
    """How long it had had nothing to read, or to announce, at the plan; ``None`` if it has rows, or that is unknown."""
    timeout: int | None = None
    """How long it must be quiet to be left out; ``None``: it never is."""
    is_last: bool = False
    """Whether no other member is ahead: without it the watermark would be the same."""
    newest: int | None = None
    """Highest event time of its rows, where the watermark follows it."""
    began_behind: bool = False
    """Whether it began behind rows that were there before, and none has come since."""
    takes_turns: bool = False
    """Whether the others are ahead by less than ``NOTABLE``: the slowest is named, and does not hold the watermark."""
    follows_group: bool = False
    """Whether all members are left out, and other sources of the group could lead the watermark (``idleFollows``)."""
    why: str = ""
    """``kind`` as a sentence, in a report."""


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """A plan, and what a process knows beside it of its splits."""

    plan: Plan
    policy: PlanPolicy
    """As it is in force: see ``PlanPolicy.on_clock``."""
    rows: Mapping[Split, RowTotals] = field(default_factory=dict)
    """Rows that this run has read."""
    open_transactions: Set[Split] = frozenset()
    """Splits whose next rows are in an open transaction."""
    idled: Set[Split] = frozenset()
    """Splits that are idle, or were and have not caught up with the watermark since."""

    @property
    def state(self) -> SourceState:
        """The source as the plan leaves it."""
        return self.plan.state

    @cached_property
    def growing(self) -> Set[Split]:
        """Splits of snapshots with more chunks than are known yet."""
        return frozenset(map(snapshot_split, unfinished(self.state.snapshots)))

    @cached_property
    def slowest(self) -> Slowest:
        """The members that the others wait for."""
        table = self.plan.watermarks.counted
        members = waited_for(self.state, table, self.policy.idleness)
        # If all others are idle, the watermark waits for those that have come back, too.
        members = members or left_out(self.state, table, self.policy.idleness)
        marks = {split: MIN if (mark := table[split].watermark) is None else mark for split in members}
        lowest = min(marks.values(), default=MIN)
        near = MIN if lowest == MIN else saturating_add(lowest, NOTABLE)
        splits = [split for split, mark in marks.items() if mark <= near]
        return Slowest(splits, lowest, min((mark for mark in marks.values() if mark > near), default=None))

    def lag_of(self, split: Split) -> int | None:
        """Return the unread positions of a split; ``None`` if its log did not answer."""
        end = self.plan.observation.logs.ends.get(split)
        return None if end is None else max(0, end - self.state.splits[split].position) + (split in self.growing)

    def quiet_of(self, split: Split) -> int | None:
        """Return how long a split had had nothing to read when its end was requested."""
        at, asked_at = self.plan.watermarks.states[split], self.plan.observation.logs.asked_at
        # What has come since, for example during a batch, is not known.
        if self.lag_of(split) != 0 or at.position != at.observed or at.since is None:
            return None
        # An idle split has been idle since then, and was quiet for the timeout before. A clock may have been set back.
        before = self.timeout_of(split) or 0 if at.status is SplitStatus.IDLE else 0
        return max(0, asked_at - at.since) + before

    def timeout_of(self, split: Split) -> int | None:
        """Return how long a split must be quiet to be idle."""
        return self.policy.idleness.timeout_of(split, self.plan.observation.history.idle_timeouts)


# Who holds.


class Slowest(NamedTuple):
    """The members with the lowest watermark, and those that are at most ``NOTABLE`` ahead of it."""

    splits: Sequence[Split]
    watermark: Millis
    """The lowest; ``MIN`` if they have none."""
    next: Millis | None
    """The lowest watermark of the others that the combined watermark waits for; ``None`` without others."""

    @property
    def lead(self) -> int:
        """Milliseconds by which the others are ahead."""
        return 0 if self.next is None else self.next - self.watermark


class Holding(NamedTuple):
    """What holds the combined watermark of a plan."""

    first: tuple[Hold, ...] = ()
    """At most ``NAMED``: what no rows that are being read end comes first."""
    splits: Set[Split] = frozenset()
    """All splits that hold it."""
    more: int = 0
    """How many hold it beside the first."""


_EXAMINED = 100
"""Of more members with the lowest watermark, so many are looked at for why they are there."""


def holds(of: PlanFacts) -> Holding:  # noqa: PLR0911  one line a case
    """Return what holds the combined watermark of a plan.

    Nothing does where event time is a clock; nor where all splits are less than ``NOTABLE`` apart and their logs
    answer: then the first is the only one, and ``takes_turns``. A source that waits for another one of its alignment
    group is held by that one.
    """
    state, observed = of.state, of.plan.observation.announced
    if state.use_processing_time or state.watermark == MAX:
        return Holding()
    if first := tuple(_read_first(of)):
        return Holding(first)
    if observed is not None:
        found = _of_writers(observed, of)
        return Holding(found[:NAMED], more=max(0, len(found) - NAMED))
    if not of.policy.strategy.has_split_watermarks:
        return Holding()
    slowest = of.slowest
    if not slowest.splits:
        return Holding(tuple(islice(_all_left_out(of), NAMED)))
    by_lag = nsmallest(_EXAMINED, slowest.splits, key=lambda split: (of.lag_of(split) != 0, split))
    examined = [split_hold(split, of, split_facts(split, of), is_last=slowest.lead == 0) for split in by_lag]
    held = selected(examined, slowest.lead, elsewhere=_elsewhere(of, min(slowest.splits)))
    if held[0].takes_turns or held[0].by is HeldBy.SOURCE:
        return Holding(held)
    every = len(held) == len(examined)
    splits = frozenset(slowest.splits if every else (hold.split for hold in held if hold.split is not None))
    return Holding(held[:NAMED], splits, max(0, len(splits) - NAMED))


def selected(slowest: Sequence[Hold], lead: int, elsewhere: Hold | None = None) -> tuple[Hold, ...]:
    """Return which of the slowest members hold the watermark; if none does, the first one, which ``takes_turns``.

    Args:
        slowest: the first of ``Slowest.splits``, at least one.
        lead: milliseconds by which the others are ahead of the lowest watermark.
        elsewhere: the source of the alignment group that they wait for, if they do.
    """
    if elsewhere is not None and all(each.kind is HoldKind.PAUSED for each in slowest):
        return (elsewhere,)
    held = [h for h in slowest if h.watermark is None or lead > NOTABLE or h.kind.holds_alone]
    if not held:
        return (replace(slowest[0], takes_turns=True),)
    return tuple(sorted(held, key=lambda h: not h.kind.is_at_rest))


def without_holder(of: PlanFacts) -> Millis | None:
    """Return the watermark that a source would have without the splits that hold it; ``None``: the same, or unknown."""
    state = of.state
    if state.use_processing_time or not of.policy.strategy.has_split_watermarks or any(_read_first(of)):
        return None
    follows = of.slowest.next
    return follows if follows is not None and follows > max(MIN, state.watermark or MIN) else None


def _read_first(of: PlanFacts) -> Iterator[Hold]:
    state = of.state
    if reads_first(of.policy.after_catch_up, state.catch_up):
        yield Hold(by=HeldBy.READING, name="the first reading", kind=HoldKind.BACKLOG, lag=left_to_read(state))
    elif state.watermark is None and (tables := sorted(unfinished(state.snapshots))):
        names = ", ".join(tables[:NAMED]) + (", …" if len(tables) > NAMED else "")
        yield Hold(by=HeldBy.READING, name=f"the snapshot of {names}", kind=HoldKind.SNAPSHOT)


def left_to_read(state: SourceState) -> int:
    """Return how many positions are left up to the ends that the logs had at the start."""
    ends = {} if state.catch_up is None else state.catch_up.ends
    return sum(max(0, end - state.splits[s].position) for s, end in ends.items() if s in state.splits)


def _elsewhere(of: PlanFacts, split: Split) -> Hold | None:
    """Return the other source that a split, and so all, wait for; ``None`` if there is none."""
    limit = of.plan.limit
    if limit is None or not isinstance(limit.slowest, OtherMember):
        return None
    wait = alignment_wait(split, of)
    mark = None if wait is None or wait.max_drift is None else limit.watermark - wait.max_drift
    if mark is None and of.plan.observation.history.asked_before is None:
        # All sources that begin together read their first rows now: the next plan shows whether one is missing.
        return None
    return Hold(by=HeldBy.SOURCE, name=str(limit.slowest), kind=HoldKind.PAUSED, split=split, watermark=mark)


def _all_left_out(of: PlanFacts) -> Iterator[Hold]:
    """Yield the splits of a source that are all idle, if no watermark came of them or the group is further by now."""
    minimum, sent = of.plan.observation.others.planned, of.state.watermark
    is_behind = minimum is not None and sent is not None and is_moment(minimum) and minimum > sent + NOTABLE
    if sent is None or is_behind:
        for split in sorted(of.plan.watermarks.counted):
            yield split_hold(split, of, split_facts(split, of), is_last=True)


# The facts about a split.


def split_hold(split: Split, of: PlanFacts, about: SplitFacts, *, is_last: bool = False) -> Hold:
    """Return why a split is not further; ``about``: the facts about it."""
    at, kind, strategy, others = about.at, split_kind(about), of.policy.strategy, of.plan.observation.others
    all_idle = kind is HoldKind.LEFT_OUT and at.status is SplitStatus.IDLE
    return Hold(
        name=str(split),
        split=split,
        kind=kind,
        watermark=at.watermark,
        lag=about.lag if of.policy.on_loss.positions_are_rows or not about.lag else None,
        quiet=about.quiet,
        timeout=of.timeout_of(split),
        is_last=is_last,
        newest=_newest(at, strategy),
        began_behind=_began_behind(kind, of.state, about),
        follows_group=all_idle and others.members > 0 and not of.policy.idleness.follows_group,
    )


def _began_behind(kind: HoldKind, state: SourceState, about: SplitFacts) -> bool:
    is_new = not about.resumed and state.snapshots.complete is None
    return kind is HoldKind.NEVER and about.at.position > 0 and is_new


def _newest(at: SplitState, strategy: WatermarkStrategy) -> int | None:
    bound = strategy.behind_newest
    if at.highest is not None or bound is None or at.watermark is None:
        return at.highest
    return saturating_add(at.watermark, bound + 1)


def split_facts(split: Split, of: PlanFacts, *, holds: bool = False) -> SplitFacts:
    """Return the facts about a split; ``holds``: whether it holds the watermark."""
    at, lag, unread = of.plan.watermarks.states[split], of.lag_of(split), of.plan.watermarks.unread.get(split)
    return SplitFacts(
        at=at,
        lag=lag,
        rows=of.rows.get(split, NO_ROWS),
        strategy=of.policy.strategy,
        quiet=of.quiet_of(split),
        is_left_out=is_left_out(at, of.state, of.policy.idleness),
        has_open_transaction=split in of.open_transactions,
        is_final=of.plan.observation.logs.ends_are_final and lag == 0,
        holds=holds,
        wait=alignment_wait(split, of),
        behind=_behind(split, at, of),
        hidden_ahead=unread is not None and not unread.is_readable,
        waits_for_budget=lag != 0 and at.position == at.observed,
        waits_for_more=of.plan.waits_for_more,
        resumed=of.state.run > 1 and at.position > 0,
    )


def alignment_wait(split: Split, of: PlanFacts) -> AlignmentWait | None:
    """Return what a paused split waits for; ``None`` if it is not paused, or waits for itself."""
    at, limit, others = of.plan.watermarks.states[split], of.plan.limit, of.plan.observation.others
    own = of.policy.alignment.max_drift
    drift = drift_in_force(own, others)
    if at.status is not SplitStatus.PAUSED or limit is None or limit.slowest == split:
        return None
    if drift is None or holds_all_beginnings(limit.watermark, drift):
        return AlignmentWait(slowest=str(limit.slowest), max_drift=None)
    ahead = None if at.watermark is None else at.watermark - (limit.watermark - drift)
    return AlignmentWait(str(limit.slowest), drift, ahead, None if drift == own else others.drift_of)


def holds_all_beginnings(limit: Millis | None, drift: int | None) -> bool:
    """Return whether a limit is no time: nothing is read, but what shows when the first rows are from."""
    return limit is not None and limit <= saturating_add(FIRST, drift or 0)


def _behind(split: Split, at: SplitState, of: PlanFacts) -> Behind | None:
    sent = of.state.watermark
    # What looks ahead shows how far a split may lead, not how far it has come.
    by_rows = of.policy.strategy.has_split_watermarks and of.policy.strategy.rows_ahead is None
    if not by_rows or not is_behind(at, sent) or sent is None or at.watermark is None:
        return None
    return Behind(sent - at.watermark, split in of.idled)


def is_behind(state: SplitState, sent: Millis | None) -> bool:
    """Return whether an active split is behind the combined watermark, so that its rows up to there are late."""
    if sent is None or state.watermark is None or state.status is not SplitStatus.ACTIVE:
        return False
    return MIN < sent < MAX and state.watermark < sent


# Where writers announce the watermark.


def writers_of(of: PlanFacts) -> tuple[WriterAt, ...]:
    """Return the writers whose announcements a plan follows, by name."""
    observed = of.plan.observation.announced
    return () if observed is None else writers_at(observed, positions_of(of.state.splits), of.state.future_cap)


def _of_writers(observed: ObservedAnnouncements, of: PlanFacts) -> tuple[Hold, ...]:
    writers = writers_of(of)
    if not observed.is_current:
        return (Hold(by=HeldBy.WRITER, name=THE_ANNOUNCEMENTS, kind=HoldKind.NO_ANSWER),)
    if not writers:
        return (Hold(by=HeldBy.WRITER, name=THE_ANNOUNCEMENTS, kind=HoldKind.NEVER),)
    found = tuple(writer_hold(writer, observed) for writer in holding_writers(writers, NOTABLE))
    # Rows before the next announcement are read, unless the alignment group lets none be.
    paused = [] if of.plan.has_rows else [s for s, t in of.state.splits.items() if t.status is SplitStatus.PAUSED]
    elsewhere = _elsewhere(of, min(paused)) if paused and all(h.kind is HoldKind.BACKLOG for h in found) else None
    return found if elsewhere is None else (elsewhere,)


def writer_hold(of: WriterAt, observed: ObservedAnnouncements) -> Hold:
    """Return why a writer holds the watermark where it is."""
    mark, silent = announced_at(of), observed.silent.get(of.writer.name, 0)
    return Hold(
        by=HeldBy.WRITER,
        name=of.writer.name,
        kind=writer_kind(of, silent),
        watermark=None if mark == MAX else mark,
        lag=None if of.next is None else of.rows_before_next,
        quiet=silent,
        timeout=observed.by.time_to_live,
    )
