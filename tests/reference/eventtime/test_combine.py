from __future__ import annotations

import pytest

from tests.reference.eventtime.combine import CombinedWatermark, Member, raised, recompute_watermark
from tests.reference.eventtime.watermark import START, Watermark
from watermark_source.eventtime.lowest_of_active import Combined, recompute
from watermark_source.eventtime.watermark import MIN, Millis


def member(time: int, *, flag: bool = False, idle: bool = False) -> Member:
    return Member(Watermark(Millis(time), flag), idle)


def test_recompute_reads_members_once() -> None:
    once = iter([(Millis(7), False), (Millis(5), False), (Millis(9), True)])
    assert recompute(once, MIN) == Combined(Millis(5), all_idle=False, advanced=True)


@pytest.mark.parametrize(("combined", "idle"), [(MIN, False), (Millis(3), True)])
def test_no_members_are_idle_once_there_was_a_watermark(combined: Millis, idle: bool) -> None:
    assert recompute([], combined) == Combined(combined, idle, advanced=False)


def test_flag_comes_on_without_a_greater_timestamp() -> None:
    found = recompute_watermark([member(5, flag=True), member(7, flag=True)], Watermark(Millis(6)))
    assert found == CombinedWatermark(Watermark(Millis(6), use_processing_time=True), all_idle=False, advanced=True)


def test_a_flagged_member_is_always_active() -> None:
    found = recompute_watermark([member(5, flag=True, idle=True), member(7, idle=True)], START)
    assert found.watermark == Watermark(Millis(5), use_processing_time=True)
    assert not found.all_idle


def test_once_flagged_members_without_the_flag_do_not_count() -> None:
    combined = Watermark(Millis(5), use_processing_time=True)
    grown = recompute_watermark([member(8, flag=True), member(1)], combined)
    assert grown.watermark == Watermark(Millis(8), use_processing_time=True)
    assert recompute_watermark([member(9)], combined) == CombinedWatermark(combined, all_idle=False, advanced=False)


def test_a_member_never_goes_back() -> None:
    clock = Watermark(Millis(5), use_processing_time=True)
    assert raised(clock, Watermark(Millis(5))) is clock
    assert raised(clock, Watermark(Millis(7))) == Watermark(Millis(7), use_processing_time=True)
    assert raised(Watermark(Millis(7)), clock) == Watermark(Millis(7), use_processing_time=True)
