"""The batch planner: the planner with what it needs of a connector and of options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from watermark_source.planning.combined_watermark import when_read, with_batch_watermark
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan, knows_new_splits, plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.spark.connector.stream import Connector
from watermark_source.spark.driver.look_ahead import ReadingAhead
from watermark_source.spark.driver.observer import Observer


class Decision(NamedTuple):
    """A plan, and what it was made of."""

    observation: Observation
    plan: Plan
    splits: Mapping[Split, SplitState]
    """What the splits will be when the batch is read, as far as that can be known before."""


class BatchPlanner:
    """Makes plans; keeps nothing between them."""

    def __init__(
        self, connector: Connector, policy: PlanPolicy, observer: Observer, ahead: ReadingAhead | None
    ) -> None:
        self._connector = connector
        self._policy = policy
        self._observer = observer
        self._ahead = ahead

    def decide(self, state: SourceState, observation: Observation, *, announce: bool) -> Decision:
        """Return the plan that begins in a state. ``announce``: it is the first of this process.

        What matters to few plans is asked only when one shows that it does, and the plan is made again with it.
        """
        planned = self._plan(state, observation, announce=announce)
        if planned.newest_matters and not observation.logs.times.newest:
            observation = self._observer.dated(observation, state)
            planned = self._plan(state, observation, announce=announce)
        decided = self._with_batch_watermark(planned, state, observation)
        opened = self._observer.uncommitted(observation, decided.plan.state, state)
        if opened is None:
            return decided
        return self._with_batch_watermark(self._plan(state, opened, announce=announce), state, opened)

    def _plan(self, state: SourceState, observation: Observation, *, announce: bool) -> Plan:
        index, rows = self._connector.time_index, self._connector.row_index
        return plan(state, observation, self._policy, index, rows=rows, ahead=self._ahead, announce=announce)

    def _with_batch_watermark(self, planned: Plan, before: SourceState, observation: Observation) -> Decision:
        """Let a batch carry the watermark of its own rows."""
        splits = planned.counting
        knows_new = knows_new_splits(before, observation.logs)
        if planned.has_rows and knows_new and (reached := self._observer.reached(planned.state)):
            splits = when_read(planned.state, reached, self._policy.strategy)
            planned = replace(planned, state=with_batch_watermark(planned.state, before, splits, self._policy.idleness))
        return Decision(observation, planned, splits)
