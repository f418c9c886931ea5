"""Announcer: life of the periodic announcement of a group's limit to those who report to it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from tests.reference.alignment.group import Group, change, join, report
from watermark_source.alignment.group import MemberStatus
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import Millis

K = TypeVar("K", bound=Hashable)


class AnnouncerState(Enum):
    """The timer is started by ``start`` and not by construction (FLINK-32411)."""

    CREATED = "created"
    RUNNING = "running"
    CLOSED = "closed"


class AnnouncerEvent(Enum):
    """What changes an announcer's state."""

    START = "start"
    CLOSE = "close"


TRANSITIONS: dict[tuple[AnnouncerState, AnnouncerEvent], AnnouncerState] = {
    (AnnouncerState.CREATED, AnnouncerEvent.START): AnnouncerState.RUNNING,
    (AnnouncerState.CREATED, AnnouncerEvent.CLOSE): AnnouncerState.CLOSED,
    (AnnouncerState.RUNNING, AnnouncerEvent.START): AnnouncerState.RUNNING,
    (AnnouncerState.RUNNING, AnnouncerEvent.CLOSE): AnnouncerState.CLOSED,
    (AnnouncerState.CLOSED, AnnouncerEvent.START): AnnouncerState.CLOSED,
    (AnnouncerState.CLOSED, AnnouncerEvent.CLOSE): AnnouncerState.CLOSED,
}


@dataclass(frozen=True, slots=True)
class Announcer(Generic[K]):
    """Announces ``group``'s limit; ``ready`` are the members that can receive it now.

    Raises:
        UsageError: the job runs several attempts of one subtask at once; their reports cannot be told apart.
    """

    group: Group[K]
    state: AnnouncerState = AnnouncerState.CREATED
    ready: frozenset[K] = frozenset()
    concurrent_attempts: bool = False

    def __post_init__(self) -> None:
        if self.concurrent_attempts:
            raise UsageError(
                f"alignment group {self.group.name} in a job with concurrent attempts of one subtask; the two exclude "
                "each other: turn one of them off"
            )


def handle(announcer: Announcer[K], event: AnnouncerEvent) -> Announcer[K]:
    """Start or close the announcer; a closed one stays closed."""
    return replace(announcer, state=TRANSITIONS[announcer.state, event])


def set_ready(announcer: Announcer[K], key: K, *, ready: bool) -> Announcer[K]:
    """Take whether a member can receive announcements."""
    return replace(announcer, ready=announcer.ready | {key} if ready else announcer.ready - {key})


def take_report(announcer: Announcer[K], key: K, watermark: Millis) -> Announcer[K]:
    """Take a member's watermark; it joins with its first report, whether it is ready or not."""
    return replace(announcer, group=report(join(announcer.group, key, drift=announcer.group.drift), key, watermark))


def take_status(announcer: Announcer[K], key: K, status: MemberStatus) -> Announcer[K]:
    """Take a member's status: idle, as one that failed is too, or finished."""
    return replace(announcer, group=change(announcer.group, key, status))


def announcements(announcer: Announcer[K]) -> dict[K, Millis]:
    """Return the limit for each recipient of one firing of the timer.

    Members that have reported and are ready get it, idle ones too, and those that will get no further splits
    (FLINK-37670). Whoever is not ready is skipped and gets the next one. Nothing unless running.
    """
    if announcer.state is not AnnouncerState.RUNNING:
        return {}
    highest = announcer.group.limit
    return {key: highest for key in announcer.group.members if key in announcer.ready}
