"""Looks for new splits that take long, or end at a bad moment: no watermark passes rows of what they find."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.spark.file_log import FileLog
from tests.spark.queries import write
from tests.unit.spark.runner_process import Process, wm
from watermark_source.planning.split import Split
from watermark_source.spark.driver import logs

OLD, NEW = Split("log", 0), Split("log", 1)


class Looks:
    """Looks that end when a test lets them; what was there when it was made has been found."""

    def __init__(self, exist: Callable[[FileLog], Set[Split]]) -> None:
        self._exist = exist
        self._found: Set[Split] | None = None
        self._begun = time.monotonic()
        self._under_way: tuple[Set[Split], float] | None = None
        self._is_over = False

    def discover(self, log: FileLog) -> Set[Split]:
        if self._found is None:
            self._found = self._exist(log)
        return self._found

    def looked_since(self, log: FileLog, moment: float, *, wait: float) -> bool:
        if self._under_way is not None and self._is_over:
            self._found, self._begun = self._under_way
            self._under_way, self._is_over = None, False
        if self._begun >= moment:
            return True
        if self._under_way is None:
            self.begin(log)
        return False

    def begin(self, log: FileLog) -> None:
        self._under_way = self._exist(log), time.monotonic()

    def end(self) -> None:
        self._is_over = self._under_way is not None


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    made = Looks(FileLog.discover)
    monkeypatch.setattr(FileLog, "discover", lambda log: made.discover(log))
    monkeypatch.setattr(FileLog, "looked_since", lambda log, moment, *, wait: made.looked_since(log, moment, wait=wait))
    return made


def test_one_that_ends_while_ends_are_asked_for_holds_the_watermark_for_what_it_found(
    log: Path, live: Any, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, {0: [(100, 1)]})
    process = live()
    start = process.run(process.runner.initial_offset())
    looks.end()
    end = process.run(start)
    assert wm(end) == 99_999
    looks.begin(FileLog(str(log)))
    write(log, {1: [(150, 9)]})

    def batch(second: int) -> Any:
        write(log, {0: [(second, second)]})
        planned = process.plan(end)
        assert process.read(end, planned)[0] == [second]
        return planned

    for second in (200, 300, 400):
        end = batch(second)
    looks.end()
    ends = FileLog.current_ends

    def slow(log: FileLog, splits: Set[Split]) -> Any:
        reported = ends(log, splits)
        looks.end()
        return reported

    with monkeypatch.context() as late:
        late.setattr(FileLog, "current_ends", slow)
        end = batch(500)
    found = process.plan(end)
    assert process.read(end, found)[0] == [9]
    assert (wm(end) or 0) < 150_000


@pytest.mark.parametrize("strategy", ["bounded", "lookahead"])
def test_one_that_no_one_answered_before_a_run_holds_its_watermark(
    log: Path, live: Any, looks: Looks, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    write(log, {0: [(100, 1), (200, 2), (300, 3), (400, 4)]})
    process = live(watermarkStrategy=strategy)
    looks.discover(FileLog(str(log)))
    write(log, {1: [(50, 9)]})
    monkeypatch.setattr(logs, "_DISCOVERY_WAIT_OF_RUN", 0.1)
    process.runner.freeze()
    end = process.runner.initial_offset()
    while (planned := process.plan(end, ReadMaxRows(1))) != end:
        process.read(end, planned)
        end = planned
        looks.end()
    assert set(end["splits"]["log"]) == {"0"}
    assert wm(end) is None


def test_a_run_has_its_time_for_looks_however_long_the_ends_take_and_says_when_it_was_too_short(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    newest = FileLog.newest

    def slow(log: FileLog, splits: Set[Split]) -> Any:
        time.sleep(0.2)
        return newest(log, splits)

    monkeypatch.setattr(FileLog, "newest", slow)
    monkeypatch.setattr(logs, "_DISCOVERY_WAIT_OF_RUN", 0.1)
    write(log, {0: [(100, 1)]})

    def watermark_of_a_run(looked: bool) -> int | None:
        monkeypatch.setattr(FileLog, "looked_since", lambda _, moment, *, wait: looked and wait > 0)
        process = live()
        process.runner.freeze()
        end = process.runner.initial_offset()
        for _ in range(2):
            planned = process.plan(end)
            process.read(end, planned)
            end = planned
        return wm(end)

    assert watermark_of_a_run(looked=True) == 99_999
    assert not caplog.messages
    assert watermark_of_a_run(looked=False) is None
    assert "whether there are new partitions: rows are read, and the watermark stays" in caplog.text


@pytest.mark.parametrize("strategy", ["bounded", "lookahead"])
def test_one_that_has_not_ended_holds_the_watermark_in_silence_too(
    log: Path, live: Any, looks: Looks, strategy: str
) -> None:
    write(log, {0: [(100, 1)]})
    process = live(watermarkStrategy=strategy)
    end = process.run(process.runner.initial_offset())
    looks.end()
    end = process.run(end)
    before = wm(end)
    write(log, {1: [(150, 9)]})
    write(log, {0: [(200, 2)]})
    for _ in range(5):
        end = process.run(end)
    assert wm(end) == before
    looks.end()
    for _ in range(2):
        end = process.run(end)
        looks.end()
    assert wm(end) == 149_999 or wm(end) == 199_999


@pytest.fixture(params=[False, True])
def one_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connector hands out a set each time, or one that it changes."""
    discover, found = FileLog.discover, set[Split]()

    def discover_all(log: FileLog) -> Set[Split]:
        found.update(discover(log))
        return found

    if request.param:
        monkeypatch.setattr(FileLog, "discover", discover_all)


