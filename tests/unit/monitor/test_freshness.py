"""Freshness as a distribution: which batches count, for how long, and how exactly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.listener import QueryProgressEvent

from tests.unit.monitor.example_status import NOON, progress_of, source_status, split_view
from watermark_source.monitor.followed_queries import FollowedQuery
from watermark_source.monitor.freshness import NO_BATCHES, NO_FRESHNESS, SPAN, RecentBatches, committed_at
from watermark_source.monitor.status_page import _Queries
from watermark_source.monitor.three_clocks import query_clocks
from watermark_source.planning.watermark import MAX
from watermark_source.status_model.source_status import SourceStatus, Unprocessed
from watermark_source.status_model.status_json import parse_progress


def batches(delays: list[int], apart: int = 10) -> RecentBatches:
    """Return batches whose rows arrived so long before they were committed, at noon and after."""
    recent = NO_BATCHES
    for n, delay in enumerate(delays):
        at = NOON + n * apart
        recent = recent.after(query_clocks({}, [status(at, delay)], at, in_batch=True))
    return recent


def status(at: int, delay: int, **fields: Any) -> SourceStatus:
    given = {"watermark": at - 2 * delay, "unprocessed": Unprocessed(at - delay, "orders-0")} | fields
    return source_status(split_view(0), at=at, **given)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=400))
def test_half_and_nearly_all_of_the_batches_are_within_five_percent(delays: list[int]) -> None:
    found = batches(delays).freshness(NOON + 10 * len(delays)).commit_latency
    assert found is not None
    assert found.batches == len(delays)
    ordered = sorted(delays)
    for share, seen in ((0.5, found.p50), (0.99, found.p99)):
        exact = ordered[-(-int(100 * share) * len(ordered) // 100) - 1]
        assert exact - 1 <= seen <= 1.05 * exact + 1


def test_the_event_time_lag_is_from_the_output_watermark_to_the_commit() -> None:
    lag, latency = batches([10_000]).freshness(NOON)
    assert lag is not None
    assert latency is not None
    assert 20_000 <= lag.p50 <= 21_000
    assert 10_000 <= latency.p99 <= 10_500


def test_batches_of_more_than_five_minutes_ago_count_no_more() -> None:
    recent = batches([60_000, 1_000], apart=SPAN + 60_000)
    found = recent.freshness(NOON + SPAN + 60_000).commit_latency
    assert found is not None
    assert (found.batches, found.p99 < 1_100) == (1, True)
    assert recent.freshness(NOON + 3 * SPAN) == NO_FRESHNESS


def test_ten_thousand_batches_keep_no_more_than_their_classes() -> None:
    recent = batches([n % 500 for n in range(10_000)], apart=100)
    assert len(recent.slices) <= 10
    assert all(len(each.latency) < 140 for each in recent.slices)


@pytest.mark.parametrize(
    "fields",
    [{"unprocessed": Unprocessed(NOON)}, {"unprocessed": Unprocessed(NOON - 5, "a", True)}, {"unprocessed": None}],
)
def test_a_batch_without_rows_and_rows_of_before_the_start_have_no_latency(fields: dict[str, Any]) -> None:
    known = query_clocks({}, [status(NOON, 5, **fields)], NOON, in_batch=True)
    assert NO_BATCHES.after(known).freshness(NOON).commit_latency is None


def test_the_end_of_time_is_no_lag() -> None:
    ended = query_clocks({}, [status(NOON, 5, watermark=MAX)], NOON, in_batch=True)
    assert NO_BATCHES.after(ended).freshness(NOON).event_time_lag is None


def test_a_batch_is_committed_when_its_trigger_is_done() -> None:
    event = progress_of(durationMs={"addBatch": 5, "triggerExecution": 700})
    assert committed_at(event) == NOON + 5_700
    assert committed_at(progress_of(durationMs={})) is None


def test_a_listener_counts_the_batches_of_each_query() -> None:
    query, arrived = FollowedQuery("r", "sales"), NOON + 4_700
    event = progress_of(
        status(NOON, 1, watermark=NOON, unprocessed=Unprocessed(arrived, "orders-0")),
        durationMs={"addBatch": 5, "triggerExecution": 700},
    )
    for _ in range(2):
        query = query.after(event, parse_progress(event))
    query = query.after(event | {"durationMs": {}}, ())
    found = query.recent.freshness(NOON + 6_000)
    assert found.commit_latency is not None
    assert found.commit_latency.batches == 2
    assert 1_000 <= found.commit_latency.p50 <= 1_050


def test_the_page_has_each_batch_also_of_the_time_in_which_it_was_not_requested() -> None:
    event = progress_of(
        status(NOON, 1, watermark=NOON, unprocessed=Unprocessed(NOON + 4_700, "orders-0")),
        durationMs={"addBatch": 5, "triggerExecution": 700},
    )
    query = SimpleNamespace(
        id=event["id"], runId=event["runId"], name="sales", isActive=True, lastProgress=event, status={"message": ""},
        exception=lambda: None,
    )  # fmt: skip
    queries = _Queries(SimpleNamespace(streams=SimpleNamespace(active=[query])))  # type: ignore[arg-type]
    queries._clock = SimpleNamespace(wall=lambda: NOON + 6_000)  # type: ignore[assignment]
    for batch in (7, 8, 9):
        queries.onQueryProgress(QueryProgressEvent.fromJson({"progress": event | {"batchId": batch}}))
    (shown,) = queries.page().queries
    assert shown.freshness.commit_latency is not None
    assert shown.freshness.commit_latency.batches == 3
