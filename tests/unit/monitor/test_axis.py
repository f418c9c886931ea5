"""The axis of event time that page, notebook and terminal share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.monitor.example_status import NOON, source_status, split_view
from watermark_source.durations import age_text, short_count
from watermark_source.monitor.axis import Axis, axis_of, read_up_to
from watermark_source.planning.group import Peer
from watermark_source.planning.watermark import MAX, MIN, Millis
from watermark_source.status_model.source_status import GroupStatus, Status

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def test_the_watermark_is_a_quarter_from_the_left_and_the_present_at_the_right() -> None:
    axis = axis_of([source_status(split_view(0))], NOON - SECOND, NOON + 10 * MINUTE)
    assert axis.share(NOON) == pytest.approx(0.19, abs=0.02)
    assert axis.share(NOON + 10 * MINUTE) == pytest.approx(0.95, abs=0.02)


def test_room_is_left_behind_the_present_where_a_partition_or_the_limit_is_past_it() -> None:
    held = source_status(split_view(0), split_view(1, watermark=NOON + HOUR))
    axis = axis_of([held], None, NOON + 10 * MINUTE)
    assert axis.is_past(NOON + HOUR)
    assert axis.share(NOON + 10 * MINUTE) == pytest.approx(0.84, abs=0.02)
    limited = source_status(split_view(0), group=GroupStatus("g", 2 * MINUTE, NOON + 2 * MINUTE, 1))
    axis = axis_of([limited], None, NOON + MINUTE)
    assert axis.share(NOON + 2 * MINUTE) == pytest.approx(0.84, abs=0.02)


def test_a_limit_that_lies_far_ahead_does_not_squeeze_the_partitions() -> None:
    far = source_status(split_view(0), group=GroupStatus("g", DAY, NOON + DAY, 1))
    assert axis_of([far], None, NOON + MINUTE).right < NOON + 2 * MINUTE


def test_the_margins_are_those_of_ten_seconds_at_least() -> None:
    axis = axis_of([source_status(split_view(0))], None, NOON + 5)
    assert 2_400 <= NOON - axis.left <= 2_500
    assert 600 <= axis.right - NOON <= 700


def test_a_replay_has_the_present_past_the_edge() -> None:
    status = source_status(*(split_view(i, watermark=NOON + i * 10 * SECOND) for i in range(4)))
    axis = axis_of([status], NOON - SECOND, NOON + 2 * DAY)
    assert axis.is_past(NOON + 2 * DAY)
    assert axis.share(NOON) > 0.1
    assert axis.time_text(NOON + 2 * DAY) == "23 Nov 12:00:00"
    assert axis.time_text(NOON) == "12:00:00"
    assert axis.time_text(NOON, NOON + 2 * DAY) == "21 Nov 12:00:00"


def test_partitions_that_are_idle_do_not_stretch_the_axis_and_another_source_of_the_group_does() -> None:
    idle = source_status(split_view(0), split_view(1, Status.IDLE, watermark=NOON - DAY))
    assert axis_of([idle], None, NOON + MINUTE).left > NOON - MINUTE
    slow = Peer("payments", "active", Millis(NOON - 5 * MINUTE), 0, is_waited_for=True)
    grouped = source_status(split_view(0), group=GroupStatus("g", MINUTE, None, 1, others=1, peers=(slow,)))
    assert axis_of([grouped], None, NOON + MINUTE).left < NOON - 5 * MINUTE


def test_sources_share_an_axis() -> None:
    late = source_status(split_view(0, watermark=NOON - HOUR), watermark=NOON - HOUR, source_name="clicks")
    assert axis_of([source_status(split_view(0)), late], None, NOON).left < NOON - HOUR


def test_the_axis_stands_still_between_two_reloads() -> None:
    status = [source_status(split_view(0))]
    now = [NOON + 10 * MINUTE + 250 * i for i in range(240)]
    axes = {axis_of(status, None, at) for at in now}
    assert len(axes) <= 6


def test_ticks_are_at_times_that_people_say() -> None:
    axis = Axis(NOON - 5 * MINUTE, NOON + 12 * MINUTE)
    assert [tick.text for tick in axis.ticks(5)] == ["11:55", "12:00", "12:05", "12:10"]
    assert [tick.text for tick in Axis(NOON, NOON + 2 * DAY).ticks(3)] == ["22 Nov", "23 Nov"]
    assert Axis(NOON, NOON + 500).ticks(3)[0].text == "12:00:00.000"


def test_rows_read_reach_further_than_the_watermark_by_the_bound() -> None:
    view = split_view(0)
    assert read_up_to(source_status(view, out_of_orderness=4_999), view) == NOON + 5_000
    assert read_up_to(source_status(view), view) == NOON
    assert read_up_to(source_status(view), split_view(0, watermark=None)) is None


moments = st.one_of(st.none(), st.sampled_from([MIN, MAX, 0, 10**17]), st.integers(NOON - 400 * DAY, NOON + 400 * DAY))


@given(st.lists(moments, max_size=5), moments, moments, moments, st.integers(2, 12))
def test_every_source_has_an_axis(
    marks: list[int | None], watermark: int | None, applied: int | None, limit: int | None, most: int
) -> None:
    views = [split_view(i, watermark=mark) for i, mark in enumerate(marks)]
    group = GroupStatus("g", MINUTE, limit, len(views))
    axis = axis_of([source_status(*views, watermark=watermark, group=group, slowest=())], applied, NOON)
    assert axis.left < axis.right
    assert axis.left <= NOON
    ticks = axis.ticks(most)
    assert len(ticks) <= most
    assert all(axis.left <= tick.at <= axis.right for tick in ticks)
    shares = [axis.share(mark) for mark in sorted(m for m in marks if m is not None)]
    assert shares == sorted(shares)
    assert all(axis.time_text(mark) for mark in [*marks, NOON] if mark is not None)


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "0 s"), (450, "0.4 s"), (3_249, "3.2 s"), (42_900, "42 s"), (161_000, "2 min 41 s"), (613_000, "10 min"),
        (4_080_000, "1 h 08 min"), (40_000_000, "11 h"), (2 * DAY + 3 * HOUR, "2 d 03 h"), (30 * DAY + HOUR, "30 d"),
        (-58 * MINUTE - 24_000, "-58 min"),
    ],
)  # fmt: skip
def test_ages_are_coarse(millis: int, text: str) -> None:
    assert age_text(millis) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0"), (40_112, "40 112"), (99_999, "99 999"), (803_400, "803 k"), (1_204_332, "1.2 M"),
        (8_120_004, "8.12 M"), (999_999, "1000 k"), (12 * 10**12, "12 T"),
    ],
)  # fmt: skip
def test_large_counts_are_short(n: int, text: str) -> None:
    assert short_count(n) == text
