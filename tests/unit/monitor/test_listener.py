from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from tests.unit.monitor.example_status import NOON, checkout, progress_of, source_status, split_view
from watermark_source.monitor import listener as monitor_listener
from watermark_source.monitor.followed_queries import FollowedQuery
from watermark_source.monitor.listener import QuerySource, StatusListener
from watermark_source.monitor.prometheus import StatusCollector
from watermark_source.planning.group import OwnSilence, Peer
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.range_report import BOUNDS_MS, LateRows
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.spark.operator_watermarks import BatchWatermarks, OperatorWatermark
from watermark_source.status_model.source_status import (
    BoundInForce,
    ChangeCounts,
    GroupStatus,
    SnapshotProgress,
    SourceStatus,
    Status,
    TimeInStatus,
    Unprocessed,
    WriterView,
)
from watermark_source.status_model.status_json import event_of

QUERY = progress_of()["id"]
RUN = progress_of()["runId"]
LATER_RUN = "00000000-0000-0000-0000-000000000002"
OTHER = "00000000-0000-0000-0000-000000000001"
LABELS = ("query", "source", "group", "topic", "partition", "status")
OTHER_LABELS = ("peer", "table", "writer", "le", "holder", "operator", "name", "quantile")
LATE = [
    {
        "operatorName": "stateStoreSave", "numRowsTotal": 1, "numRowsUpdated": 1, "numRowsRemoved": 0,
        "allUpdatesTimeMs": 1, "allRemovalsTimeMs": 1, "commitTimeMs": 1, "memoryUsedBytes": 1,
        "numRowsDroppedByWatermark": 4, "numShufflePartitions": 1, "numStateStoreInstances": 1, "customMetrics": {},
    }
]  # fmt: skip


def started(run: str = RUN, name: str | None = "sales", query: str = QUERY) -> QueryStartedEvent:
    return QueryStartedEvent.fromJson(
        {"id": query, "runId": run, "name": name, "timestamp": "2026-11-21T12:00:00.000Z", "jobTags": []}
    )


def progressed(*statuses: SourceStatus, **fields: Any) -> QueryProgressEvent:
    return QueryProgressEvent.fromJson({"progress": progress_of(*statuses, **fields)})


def terminated(run: str = RUN) -> QueryTerminatedEvent:
    return QueryTerminatedEvent.fromJson({"id": QUERY, "runId": run, "exception": None, "errorClassOnException": None})


