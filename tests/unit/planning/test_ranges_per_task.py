"""How ranges are laid into tasks."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from watermark_source.planning import ranges_per_task
from watermark_source.planning.ranges_per_task import into_tasks
from watermark_source.planning.split import Split, SplitRange


@st.composite
def _ranges(draw: st.DrawFn, of_all: int = 12 * 60) -> list[SplitRange]:
    """``of_all``: no more positions than this in all."""
    edges = sorted(
        {min(edge, of_all) for edge in accumulate(draw(st.lists(st.integers(1, 60), max_size=12)), initial=0)}
    )
    sizes = [end - start for start, end in pairwise(edges)]
    starts = draw(st.lists(st.integers(0, 10**12), min_size=len(sizes), max_size=len(sizes)))
    return [SplitRange(Split("log", n), s, s + size) for n, (s, size) in enumerate(zip(starts, sizes, strict=True))]


at_least = st.none() | st.integers(1, 40)


@pytest.fixture(autouse=True, scope="module")
def _little_limits() -> object:
    """Ranges of tens of positions reach both limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges_per_task, "SMALL", 7)
        patch.setattr(ranges_per_task, "BIG", 20)
        patch.setattr(ranges_per_task, "SLACK", 1)
        yield


@given(_ranges(), at_least)
def test_tasks_cover_every_range_exactly_once_and_in_order(ranges: list[SplitRange], wanted: int | None) -> None:
    pieces = [piece for task in into_tasks(ranges, at_least=wanted) for piece in task]
    assert all(piece.size > 0 for piece in pieces)
    joined: list[SplitRange] = []
    for piece in pieces:
        if joined and joined[-1].split == piece.split:
            assert joined[-1].end == piece.start
            joined[-1] = joined[-1]._replace(end=piece.end)
        else:
            joined.append(piece)
    assert joined == ranges


@given(_ranges(), at_least)
def test_no_task_holds_two_pieces_of_one_split(ranges: list[SplitRange], wanted: int | None) -> None:
    for task in into_tasks(ranges, at_least=wanted):
        assert len({piece.split for piece in task}) == len(task)


@given(_ranges(), st.integers(1, 40))
def test_at_least_so_many_tasks_are_made_when_there_are_that_many_positions(
    ranges: list[SplitRange], wanted: int
) -> None:
    total = sum(r.size for r in ranges)
    assert len(into_tasks(ranges, at_least=wanted)) >= min(wanted, total)


@given(_ranges(of_all=4 * 8))
def test_a_small_batch_makes_no_more_tasks_than_hold_it(ranges: list[SplitRange]) -> None:
    total = sum(r.size for r in ranges)
    laid = into_tasks(ranges)
    assert len(laid) <= -(-total // 8) + 1
    assert all(sum(piece.size for piece in task) <= 9 for task in laid)


def test_a_small_batch_is_cut_into_equal_tasks_but_not_into_crumbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges_per_task, "SMALL", 100)
    monkeypatch.setattr(ranges_per_task, "SLACK", 10)

    def sizes(*ranges: int) -> list[list[int]]:
        laid = into_tasks([SplitRange(Split("log", n), 7, 7 + size) for n, size in enumerate(ranges)])
        return [[piece.size for piece in task] for task in laid]

    assert sizes(13, 129, 129, 129) == [[13, 87], [42, 58], [71, 29], [100]]
    assert sizes(100, 100, 100, 101) == [[100], [100], [100], [101]]
    assert sizes(95, 105, 90, 110) == [[95], [105], [90], [110]]
    assert sizes(110) == [[110]]
    assert sizes(120) == [[60], [60]]


@given(_ranges() | _ranges(of_all=4 * 8), st.integers(1, 12))
def test_ranges_are_cut_behind_a_multiple_only(ranges: list[SplitRange], unit: int) -> None:
    begins = {r.split: r.start for r in ranges}
    pieces = [piece for task in into_tasks(ranges, multiple_of=unit) for piece in task]
    assert all(piece.size and (piece.start - begins[piece.split]) % unit == 0 for piece in pieces)
    assert sum(piece.size for piece in pieces) == sum(r.size for r in ranges)


@given(_ranges())
def test_small_ranges_share_tasks_and_big_ones_are_cut(ranges: list[SplitRange]) -> None:
    assume(sum(r.size for r in ranges) > 4 * 8)
    laid = into_tasks(ranges)
    sizes = [sum(piece.size for piece in task) for task in laid]
    assert all(len(task) == 1 for task, size in zip(laid, sizes, strict=True) if size > 7)
    assert all(piece.size <= 20 for task in laid for piece in task)
    # Neighbours that would have fitted together are together.
    assert all(size + after[0].size > 7 for size, (_, after) in zip(sizes, pairwise(laid), strict=False))


def test_nothing_to_read_needs_no_task() -> None:
    assert into_tasks([]) == into_tasks([], at_least=8) == []


@given(_ranges(), at_least, st.integers(1, 40))
def test_no_task_holds_more_positions_than_at_most(ranges: list[SplitRange], wanted: int | None, most: int) -> None:
    laid = into_tasks(ranges, at_least=wanted, at_most=most)
    assert all(sum(piece.size for piece in task) <= most for task in laid)
    assert sum(piece.size for task in laid for piece in task) == sum(r.size for r in ranges)


@given(st.lists(st.integers(0, 30)), at_least)
def test_an_empty_range_is_in_one_task(sizes: list[int], wanted: int | None) -> None:
    ranges = [SplitRange(Split("log", number), 5, 5 + size) for number, size in enumerate(sizes)]
    pieces = [piece for task in into_tasks(ranges, at_least=wanted) for piece in task]
    assert [piece for piece in pieces if not piece.size] == [r for r in ranges if not r.size]
