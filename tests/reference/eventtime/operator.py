"""Operator with several inputs: their watermarks and statuses become its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.reference.eventtime.combine import CombinedWatermark, Member, raised, recompute_watermark
from tests.reference.eventtime.watermark import START, Emission, Status, Watermark


@dataclass(frozen=True, slots=True)
class Operator:
    """Inputs, by number, and what they combine to.

    An input that returns from idleness with an old watermark counts at once and stalls the others until it has caught
    up; the valve in front of one input does not do that.
    """

    inputs: tuple[Member, ...]
    combined: Watermark = START
    idle: bool = False


def operator(inputs: int) -> Operator:
    """Return a new operator."""
    return Operator((Member(),) * inputs)


def on_watermark(state: Operator, number: int, watermark: Watermark) -> tuple[Operator, tuple[Emission, ...]]:
    """Fold in an input's watermark. An idle input says ACTIVE before it sends one."""
    state, found = _recompute(state, number, Member(raised(state.inputs[number].watermark, watermark)))
    return state, (found.watermark,) if found.advanced else ()


def on_status(state: Operator, number: int, status: Status) -> tuple[Operator, tuple[Emission, ...]]:
    """Fold in an input's status: the watermark it sets free goes first, then the operator's own status on change."""
    was_idle = state.idle
    member = state.inputs[number]._replace(idle=status is Status.IDLE)
    state, found = _recompute(state, number, member)
    sent: list[Emission] = [found.watermark] if found.advanced else []
    if found.all_idle != was_idle:
        sent.append(Status.IDLE if found.all_idle else Status.ACTIVE)
    return state, tuple(sent)


def _recompute(state: Operator, number: int, member: Member) -> tuple[Operator, CombinedWatermark]:
    inputs = (*state.inputs[:number], member, *state.inputs[number + 1 :])
    found = recompute_watermark(inputs, state.combined)
    return replace(state, inputs=inputs, combined=found.watermark, idle=found.all_idle), found
