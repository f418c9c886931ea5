from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.monitor.example_status import NOON, checkout, progress_of, source_status, split_view
from watermark_source.errors import UsageError
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.range_report import LateRows
from watermark_source.planning.split import Split
from watermark_source.status_model.source_status import (
    REPORTED_SPLITS,
    BoundInForce,
    ChangeCounts,
    GroupStatus,
    Outline,
    Quantiles,
    SourceStatus,
    SplitBacklog,
    SplitView,
    Status,
    TimeInStatus,
    Unprocessed,
    WriterView,
    most_interesting,
    reported_splits,
)
from watermark_source.status_model.status_json import late_rows, parse_progress, status_from_json, status_to_json
from watermark_source.words import NO_WORDS

_INT64 = st.integers(-(2**63), 2**63 - 1)
_VIEWS = st.builds(
    SplitView,
    split=st.builds(Split, st.text(min_size=1, max_size=5), st.integers(0, 20)),
    backlog=st.builds(SplitBacklog, _INT64, st.none() | _INT64, st.booleans()),
    watermark=st.none() | _INT64,
    status=st.sampled_from(Status),
    since=st.none() | _INT64,
    why=st.text(max_size=10),
    kind=st.sampled_from(HoldKind),
    drift=st.none() | _INT64,
    holds_back=st.booleans(),
    late_rows=st.integers(0, 9),
    idle_after=st.none() | _INT64,
    newest_in_log=st.none() | _INT64,
)
_LATE = st.lists(st.integers(0, 9), min_size=14, max_size=14).filter(any).map(tuple)
_GROUPS = st.builds(
    GroupStatus,
    name=st.text(max_size=5),
    max_drift=st.none() | st.integers(0),
    limit=st.none() | _INT64,
    members=st.integers(0),
    hold=st.booleans(),
    others=st.integers(0, 5),
    slowest=st.none() | st.text(max_size=5),
    since=st.none() | _INT64,
    trouble=st.none() | st.text(max_size=5),
    store=st.none() | st.text(max_size=5),
    max_drift_of=st.none() | st.text(max_size=5),
    own_max_drift=st.none() | st.integers(0),
)


@given(
    views=st.lists(_VIEWS, max_size=8, unique_by=lambda view: view.split),
    group=st.none() | _GROUPS,
    watermark=st.none() | _INT64,
    processing_time=st.booleans(),
    late=st.just(LateRows()) | st.builds(LateRows, _LATE, _INT64, _INT64),
    bound=st.none() | st.builds(BoundInForce, _INT64, _INT64, _INT64, st.none() | _INT64),
)
def test_a_report_read_back_from_its_text_is_the_same(
    views: list[SplitView],
    group: GroupStatus | None,
    watermark: int | None,
    processing_time: bool,
    late: LateRows,
    bound: BoundInForce | None,
) -> None:
    given = {"group": group, "watermark": watermark, "processing_time": processing_time, "late": late, "bound": bound}
    status = source_status(*views, **given)
    assert status_from_json(json.loads(json.dumps(status_to_json(status)))) == status


def test_the_report_has_the_shape_of_a_kafka_offset_and_leaves_out_what_is_unknown() -> None:
    held = split_view(3, Status.PAUSED, watermark=None, since=NOON, drift=7, holds_back=True, why="w")
    assert status_to_json(source_status(held, watermark=None, words=NO_WORDS)) == {
        "v": 1,
        "format": "aligned-kafka",
        "source": "orders",
        "at": NOON + 5_000,
        "counts": {"p": 1},
        "lag": 50,
        "rows": 0,
        "futureRows": 0,
        "splits": {
            "orders": {
                "3": {
                    "position": 100, "end": 150, "status": "p", "since": NOON, "why": "w", "kind": "paused",
                    "drift": 7, "holdsBack": True
                }
            }
        },
        "slowest": {"0": {"name": "orders-3", "kind": "paused", "why": "w", "last": True}},
    }  # fmt: skip


def test_the_order_of_the_splits_does_not_change_the_text() -> None:
    a, b, c = split_view(2), split_view(10), split_view(1)
    texts = {json.dumps(status_to_json(source_status(*order))) for order in ([a, b, c], [c, b, a], [b, a, c])}
    status = source_status(a, b, c)
    unsorted = replace(status, splits=(b, a, c))
    assert texts == {json.dumps(status_to_json(unsorted))}
    assert [view.split.number for view in status.splits] == [1, 2, 10]


