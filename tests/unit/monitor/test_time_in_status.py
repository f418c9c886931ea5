from __future__ import annotations

import pytest

from tests.unit.monitor.example_status import NOON, source_status, split_view
from watermark_source.monitor.followed_queries import add_elapsed
from watermark_source.monitor.source_status import Status
from watermark_source.planning.split import Split

SPLIT = Split("orders", 0)


def test_the_first_report_adds_nothing() -> None:
    assert add_elapsed({}, None, source_status(split_view(0))) == {}


def test_time_between_reports_goes_to_the_status_of_both() -> None:
    before, after = (source_status(split_view(0, Status.IDLE), at=NOON + t) for t in (0, 4_000))
    totals = {(SPLIT, Status.IDLE): 1_000}
    assert add_elapsed(totals, before, after) == {(SPLIT, Status.IDLE): 5_000}
    assert totals == {(SPLIT, Status.IDLE): 1_000}


@pytest.mark.parametrize(
    ("since", "active", "paused"),
    [(NOON + 3_000, 3_000, 7_000), (None, 10_000, 0), (NOON - 1, 10_000, 0), (NOON + 10_001, 10_000, 0)],
)
def test_a_change_between_reports_is_dated_by_since_where_that_lies_between(
    since: int | None, active: int, paused: int
) -> None:
    before = source_status(split_view(0), at=NOON)
    after = source_status(split_view(0, Status.PAUSED, since=since), at=NOON + 10_000)
    assert add_elapsed({}, before, after) == {(SPLIT, Status.ACTIVE): active, (SPLIT, Status.PAUSED): paused}


@pytest.mark.parametrize("later", [NOON, NOON - 1])
def test_a_repeated_or_older_report_adds_nothing(later: int) -> None:
    before = source_status(split_view(0), at=NOON)
    assert add_elapsed({}, before, source_status(split_view(0), at=later)) == {}


def test_a_split_that_is_new_in_the_report_starts_at_nothing() -> None:
    before = source_status(split_view(1), at=NOON)
    assert add_elapsed({}, before, source_status(split_view(0), at=NOON + 1)) == {}
