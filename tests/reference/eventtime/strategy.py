"""Watermark strategies over single records: how a split's watermark follows the event times read from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from tests.reference.eventtime.idleness import IdleTimer, Verdict, probe, touch
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import Millis
from watermark_source.eventtime.watermark_generators import candidate

DEFAULT_UPDATE_INTERVAL = 1_000


class Generator(Protocol):
    """A frozen watermark generator: what it returns are candidates, which the output rule may swallow."""

    def on_event(self, event_time: Millis, punctuation: Millis | None = None) -> tuple[Generator, Millis | None]:
        """Observe one record, after it was emitted; ``punctuation`` is a watermark the record itself carries."""
        ...

    def on_probe(self) -> Millis | None:
        """Return the candidate of a periodic probe; repeated as often as it is asked for."""
        ...


@dataclass(frozen=True, slots=True)
class BoundedOutOfOrderness:
    """Follows the highest event time at a distance of ``bound`` ms; a bound of 0 is the monotonous strategy."""

    bound: int
    max_event_time: Millis | None = None

    def on_event(
        self, event_time: Millis, punctuation: Millis | None = None
    ) -> tuple[BoundedOutOfOrderness, Millis | None]:
        """Remember the highest event time."""
        if self.max_event_time is not None and event_time <= self.max_event_time:
            return self, None
        return replace(self, max_event_time=event_time), None

    def on_probe(self) -> Millis | None:
        """Return ``candidate`` of what was seen."""
        return candidate(self.max_event_time, self.bound)


@dataclass(frozen=True, slots=True)
class Punctuated:
    """Emits the watermarks that records themselves carry, at once."""

    def on_event(self, event_time: Millis, punctuation: Millis | None = None) -> tuple[Punctuated, Millis | None]:
        """Return the record's own watermark."""
        return self, punctuation

    def on_probe(self) -> Millis | None:
        """Return nothing: only records move this watermark."""
        return None


@dataclass(frozen=True, slots=True)
class NoWatermarks:
    """Generates nothing: time is the system clock, if anything (FLIP-326)."""

    def on_event(self, event_time: Millis, punctuation: Millis | None = None) -> tuple[NoWatermarks, Millis | None]:
        """Observe nothing."""
        return self, None

    def on_probe(self) -> Millis | None:
        """Return nothing."""
        return None


class StrategyKind(Enum):
    """How the watermark follows event time."""

    MONOTONOUS = "monotonous"
    BOUNDED = "bounded"
    PUNCTUATED = "punctuated"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class AlignmentParams:
    """Membership of an alignment group; drift and interval in milliseconds."""

    group: str
    max_drift: int
    update_interval: int = DEFAULT_UPDATE_INTERVAL

    def __post_init__(self) -> None:
        if not isinstance(self.group, str) or not self.group:
            raise UsageError(f"alignment group is {self.group!r}; it must be a name that is not empty")
        _at_least(0, "alignment max drift", self.max_drift)
        _at_least(1, "alignment update interval", self.update_interval)


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """A strategy with its idleness and alignment; durations in milliseconds. Wrappers may be added in any order."""

    kind: StrategyKind
    out_of_orderness: int = 0
    idle_timeout: int | None = None
    alignment: AlignmentParams | None = None

    def __post_init__(self) -> None:
        _at_least(0, "out-of-orderness bound", self.out_of_orderness)
        if self.idle_timeout is not None:
            _at_least(1, "idle timeout", self.idle_timeout)

    def with_idleness(self, timeout: int) -> WatermarkStrategy:
        """Return the strategy with an idle timeout."""
        return replace(self, idle_timeout=timeout)

    def with_alignment(
        self, group: str, max_drift: int, update_interval: int = DEFAULT_UPDATE_INTERVAL
    ) -> WatermarkStrategy:
        """Return the strategy as a member of an alignment group."""
        return replace(self, alignment=AlignmentParams(group, max_drift, update_interval))

    def start(self) -> SplitGenerator:
        """Return the generator of one new split."""
        timer = None if self.idle_timeout is None else IdleTimer(self.idle_timeout)
        return SplitGenerator(_generator(self), timer)


def monotonous() -> WatermarkStrategy:
    """Event times of a split never decrease."""
    return WatermarkStrategy(StrategyKind.MONOTONOUS)


def bounded(out_of_orderness: int) -> WatermarkStrategy:
    """An event is at most ``out_of_orderness`` ms behind the highest event time of its split."""
    return WatermarkStrategy(StrategyKind.BOUNDED, out_of_orderness)


def punctuated() -> WatermarkStrategy:
    """Records carry the watermark."""
    return WatermarkStrategy(StrategyKind.PUNCTUATED)


def no_watermarks() -> WatermarkStrategy:
    """No event time at all: processing time."""
    return WatermarkStrategy(StrategyKind.NONE)


@dataclass(frozen=True, slots=True)
class SplitGenerator:
    """The generator of one split with its idle timer, if it has one."""

    generator: Generator
    timer: IdleTimer | None = None


class ProbeResult(Enum):
    """What a probe can say besides a watermark."""

    NOTHING = "nothing"
    IDLE = "idle"
    """The split has just become idle; said once an idle period."""


def observe(
    state: SplitGenerator, event_time: Millis, punctuation: Millis | None = None
) -> tuple[SplitGenerator, Millis | None]:
    """Fold one record in; returns the candidate watermark it carries, if any."""
    generator, found = state.generator.on_event(event_time, punctuation)
    return SplitGenerator(generator, None if state.timer is None else touch(state.timer)), found


def probe_split(
    state: SplitGenerator, reading: int, *, held_up: bool = False
) -> tuple[SplitGenerator, Millis | ProbeResult]:
    """Run the periodic probe; ``reading`` is the split's pausable clock, in milliseconds.

    While the split is idle its generator is not asked. While it is held up (paused, or under back pressure) its timer
    is not asked: what holds still is not idle, even if the timeout was over before it was held up (FLINK-40093).
    """
    if state.timer is not None and not held_up:
        timer, verdict = probe(state.timer, reading)
        state = SplitGenerator(state.generator, timer)
        if verdict is not Verdict.ACTIVE:
            return state, ProbeResult.IDLE if verdict is Verdict.BECAME_IDLE else ProbeResult.NOTHING
    found = state.generator.on_probe()
    return state, ProbeResult.NOTHING if found is None else found


def _generator(strategy: WatermarkStrategy) -> Generator:
    if strategy.kind is StrategyKind.NONE:
        return NoWatermarks()
    if strategy.kind is StrategyKind.PUNCTUATED:
        return Punctuated()
    return BoundedOutOfOrderness(strategy.out_of_orderness)


def _at_least(least: int, what: str, seen: int) -> None:
    if seen < least:
        accepted = "must not be negative" if least == 0 else "must be greater than zero"
        raise UsageError(f"{what} is {seen} ms; it {accepted}, for example {max(least, 200)}")