def test_a_report_of_many_splits_keeps_the_true_numbers() -> None:
    many = [split_view(i, Status.IDLE if i % 2 else Status.ACTIVE) for i in range(300)]
    status = status_from_json(status_to_json(source_status(*many)))
    assert len(status.splits) == REPORTED_SPLITS
    assert status.splits_total == 300
    assert status.counts == {Status.IDLE: 150, Status.ACTIVE: 150}
    assert status.lag == 300 * 50


def test_where_splits_are_left_out_of_a_report_it_has_where_all_watermarks_lie() -> None:
    active = [split_view(i, watermark=NOON + i) for i in range(201)]
    idle = [split_view(i, Status.IDLE, watermark=None) for i in range(201, 250)]
    status = status_from_json(json.loads(json.dumps(status_to_json(source_status(*active, *idle)))))
    assert status.quantiles == {Status.ACTIVE: Quantiles(*(NOON + n for n in (0, 10, 50, 100, 150, 190, 200)))}
    assert {view.split.number for view in status.splits} == set(range(REPORTED_SPLITS))
    assert source_status(*active[:REPORTED_SPLITS]).quantiles == {}


def test_most_interesting_is_what_holds_the_watermark_then_the_lowest_watermark_and_idle_ones_last() -> None:
    views = [
        split_view(0, end=101),
        split_view(1, end=999),
        split_view(2, end=None, watermark=NOON - 1),
        split_view(3, Status.IDLE, watermark=None),
        split_view(4, Status.PAUSED, watermark=NOON + 9),
        split_view(5, holds_back=True, end=100, watermark=NOON + 5),
        split_view(6, watermark=None),
    ]
    assert [view.split.number for view in most_interesting(views, 7)] == [5, 6, 2, 1, 0, 4, 3]
    assert [view.split.number for view in most_interesting(views, 2)] == [5, 6]


@pytest.mark.parametrize(("end", "lag"), [(150, 50), (100, 0), (None, None), (90, 0)])
def test_lag_is_what_is_left_to_read_and_never_negative(end: int | None, lag: int | None) -> None:
    assert split_view(0, end=end).lag == lag


def test_a_bound_that_stays_keeps_since_when_it_is_in_force() -> None:
    first = BoundInForce(600_000, 600_000, 999_000).after(None, 100)
    assert first.since == 100
    same = BoundInForce(600_000, 600_000, 999_000).after(first, 200)
    assert same.since == 100
    assert BoundInForce(1_049, 600_000, 999_000).after(same, 300).since == 300


def test_a_source_without_splits_is_a_status_too() -> None:
    empty = source_status(watermark=None)
    assert status_from_json(status_to_json(empty)) == empty
    assert empty.splits_total == 0


def test_a_report_has_what_the_clocks_and_the_counters_are_made_of() -> None:
    view = split_view(0, times=TimeInStatus(active=7, idle=0, paused=3, changes=2))
    status = source_status(
        view,
        unprocessed=Unprocessed(NOON, "orders-0", is_older=True),
        unread=Unprocessed(NOON + 7),
        newest=NOON - 9,
        rows_at=NOON - 3,
        rows_after=NOON - 4,
        changes=ChangeCounts(watermark=4, status=2),
        group=GroupStatus("g", 5, NOON + 5, 1, minimum=NOON, holder="users"),
    )
    assert status_from_json(json.loads(json.dumps(status_to_json(status)))) == status


def test_our_sources_are_found_among_foreign_ones_in_order() -> None:
    orders, refunds = checkout(), source_status(split_view(0), source_name="refunds")
    assert parse_progress(progress_of(orders, refunds)) == (orders, refunds)


@pytest.mark.parametrize("form", ["mapping", "text", "event", "event text", "offset as text"])
def test_every_form_of_a_progress_is_read(form: str) -> None:
    progress = progress_of(checkout())
    if form == "offset as text":
        for source in progress["sources"]:
            source["latestOffset"] = json.dumps(source["latestOffset"])
    value = {"progress": progress} if form.startswith("event") else progress
    assert parse_progress(json.dumps(value) if form.endswith(" text") or form == "text" else value) == (checkout(),)


@pytest.mark.parametrize("latest", [None, "None", "null", "7", "not json", {"v": 1}, ["v", "format"], {"a": {"0": 1}}])
def test_a_foreign_latest_offset_is_passed_over(latest: object) -> None:
    assert parse_progress({"sources": [{"latestOffset": latest}, {}]}) == ()


