"""Watermark assigner of SQL: watermarks come with the rows, and one timer drives both watermarks and idleness."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.reference.eventtime.idleness import RUNNING_CLOCK, PausableClock
from tests.reference.eventtime.output import Output, emit, finish, mark
from tests.reference.eventtime.watermark import Emission, Status, Watermark
from watermark_source.eventtime.watermark import MAX, Millis

_MUCH_SMALLER = 5
_ZERO = Millis(0)
_FROM_ZERO = Output(Watermark(_ZERO))


def tick_interval(watermark_interval: int, idle_timeout: int) -> int:
    """Return how often the timer fires, in milliseconds; 0 turns one of the two off.

    The smaller of the two if it is more than five times smaller than the other, otherwise a fifth of it, at least 1.
    """
    smaller, larger = sorted((watermark_interval, idle_timeout))
    if smaller == 0:
        return larger
    return smaller if larger > _MUCH_SMALLER * smaller else max(1, smaller // _MUCH_SMALLER)


@dataclass(frozen=True, slots=True)
class SqlAssigner:
    """Both durations in milliseconds, 0 for off. Starts at watermark 0: it never sends a negative one."""

    watermark_interval: int
    idle_timeout: int
    next_tick: int
    output: Output = _FROM_ZERO
    clock: PausableClock = RUNNING_CLOCK
    watermark: Millis = _ZERO
    last_emit: int = 0
    last_activity: int = 0
    touched: bool = False


def sql_assigner(watermark_interval: int, idle_timeout: int, now: int) -> SqlAssigner:
    """Return an assigner opened at ``now``."""
    return SqlAssigner(
        watermark_interval,
        idle_timeout,
        now + tick_interval(watermark_interval, idle_timeout),
        last_emit=now,
        last_activity=now,
    )


def before_row(state: SqlAssigner) -> tuple[SqlAssigner, tuple[Emission, ...]]:
    """Take the arrival of a row: an idle assigner says ACTIVE before it passes the row on."""
    output, sent = mark(state.output, Status.ACTIVE)
    return replace(state, output=output, touched=True), sent


def after_row(state: SqlAssigner, watermark: Millis | None, now: Millis) -> tuple[SqlAssigner, tuple[Emission, ...]]:
    """Take the row's watermark, if it has one; a jump of more than the interval goes out at once."""
    if watermark is None or watermark <= state.watermark:
        return state, ()
    state = replace(state, watermark=watermark)
    if watermark - state.output.watermark.timestamp <= state.watermark_interval:
        return state, ()
    return _emit(state, now)


def advance(state: SqlAssigner, now: Millis) -> tuple[SqlAssigner, tuple[Emission, ...]]:
    """Let the clock come to ``now``; a timer that was due before fires then, once."""
    if now < state.next_tick:
        return state, ()
    sent: tuple[Emission, ...] = ()
    if 0 < state.watermark_interval <= now - state.last_emit:
        state, sent = _emit(replace(state, last_emit=now), now)
    reading = state.clock.read(now)
    if state.touched:
        state = replace(state, touched=False, last_activity=reading)
    if 0 < state.idle_timeout <= reading - state.last_activity:
        output, idle = mark(state.output, Status.IDLE)
        state, sent = replace(state, output=output), (*sent, *idle)
    return replace(state, next_tick=now + tick_interval(state.watermark_interval, state.idle_timeout)), sent


def on_upstream(state: SqlAssigner, emission: Emission) -> tuple[SqlAssigner, tuple[Emission, ...]]:
    """Ignore what upstream says, except that it has ended."""
    if not isinstance(emission, Watermark) or emission.timestamp != MAX:
        return state, ()
    output, sent = finish(state.output)
    return replace(state, output=output, watermark=MAX), sent


def _emit(state: SqlAssigner, now: Millis) -> tuple[SqlAssigner, tuple[Emission, ...]]:
    # A timer never wakes an idle assigner: what it has to say was said before it went idle.
    if state.watermark <= state.output.watermark.timestamp:
        return state, ()
    output, sent = emit(state.output, Watermark(state.watermark), now)
    return replace(state, output=output), sent
