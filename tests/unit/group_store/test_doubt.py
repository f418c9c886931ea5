"""How long others that were there are believed to be there still."""

from __future__ import annotations

from watermark_source.group_store.doubt import Doubt, after_answer, is_believed

TTL = 30.0


def answered(
    doubts: tuple[Doubt, ...], before: float, now: float, members: int, *, failed: bool = False, is_odd: bool = False
) -> tuple[Doubt, ...]:
    return after_answer(doubts, failed=failed, is_odd=is_odd, members=members, before=before, now=now, time_to_live=TTL)


def test_without_a_reason_every_answer_is_believed() -> None:
    assert answered((), 0, 1, 5) == ()
    assert is_believed((), 0, 1)


def test_fewer_than_before_are_not_believed_until_they_had_their_time() -> None:
    doubts = answered((), 0, 60, 2, failed=True)
    assert [is_believed(doubts, members, 61) for members in (0, 1, 2)] == [False, False, True]
    assert is_believed(doubts, 0, 60 + TTL)


def test_a_time_in_which_nobody_could_speak_is_given_to_those_in_doubt_however_long_it_was() -> None:
    """The store answers once, before the others come to speak, and is away again for longer than their time."""
    once = answered((), 0, 60, 2, failed=True)
    again = answered(once, 60, 160, 0, failed=True)
    assert not is_believed(again, 1, 189)
    assert is_believed(again, 1, 190)


def test_one_that_has_left_is_forgotten_though_the_store_stays_slow() -> None:
    doubts, forgotten = answered((), 0, 4, 2, is_odd=True), False
    for now in range(8, 44, 4):
        doubts, forgotten = answered(doubts, now - 4, now, 1, is_odd=True), is_believed(doubts, 1, now)
        assert forgotten == (now > 34)
    assert forgotten


def test_one_that_has_left_is_forgotten_though_the_store_fails_now_and_then() -> None:
    """A second in ten: the others have nine of them to speak."""
    doubts, now = answered((), 0, 1, 2, failed=True), 1.0
    while not is_believed(doubts, 1, now):
        doubts = answered(doubts, now, now + 9, 1)
        doubts, now = answered(doubts, now + 9, now + 10, 1, failed=True), now + 10
        assert now < 60
    assert now >= 1 + TTL
    # Nothing is kept of what is over.
    assert len(doubts) == 1
