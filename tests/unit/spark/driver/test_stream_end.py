"""A stream that has ended, or is about to, is gone on with only by runs that have nothing more to read of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.spark.file_log import TABLE, FileLog
from tests.spark.queries import write
from tests.unit.planning.example_states import A, at, log_of, observation
from tests.unit.spark.runner_process import TWO
from watermark_source.errors import OptionError, StreamEndedError
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import AfterCatchUp, PlanPolicy
from watermark_source.planning.state import CatchUp, SourceState
from watermark_source.planning.watermark import MAX, Millis
from watermark_source.spark.driver.run_bounds import StreamEnd
from watermark_source.spark.options import EngineOptions

ENDS = {"finalWatermark": "true"}


def end_of(**given: str) -> StreamEnd:
    options = EngineOptions.of(TABLE.parse(given), format_name="file-log", given=given)
    return StreamEnd(options)


def run_of(live: Any, **options: str) -> Any:
    process = live(**options)
    process.runner.freeze()
    return process


@pytest.fixture
def ended(log: Path, live: Any) -> Mapping[str, Any]:
    """Where the last run of a stream over ``log`` ends."""
    write(log, TWO)
    process = run_of(live, **ENDS)
    end: Mapping[str, Any] = process.run(process.runner.initial_offset())
    assert end["ended"]
    return end


def test_a_query_without_an_end_does_not_go_on_from_a_checkpoint_that_has_reported_the_end_of_time() -> None:
    half = SourceState(watermark=MAX)
    with pytest.raises(StreamEndedError):
        end_of().check(half, is_run=False)
    # A run states the rest of it.
    end_of().check(half, is_run=True)
    end_of().check(SourceState(watermark=Millis(7)), is_run=False)


def test_the_last_run_has_an_end() -> None:
    with pytest.raises(OptionError, match="availableNow"):
        end_of(**ENDS).check(SourceState(), is_run=False)


def test_every_run_after_the_end_tells_it_once_again_and_has_no_news(live: Any, ended: Mapping[str, Any]) -> None:
    """Spark forgets with each process what a source reported, and takes the lowest of all sources."""
    end = ended
    for _ in range(2):
        process = run_of(live, **ENDS)
        again = process.plan(end)
        assert again != end
        values, (watermark,) = process.read(end, again)
        assert (values, again["wm"], again["ended"]) == ([], MAX, True)
        assert watermark is not None
        assert process.plan(again) == again
        end = again


def test_a_run_that_cannot_know_whether_there_are_more_splits_says_that_it_is_not_the_last(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, TWO)
    with monkeypatch.context() as patched:
        patched.setattr(FileLog, "looked_since", lambda _, moment, *, wait: False)
        patched.setattr("watermark_source.spark.driver.logs._DISCOVERY_WAIT_OF_RUN", 0.1)
        process = run_of(live, **ENDS)
        end = process.run(process.runner.initial_offset())
        assert process.plan(end) == end
    assert "ended" not in end
    (reported,) = [r.getMessage() for r in caplog.records if "finalWatermark" in r.getMessage()]
    assert "new partitions" in reported
    assert "this run is not the last" in reported
    assert "Run the query again" in reported
    caplog.clear()
    assert run_of(live, **ENDS).run(end)["ended"]
    assert "finalWatermark" not in caplog.text


def test_a_run_that_an_open_transaction_keeps_from_being_the_last_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    end, state = end_of(**ENDS), SourceState({A: at(2, 199)}, watermark=Millis(199))
    seen = observation(log_of([100, 200]), ends_are_final=True, uncommitted={A})
    planned = plan(state, seen, PlanPolicy(final_watermark=True), None)
    for _ in range(2):
        end.note(planned, seen.logs)
    (reported,) = [r.getMessage() for r in caplog.records]
    assert "log-0 have rows of a transaction that is open" in reported
    caplog.clear()
    end_of().note(planned, seen.logs)
    # Nothing is amiss while there are batches.
    end.note(replace(planned, is_batch=True), replace(seen.logs, all_found=False))
    assert not caplog.records


def test_a_run_that_ends_before_the_first_reading_has_ended_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    options = EngineOptions.of(TABLE.parse({}), format_name="file-log", given={})
    policy = replace(options.policy, after_catch_up=AfterCatchUp.WATERMARK)
    end = StreamEnd(replace(options, policy=policy))
    seen = observation(log_of([100, 200]), ends_are_final=True)
    for ends in ({A: 5}, {A: 5}, {}):
        state = SourceState({A: at(2)}, catch_up=CatchUp(ends))
        end.note(plan(state, seen, policy, None), seen.logs)
    (reported,) = [r.getMessage() for r in caplog.records]
    assert "whenCaughtUp=watermark: this run ends before log-0 have been read" in reported


@pytest.mark.parametrize(
    ("options", "is_run"), [({}, True), ({}, False), (ENDS, False)], ids=["a run", "no run", "no run, with the option"]
)
def test_only_a_run_with_the_option_goes_on_from_the_end(
    live: Any, ended: Mapping[str, Any], options: dict[str, str], *, is_run: bool
) -> None:
    process = run_of(live, **options) if is_run else live(**options)
    with pytest.raises(StreamEndedError, match=r"has ended.*finalWatermark and Trigger.AvailableNow"):
        process.plan(ended)


@pytest.mark.parametrize("split", [0, 2], ids=["a known split", "a new one"])
def test_rows_that_come_after_the_end_are_an_error_or_a_warning(
    log: Path, live: Any, ended: Mapping[str, Any], split: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Of an empty split that is new nothing is stated."""
    write(log, {5: [], split: [(200, 9)]})
    with pytest.raises(StreamEndedError, match=rf"(?s)log-{split}.*new checkpoint.*failOnDataLoss"):
        run_of(live, **ENDS).plan(ended)
    process = run_of(live, **ENDS, failOnDataLoss="false")
    again = process.plan(ended)
    (reported,) = [r.getMessage() for r in caplog.records if "has ended" in r.getMessage()]
    assert f"log-{split}" in reported
    assert "log-5" not in reported
    assert process.read(ended, again)[0] == []
    assert process.plan(again) == again


def test_the_last_batch_is_done_again_before_rows_that_came_since_are_an_error(log: Path, live: Any) -> None:
    write(log, TWO)
    process = run_of(live, **ENDS)
    offsets = [process.runner.initial_offset()]
    while (end := process.plan(offsets[-1])) != offsets[-1]:
        process.read(offsets[-1], end)
        offsets.append(end)
    write(log, {0: [(200, 9)]})
    process = run_of(live, **ENDS)
    assert process.read(*offsets[-2:])[0] == []
    with pytest.raises(StreamEndedError, match="log-0"):
        process.plan(offsets[-1])
