"""Late edges: what pieces read together is what the log holds when they are read."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watermark_source.errors import DataLossError
from watermark_source.planning.ranges_per_task import OpenPiece, OpenRange, bind
from watermark_source.planning.split import Split, SplitRange

LOG = Split("orders", 3)


def cut(start: int, end: int, *cuts: int, late: str = "") -> list[OpenPiece]:
    """Return the pieces of a range; ``late`` names its late edges."""
    whole = OpenRange(SplitRange(LOG, start, end), late_start="start" in late, late_end="end" in late)
    edges = [start, *cuts, end]
    return [OpenPiece(SplitRange(LOG, a, b), whole) for a, b in pairwise(edges)]


def bound(pieces: list[OpenPiece], first: int, last: int) -> list[tuple[int, int]]:
    return [(r.start, r.end) for r in (bind(piece, SplitRange(LOG, first, last)) for piece in pieces)]


def test_nothing_moves_in_a_log_that_has_not_moved() -> None:
    pieces = cut(10, 40, 20, 30, late="start end")
    assert bound(pieces, 10, 40) == [(10, 20), (20, 30), (30, 40)]


def test_the_last_piece_takes_what_came_since() -> None:
    assert bound(cut(10, 40, 20, 30, late="end"), 10, 55) == [(10, 20), (20, 30), (30, 55)]


def test_what_fell_to_retention_since_is_in_no_piece() -> None:
    pieces = cut(10, 40, 20, 30, late="start")
    assert bound(pieces, 25, 40) == [(25, 25), (25, 30), (30, 40)]


def test_a_log_made_anew_is_read_from_its_own_beginning_to_its_own_end() -> None:
    assert bound(cut(10, 40, 20, 30, late="start end"), 0, 25) == [(0, 20), (20, 25), (30, 30)]


def test_an_empty_log_is_one_piece_that_takes_what_comes() -> None:
    assert bound(cut(7, 7, late="start end"), 7, 9) == [(7, 9)]


def test_a_start_that_is_given_stays_where_it_is_whatever_is_left_of_it() -> None:
    assert bound(cut(10, 40, 20, late="end"), 15, 40) == [(10, 20), (20, 40)]


def test_an_end_that_is_given_stays_where_it_is() -> None:
    assert bound(cut(10, 40, 20, late="start"), 10, 99) == [(10, 20), (20, 40)]


@pytest.mark.parametrize("cuts", [(), (20,)])
def test_a_log_that_ends_before_a_given_start_is_an_error_reported_once(cuts: tuple[int, ...]) -> None:
    first, *others = cut(10, 40, *cuts, late="end")
    with pytest.raises(DataLossError, match="orders-3 is read from position 10 on, and ends at 9 now"):
        bound([first], 0, 9)
    assert bound(others, 0, 9) == [(cut, cut) for cut in cuts]
    assert bound([first], 0, 10) == [(10, 10)]


def test_only_late_edges_need_binding() -> None:
    assert [cut(0, 9, late=late)[0].is_late for late in ("", "start", "end", "start end")] == [False, True, True, True]


@given(st.lists(st.integers(0, 60), min_size=4, max_size=9, unique=True), st.integers(0, 80), st.integers(0, 80))
def test_pieces_together_read_all_the_log_holds_and_nothing_twice(edges: list[int], a: int, b: int) -> None:
    start, *cuts, end = sorted(edges)
    first, last = min(a, b), max(a, b)
    read = [n for piece in bound(cut(start, end, *cuts, late="start end"), first, last) for n in range(*piece)]
    assert read == [*range(first, last)]


def test_what_is_not_wanted_is_in_no_piece_however_the_log_moves() -> None:
    whole = OpenRange(SplitRange(LOG, 10, 40), late_start=True, late_end=True)
    wanted = whole.within(20, 50)
    assert wanted is not None
    assert wanted.range == SplitRange(LOG, 20, 40)
    within = whole.within(20, 30)
    assert within is not None
    assert within.range == SplitRange(LOG, 20, 30)
    assert bound([OpenPiece(wanted.range, wanted)], 10, 45) == [(20, 45)]
    assert bound([OpenPiece(wanted.range, wanted)], 30, 60) == [(30, 50)]
    assert bound([OpenPiece(wanted.range, wanted)], 0, 25) == [(20, 25)]


def test_where_a_time_began_says_nothing_about_a_log_made_anew() -> None:
    wanted = OpenRange(SplitRange(LOG, 10, 40), late_start=True, late_end=True).within(5, None, first=30)
    assert wanted is not None
    assert bound([OpenPiece(wanted.range, wanted)], 10, 41) == [(30, 41)]
    assert bound([OpenPiece(wanted.range, wanted)], 10, 40) == [(30, 40)]
    assert bound([OpenPiece(wanted.range, wanted)], 0, 20) == [(5, 20)]


def test_a_range_in_which_nothing_wanted_can_come_is_left_out() -> None:
    whole = OpenRange(SplitRange(LOG, 10, 40), late_start=True, late_end=False)
    assert whole.within(0, 10) is None
    assert whole.within(40, None) is None
    assert whole.within(0, None, first=40) is None
    assert whole._replace(late_end=True).within(0, 10) is None
    # Rows may come there.
    later = whole._replace(late_end=True).within(60, None)
    assert later is not None
    assert later.range == SplitRange(LOG, 40, 40)
    assert bound([OpenPiece(later.range, later)], 10, 70) == [(60, 70)]
    assert bound([OpenPiece(later.range, later)], 10, 50) == [(60, 60)]


@given(
    st.lists(st.integers(0, 60), min_size=2, max_size=2, unique=True),
    st.lists(st.integers(0, 90), min_size=1, max_size=6, unique=True),
    st.integers(0, 80),
    st.integers(0, 80),
)
def test_intervals_together_read_all_of_them_that_the_log_holds_and_nothing_twice(
    planned: list[int], edges: list[int], a: int, b: int
) -> None:
    whole = OpenRange(SplitRange(LOG, min(planned), max(planned)), late_start=True, late_end=True)
    # A log loses rows at its beginning and gains rows at its end.
    first, last = whole.range.start + min(a, b), max(whole.range.end, whole.range.start + max(a, b))
    stops = [*sorted(edges), None]
    intervals = [(stops[i], stops[i + 1]) for i in range(0, len(stops) - 1, 2)]
    parts = [part for start, stop in intervals if (part := whole.within(start or 0, stop)) is not None]
    read = [n for part in parts for n in range(*bound([OpenPiece(part.range, part)], first, last)[0])]
    assert read == [n for n in range(first, last) if any((i or 0) <= n and (j is None or n < j) for i, j in intervals)]
