"""Pausing of splits: which of them the group's limit stops and lets go again (FLIP-217)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Generic, TypeVar

from tests.reference.alignment.sampling import Samples, add, sample, samples
from tests.reference.eventtime.accounting import Activity
from watermark_source.errors import InternalError, UsageError
from watermark_source.eventtime.watermark import MAX, Millis

K = TypeVar("K", bound=Hashable)


class SplitEvent(Enum):
    """What can happen to a split that is being read."""

    AHEAD = "ahead of the limit"
    WITHIN = "within the limit"
    QUIET = "idle timer fired"
    RECORD = "gave a watermark, or was marked active"


TRANSITIONS: dict[tuple[Activity, SplitEvent], Activity] = {
    (Activity.ACTIVE, SplitEvent.AHEAD): Activity.PAUSED,
    (Activity.ACTIVE, SplitEvent.WITHIN): Activity.ACTIVE,
    (Activity.ACTIVE, SplitEvent.QUIET): Activity.IDLE,
    (Activity.ACTIVE, SplitEvent.RECORD): Activity.ACTIVE,
    # Being held up is not being idle, however long it takes (FLINK-35886).
    (Activity.PAUSED, SplitEvent.AHEAD): Activity.PAUSED,
    (Activity.PAUSED, SplitEvent.WITHIN): Activity.ACTIVE,
    (Activity.PAUSED, SplitEvent.QUIET): Activity.PAUSED,
    (Activity.PAUSED, SplitEvent.RECORD): Activity.PAUSED,
    # Pausing an idle split waits until it is active (FLINK-39073).
    (Activity.IDLE, SplitEvent.AHEAD): Activity.IDLE,
    (Activity.IDLE, SplitEvent.WITHIN): Activity.IDLE,
    (Activity.IDLE, SplitEvent.QUIET): Activity.IDLE,
    (Activity.IDLE, SplitEvent.RECORD): Activity.ACTIVE,
}


@dataclass(frozen=True, slots=True)
class PauseRequest(Generic[K]):
    """One request to the reader: resume is applied before pause, so an id in both ends paused."""

    pause: frozenset[K] = frozenset()
    resume: frozenset[K] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.pause or self.resume)


@dataclass(frozen=True, slots=True)
class PausableSplit:
    """One split being read: its state and its sampled watermark."""

    samples: Samples
    state: Activity = Activity.ACTIVE


@dataclass(frozen=True, slots=True)
class SplitPausing(Generic[K]):
    """All splits one reader has, against one limit; without an announced limit there is none."""

    buffer_size: int = 0
    limit: Millis = MAX
    splits: Mapping[K, PausableSplit] = field(default_factory=dict)

    @property
    def paused(self) -> frozenset[K]:
        """The splits that are paused now."""
        return frozenset(k for k, s in self.splits.items() if s.state is Activity.PAUSED)


def add_split(state: SplitPausing[K], split: K) -> SplitPausing[K]:
    """Return the state with a new split, which has no history even if its id had one."""
    return replace(state, splits={**state.splits, split: PausableSplit(samples(state.buffer_size))})


def release_split(state: SplitPausing[K], split: K) -> SplitPausing[K]:
    """Return the state without a split that ended or was taken away; nothing of it is left (FLINK-35886)."""
    return replace(state, splits={k: s for k, s in state.splits.items() if k != split})


def on_watermark(state: SplitPausing[K], split: K, watermark: Millis) -> tuple[SplitPausing[K], PauseRequest[K]]:
    """Take a split's watermark; it can only pause, because nothing that grows comes back within the limit."""
    old = _split(state, split)
    grown = add(old.samples, max(watermark, old.samples.latest))
    state = _with(state, split, PausableSplit(grown, TRANSITIONS[old.state, SplitEvent.RECORD]))
    return _judge(state, (split,), _only_ahead)


def on_quiet(state: SplitPausing[K], split: K) -> SplitPausing[K]:
    """Take the verdict of the split's idle timer; a paused split ignores it."""
    return _with(state, split, _after(_split(state, split), SplitEvent.QUIET))


def on_active(state: SplitPausing[K], split: K) -> tuple[SplitPausing[K], PauseRequest[K]]:
    """Make an idle split active; a pause that waited for it comes now."""
    return _judge(_with(state, split, _after(_split(state, split), SplitEvent.RECORD)), (split,), _only_ahead)


def on_sample(state: SplitPausing[K]) -> tuple[SplitPausing[K], PauseRequest[K]]:
    """Take a sample of every split, at each update interval, and judge again."""
    sampled = {k: replace(s, samples=sample(s.samples)) for k, s in state.splits.items()}
    return _judge(replace(state, splits=sampled), sampled, _ahead_or_within)


def on_limit(state: SplitPausing[K], limit: Millis) -> tuple[SplitPausing[K], PauseRequest[K]]:
    """Take an announced limit and judge all splits by it."""
    return _judge(replace(state, limit=limit), state.splits, _ahead_or_within)


def apply_request(paused: frozenset[K], request: PauseRequest[K], assigned: frozenset[K]) -> frozenset[K]:
    """Return what a reader has paused after a request; splits it no longer has are skipped (FLINK-39728)."""
    return ((paused - request.resume) | request.pause) & assigned


def deliverable(request: PauseRequest[K], *, reader_can_pause: bool, allow_unaligned_splits: bool) -> PauseRequest[K]:
    """Return what the reader gets of a request.

    Raises:
        UsageError: the reader cannot pause splits, and reading them unaligned was not allowed.
    """
    if reader_can_pause or not request:
        return request
    if allow_unaligned_splits:
        return PauseRequest()
    raise UsageError(
        f"splits {sorted(map(str, request.pause | request.resume))} have to be paused or resumed, and their reader "
        "cannot do that; use a reader that can, or allow unaligned splits"
    )


def _only_ahead(split: PausableSplit, limit: Millis) -> SplitEvent | None:
    return SplitEvent.AHEAD if split.samples.oldest > limit else None


def _ahead_or_within(split: PausableSplit, limit: Millis) -> SplitEvent:
    return SplitEvent.AHEAD if split.samples.oldest > limit else SplitEvent.WITHIN


def _judge(
    state: SplitPausing[K], splits: Iterable[K], judge: Callable[[PausableSplit, Millis], SplitEvent | None]
) -> tuple[SplitPausing[K], PauseRequest[K]]:
    before = state.paused
    judged = dict(state.splits)
    for split in splits:
        event = judge(judged[split], state.limit)
        if event is not None:
            judged[split] = _after(judged[split], event)
    state = replace(state, splits=judged)
    return state, PauseRequest(state.paused - before, before - state.paused)


def _after(split: PausableSplit, event: SplitEvent) -> PausableSplit:
    return replace(split, state=TRANSITIONS[split.state, event])


def _split(state: SplitPausing[K], split: K) -> PausableSplit:
    try:
        return state.splits[split]
    except KeyError:
        raise InternalError(f"split {split} is not being read; add it before its first watermark") from None


def _with(state: SplitPausing[K], split: K, value: PausableSplit) -> SplitPausing[K]:
    return replace(state, splits={**state.splits, split: value})
