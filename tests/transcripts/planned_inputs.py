"""Drives ``plan()`` with what the reference's classes were driven with: splits that get watermarks and turn idle."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from watermark_source.planning.announced import (
    AnnouncedBy,
    AnnouncedTable,
    LoggedStatement,
    ObservedAnnouncements,
    advanced,
    with_statements,
)
from watermark_source.planning.announcement import Announcement
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.observation import Observation, ObservedLogs
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import Idleness, PlanPolicy
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.planning.strategy import Announced, Bounded
from watermark_source.planning.watermark import MAX, Millis

_NOW = Millis(1_000_000)
_TIMEOUT = 10


@dataclass
class Change:
    """What is to happen to a split at the next plan."""

    rows: list[int] = field(default_factory=list)
    """Event times."""
    status: SplitStatus | None = None


class PlannedInputs:
    """A source whose splits are the inputs. ``change`` is seen when it is planned, at the next call of ``settle``."""

    def __init__(self, inputs: Iterable[Hashable] = (), *, passes_returning: bool = False) -> None:
        self.policy = PlanPolicy(idleness=Idleness(timeout=_TIMEOUT, passes_returning=passes_returning))
        self.state = SourceState(splits={})
        self.splits: dict[Hashable, Split] = {}
        self.changes: dict[Split, Change] = {}
        for each in inputs:
            self.add(each)

    def add(self, name: Hashable) -> None:
        self.splits[name] = Split("inputs", len(self.splits))
        states = {**self.state.splits, self.splits[name]: SplitState(0, 0)}
        self.state = replace(self.state, splits=states)

    def change(self, name: Hashable) -> Change:
        return self.changes.setdefault(self.splits[name], Change())

    def settle(self) -> None:
        """Plan until nothing more comes of the changes: rows are read, then folded in, then who is quiet turns idle."""
        changes, self.changes = self.changes, {}
        ends = {s: t.position + len(changes[s].rows if s in changes else ()) for s, t in self.state.splits.items()}
        active = {s for s, c in changes.items() if c.status is SplitStatus.ACTIVE and not c.rows}
        quiet = {s for s, c in changes.items() if c.status is SplitStatus.IDLE}
        seen_rows = {s: RangeSummary(Millis(max(c.rows))) for s, c in changes.items() if c.rows}
        for last in (False, False, True):
            if last:
                # As if it had been quiet for so long already.
                states = {
                    s: replace(t, since=Millis(_NOW - _TIMEOUT - 1))
                    if s in quiet and t.status is SplitStatus.ACTIVE
                    else t
                    for s, t in self.state.splits.items()
                }
                self.state = replace(self.state, splits=states)
            seen = Observation(
                now=_NOW, logs=ObservedLogs(asked_at=_NOW, ends=ends, uncommitted=active), seen=seen_rows
            )
            self.state = plan(self.state, seen, self.policy, None).state

    @property
    def watermark(self) -> Millis | None:
        return self.state.watermark

    @property
    def is_idle(self) -> bool:
        return bool(self.state.splits) and all(t.status is SplitStatus.IDLE for t in self.state.splits.values())


class PlannedRecords:
    """One split whose records are read as they come, at each plan; the watermark goes out with the rows."""

    def __init__(self, bound: int, idle: int | None) -> None:
        self.policy = PlanPolicy(strategy=Bounded(bound), idleness=Idleness(timeout=idle))
        self.split = Split("records", 0)
        self.state = SourceState(splits={self.split: SplitState(0, 0)})
        self.end = 0
        self.rows: list[int] = []
        self.highest: Millis | None = None

    def plan(self, now: int) -> None:
        self.end += len(self.rows)
        seen = Observation(
            now=Millis(now),
            logs=ObservedLogs(asked_at=Millis(now), ends={self.split: self.end}),
            seen={self.split: RangeSummary(self.highest)},
        )
        self.highest = Millis(max(self.rows)) if self.rows else None
        self.state = plan(self.state, seen, self.policy, None, lookups=self).state
        self.rows = []

    def dated(self, observation: Observation, state: SourceState) -> Observation:
        return observation

    def uncommitted(self, observation: Observation, planned: SourceState, state: SourceState) -> Observation | None:
        return None

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        return {} if self.highest is None else {self.split: self.highest}


def row_of(watermark: int) -> int:
    """Return the event time whose watermark this is; no row can say the end of time."""
    return min(watermark + 1, MAX)


class PlannedWriters:
    """A topic whose watermark is announced by writers, planned after each announcement."""

    def __init__(self, writers: int) -> None:
        names = [f"w{number}" for number in range(writers)]
        self.by = AnnouncedBy(frozenset(names))
        self.policy = PlanPolicy(strategy=Announced(self.by), watermark_interval=1)
        split = Split("topic", 0)
        self.state = SourceState(splits={split: SplitState(0, 0)})
        self.table = AnnouncedTable()
        self.batch = 0
        self.ends = {split: 0}

    def announce(self, writer: int, watermark: Millis | None, *, idle: bool) -> None:
        name, self.batch = f"w{writer}", self.batch + 1
        statement = Announcement(
            writer=name, query=name, batch=self.batch, watermark=watermark, idle=idle, topic="T", ends={"0": 0}
        )
        self.table, _ = with_statements(self.table, [LoggedStatement(self.batch, None, statement)], "T")
        announced = ObservedAnnouncements(
            table=self.table, by=self.by, log="L", next_position=self.batch + 1, is_current=True
        )
        seen = Observation(
            now=_NOW,
            logs=ObservedLogs(asked_at=_NOW, ends=self.ends),
            announced=announced,
        )
        self.state = plan(self.state, seen, self.policy, None).state
        self.table = advanced(self.table, {"0": 0}, None)
