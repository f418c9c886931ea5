"""Multiplexer: the watermarks of one source's splits become one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Generic, TypeVar

from tests.reference.eventtime.combine import Member, raised, recompute_watermark
from tests.reference.eventtime.watermark import START, Emission, Status, Watermark
from watermark_source.errors import InternalError

K = TypeVar("K", bound=Hashable)

_NOTHING: tuple[Emission, ...] = ()


class Mode(Enum):
    """When an update of a split counts."""

    IMMEDIATE = "immediate"
    DEFERRED = "deferred"
    """At the next ``tick``, after all splits' probes."""


@dataclass(frozen=True, slots=True)
class Multiplexer(Generic[K]):
    """All registered splits and what they combine to.

    Register all splits before any of their records is emitted: a split that joins late cannot take back a watermark.
    """

    members: Mapping[K, Member] = field(default_factory=dict)
    combined: Watermark = START
    idle: bool = False


def register(state: Multiplexer[K], split: K) -> tuple[Multiplexer[K], tuple[Emission, ...]]:
    """Add a split: active, and without a watermark, so it holds the others until it has one.

    It says ACTIVE, because its first records may be at or before a watermark sent while idle (FLINK-22926).
    """
    if split in state.members:
        raise InternalError(f"split {split} is registered already; unregister it first")
    return replace(state, members={**state.members, split: Member()}, idle=False), (Status.ACTIVE,)


def unregister(state: Multiplexer[K], split: K) -> tuple[Multiplexer[K], bool, tuple[Emission, ...]]:
    """Remove a split; also returns whether it was there.

    What it deferred counts first, so that a short split's watermark is not lost. What its absence allows comes with
    the next recompute.
    """
    if split not in state.members:
        return state, False, _NOTHING
    state, sent = tick(state)
    return replace(state, members={k: m for k, m in state.members.items() if k != split}), True, sent


def update(
    state: Multiplexer[K], split: K, watermark: Watermark, mode: Mode = Mode.IMMEDIATE
) -> tuple[Multiplexer[K], tuple[Emission, ...]]:
    """Fold in a split's candidate watermark; even one that does not advance makes the split active."""
    old = _member(state, split)
    member = Member(raised(old.watermark, watermark))
    state = _with(state, split, member)
    ahead = raised(state.combined, watermark) is not state.combined
    if mode is Mode.DEFERRED or not (state.idle or (ahead and member.watermark is not old.watermark)):
        return state, _NOTHING
    return tick(state)


def set_status(
    state: Multiplexer[K], split: K, status: Status, mode: Mode = Mode.IMMEDIATE
) -> tuple[Multiplexer[K], tuple[Emission, ...]]:
    """Make a split idle or active."""
    state = _with(state, split, _member(state, split)._replace(idle=status is Status.IDLE))
    return (state, _NOTHING) if mode is Mode.DEFERRED else tick(state)


def tick(state: Multiplexer[K]) -> tuple[Multiplexer[K], tuple[Emission, ...]]:
    """Recompute: ACTIVE if no longer all idle, then the watermark if it advanced, then IDLE if all are idle."""
    found = recompute_watermark(state.members.values(), state.combined)
    sent: list[Emission] = []
    if state.idle and not found.all_idle:
        sent.append(Status.ACTIVE)
    if found.advanced:
        sent.append(found.watermark)
    if found.all_idle:
        sent.append(Status.IDLE)
    return replace(state, combined=found.watermark, idle=found.all_idle), tuple(sent)


def _member(state: Multiplexer[K], split: K) -> Member:
    try:
        return state.members[split]
    except KeyError:
        raise InternalError(f"split {split} is not registered; register it before its first record") from None


def _with(state: Multiplexer[K], split: K, member: Member) -> Multiplexer[K]:
    return replace(state, members={**state.members, split: member})
