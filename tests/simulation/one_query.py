"""A query on several sources of one group, which Spark asks for the ends of each batch one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from tests.simulation.group import MemberDriver, Store
from tests.simulation.log import SimulatedLog
from watermark_source.planning.observation import Observation
from watermark_source.planning.one_query import Outside, Shortfall, Turn, shortfall_of, within_query
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis


class QuerySource(MemberDriver):
    """One source of a query: it sees what the others have told in their turns."""

    def __init__(
        self, name: str, store: Store, log: SimulatedLog, policy: PlanPolicy, turns: dict[str, Turn], **options: Any
    ) -> None:
        self.turns = turns
        super().__init__(name, store, log, policy, **options)

    def restart(self, *, final: bool = False) -> None:
        super().restart(final=final)
        self.number = 0
        self.promised: Millis | None = None
        self.apart = frozenset()
        self.identified = False
        """Whether a task has told the run of the query."""
        self.outside: Outside | None = None
        self.shortfall: Shortfall | None = None

    def observe(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Observation:
        seen = super().observe(one_batch=one_batch, unknown=unknown)
        others = within_query(seen.others, self.the_others, self.number, self.state().group.limit)
        self.outside = Outside.of(self.known) if others.ceiling is None and others.apart else None
        return replace(seen, others=others)

    @property
    def the_others(self) -> list[Turn]:
        return [] if not self.identified else [turn for name, turn in self.turns.items() if name != self.name]

    def step(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Plan:
        self.number += 1
        planned = super().step(one_batch=one_batch, unknown=unknown)
        drift = self.policy.alignment.max_drift
        self.shortfall = shortfall_of(planned.member, self.promised, self.number, self.the_others, drift)
        if not self.identified:
            return planned
        told = frozenset(turn.member for turn in self.the_others)
        self.promised = planned.reach if told and told <= planned.observation.others.apart else None
        self.turns[self.name] = Turn(
            self.name, self.name, self.number, planned.member, self.promised, planned.lead, self.outside
        )
        self.apart = told
        return planned


class Query:
    """The sources, and the log of the batches that were planned."""

    def __init__(self, store: Store, logs: Sequence[SimulatedLog], policies: Sequence[PlanPolicy], **of: Any) -> None:
        self.turns: dict[str, Turn] = {}
        options = of.pop("max_rows", (None,) * len(logs))
        self.sources = [
            QuerySource(f"m{n}", store, log, policy, self.turns, max_rows=most, **of)
            for n, (log, policy, most) in enumerate(zip(logs, policies, options, strict=True))
        ]

    def identify(self) -> None:
        """Let each source know the query, as its tasks tell."""
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
        self.turns.clear()
        for source in self.sources:
            source.restart()
