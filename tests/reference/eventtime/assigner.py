"""Watermark assigner in the middle of a stream: makes its own watermarks and ignores those from upstream."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.reference.eventtime.idleness import RUNNING_CLOCK, PausableClock
from tests.reference.eventtime.output import NOTHING_SENT, Output, emit, finish, mark
from tests.reference.eventtime.strategy import ProbeResult, SplitGenerator, observe, probe_split
from tests.reference.eventtime.watermark import Emission, Status, Watermark
from watermark_source.eventtime.watermark import MAX, Millis


@dataclass(frozen=True, slots=True)
class Assigner:
    """Generator and output rule; the clock pauses on back pressure. In ``batch`` only the end of time goes out."""

    generator: SplitGenerator
    output: Output = NOTHING_SENT
    clock: PausableClock = RUNNING_CLOCK
    batch: bool = False


def on_record(
    state: Assigner, event_time: Millis, now: Millis, punctuation: Millis | None = None
) -> tuple[Assigner, tuple[Emission, ...]]:
    """Take a record that was just emitted; what it causes comes after it."""
    generator, found = observe(state.generator, event_time, punctuation)
    return _emit(replace(state, generator=generator), found, now)


def on_probe(state: Assigner, now: Millis) -> tuple[Assigner, tuple[Emission, ...]]:
    """Run the periodic probe."""
    generator, found = probe_split(state.generator, state.clock.read(now))
    state = replace(state, generator=generator)
    if found is ProbeResult.IDLE:
        output, sent = mark(state.output, Status.IDLE)
        return replace(state, output=output), sent
    return _emit(state, None if isinstance(found, ProbeResult) else found, now)


def on_upstream(state: Assigner, emission: Emission) -> tuple[Assigner, tuple[Emission, ...]]:
    """Ignore what upstream says (FLINK-26708), except that it has ended."""
    if not isinstance(emission, Watermark) or emission.timestamp != MAX:
        return state, ()
    output, sent = finish(state.output)
    return replace(state, output=output), sent


def _emit(state: Assigner, found: Millis | None, now: Millis) -> tuple[Assigner, tuple[Emission, ...]]:
    if found is None or state.batch:
        return state, ()
    output, sent = emit(state.output, Watermark(found), now)
    return replace(state, output=output), sent
