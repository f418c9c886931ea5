"""How far a snapshot is: figures, the line that shows them, and the view of a source with several."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.monitor.example_status import NOON, checkout, source_status, split_view
from watermark_source.errors import UsageError
from watermark_source.monitor.status_table import render_text
from watermark_source.planning.split import Split
from watermark_source.planning.state import SnapshotState, SourceState, SplitState
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.task_reports import SnapshotCount
from watermark_source.status_model.source_status import REPORTED_SPLITS, SnapshotProgress, progress_line
from watermark_source.status_model.status_json import status_from_json, status_to_json


def copied(log: str = "shop.orders", **fields: Any) -> SnapshotProgress:
    given = {"rows": 55_000, "chunks": 11, "expected": 100_000, "rate": 15_000, "done": False} | fields
    return SnapshotProgress(log=log, **given)


def test_a_share_follows_the_estimate_and_only_the_end_is_all() -> None:
    assert copied().share == 0.55
    assert copied(rows=120_000, expected=120_000).share == 0.99
    assert copied(rows=0, expected=0, chunks=0).share == 0
    assert copied(expected=None).share is None
    assert copied(done=True, rows=3).share == 1


def test_the_time_left_needs_a_rate_and_an_estimate() -> None:
    assert copied().left == 3_000
    assert copied(expected=None).left is None
    assert copied(rate=None).left is None
    assert copied(rate=0).left is None
    assert copied(done=True).left is None


def test_chunks_in_all_are_estimated_from_the_rows_of_those_that_were_read() -> None:
    assert copied().chunks_expected == 20
    assert copied(rows=0, chunks=0).chunks_expected is None
    assert copied(expected=None).chunks_expected is None
    assert copied(done=True, rows=3).chunks_expected == 11


def test_a_snapshot_has_when_it_began_unless_an_earlier_run_began_it() -> None:
    none = SnapshotState(frontiers={"a": (), "b": (("k",),)}, complete=frozenset())
    state = SourceState(splits={Split("b", 0): SplitState(3, 3)}, snapshots=none)
    count = SnapshotCount()
    count.add_snapshots({"a", "b"}, state, SimpleNamespace(sizes=lambda _: {}))
    for now in (NOON, NOON + 5_000):
        found = {each.log: each.began for each in count.progress(state, Millis(now))}
        assert found == {"a": NOON, "b": None}


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (120, "t  [################..............]   55 %  55 000 of about 100 000 rows  15 000 rows/s  3 s left"),
        (80, "t  [#######......]   55 %  55 000 of about 100 000 rows  15 000 rows/s  3 s left"),
        (74, "t  [############..........]   55 %  55 000 of about 100 000 rows  3 s left"),
        (40, "t  [#########.........]   55 %  3 s left"),
        (12, "t  []   55 %"),
    ],
)
def test_a_line_leaves_out_what_has_no_room(width: int, line: str) -> None:
    shown = progress_line(copied("t"), 1, width)
    assert shown == line
    assert len(shown) <= width


def test_what_is_done_or_waits_or_has_no_estimate_says_so() -> None:
    assert progress_line(copied("t", done=True), 3, 120) == "t    [##############################]  100 %  done"
    waiting = copied("t", rows=0, chunks=0, rate=None)
    assert progress_line(waiting, 1, 120) == "t  [..............................]    0 %  waits for its turn"
    unknown = progress_line(copied("t", expected=None), 1, 120)
    assert unknown == "t  [..............................]     ?  55 000 rows  15 000 rows/s"


def test_a_report_with_snapshots_is_read_back_the_same() -> None:
    status = source_status(split_view(0), snapshots=[copied("b"), copied("a", done=True), copied("c", expected=None)])
    report = json.loads(json.dumps(status_to_json(status)))
    assert status_from_json(report) == status
    assert report["snapshots"]["b"] == {"rows": 55_000, "chunks": 11, "expected": 100_000, "rate": 15_000}
    assert list(report["snapshots"]) == ["a", "b", "c"]
    assert "snapshots" not in status_to_json(source_status(split_view(0)))
    report["snapshots"]["b"]["rows"] = "many"
    with pytest.raises(UsageError, match=r"snapshots\.b\.rows = 'many'; expected an integer"):
        status_from_json(report)


def test_of_very_many_snapshots_those_under_way_are_reported() -> None:
    done = [copied(f"a{n:03}", done=True) for n in range(REPORTED_SPLITS)]
    waiting = [copied(f"b{n:03}", chunks=0) for n in range(REPORTED_SPLITS - 1)]
    reported = source_status(split_view(0), snapshots=[*done, *waiting, copied("c")]).snapshots
    assert [each.log for each in reported] == [*(each.log for each in waiting), "c"]


def test_every_table_has_a_bar_above_the_splits() -> None:
    status = source_status(split_view(0), snapshots=[copied("shop.a", done=True), copied("shop.long")])
    lines = render_text(status, width=120).splitlines()
    assert lines[2].startswith("shop.a     [###")
    assert lines[3].startswith("shop.long  [###")
    assert lines[4].startswith("partition")


@pytest.mark.parametrize("lines", range(10, 24))
def test_bars_leave_room_for_the_splits(lines: int) -> None:
    status = checkout(snapshots=[*(copied(f"a{n}", done=True) for n in range(8)), copied("b")])
    shown = render_text(status, width=100, lines=lines).splitlines()
    assert len(shown) <= lines
    assert any(line.startswith("b  ") for line in shown)
    assert any(line.startswith("orders-3") for line in shown)