def test_before_the_first_batch_there_are_no_sources_and_no_late_rows() -> None:
    assert parse_progress(None) == ()
    assert late_rows(None) == 0


def test_late_rows_are_added_up_over_the_operators() -> None:
    operators = [{"numRowsDroppedByWatermark": 3}, {"numRowsDroppedByWatermark": 4}, {}]
    assert late_rows(progress_of(stateOperators=operators)) == 7


@pytest.mark.parametrize("progress", ["{", "[1]", 7])
def test_what_is_no_progress_is_refused(progress: object) -> None:
    with pytest.raises(UsageError, match=r"a query's progress is expected as (JSON|a JSON object); seen: "):
        parse_progress(progress)  # type: ignore[arg-type]


def test_a_report_of_a_newer_version_is_refused_by_name() -> None:
    progress = progress_of(checkout())
    progress["sources"][1]["latestOffset"]["v"] = 2
    with pytest.raises(UsageError, match="version 2; this monitor reads version 1"):
        parse_progress(progress)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("v", None, "v = None; expected an integer"),
        ("at", "noon", "at = 'noon'; expected an integer"),
        ("at", True, "at = True; expected an integer"),
        ("lag", 1.5, "lag = 1.5; expected an integer"),
        ("source", 1, "source = 1; expected a string"),
        ("processingTime", 1, "processingTime = 1; expected true or false"),
        ("group", "checkout", "group = 'checkout'; expected an object"),
        ("group.name", None, "group.name = None; expected a string"),
        ("counts", {"x": 1}, "counts.x = 1; expected one of a, i, p, f, u"),
        ("splits", {"orders": {"x": {}}}, "splits.orders.x = {}; expected a split's number as key"),
        ("splits", {"orders": {"²": {}}}, "expected a split's number as key"),
        ("splits.orders.3", [], r"splits.orders.3 = \[\]; expected an object"),
        ("splits.orders.3.status", "z", "splits.orders.3.status = 'z'; expected one of a, i"),
        ("splits.orders.3.why", None, "splits.orders.3.why = None; expected a string"),
    ],
)
def test_a_broken_report_is_refused_with_the_path_to_what_is_wrong(path: str, value: object, message: str) -> None:
    report = status_to_json(checkout())
    *parents, last = path.split(".")
    inner = report
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    with pytest.raises(UsageError, match=message):
        status_from_json(report)


def test_what_is_left_is_not_reported_in_rows_where_positions_do_not_count_them() -> None:
    ahead, done = split_view(0, uncounted=True), split_view(1, position=150, uncounted=True)
    assert (ahead.lag, done.lag) == (None, 0)
    outlines = [
        Outline(view.split, view.status, left, view.holds_back, view.watermark)
        for view, left in ((ahead, 50), (done, 0))
    ]
    views = {view.split: view for view in (ahead, done)}

    def status(*of: Outline) -> SourceStatus:
        reported = reported_splits(of, lambda outline: views[outline.split], positions_are_rows=False)
        return SourceStatus(
            **reported._asdict(),
            format_name="f",
            source_name="s",
            at=1,
            watermark=None,
            processing_time=False,
            group=None,
        )

    assert status(*outlines).lag is None
    assert status(outlines[1]).lag == 0
    assert status_from_json(json.loads(json.dumps(status_to_json(status(*outlines))))) == status(*outlines)


def test_writers_are_reported_by_name_and_read_back() -> None:
    writers = [
        WriterView(name="b", status="active", kind=HoldKind.READ, why="announces", watermark=NOON, announced=NOON,
                   since=NOON, batch=3, query="1d9a4d76"),
        WriterView(name="a", status="awaited", kind=HoldKind.BACKLOG, why="5 rows before the cut of batch 3",
                   holds_back=True, rows_before_next=5),
    ]  # fmt: skip
    status = source_status(split_view(0), writers=writers, unannounced="no broker")
    assert [each.name for each in status.writers] == ["a", "b"]
    assert status_from_json(json.loads(json.dumps(status_to_json(status)))) == status
    assert status_to_json(status)["writers"]["a"] == {
        "status": "awaited", "why": "5 rows before the cut of batch 3", "kind": "backlog", "holdsBack": True,
        "rowsBeforeNext": 5,
    }  # fmt: skip


def test_a_first_reading_is_reported_and_read_back() -> None:
    status = source_status(split_view(0), first_reading="5 records to go", watermark=None)
    assert status_to_json(status)["firstReading"] == "5 records to go"
    assert status_from_json(json.loads(json.dumps(status_to_json(status)))) == status