def samples(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """The registry's own exposition, as (name, label values in the order of ``LABELS``) -> value."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (
            s.name,
            *(s.labels[label] for label in (*LABELS, *OTHER_LABELS) if label in s.labels),
        ): s.value
        for family in families
        for s in family.samples
    }


def test_the_latest_status_of_every_source_is_kept() -> None:
    listener = StatusListener()
    listener.onQueryStarted(started())
    listener.onQueryProgress(progressed(source_status(), source_status(source_name="refunds")))
    listener.onQueryProgress(progressed(checkout()))
    assert listener.statuses() == {
        QuerySource("sales", "orders"): checkout(),
        QuerySource("sales", "refunds"): source_status(source_name="refunds"),
    }


def test_a_query_without_a_name_goes_by_its_id() -> None:
    listener = StatusListener()
    listener.onQueryStarted(started(name=None))
    listener.onQueryProgress(progressed(checkout(), name=None))
    assert list(listener.statuses()) == [QuerySource(QUERY, "orders")]


def test_a_query_that_ran_before_the_listener_came_is_followed_too() -> None:
    named, nameless = StatusListener(), StatusListener()
    named.onQueryProgress(progressed(checkout()))
    nameless.onQueryProgress(progressed(checkout(), name=None))
    assert [*named.statuses(), *nameless.statuses()] == [QuerySource("sales", "orders"), QuerySource(QUERY, "orders")]


def test_a_query_that_starts_while_the_progress_of_another_is_recorded_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark calls ``onQueryStarted`` in the thread of the query that starts."""
    listener = StatusListener()
    listener.onQueryStarted(started())

    def read(progress: StreamingQueryProgress) -> Mapping[str, Any]:
        query = threading.Thread(target=listener.onQueryStarted, args=[started(name="refunds", query=OTHER)])
        query.start()
        query.join(60)
        return event_of(progress)

    monkeypatch.setattr(monitor_listener, "event_of", read)
    listener.onQueryProgress(progressed(checkout()))
    assert [(query.label, [*query.sources]) for query in listener.queries()] == [("sales", ["orders"]), ("refunds", [])]


def test_an_idle_query_keeps_its_status_and_a_terminated_one_is_forgotten() -> None:
    listener = StatusListener()
    listener.onQueryProgress(progressed(checkout()))
    listener.onQueryIdle(QueryIdleEvent.fromJson({"id": QUERY, "runId": RUN, "timestamp": "2026-11-21T12:00:00.000Z"}))
    assert listener.statuses()
    listener.onQueryTerminated(terminated())
    assert listener.queries() == ()
    listener.onQueryTerminated(terminated())


def test_the_end_of_an_earlier_run_does_not_touch_the_later_one() -> None:
    listener = StatusListener()
    listener.onQueryStarted(started(RUN))
    listener.onQueryStarted(started(LATER_RUN))
    listener.onQueryProgress(progressed(checkout(source_name="old"), runId=RUN))
    listener.onQueryProgress(progressed(checkout(), runId=LATER_RUN))
    listener.onQueryTerminated(terminated(RUN))
    assert list(listener.statuses()) == [QuerySource("sales", "orders")]


@pytest.mark.parametrize(("name", "shown"), [("sales", "sales"), (None, QUERY)])
def test_a_report_that_cannot_be_read_is_logged_once_and_leaves_the_last_one(
    caplog: pytest.LogCaptureFixture, logged: Callable[[], list[str]], name: str | None, shown: str
) -> None:
    listener = StatusListener()
    listener.onQueryProgress(progressed(checkout()))
    newer = progress_of(checkout(), name=name)
    newer["sources"][1]["latestOffset"]["v"] = 9
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            listener.onQueryProgress(QueryProgressEvent.fromJson({"progress": newer}))
    assert [text.split(";")[0] for text in logged()] == [f"query {shown}: status report of version 9"]
    assert listener.statuses()[QuerySource("sales", "orders")] == checkout()


PEERS = (Peer("users", "active", None, 2_500, is_waited_for=True), Peer("users", "idle", None, 200, is_waited_for=True))
"""Two of one name: the metric has the more silent one."""


def test_the_metrics_of_a_status_are_complete() -> None:
    registry = CollectorRegistry()
    listener = StatusListener()
    registry.register(StatusCollector(listener.queries, clock=lambda: NOON + 8_000))
    lag: dict[str, Any] = {"position": 100, "end": 150}
    status = source_status(
        split_view(0, **lag, drift=0, holds_back=True, late_rows=5, times=TimeInStatus(7_000, 1_500, 0, 2)),
        split_view(1, Status.IDLE, position=7, end=None, watermark=None),
        late=LateRows((2, 0, 0, 3, *[0] * 10), longest=9_000, total=26_000),
        group=GroupStatus(
            "checkout",
            30_000,
            NOON + 30_000,
            2,
            minimum=NOON,
            holder="users",
            peers=PEERS,
            own_silence=OwnSilence(Millis(NOON), 4_000, was_waited_for=True),
        ),
        unread=Unprocessed(NOON + 3_000, "orders-0"),
        changes=ChangeCounts(watermark=8, status=2),
        rows=1_000,
        future_rows=3,
        undated_rows=4,
        malformed_rows=6,
        bound=BoundInForce(1_049, 600_000, 999_000, NOON),
        snapshots=[SnapshotProgress(log="shop.a", rows=70, chunks=7, expected=100, rate=5, done=False)],
        writers=[
            WriterView(
                name="sessions",
                status="active",
                kind=HoldKind.READ,
                why="announces",
                announced=NOON,
                since=NOON + 5_000,
            ),
            WriterView(name="clicks", status="awaited", kind=HoldKind.NEVER, why="has announced nothing yet"),
        ],
    )
    listener.onQueryProgress(progressed(status, stateOperators=LATE))
    source = ("sales", "orders", "checkout")
    first, second = (*source, "orders", "0"), (*source, "orders", "1")
    noon = NOON / 1_000

    def by_status(name: str, labels: tuple[str, ...], **known: int) -> dict[tuple[str, ...], float]:
        return {(f"watermark_source_{name}", *labels, s.name.lower()): known.get(s.name, 0) for s in Status}

    expected: dict[tuple[str, ...], float] = {
        ("watermark_source_partition_watermark_timestamp_seconds", *first): noon,
        ("watermark_source_partition_lag_records", *first): 50,
        ("watermark_source_alignment_drift_seconds", *first): 0,
        **by_status("partition_status", first, ACTIVE=1),
        **by_status("partition_status", second, IDLE=1),
        ("watermark_source_partition_active_seconds_total", *first): 7,
        ("watermark_source_partition_idle_seconds_total", *first): 1.5,
        ("watermark_source_partition_paused_seconds_total", *first): 0,
        ("watermark_source_partition_status_changes_total", *first): 2,
        ("watermark_source_watermark_changes_total", *source): 8,
        ("watermark_source_status_changes_total", *source): 2,
        ("watermark_source_alignment_minimum_timestamp_seconds", *source): noon,
        ("watermark_source_alignment_max_drift_seconds", *source): 30.0,
        ("watermark_source_alignment_holder", *source, "users"): 1,
        ("watermark_source_alignment_peer_silence_seconds", *source, "users"): 2.5,
        ("watermark_source_alignment_own_silence_seconds", *source): 4.0,
        ("watermark_source_watermark_timestamp_seconds", *source): noon,
        ("watermark_source_watermark_lag_seconds", *source): 8,
        ("watermark_source_watermark_holder", *source, "writer clicks"): 1,
        ("watermark_source_alignment_max_allowed_timestamp_seconds", *source): noon + 30,
        **by_status("partitions", source, ACTIVE=1, IDLE=1),
        ("watermark_source_lag_records", *source): 50,
        ("watermark_source_records_total", *source): 1_000,
        ("watermark_source_future_records_total", *source): 3,
        ("watermark_source_undated_records_total", *source): 4,
        ("watermark_source_malformed_records_total", *source): 6,
        ("watermark_source_partition_late_records_total", *first): 5,
        ("watermark_source_partition_late_records_total", *second): 0,
        **{
            ("watermark_source_late_lag_seconds_bucket", *source, bound): 2 if bound in {"1.0", "2.0", "5.0"} else 5
            for bound in (*(f"{millis / 1_000}" for millis in BOUNDS_MS), "+Inf")
        },
        ("watermark_source_late_lag_seconds_count", *source): 5,
        ("watermark_source_late_lag_seconds_sum", *source): 26,
        ("watermark_source_late_ratio", *source): 0.005,
        ("watermark_source_out_of_orderness_bound_seconds", *source): 1.049,
        ("watermark_source_out_of_orderness_bound_since_timestamp_seconds", *source): noon,
        ("watermark_source_status_age_seconds", *source): 3,
        ("watermark_source_snapshot_rows", *source, "shop.a"): 70,
        ("watermark_source_snapshot_expected_rows", *source, "shop.a"): 100,
        ("watermark_source_announced_watermark_timestamp_seconds", *source, "sessions"): noon,
        ("watermark_source_announcement_age_seconds", *source, "sessions"): 3,
        ("watermark_source_late_records_total", "sales"): 4,
        ("watermark_source_input_watermark_timestamp_seconds", "sales"): noon,
        ("watermark_source_input_event_time_lag_seconds", "sales"): 8,
        ("watermark_source_processing_time_watermark_timestamp_seconds", "sales"): noon + 3,
        ("watermark_source_processing_time_latency_seconds", "sales"): 5,
        ("watermark_source_state_rows", "sales"): 1,
    }
    assert samples(registry) == expected


def test_the_watermarks_of_operators_and_of_the_output_have_metrics() -> None:
    join = OperatorWatermark(
        name="SymmetricHashJoin", operator=0, late=Millis(NOON - 3_000), eviction=Millis(NOON - 2_000),
        output_before=Millis(NOON - 9_000), output=Millis(NOON - 8_000), promises=True, is_last=True,
    )  # fmt: skip
    batch = BatchWatermarks(7, (join,), is_complete=False, has_stateless_rows=False)
    event = progress_of(stateOperators=LATE, durationMs={"addBatch": 1})
    query = FollowedQuery(RUN, "sales", progress=event, operators=batch)
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: [query], clock=lambda: NOON))
    found = {key: value for key, value in samples(registry).items() if "operator" in key[0] or "event_time" in key[0]}
    operator = ("sales", "0", "SymmetricHashJoin")
    assert found == {
        ("watermark_source_operator_watermark_timestamp_seconds", *operator): NOON / 1_000 - 2,
        ("watermark_source_operator_late_watermark_timestamp_seconds", *operator): NOON / 1_000 - 3,
        ("watermark_source_operator_output_watermark_timestamp_seconds", *operator): NOON / 1_000 - 8,
        ("watermark_source_event_time_lag_seconds", "sales"): 8,
    }


