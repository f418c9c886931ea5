"""First looks: each split with a long backlog is looked at once, in two places, by the rows that count."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.spark.driver.rows_in_memory import RowsInMemory
from watermark_source.planning.backlog import BLIND_STEP
from watermark_source.planning.observation import FirstLook, ObservedLogs
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.look_ahead import FirstLooks

A, B = Split("t", 0), Split("t", 1)
LONG = 20_000


def logs(added: Mapping[Split, int], ends: Mapping[Split, int]) -> ObservedLogs:
    return ObservedLogs(asked_at=Millis(0), ends=ends, added=added)


def test_what_lies_further_on_tells_how_fast_event_time_goes() -> None:
    rows = RowsInMemory({A: list(range(0, 400_000, 2)), B: list(range(LONG))})
    looks = FirstLooks(rows)
    state, ends = SourceState({A: SplitState(1_000, 1_000), B: SplitState(0, 0)}), {A: 200_000, B: LONG}
    assert looks.of(state, logs({}, ends), None) == {
        A: FirstLook(Millis(2_000), 100_000, 200_198),
        B: FirstLook(Millis(0), LONG - 100, LONG - 1),
    }
    asked = list(rows.asked)
    assert looks.of(state, logs({}, ends), None).keys() == {A, B}
    assert rows.asked == asked


def test_no_one_looks_where_it_is_known_or_soon_read() -> None:
    rows = RowsInMemory({A: list(range(LONG)), B: list(range(LONG))})
    state = SourceState({A: SplitState(0, 0, step=500), B: SplitState(LONG - BLIND_STEP, LONG - BLIND_STEP)})
    assert FirstLooks(rows).of(state, logs({}, {A: LONG, B: LONG}), None) == {}
    assert not rows.asked


def test_a_split_that_is_new_is_looked_at_where_it_begins() -> None:
    rows = RowsInMemory({A: list(range(LONG))})
    assert FirstLooks(rows).of(SourceState(), logs({A: 50}, {A: LONG}), None)[A].first == 50
    assert rows.asked[0] == SplitRange(A, 50, 150)


def test_of_very_many_splits_a_step_each_is_no_small_batch() -> None:
    splits = [Split("t", n) for n in range(65)]
    rows = RowsInMemory({s: list(range(LONG)) for s in splits})
    looks, begins, ends = FirstLooks(rows), dict.fromkeys(splits, 0), dict.fromkeys(splits, LONG)
    assert looks.of(SourceState(), logs(begins, ends), None) == {}
    assert not rows.asked
    del begins[splits[0]]
    assert len(looks.of(SourceState(), logs(begins, ends), None)) == 64


def test_rows_of_the_future_and_without_a_time_report_nothing() -> None:
    times: list[int | None] = [None, 10**15, *range(LONG - 2)]
    times[-1] = 10**15
    found = FirstLooks(RowsInMemory({A: times})).of(SourceState(), logs({A: 0}, {A: LONG}), Millis(10**9))
    assert found == {A: FirstLook(Millis(0), LONG - 100, LONG - 4)}
    nothing = RowsInMemory({A: [None] * LONG})
    assert FirstLooks(nothing).of(SourceState(), logs({A: 0}, {A: LONG}), None) == {}


def test_a_system_that_does_not_answer_is_asked_once() -> None:
    rows = RowsInMemory({A: list(range(LONG))})
    rows.broken = True
    looks = FirstLooks(rows)
    assert looks.of(SourceState(), logs({A: 0}, {A: LONG}), None) == {}
    asked, rows.broken = list(rows.asked), False
    assert looks.of(SourceState(), logs({A: 0}, {A: LONG}), None) == {}
    assert rows.asked == asked


def test_a_split_that_cannot_be_read_leaves_the_others_their_first_look(caplog: pytest.LogCaptureFixture) -> None:
    rows = RowsInMemory({A: list(range(LONG)), B: list(range(LONG))})
    rows.unreadable = {A}
    found = FirstLooks(rows).of(SourceState(), logs({A: 0, B: 0}, {A: LONG, B: LONG}), None)
    assert found == {B: FirstLook(Millis(0), LONG - 100, LONG - 1)}
    assert [r.getMessage() for r in caplog.records] == ["t-0 cannot be looked at before its first batch: gone"]
