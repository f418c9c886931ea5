"""The combined watermark of many members."""

from __future__ import annotations

from watermark_source.planning.watermark import MIN, Millis, lowest_of_active


def test_the_lowest_active_member_counts() -> None:
    assert lowest_of_active([(Millis(7), False), (Millis(5), False), (Millis(1), True)], MIN) == 5


def test_with_all_members_idle_the_highest_counts_in_any_order() -> None:
    assert lowest_of_active([(Millis(7), True), (Millis(5), True)], MIN) == 7
    assert lowest_of_active([(Millis(5), True), (Millis(7), True)], MIN) == 7


def test_the_combined_watermark_never_regresses() -> None:
    assert lowest_of_active([(Millis(5), False)], Millis(9)) == 9


def test_without_members_the_combined_watermark_stands() -> None:
    assert lowest_of_active([], Millis(9)) == 9
