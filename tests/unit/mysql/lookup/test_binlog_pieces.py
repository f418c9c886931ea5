"""How ranges of the binlog are cut into pieces."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pyspark_mysql_cdc_wm.binlog.log_position import LogPosition, position_number
from pyspark_mysql_cdc_wm.lookup.binlog_bounds import LEAST_BYTES, cut
from watermark_source.planning.split import Split, SplitRange

BINLOG = Split("binlog", 0)
MB = 1024 * 1024


def _range(first: tuple[int, int], last: tuple[int, int]) -> SplitRange:
    return SplitRange(BINLOG, position_number(*first), position_number(*last))


def _bytes(pieces: list[SplitRange]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(tuple(LogPosition.of(each.start)), tuple(LogPosition.of(each.end))) for each in pieces]


def test_a_long_range_of_one_file_is_two_pieces_that_are_entered_where_it_begins() -> None:
    whole = _range((3, 100), (3, 100 + 40 * MB))

    pieces = cut(whole, {}, None)

    assert _bytes([piece.range for piece in pieces]) == [
        ((3, 100), (3, 100 + 20 * MB)),
        ((3, 100 + 20 * MB), (3, 100 + 40 * MB)),
    ]
    assert {piece.whole for piece in pieces} == {whole}


def test_a_short_range_is_not_cut_unless_asked_for() -> None:
    whole = _range((3, 100), (3, 100 + 2 * LEAST_BYTES - 1))

    assert [piece.range for piece in cut(whole, {}, None)] == [whole]
    assert len(cut(whole, {}, 5)) == 5
    assert len(cut(_range((3, 100), (3, 103)), {}, 5)) == 3


def test_each_long_file_is_a_piece_that_is_entered_where_the_file_begins() -> None:
    whole = _range((3, 100), (6, 50 * MB))

    pieces = cut(whole, {3: 60 * MB, 4: 40 * MB, 5: 70 * MB}, None)

    starts = [(3, 100), (4, 4), (5, 4), (6, 4)]
    assert [start for start, _ in _bytes([piece.range for piece in pieces])] == starts
    assert [start for start, _ in _bytes([piece.whole for piece in pieces])] == starts
    assert {piece.whole.end for piece in pieces} == {whole.end}


def test_small_files_are_read_together() -> None:
    whole = _range((1, 4), (400, 500))

    assert len(cut(whole, dict.fromkeys(range(1, 401), 1000), None)) == 1
    sizes = {**dict.fromkeys(range(1, 401), 1000), 200: 30 * MB}
    assert _bytes([piece.range for piece in cut(whole, sizes, 1)]) == [
        ((1, 4), (200, 4)),
        ((200, 4), (201, 4)),
        ((201, 4), (400, 500)),
    ]


positions = st.tuples(st.integers(1, 6), st.integers(4, 100 * MB))
sizes = st.dictionaries(st.integers(1, 6), st.integers(0, 100 * MB))


@given(st.tuples(positions, positions).map(sorted), sizes, st.none() | st.integers(1, 20))
def test_pieces_follow_one_another_and_lie_behind_where_they_are_entered(
    ends: list[tuple[int, int]], sizes: dict[int, int], at_least: int | None
) -> None:
    whole = _range(ends[0], ends[1])

    pieces = cut(whole, sizes, at_least)

    assert pieces[0].range.start == whole.start
    assert pieces[-1].range.end == whole.end
    for before, after in pairwise(pieces):
        assert before.range.end == after.range.start
    for piece in pieces:
        assert piece.range.size or not whole.size
        entered = LogPosition.of(piece.whole.start)
        assert piece.whole.start <= piece.range.start <= piece.range.end <= piece.whole.end == whole.end
        assert piece.whole.start == whole.start or entered.offset == 4