@pytest.mark.usefixtures("one_set")
@pytest.mark.parametrize("pauses", [0, 3])
def test_a_partition_made_while_a_run_looks_for_times_is_part_of_it(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch, pauses: int
) -> None:
    """Looks pause between each other: then a run waits for the next one."""
    write(log, {0: [(100, 1)]})
    process = live()
    end = process.run(process.runner.initial_offset())
    newest = FileLog.newest
    late = _rows_once(log, {1: [(150, 9)]}, {0: [(200, 2)]})

    def asked(log: FileLog, splits: Set[Split]) -> Any:
        reported = newest(log, splits)
        late()
        return reported

    monkeypatch.setattr(FileLog, "newest", asked)
    run, left = live(), [False] * pauses
    monkeypatch.setattr(FileLog, "looked_since", lambda log, moment, *, wait: left.pop() if left else True)
    run.runner.freeze()
    values = []
    while (planned := run.plan(end)) != end:
        values += run.read(end, planned)[0]
        end = planned
    assert sorted(values) == [2, 9]
    assert wm(end) == 149_999


@pytest.mark.usefixtures("one_set")
def test_a_partition_made_while_a_plan_asks_for_times_is_not_passed_over_by_what_is_ahead(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, {0: [(100, 1)], 2: [(100, 1)]})
    process: Process = live(watermarkStrategy="lookahead", alignmentGroup="g", alignmentMaxDrift="10 seconds")
    end = process.run(process.runner.initial_offset())
    write(log, {0: [(105, 2)]})
    write(log, {2: [(130, 3)]})
    newest = FileLog.newest
    late = _rows_once(log, {1: [(107, 9)]}, {0: [(109, 4)]})
    asked = []

    def then(log: FileLog, splits: Set[Split]) -> Any:
        asked.append(reported := newest(log, splits))
        late()
        return reported

    monkeypatch.setattr(FileLog, "newest", then)
    planned = process.plan(end)
    assert asked
    process.read(end, planned)
    assert (wm(planned) or 0) < 107_000


def _rows_once(log: Path, *rows: Any) -> Callable[[], None]:
    left = list(rows)

    def write_them() -> None:
        while left:
            write(log, left.pop(0))

    return write_them
