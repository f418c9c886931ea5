"""A split's watermark and its event times."""

from __future__ import annotations

from tests.unit.planning.example_states import NOW
from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.planning.policy import WatermarkStrategy
from watermark_source.planning.split_watermark import event_time_of, future_cap, watermark_of


def test_watermark_and_event_time_are_inverse_and_saturate() -> None:
    strategy = WatermarkStrategy(out_of_orderness=500)
    assert watermark_of(Millis(1_000), strategy) == 499
    assert event_time_of(Millis(499), strategy) == 1_000
    assert watermark_of(MIN, strategy) == MIN
    assert event_time_of(MAX, strategy) == MAX


def test_the_future_cap_is_the_skew_after_now() -> None:
    assert future_cap(NOW, WatermarkStrategy()) is None
    assert future_cap(NOW, WatermarkStrategy(max_future_skew=5)) == NOW + 5
