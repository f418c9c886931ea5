"""A query on several sources of one group, which Spark asks for the ends of each batch one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from tests.simulation.group import MemberDriver, Store
from tests.simulation.log import SimulatedLog
from watermark_source.planning.combined_watermark import reached_by
from watermark_source.planning.observation import Observation
from watermark_source.planning.one_query import QueryTurns, Turn
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState
from watermark_source.planning.watermark import Millis


class QuerySource(MemberDriver):
    """One source of a query: it sees what the others have reported in their turns."""

    def __init__(
        self, name: str, store: Store, log: SimulatedLog, policy: PlanPolicy, files: dict[str, Turn], **options: Any
    ) -> None:
        self.files, self.file = files, options.pop("file", name)
        self.starts: Mapping[Split, int] = options.get("starts", {})
        super().__init__(name, store, log, policy, **options)

    def restart(self, *, final: bool = False) -> None:
        super().restart(final=final)
        self.turns = QueryTurns(self.name)
        self.newest_mattered = False
        self.apart = frozenset()
        self.identified = False
        """Whether a task has reported the run of the query."""
        self.left_rows = False
        """Whether the last plan left rows, seen by it or not, of a source that had none before."""

    def observe(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Observation:
        seen, state = super().observe(one_batch=one_batch, unknown=unknown), self.state()
        others = self.turns.seen(seen.others, state.group.limit, Millis(self.now))
        seen = replace(seen, others=others, followed=reached_by(others))
        unread = sum(max(0, end - state.splits[s].position) for s, end in seen.logs.ends.items() if s in state.splits)
        is_long = self.max_rows is not None and unread > self.max_rows
        if is_long or self.newest_mattered or self.turns.promises_more:
            return seen
        return replace(seen, logs=replace(seen.logs, times=replace(seen.logs.times, newest={})))

    def dated(self, observation: Observation, state: SourceState) -> Observation:
        times = replace(observation.logs.times, newest=self._newest(observation.logs.ends.keys()))
        return replace(observation, logs=replace(observation.logs, times=times))

    def step(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Plan:
        others = sorted(self.files.keys() - {self.file}) if self.identified else []
        self.turns.begin(self.files[name] for name in others)
        planned = super().step(one_batch=one_batch, unknown=unknown)
        self.newest_mattered = planned.newest_matters
        drift = self.policy.alignment.max_drift
        turn = self.turns.end(planned, planned.member(), self.name, drift, planned.reach)
        if self.identified:
            self.files[self.file] = turn
            self.apart = self.turns.members
        splits = planned.state.splits
        self.left_rows = all(t.watermark is None for t in splits.values()) and any(
            t.position < self.log.splits[s].readable_end for s, t in splits.items()
        )
        return planned


class Query:
    """The sources, and the log of the batches that were planned."""

    def __init__(
        self,
        store: Store,
        logs: Sequence[SimulatedLog],
        policies: Sequence[PlanPolicy],
        options: Sequence[Mapping[str, Any]],
    ) -> None:
        """Start it. ``options``: of each source; ``file`` is the name of its file, by which the others sort it."""
        self.files: dict[str, Turn] = {}
        self.sources = [
            QuerySource(f"m{n}", store, log, policy, self.files, **of)
            for n, (log, policy, of) in enumerate(zip(logs, policies, options, strict=True))
        ]

    def identify(self) -> None:
        """Let each source know the query, as its tasks report."""
        for source in self.sources:
            source.identified = True

    def ask(
        self, unknown: Mapping[str, Set[Split]] = {}, *, killed_before: int | None = None, deaf: Set[str] = frozenset()
    ) -> list[Plan]:
        """Ask each source.

        ``killed_before``: the driver dies before it asks that one, and writes no batch. ``deaf``: the store has not
        answered these since they were asked last.
        """
        written = [(source.text, len(source.batches)) for source in self.sources]
        plans = []
        for n, source in enumerate(self.sources):
            if n == killed_before:
                for each, (text, batches) in zip(self.sources, written, strict=True):
                    each.text = text
                    del each.batches[batches:]
                self.kill()
                return []
            source.now += 1
            if source.name not in deaf:
                source.exchange()
            plans.append(source.step(unknown=unknown.get(source.name, frozenset())))
        return plans

    def kill(self) -> None:
        """End all processes; the next ones have the last offsets alone."""
        self.files.clear()
        for source in self.sources:
            source.restart()
