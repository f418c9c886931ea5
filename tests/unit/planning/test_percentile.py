"""Percentile: the bound that is learned from how far rows were behind."""

from __future__ import annotations

from watermark_source.planning.disorder import BUCKETS, Learned, bound_of
from watermark_source.planning.strategy import Percentile

WISH = Percentile(on_time=990_000, rows=10_000, most=600_000)


def at(bucket: int) -> int:
    bound = bound_of(bucket)
    assert bound is not None
    return bound


def test_until_enough_rows_are_known_the_bound_is_the_upper_one() -> None:
    assert WISH.enough == 1_000
    assert Percentile(on_time=999_999, rows=1, most=1).enough == 10_000_000
    few = WISH.after(None, [((0, 999),)])
    assert few.bound == 600_000
    assert WISH.after(few, [((0, 1),)]).bound == 1


def test_the_bound_makes_no_more_late_than_was_wished() -> None:
    assert WISH.after(None, [((0, 9_900), (40, 100))]).bound == 1
    assert WISH.after(None, [((0, 9_899), (40, 101))]).bound == at(40)
    assert WISH.after(None, [((0, 9_899), (40, 51), (50, 50))]).bound == at(40)


def test_the_bound_is_never_more_than_the_upper_one() -> None:
    assert WISH.after(None, [((0, 9_000), (100, 1_000))]).bound == 600_000
    assert WISH.after(None, [((0, 9_000), (BUCKETS - 1, 1_000))]).bound == 600_000


def test_rows_are_forgotten_once_there_were_enough_others() -> None:
    far = WISH.after(None, [((60, 5_000),)])
    assert far == Learned(at(60), (), ((60, 5_000),))
    near = far
    for _ in range(49):
        near = WISH.after(near, [((0, 100),)])
    assert near.bound == at(60)
    near = WISH.after(near, [((0, 100),)])
    assert near == Learned(at(60), (), ((0, 5_000),))
    assert WISH.after(near, [((0, 1),)]).bound == 1


def test_small_batches_lose_no_rare_row() -> None:
    learned = None
    for number in range(4_000):
        learned = WISH.after(learned, [((0, 1),) if number % 50 else ((30, 1),)])
    assert learned is not None
    assert learned.bound == at(30)


def test_of_a_batch_with_more_rows_than_are_learned_from_all_count() -> None:
    before = WISH.after(None, [((60, 5_000),)])
    after = WISH.after(before, [((0, 1_000_000),)])
    assert after.recent == ()
    assert after.bound == 1
    assert WISH.after(after, [((20, 2_000_000),)]).bound == at(20)
