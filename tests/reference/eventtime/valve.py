"""Status watermark valve: the channels of one input become one stream of watermarks and statuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from tests.reference.eventtime.combine import raised
from tests.reference.eventtime.watermark import START, Emission, Status, Watermark
from watermark_source.eventtime.watermark import MAX


class ChannelStatus(Enum):
    """A channel that has ended is neither waited for nor part of a flush (FLINK-38477)."""

    ACTIVE = "active"
    IDLE = "idle"
    FINISHED = "finished"


class Signal(Enum):
    """What changes a channel's status."""

    IDLE = "idle"
    ACTIVE = "active"
    END = "end"
    """The end of time. It must not get lost, so it needs no ACTIVE before it (FLINK-40499)."""


TRANSITIONS: dict[tuple[ChannelStatus, Signal], ChannelStatus] = {
    (ChannelStatus.ACTIVE, Signal.IDLE): ChannelStatus.IDLE,
    (ChannelStatus.ACTIVE, Signal.ACTIVE): ChannelStatus.ACTIVE,
    (ChannelStatus.ACTIVE, Signal.END): ChannelStatus.FINISHED,
    (ChannelStatus.IDLE, Signal.IDLE): ChannelStatus.IDLE,
    (ChannelStatus.IDLE, Signal.ACTIVE): ChannelStatus.ACTIVE,
    (ChannelStatus.IDLE, Signal.END): ChannelStatus.FINISHED,
    (ChannelStatus.FINISHED, Signal.IDLE): ChannelStatus.FINISHED,
    (ChannelStatus.FINISHED, Signal.ACTIVE): ChannelStatus.FINISHED,
    (ChannelStatus.FINISHED, Signal.END): ChannelStatus.FINISHED,
}

_SIGNALS = {Status.IDLE: Signal.IDLE, Status.ACTIVE: Signal.ACTIVE}


class Channel(NamedTuple):
    """One channel. ``aligned`` = active and not behind what went out last; others hold nobody back."""

    watermark: Watermark = START
    status: ChannelStatus = ChannelStatus.ACTIVE
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class Valve:
    """Channels, by number, and what went out last."""

    channels: tuple[Channel, ...]
    last: Watermark = START
    status: Status = Status.ACTIVE


def valve(channels: int) -> Valve:
    """Return a new valve."""
    return Valve((Channel(),) * channels)


def on_watermark(state: Valve, number: int, watermark: Watermark) -> tuple[Valve, tuple[Emission, ...]]:
    """Fold in a channel's watermark: one that does not advance, or comes from an idle channel, is ignored.

    A watermark with the processing-time flag makes an idle channel active (FLIP-326).
    """
    channel = state.channels[number]
    if watermark.timestamp == MAX:
        return _signal(state, number, Signal.END)
    grown = raised(channel.watermark, watermark)
    if channel.status is ChannelStatus.FINISHED or grown is channel.watermark:
        return state, ()
    woken: tuple[Emission, ...] = ()
    if channel.status is ChannelStatus.IDLE:
        if not watermark.use_processing_time:
            return state, ()
        state, woken = _signal(state, number, Signal.ACTIVE)
    state, sent = _advance(_with(state, number, _realigned(Channel(grown), state.last, was=channel.aligned)))
    return state, (*woken, *sent)


def on_status(state: Valve, number: int, status: Status) -> tuple[Valve, tuple[Emission, ...]]:
    """Fold in a channel's status; a channel with the processing-time flag stays active (FLIP-326)."""
    if status is Status.IDLE and state.channels[number].watermark.use_processing_time:
        return state, ()
    return _signal(state, number, _SIGNALS[status])


def _signal(state: Valve, number: int, signal: Signal) -> tuple[Valve, tuple[Emission, ...]]:
    channel = state.channels[number]
    status = TRANSITIONS[channel.status, signal]
    if status is channel.status:
        return state, ()
    if status is ChannelStatus.ACTIVE:
        # Downstream drops watermarks while it believes the stream idle: ACTIVE first (FLINK-40475).
        state, woken = _announce(
            _with(state, number, _realigned(Channel(channel.watermark), state.last, was=False)), Status.ACTIVE
        )
        state, sent = _advance(state)
        return state, (*woken, *sent)
    state = _with(state, number, Channel(channel.watermark, status, aligned=False))
    statuses = {c.status for c in state.channels}
    if ChannelStatus.ACTIVE in statuses:
        return _advance(state)
    if ChannelStatus.IDLE in statuses:
        idle = (c.watermark for c in state.channels if c.status is ChannelStatus.IDLE)
        state, sent = _emit(state, max(idle, key=_timestamp))
        state, announced = _announce(state, Status.IDLE)
        return state, (*sent, *announced)
    state, woken = _announce(state, Status.ACTIVE)
    state, sent = _emit(state, replace(state.last, timestamp=MAX))
    return state, (*woken, *sent)


def _realigned(channel: Channel, last: Watermark, *, was: bool) -> Channel:
    """Align an active channel that has caught up; a flag counts as caught up, and its absence as behind a flag."""
    mine = channel.watermark
    if last.use_processing_time:
        return channel._replace(aligned=mine.use_processing_time)
    return channel._replace(aligned=was or mine.use_processing_time or mine.timestamp >= last.timestamp)


def _advance(state: Valve) -> tuple[Valve, tuple[Emission, ...]]:
    aligned = [c.watermark for c in state.channels if c.aligned]
    if not aligned:
        return state, ()
    # A channel that goes with the clock is never the minimum beside one that does not.
    return _emit(state, _lowest([w for w in aligned if not w.use_processing_time] or aligned))


def _emit(state: Valve, watermark: Watermark) -> tuple[Valve, tuple[Emission, ...]]:
    grown = raised(state.last, watermark)
    if grown is state.last:
        return state, ()
    state = replace(state, last=grown)
    if grown.use_processing_time:
        # Channels without the flag fall behind the moment it goes out.
        state = replace(state, channels=tuple(c._replace(aligned=_with_clock(c)) for c in state.channels))
    return state, (grown,)


def _with_clock(channel: Channel) -> bool:
    return channel.aligned and channel.watermark.use_processing_time


def _announce(state: Valve, status: Status) -> tuple[Valve, tuple[Emission, ...]]:
    return (state, ()) if status is state.status else (replace(state, status=status), (status,))


def _timestamp(watermark: Watermark) -> int:
    return watermark.timestamp


def _lowest(watermarks: Iterable[Watermark]) -> Watermark:
    return min(watermarks, key=_timestamp)


def _with(state: Valve, number: int, channel: Channel) -> Valve:
    return replace(state, channels=(*state.channels[:number], channel, *state.channels[number + 1 :]))
