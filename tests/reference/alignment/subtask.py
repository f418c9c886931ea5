"""Alignment of one subtask: what it reports to its group, and when all of it has to wait."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.reference.alignment.sampling import Samples, add, sample, samples
from watermark_source.alignment.group import GroupMember, MemberStatus
from watermark_source.eventtime.watermark import MAX, Millis


@dataclass(frozen=True, slots=True)
class SubtaskAlignment:
    """The subtask's combined watermark against the group's limit; no limit before the first announcement."""

    samples: Samples
    limit: Millis = MAX
    watermark: Millis | None = None
    idle: bool = False
    finished: bool = False
    stopping: bool = False

    @property
    def blocked(self) -> bool:
        """Whether the subtask must not be polled; being exactly at the limit is allowed.

        An idle subtask is never blocked by the watermark it once had, and one that was asked to stop can stop.
        """
        free = self.idle or self.finished or self.stopping
        return not free and self.watermark is not None and self.samples.oldest > self.limit


def subtask(buffer_size: int) -> SubtaskAlignment:
    """Return a new subtask with a sampling buffer of so many update intervals."""
    return SubtaskAlignment(samples(buffer_size))


def on_watermark(state: SubtaskAlignment, watermark: Millis) -> SubtaskAlignment:
    """Take the watermark the subtask has just sent."""
    return replace(state, watermark=watermark, samples=add(state.samples, watermark))


def on_idle(state: SubtaskAlignment, *, idle: bool) -> SubtaskAlignment:
    """Take the status the subtask has just sent; its watermark stays what it was (FLINK-32496)."""
    return replace(state, idle=idle)


def on_sample(state: SubtaskAlignment) -> SubtaskAlignment:
    """Take a sample at an update interval."""
    return replace(state, samples=sample(state.samples))


def on_limit(state: SubtaskAlignment, limit: Millis) -> SubtaskAlignment:
    """Take an announced limit."""
    return replace(state, limit=limit)


def on_end_of_input(state: SubtaskAlignment) -> SubtaskAlignment:
    """Everything was read (FLINK-35157); being told that no further splits will come is not that (FLINK-37670)."""
    return replace(state, finished=True)


def on_stop(state: SubtaskAlignment) -> SubtaskAlignment:
    """Stop without reading to the end: whoever waits for the subtask to become available is let go."""
    return replace(state, stopping=True)


def report_of(state: SubtaskAlignment) -> GroupMember | None:
    """Return what the subtask tells its group, or None for nothing.

    It tells nothing before its first watermark, even when idle (FLINK-32414), unless it has finished.
    """
    if state.finished:
        return GroupMember(MemberStatus.FINISHED, state.watermark)
    if state.watermark is None:
        return None
    return GroupMember(MemberStatus.IDLE if state.idle else MemberStatus.ACTIVE, state.watermark)
