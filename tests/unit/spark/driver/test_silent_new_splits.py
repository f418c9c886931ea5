"""New splits that no one has found, or whose ends are unknown: no watermark passes them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.spark.file_log import FileLog, FileLogSource
from tests.spark.queries import write
from tests.unit.spark.runner_process import wm
from watermark_source.contract.stream import Connector, Ends
from watermark_source.planning.policy import MinimumRows
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.runner import SourceRunner

NEW = Split("log", 1)


@dataclass(frozen=True)
class Preview:
    """``EventTimePreview`` of a log in files."""

    log: FileLog

    def prepare(self, splits: Set[Split]) -> None:
        pass

    def reached(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        newest = self.log.newest({each.split for each in ranges})
        return {split: at.event_time for split, at in newest.items() if at is not None}

    def highest(self, ranges: Sequence[SplitRange]) -> Mapping[Split, Millis]:
        return {}


def test_a_batch_does_not_carry_the_watermark_of_its_rows_past_a_new_split_that_does_not_answer(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = FileLogSource.open

    def with_preview(source: FileLogSource) -> Connector:
        connector = opened(source)
        assert isinstance(connector.bounds, FileLog)
        return replace(connector, preview=Preview(connector.bounds))

    def without_new(self: FileLog, splits: Set[Split]) -> Ends:
        return Ends({s: e for s, e in self.end_positions(splits).items() if s != NEW}, {NEW: None})

    monkeypatch.setattr(FileLogSource, "open", with_preview)
    write(log, {0: [(100, 1)]})
    process = live()
    start = process.run(process.runner.initial_offset())
    assert wm(start) == 99_999
    write(log, {1: [(150, 2)]})
    write(log, {0: [(200, 3)]})
    with monkeypatch.context() as silent:
        silent.setattr(FileLog, "current_ends", without_new)
        end = process.plan(start)
        assert process.read(start, end)[0] == [3]
        assert wm(end) == 99_999
    rows = process.plan(end)
    assert process.read(end, rows)[0] == [2]
    assert wm(rows) == 149_999


def test_a_new_split_whose_end_is_reported_late_each_time_is_read_and_holds_the_watermark_no_longer(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late_of_new(self: FileLog, splits: Set[Split]) -> Ends:
        ends = self.end_positions(splits)
        return Ends({s: e for s, e in ends.items() if s != NEW}, {s: e for s, e in ends.items() if s == NEW})

    monkeypatch.setattr(FileLog, "current_ends", late_of_new)
    write(log, {0: [(100, 1)]})
    process = live()
    end = process.run(process.runner.initial_offset())
    write(log, {1: [(150, 2)]})
    values = []
    for second in (200, 300, 400, 500):
        write(log, {0: [(second, second)]})
        write(log, {1: [(second - 10, second + 1)]})
        planned = process.plan(end)
        values += process.read(end, planned)[0]
        end = planned
    # The first end of a new one may be that of an earlier one of its name.
    assert values[0] == 200
    assert sorted(values) == [2, 200, 201, 300, 301, 400, 401, 500, 501]
    assert wm(end) == 389_999


def test_what_was_looked_at_ahead_leads_nowhere_before_splits_were_looked_for_since(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, {0: [(100, 1)]})
    process = live(watermarkStrategy="lookahead")
    process.runner.close()
    policy = replace(process.options.policy, minimum_rows=MinimumRows(5, Millis(3_600_000)))
    process.runner = SourceRunner(process.source, replace(process.options, policy=policy))
    start = process.run(process.runner.initial_offset())
    assert wm(start) == 99_999
    began = time.monotonic()
    with monkeypatch.context() as slow:
        # Looks that were begun by now have ended, and no other does.
        slow.setattr(FileLog, "looked_since", lambda _, moment, *, wait: moment <= began)
        write(log, {0: [(200, 2), (300, 3)]})
        for _ in range(3):
            assert wm(process.plan(start)) == 99_999
    write(log, {0: [(400, 4), (500, 5), (600, 6)]})
    assert wm(process.run(start)) == 599_999


@pytest.mark.parametrize("strategy", ["bounded", "lookahead"])
def test_the_watermark_goes_on_while_each_look_for_splits_takes_longer_than_a_batch(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    begun, looked = time.monotonic(), 0.0

    def looked_since(_: FileLog, moment: float, *, wait: float) -> bool:
        return looked >= moment

    monkeypatch.setattr(FileLog, "looked_since", looked_since)
    process = live(watermarkStrategy=strategy)
    write(log, {0: [(100, 1)]})
    end = process.run(process.runner.initial_offset())
    for batch in range(2, 14):
        write(log, {0: [(100 * batch, batch)]})
        end = process.run(end)
        if batch % 3 == 0:
            begun, looked = time.monotonic(), begun
    assert (wm(end) or 0) >= 500_000