def test_the_last_batches_have_metrics_by_quantile() -> None:
    listener, registry = StatusListener(), CollectorRegistry()
    registry.register(StatusCollector(listener.queries, clock=lambda: NOON + 8_000))
    arrived = source_status(unprocessed=Unprocessed(NOON + 4_000, "orders-0"))
    listener.onQueryProgress(progressed(arrived, durationMs={"addBatch": 900, "triggerExecution": 1_000}))
    found = {key[1:]: value for key, value in samples(registry).items() if "recent_commit_latency" in key[0]}
    assert found.keys() == {("sales", "0.5"), ("sales", "0.99")}
    # The event began five seconds after noon.
    assert all(2.0 <= value <= 2.1 for value in found.values())


def test_an_idle_query_has_processed_what_arrived_before() -> None:
    listener, registry = StatusListener(), CollectorRegistry()
    registry.register(StatusCollector(listener.queries, clock=lambda: NOON + 60_000))
    name = ("watermark_source_processing_time_latency_seconds", "sales")
    listener.onQueryProgress(progressed(source_status(unread=Unprocessed(NOON))))
    assert samples(registry)[name] == 60
    idle = {"id": QUERY, "runId": RUN, "timestamp": "2026-11-21T12:00:58.000Z"}
    listener.onQueryIdle(QueryIdleEvent.fromJson(idle))
    assert samples(registry)[name] == 2


