from __future__ import annotations

import pytest

from tests.reference.alignment.announcer import (
    TRANSITIONS,
    Announcer,
    AnnouncerEvent,
    AnnouncerState,
    announcements,
    handle,
    set_ready,
    take_report,
    take_status,
)
from tests.reference.alignment.group import Group
from watermark_source.alignment.group import MemberStatus
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import MAX, Millis


def running() -> Announcer[str]:
    return handle(Announcer(Group("g", 10)), AnnouncerEvent.START)


def test_every_state_answers_every_event() -> None:
    assert set(TRANSITIONS) == {(state, event) for state in AnnouncerState for event in AnnouncerEvent}


def test_a_closed_announcer_stays_closed() -> None:
    closed = handle(running(), AnnouncerEvent.CLOSE)
    assert handle(closed, AnnouncerEvent.START).state is AnnouncerState.CLOSED


def test_one_that_is_not_ready_does_not_keep_the_limit_from_the_others() -> None:
    announcer = take_report(take_report(set_ready(running(), "a", ready=True), "a", Millis(5)), "b", Millis(3))
    assert announcements(announcer) == {"a": 13}


def test_idle_members_get_the_limit_too() -> None:
    announcer = take_report(set_ready(running(), "a", ready=True), "a", Millis(5))
    assert announcements(take_status(announcer, "a", MemberStatus.IDLE)) == {"a": MAX}


def test_concurrent_attempts_are_refused_at_construction() -> None:
    with pytest.raises(UsageError, match="turn one of them off"):
        Announcer(Group("g", 10), concurrent_attempts=True)
