"""The batch planner: the planner with what it needs of a connector and of options, and what is logged of a plan."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from watermark_source.errors import listed
from watermark_source.eventtime.watermark import MAX, MIN
from watermark_source.planning.combined_watermark import when_read, with_batch_watermark
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan, knows_new_splits, plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.spark.connector.stream import Connector
from watermark_source.spark.driver.look_ahead import ReadingAhead
from watermark_source.spark.driver.observer import Observer
from watermark_source.watermark_text import watermark_text

_log = logging.getLogger(__name__)

_FAR_FUTURE = 3_600_000
"""Milliseconds after which a watermark of the future is told, where nothing keeps it from there."""


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

    def warn(self, planned: Plan, before: SourceState, observation: Observation) -> None:
        """Tell in the log what of a plan may not be what the user wants."""
        added = planned.state.splits.keys() - before.splits.keys()
        if added and before.watermark is not None and not self._policy.strategy.use_processing_time:
            _log.warning(
                "%s: found while the query runs, and read from the beginning. Rows there with event times up to the "
                "watermark, %s, are late", listed(added), watermark_text(before.watermark),
            )  # fmt: skip
        watermark, soon = planned.state.watermark, observation.now + _FAR_FUTURE
        is_final = watermark == MAX
        if (
            self._policy.strategy.max_future_skew is None
            and not is_final
            and (before.watermark or MIN) <= soon < (watermark or MIN)
        ):
            _log.warning(
                "the watermark, %s, is more than an hour in the future: rows of now are late. A clock may be wrong; "
                "with maxFutureSkew (1 hour, say) such a row would be counted and move no watermark",
                watermark_text(watermark),
            )  # fmt: skip
        for loss in planned.losses:
            _log.warning("failOnDataLoss is false, going on: %s", loss.text)
