"""A group of simulated sources that meet as real ones do: each reports after its plan, and may know what is old."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

from tests.simulation.driver import Driver
from tests.simulation.log import SimulatedLog
from watermark_source.planning.combined_watermark import reached_by
from watermark_source.planning.group import (
    NO_OTHERS,
    GroupMember,
    MemberStatus,
    OtherMember,
    OtherMembers,
    counts_with,
    incomplete,
)
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split


class Store:
    """The last report of each member."""

    def __init__(self) -> None:
        self.reports: dict[str, GroupMember] = {}

    def others(self, of: str, apart: Set[str] = frozenset()) -> OtherMembers:
        counting = {
            n: w for n, m in self.reports.items() if n != of and n not in apart and (w := counts_with(m)) is not None
        }
        idle = {m.watermark for n, m in self.reports.items() if n != of and m.status is MemberStatus.IDLE} - {None}
        highest = max((w for w in idle if w is not None), default=None)
        if not counting:
            return OtherMembers(members=len(self.reports) - (of in self.reports), idle=highest, apart=apart)
        slowest = min(counting, key=lambda name: (counting[name], name))
        return OtherMembers(
            counting[slowest], OtherMember(slowest), len(self.reports) - (of in self.reports), idle=highest, apart=apart
        )


class MemberDriver(Driver):
    """A query on one source of a group."""

    def __init__(self, name: str, store: Store, log: SimulatedLog, policy: PlanPolicy, **options: Any) -> None:
        self.name, self.store = name, store
        self.known = NO_OTHERS
        self.reachable = True
        self.apart: frozenset[str] = frozenset()
        """Sources of the same query, once that is known."""
        super().__init__(log, policy, **options)

    def restart(self, *, final: bool = False) -> None:
        super().restart(final=final)
        self.known, self.introduced, self.settled = NO_OTHERS, False, False
        self.heard: frozenset[str] = frozenset()

    def leave(self) -> None:
        """Have been silent for the time-to-live."""
        self.store.reports.pop(self.name, None)

    def exchange(self) -> None:
        """Read the reports of the others."""
        if self.reachable:
            self.known = self.store.others(self.name, self.apart)
            self.heard = frozenset(self.store.reports)
            # Members that started together have reported by now.
            self.settled = self.introduced

    def observe(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Observation:
        seen = super().observe(one_batch=one_batch, unknown=unknown)
        limit = self.state().group.limit
        if not self.reachable:
            others = incomplete(self.known, limit)
        else:
            others = self.known if self.settled else incomplete(self.known, limit, awaited=True)
        return replace(seen, others=others, followed=reached_by(others))

    def step(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Plan:
        planned = super().step(one_batch=one_batch, unknown=unknown)
        self.introduced = True
        if self.reachable:
            self.store.reports[self.name] = planned.member()
        return planned
