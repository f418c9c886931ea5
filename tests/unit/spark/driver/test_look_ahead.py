"""Reading ahead: what is kept of a band, and that each row is looked at once."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from tests.unit.spark.driver.rows_in_memory import RowsInMemory
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.split_watermarks import Unread
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver import look_ahead
from watermark_source.spark.driver.look_ahead import PIECE_ROWS, MinIndex, ReadingAhead

A, B = Split("t", 0), Split("t", 1)


def look(
    ahead: ReadingAhead, start: int, position: int, end: int, *, late_at: int | None = None, cap: int | None = None
) -> Unread:
    found = ahead.unread(
        {A: SplitRange(A, start, position)},
        {A: end},
        late_at=None if late_at is None else Millis(late_at),
        future_cap=None if cap is None else Millis(cap),
    )
    return found[A]


def test_the_lowest_of_what_follows_is_known_and_no_row_is_looked_at_more_than_twice() -> None:
    times: list[int | None] = [1_000 + n for n in range(10_000)]
    times[7_000] = 5
    rows = RowsInMemory({A: times})
    ahead = ReadingAhead(rows, rows=4_000)
    assert look(ahead, 0, 2_000, 10_000) == Unread(6_000, Millis(3_000), Millis(6_999))
    assert look(ahead, 2_000, 4_000, 10_000).lowest == 5
    assert look(ahead, 4_000, 7_001, 10_000).lowest == 8_001
    assert look(ahead, 7_001, 9_000, 10_000).lowest == 10_000
    assert look(ahead, 9_000, 10_000, 10_000) == Unread(10_000, None, Millis(10_999))
    # Beside what is looked at for the first time, rows of one piece for each batch that ends within it.
    covered = sorted((r.start, r.end) for r in rows.asked if r.size > PIECE_ROWS)
    assert all(a[1] <= b[0] for a, b in pairwise(covered))
    assert max(Counter(n for r in rows.asked for n in range(r.start, r.end)).values()) == 2


def test_rows_of_a_log_that_has_others_by_now_are_forgotten() -> None:
    rows = RowsInMemory({A: [1_000 + n for n in range(100)]})
    ahead = ReadingAhead(rows, rows=50)
    assert look(ahead, 0, 40, 100).lowest == 1_040
    rows.times[A] = [5 + n for n in range(100)]
    assert look(ahead, 30, 40, 100).lowest == 1_040
    ahead.forget({A})
    assert look(ahead, 30, 40, 100).lowest == 45


def test_of_rows_in_order_the_lowest_is_always_the_next_one() -> None:
    """In steps of a batch's rows, not of the pieces in which they are kept."""
    rows = RowsInMemory({A: [1_000 * n for n in range(6_000)]})
    ahead = ReadingAhead(rows, rows=3_000)
    for position in range(100, 6_000, 100):
        assert look(ahead, position - 100, position, 6_000).lowest == 1_000 * position
    assert sum(r.size for r in rows.asked) <= 2 * 6_000


def test_a_batch_longer_than_the_band_is_not_looked_at_but_near_the_end() -> None:
    rows = RowsInMemory({A: list(range(10_000))})
    ahead = ReadingAhead(rows, rows=1_000)
    look(ahead, 0, 5_000, 10_000)
    assert rows.asked == [SplitRange(A, 5_000, 6_000)]
    # Behind it there are only 300: of the batch itself its last 700 show how far it leads.
    assert look(ahead, 5_000, 9_700, 10_000).highest == 9_999
    # Once more those after the batch's end, which are known as one piece with some before it.
    assert rows.asked[1:] == [SplitRange(A, 9_000, 10_000), SplitRange(A, 9_700, 10_000)]


def test_a_plan_that_comes_less_far_than_the_one_before_looks_at_what_it_leaves_out() -> None:
    """As when plans are made twice; and after a log was created again."""
    times: list[int | None] = list(range(1_000, 11_000))
    times[3_500] = 7
    rows = RowsInMemory({A: times})
    ahead = ReadingAhead(rows, rows=1_000)
    look(ahead, 0, 5_000, 10_000)
    assert look(ahead, 0, 3_000, 10_000).lowest == 7
    look(ahead, 8_000, 8_500, 10_000)
    rows.times[A] = [50, 40]
    assert look(ahead, 0, 0, 2) == Unread(2, Millis(40), Millis(10_499))


def test_small_batches_at_the_end_of_a_log_are_known_to_the_row() -> None:
    rows = RowsInMemory({A: [100, 200, 150, 400, 300]})
    ahead = ReadingAhead(rows, rows=100)
    assert look(ahead, 0, 2, 2) == Unread(2, None, Millis(200))
    assert look(ahead, 2, 3, 3) == Unread(3, None, Millis(200))
    # A limit of rows leaves one of those that came.
    assert look(ahead, 3, 3, 5) == Unread(5, Millis(300), Millis(400))


def test_where_positions_have_no_row_a_row_counts_as_unread_for_longer() -> None:
    """Nothing shows which they are: an old row is never treated as read that is not."""
    size = 3_000
    times: list[int | None] = [1_000 + n for n in range(size)]
    times[2_000] = 7
    gaps = {A: set(range(0, size, 3))}
    ahead = ReadingAhead(RowsInMemory({A: times}, gaps), rows=size)
    for position in range(0, 2_001, 100):
        assert look(ahead, 0, position, size).lowest == 7
    assert look(ahead, 0, size, size).lowest is None


