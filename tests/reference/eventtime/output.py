"""Output rule: what of the candidates and statuses of one source really goes downstream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tests.reference.eventtime.watermark import START, Emission, Status, Watermark
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import MAX, Millis

_NOTHING: tuple[Emission, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """What was last sent."""

    watermark: Watermark = START
    status: Status = Status.ACTIVE


NOTHING_SENT = Output()


def emit(output: Output, watermark: Watermark, now: Millis) -> tuple[Output, tuple[Emission, ...]]:
    """Send ``watermark`` if it is greater than the last one, or flagged; in either case the output is active again.

    ACTIVE goes out before the watermark, because downstream drops watermarks of a stream it believes idle, and goes
    out alone when the watermark itself is swallowed (FLINK-40504). ``now`` is the system clock.

    Raises:
        UsageError: the flag goes back, or a flagged watermark is ahead of the clock, or the clock is behind what was
            already sent (FLIP-326).
    """
    last = output.watermark
    if watermark.use_processing_time:
        watermark = _checked(last, watermark, now)
    elif last.use_processing_time:
        raise UsageError(
            f"watermark {watermark.timestamp} without processing time follows one with it; once a stream goes with the "
            "clock it stays so: keep the flag on every later watermark"
        )
    elif watermark.timestamp <= last.timestamp:
        return mark(output, Status.ACTIVE)
    return Output(watermark), (*_waking(output), watermark)


def mark(output: Output, status: Status) -> tuple[Output, tuple[Emission, ...]]:
    """Announce ``status`` if it is a change; a stream that goes with the clock is never idle."""
    if status is output.status or (status is Status.IDLE and output.watermark.use_processing_time):
        return output, _NOTHING
    return replace(output, status=status), (status,)


def finish(output: Output) -> tuple[Output, tuple[Emission, ...]]:
    """End the stream: ACTIVE if it was idle (FLINK-40499), then the end of time, once."""
    if output.watermark.timestamp == MAX:
        return output, _NOTHING
    end = replace(output.watermark, timestamp=MAX)
    return Output(end), (*_waking(output), end)


def _waking(output: Output) -> tuple[Emission, ...]:
    return (Status.ACTIVE,) if output.status is Status.IDLE else _NOTHING


def _checked(last: Watermark, watermark: Watermark, now: Millis) -> Watermark:
    if now < last.timestamp or now < watermark.timestamp:
        raise UsageError(
            f"processing-time watermark {watermark.timestamp} after watermark {last.timestamp} while the system clock "
            f"is {now}; the clock must have reached both: wait for it, or correct it"
        )
    return replace(watermark, timestamp=max(last.timestamp, watermark.timestamp))


class Feeder(Enum):
    """Who feeds the one output of a source."""

    MAIN = "main"
    """The source itself, without naming a split."""
    SPLITS = "splits"
    """The multiplexer over its splits."""


@dataclass(frozen=True, slots=True)
class SourceOutput:
    """One output fed by two; a feeder that is never used is idle from the start and blocks nothing."""

    output: Output = NOTHING_SENT
    idle: frozenset[Feeder] = frozenset(Feeder)


def feed(
    source: SourceOutput, feeder: Feeder, emission: Emission, now: Millis
) -> tuple[SourceOutput, tuple[Emission, ...]]:
    """Pass on what one feeder says; IDLE only when both are (FLINK-28975)."""
    if emission is Status.IDLE:
        idle = source.idle | {feeder}
        if len(idle) < len(Feeder):
            return replace(source, idle=idle), _NOTHING
        output, sent = mark(source.output, Status.IDLE)
        return SourceOutput(output, idle), sent
    output, sent = (
        emit(source.output, emission, now) if isinstance(emission, Watermark) else mark(source.output, Status.ACTIVE)
    )
    return SourceOutput(output, source.idle - {feeder}), sent