def test_labels_are_named_as_documented() -> None:
    registry = CollectorRegistry()
    listener = StatusListener(registry)
    snapshot = SnapshotProgress(log="shop.a", rows=70, chunks=7, expected=100, rate=5, done=False)
    listener.onQueryProgress(progressed(checkout(snapshots=[snapshot], bound=BoundInForce(1, 2, 3, NOON))))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    labels = {family.name: set(family.samples[0].labels) for family in families if family.samples}
    assert labels["watermark_source_late_records"] == {"query"}
    assert labels["watermark_source_watermark_timestamp_seconds"] == {"query", "source", "group"}
    assert labels["watermark_source_snapshot_rows"] == {"query", "source", "group", "table"}
    assert labels["watermark_source_partition_status"] == set(LABELS)


def test_how_far_is_looked_ahead_is_reported_where_that_is_done() -> None:
    registry = CollectorRegistry()
    listener = StatusListener(registry)
    listener.onQueryProgress(progressed(source_status(split_view(0, looked_ahead=700), split_view(1))))
    reported = {
        key: value for key, value in samples(registry).items() if key[0].endswith("partition_lookahead_records")
    }
    assert list(reported.values()) == [700]


def test_the_end_of_time_is_no_moment_and_nothing_is_ahead_of_the_clock_by_it() -> None:
    registry = CollectorRegistry()
    listener = StatusListener(registry)
    group = GroupStatus("g", 1, MAX, 1)
    listener.onQueryProgress(progressed(source_status(split_view(0, watermark=MAX), watermark=MAX, group=group)))
    found = samples(registry)
    assert not [name for name, *_ in found if name.endswith(("timestamp_seconds", "watermark_lag_seconds"))]
    assert ("watermark_source_lag_records", "sales", "orders", "g") in found


def test_what_is_not_known_has_no_sample() -> None:
    registry = CollectorRegistry()
    listener = StatusListener(registry)
    listener.onQueryProgress(progressed(source_status(watermark=None)))
    names = {name for name, *_ in samples(registry)}
    assert "watermark_source_status_age_seconds" in names
    assert not names & {
        "watermark_source_watermark_timestamp_seconds",
        "watermark_source_watermark_lag_seconds",
        "watermark_source_alignment_max_allowed_timestamp_seconds",
        "watermark_source_partition_status",
    }
    listener.onQueryProgress(progressed(source_status(group=GroupStatus("g", 1, None, 1))))
    assert "watermark_source_alignment_max_allowed_timestamp_seconds" not in {name for name, *_ in samples(registry)}


def test_the_age_of_a_report_is_never_negative() -> None:
    registry = CollectorRegistry()
    listener = StatusListener()
    registry.register(StatusCollector(listener.queries, clock=lambda: NOON))
    listener.onQueryProgress(progressed(source_status(at=NOON + 1)))
    assert samples(registry)["watermark_source_status_age_seconds", "sales", "orders", ""] == 0


def test_dropped_rows_are_counted_from_event_to_event() -> None:
    registry = CollectorRegistry()
    listener = StatusListener(registry)
    for operators in ([], LATE, LATE):
        listener.onQueryProgress(progressed(source_status(), stateOperators=operators))
    assert samples(registry)["watermark_source_late_records_total", "sales"] == 8


def test_a_terminated_query_has_no_metrics() -> None:
    registry = CollectorRegistry()
    listener = StatusListener(registry)
    listener.onQueryProgress(progressed(checkout()))
    assert samples(registry)
    listener.onQueryTerminated(terminated())
    assert samples(registry) == {}


def test_two_queries_with_one_source_name_do_not_collide() -> None:
    registry = CollectorRegistry()
    listener = StatusListener(registry)
    listener.onQueryProgress(progressed(checkout()))
    listener.onQueryProgress(progressed(checkout(), id=OTHER, runId=OTHER, name="audit"))
    lag = {key[1]: value for key, value in samples(registry).items() if key[0] == "watermark_source_lag_records"}
    assert lag == {"sales": checkout().lag, "audit": checkout().lag}