def test_late_rows_rows_of_the_future_and_rows_without_a_time_move_nothing() -> None:
    ahead = ReadingAhead(RowsInMemory({A: [50, None, 99_999, 120, 100]}), rows=10)
    assert look(ahead, 0, 0, 5, late_at=100, cap=1_000) == Unread(5, Millis(120), Millis(120))
    nothing = ReadingAhead(RowsInMemory({A: [None, None]}), rows=10)
    assert look(nothing, 0, 0, 2) == Unread(2, None, None)


def test_what_cannot_be_read_is_not_known_and_is_looked_at_again() -> None:
    rows = RowsInMemory({A: [100, 90, 300]})
    ahead = ReadingAhead(rows, rows=10)
    rows.broken = True
    assert look(ahead, 0, 1, 3) == Unread(1, None, None, is_readable=False)
    rows.broken = False
    assert look(ahead, 0, 1, 3) == Unread(3, Millis(90), Millis(300))


@pytest.mark.parametrize("seconds", [1.0, 0.0])
def test_a_split_that_cannot_be_read_keeps_nothing_of_the_others_back(
    seconds: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where finding it takes longer than a plan has time for."""
    monkeypatch.setattr(look_ahead, "_LONGEST", seconds)
    splits = [Split("t", n) for n in range(4)]
    rows = RowsInMemory({split: list(range(100, 130)) for split in splits})
    rows.unreadable = {splits[0]}
    ahead = ReadingAhead(rows, rows=10)
    plans = 1 if seconds else 8
    for position in range(plans):
        if seconds == 0.0 and position:
            monkeypatch.setattr(look_ahead, "_LONGEST", 0.2)
        ranges = {s: SplitRange(s, position, position) for s in splits}
        found = ahead.unread(ranges, dict.fromkeys(splits, 30), late_at=None, future_cap=None)
        if seconds == 0.0 and not position:
            # Which one it is, is not known yet: none leads anywhere.
            assert not any(each.is_readable for each in found.values())
    assert {s for s, each in found.items() if each.is_readable} == set(splits[1:])
    assert {each.lowest for s, each in found.items() if s != splits[0]} == {100 + plans - 1}
    assert len([r for r in caplog.records if "t-0: the rows behind the batch cannot be read" in r.getMessage()]) == 1


def test_a_plan_goes_on_with_what_is_known_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ahead, "_AT_FIRST", 1_000)
    monkeypatch.setattr(look_ahead, "_LEAST", 500)
    monkeypatch.setattr(look_ahead, "_MOST", 1_000)
    monkeypatch.setattr(look_ahead, "_LONGEST", 0.0)
    rows = RowsInMemory({A: list(range(10_000)), B: list(range(10_000))})
    ahead = ReadingAhead(rows, rows=5_000)
    ranges, ends = {s: SplitRange(s, 0, 0) for s in (A, B)}, {A: 10_000, B: 10_000}
    for until in (500, 1_000, 1_500):
        found = ahead.unread(ranges, ends, late_at=None, future_cap=None)
        assert {u.until for u in found.values()} == {until}


def test_how_many_rows_are_looked_at_before_the_clock_is_learned_from_how_long_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of five kilobytes take a thousand times as long as rows of five bytes."""
    monkeypatch.setattr(look_ahead, "_AT_FIRST", 1_100)
    monkeypatch.setattr(look_ahead, "_MOST", 10_000)
    monkeypatch.setattr(look_ahead, "_LONGEST", 0.0)
    rows = RowsInMemory({A: list(range(100_000))})
    ahead = ReadingAhead(rows, rows=100_000)
    look(ahead, 0, 0, 100_000)
    # At most 2 000 are a fifth of a second.
    rows.seconds_a_row = 100e-6
    for _ in range(3):
        look(ahead, 0, 0, 100_000)
    at_first, more, learned, again = (each.size for each in rows.asked)
    assert at_first == 1_100 < more <= 4_400
    assert 1_000 <= learned <= 2_000
    assert 1_000 <= again <= 2_000


def test_very_many_splits_with_few_rows_each_are_one_look_plan_after_plan() -> None:
    splits = [Split("t", n) for n in range(300)]
    rows = RowsInMemory({split: list(range(100, 200)) for split in splits})
    ahead = ReadingAhead(rows, rows=1_000)
    for plan in range(1, 6):
        planned = {split: SplitRange(split, 5 * plan, 5 * plan) for split in splits}
        found = ahead.unread(planned, dict.fromkeys(splits, 5 * plan + 5), late_at=None, future_cap=None)
        assert {each.until for each in found.values()} == {5 * plan + 5}
        assert rows.reads == plan


def test_the_index_is_sparse() -> None:
    rows = 200_000
    index = MinIndex.at(0).with_rows(SplitRange(A, 0, rows), np.arange(rows) * 1_000, None, None)
    assert index.pieces.nbytes < 5_000
    for position in range(0, rows, 777):
        lowest = index.unread(position).lowest
        assert lowest is not None
        assert position - PIECE_ROWS < lowest <= position


def test_of_very_many_splits_some_are_looked_at_and_then_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """One dead broker or slow disk must not keep a plan for as long as all of them take."""
    monkeypatch.setattr(look_ahead, "_AT_FIRST", 20)
    monkeypatch.setattr(look_ahead, "_LEAST", 10)
    monkeypatch.setattr(look_ahead, "_MOST", 20)
    monkeypatch.setattr(look_ahead, "_LONGEST", 0.0)
    splits = [Split("t", n) for n in range(7)]
    rows = RowsInMemory({split: list(range(100, 130)) for split in splits})
    ahead = ReadingAhead(rows, rows=10)
    planned = {split: SplitRange(split, 0, 0) for split in splits}
    ends = dict.fromkeys(splits, 30)
    for expected in (2, 4, 6, 7):
        ahead.unread(planned, ends, late_at=None, future_cap=None)
        assert len({each.split for each in rows.asked}) == expected
