"""PURE. Learning from disorder: the bound on out-of-orderness that is in force, and what it is made of."""

from __future__ import annotations

from dataclasses import replace

from watermark_source.eventtime.disorder import Counts, exact
from watermark_source.eventtime.percentile import Learned
from watermark_source.planning.observation import Observation
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.state import SourceState


def learned_after(state: SourceState, observation: Observation, policy: PlanPolicy) -> Learned | None:
    """Return what is known of the source's disorder once the last ranges are; ``None`` if nobody learns from it."""
    if policy.percentile is None:
        return None
    counts: list[Counts] = []
    for split, at in state.splits.items():
        if at.observed != at.position:
            counts += exact(observation.seen[split].stretches, at.highest)
    if not counts and state.learned is not None:
        return state.learned
    return policy.percentile.after(state.learned, counts)


def in_force(policy: PlanPolicy, learned: Learned | None) -> PlanPolicy:
    """Return the policy with the bound that was learned."""
    if policy.percentile is None or learned is None:
        return policy
    return replace(policy, out_of_orderness=min(learned.bound, policy.percentile.most))
