"""Late rows: a histogram whose bounds the metrics have, and what it shows."""

from __future__ import annotations

from watermark_source.durations import parse_duration
from watermark_source.planning.range_report import BOUNDS_MS, LateRows

MINUTES = "1 minute", "2 minutes", "5 minutes", "10 minutes", "30 minutes"
SECONDS = "1 second", "2 seconds", "5 seconds", "10 seconds", "30 seconds"


def test_the_bounds_of_its_histogram_are_those_that_dashboards_know() -> None:
    assert tuple(map(parse_duration, (*SECONDS, *MINUTES, "1 hour", "6 hours", "1 day"))) == BOUNDS_MS


def test_how_far_a_share_of_them_is_behind_is_a_bound_or_the_farthest_of_all() -> None:
    late = LateRows((6, 3), 1_500, 8_000) + LateRows((0, 0, 0, 1), 7_000, 7_000)
    assert (late.rows, late.longest, late.total) == (10, 7_000, 15_000)
    assert late.up_to == (6, 9, 9, 10)
    assert [late.behind_at_most(share) for share in (0.6, 0.61, 0.9, 0.91, 1.0)] == [1_000, 2_000, 2_000, 7_000, 7_000]


def test_without_any_each_bound_has_none() -> None:
    assert LateRows().up_to == (0,) * (len(BOUNDS_MS) + 1)
    assert LateRows().behind_at_most(0.99) == 0
