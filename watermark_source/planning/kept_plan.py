"""A plan that found nothing to do, kept: while only time passes, it is the next plan, too. Pure.

A source with thousands of splits would otherwise plan them all again at each look, to find the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from watermark_source.planning.combined_watermark import last_was_sent
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.watermark import MAX, Millis


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan that led from a state to the same state, except for its ``future_cap``."""

    plan: Plan
    policy: PlanPolicy
    until: Millis
    """The last ``ObservedLogs.asked_at`` for which it holds: after it a split has been quiet long enough to be idle."""

    @property
    def ends(self) -> Mapping[Split, int]:
        """Where the logs ended: up to there all is read."""
        return self.plan.observation.logs.ends

    @classmethod
    def of(cls, planned: Plan, before: SourceState, policy: PlanPolicy) -> KeptPlan | None:
        """Return a plan to keep; ``None`` for one after which an equal observation may have another plan.

        That is one that found something to do, or rows that it leaves; and one whose watermark follows what moves by
        itself: a clock, look-ups of splits, announcements or the group. Nor is that of a stream that has ended.
        """
        state, observed = planned.state, planned.observation
        logs, follows_clock = observed.logs, policy.strategy.is_clock or policy.after_catch_up is not None
        follows_others = observed.announced is not None or observed.followed is not None
        is_settled = logs.all_found and logs.all_found_now and not logs.times.reached
        if planned.is_batch or last_was_sent(state) or follows_clock or follows_others or not is_settled:
            return None
        if replace(state, future_cap=before.future_cap) != before:
            return None
        if logs.ends != {split: at.position for split, at in state.splits.items()}:
            return None
        timeouts, idleness = observed.history.idle_timeouts, policy.idleness
        idle_after = (
            at.since + timeout
            for split, at in state.splits.items()
            if at.status is SplitStatus.ACTIVE and at.since is not None
            if (timeout := idleness.timeout_of(split, timeouts)) is not None
        )
        return cls(planned, policy, Millis(min(idle_after, default=MAX)))

    def again(self, state: SourceState, observed: Observation) -> KeptPlan | None:
        """Return it with the times of an observation; ``None`` if that, or the state, is another one."""
        known = self.plan.observation
        if state is not self.plan.state or observed.logs.asked_at > self.until:
            return None
        as_of_then = replace(
            observed,
            now=known.now,
            logs=replace(observed.logs, asked_at=known.logs.asked_at),
            # No plan depends on what the status states of them.
            others=replace(observed.others, peers=known.others.peers),
            history=replace(known.history, idle_timeouts=observed.history.idle_timeouts),
        )
        if as_of_then != known:
            return None
        cap = self.policy.future_cap(observed.now)
        after = state if cap == state.future_cap else replace(state, future_cap=cap)
        return replace(self, plan=replace(self.plan, state=after, observation=observed))
