"""How long others that were there are believed to be there still."""

from __future__ import annotations

from watermark_source.group_store.heartbeat_client import GracePeriod, TimedAnswer, after_answer, may_be_all
from watermark_source.planning.group import OtherMembers
from watermark_source.planning.watermark import Millis

TTL = 30.0


def answered(
    periods: tuple[GracePeriod, ...],
    previous: float,
    now: float,
    members: int,
    *,
    failed: bool = False,
    is_suspect: bool = False,
) -> tuple[GracePeriod, ...]:
    before = TimedAnswer(OtherMembers(members=members), 0, Millis(0), requested_at=previous, answered_at=previous)
    return after_answer(periods, before, now, TTL, failed=failed, is_suspect=is_suspect)


def test_without_a_reason_every_answer_is_complete() -> None:
    assert answered((), 0, 1, 5) == ()
    assert may_be_all((), 0, 1)


def test_fewer_members_than_before_are_incomplete_until_their_time_to_live_has_passed() -> None:
    periods = answered((), 0, 60, 2, failed=True)
    assert [may_be_all(periods, members, 61) for members in (0, 1, 2)] == [False, False, True]
    assert may_be_all(periods, 0, 60 + TTL)


def test_an_outage_extends_a_grace_period_by_its_own_duration() -> None:
    """The store answers once, before the others come to speak, and is away again for longer than their time."""
    once = answered((), 0, 60, 2, failed=True)
    again = answered(once, 60, 160, 0, failed=True)
    assert not may_be_all(again, 1, 189)
    assert may_be_all(again, 1, 190)


def test_a_member_that_has_left_is_forgotten_though_the_store_stays_slow() -> None:
    periods, forgotten = answered((), 0, 4, 2, is_suspect=True), False
    for now in range(8, 44, 4):
        periods, forgotten = answered(periods, now - 4, now, 1, is_suspect=True), may_be_all(periods, 1, now)
        assert forgotten == (now > 34)
    assert forgotten


def test_a_member_that_has_left_is_forgotten_though_the_store_fails_now_and_then() -> None:
    """A second in ten: the others have nine of them to speak."""
    periods, now = answered((), 0, 1, 2, failed=True), 1.0
    while not may_be_all(periods, 1, now):
        periods = answered(periods, now, now + 9, 1)
        periods, now = answered(periods, now + 9, now + 10, 1, failed=True), now + 10
        assert now < 60
    assert now >= 1 + TTL
    # Nothing is kept of what is over.
    assert len(periods) == 1
