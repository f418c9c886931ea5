"""What a runner shows of a query's progress, and when."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.spark.file_log import FileLogSource
from tests.spark.queries import write
from tests.unit.spark.runner_process import TWO
from watermark_source.contract.stream import Connector
from watermark_source.planning.split import Split


class Shown:
    """A ``ProgressSink`` that keeps what is reported to it."""

    def __init__(self) -> None:
        self.positions: list[dict[int, int]] = []
        self.closed = False

    def record(self, positions: Mapping[Split, int]) -> None:
        self.positions.append({split.number: position for split, position in positions.items()})

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    """What sources opened from now on show of their progress."""
    sink, open_log = Shown(), FileLogSource.open

    def with_sink(self: FileLogSource) -> Connector:
        return replace(open_log(self), progress=sink)

    monkeypatch.setattr(FileLogSource, "open", with_sink)
    former = signal.getsignal(signal.SIGTERM)
    yield sink
    signal.signal(signal.SIGTERM, former)


def test_a_batch_is_shown_as_done_when_the_next_one_is_asked_for_and_once(log: Path, live: Any, shown: Shown) -> None:
    write(log, TWO)
    process = live()
    start = process.runner.initial_offset()
    assert shown.positions == []
    end = process.plan(start)
    process.read(start, end)
    assert shown.positions == [{0: 0, 1: 0}]
    marker = process.plan(end)
    assert shown.positions[1:] == [{0: 2, 1: 1}]
    for _ in range(5):
        assert process.plan(marker) == marker
    assert shown.positions[2:] == [{0: 2, 1: 1}]
    write(log, {1: [(8, 4)]})
    end = process.plan(marker)
    process.plan(end)
    assert shown.positions[3:] == [{0: 2, 1: 2}]


def test_a_batch_done_again_after_a_restart_is_shown_when_it_is_done(log: Path, live: Any, shown: Shown) -> None:
    write(log, TWO)
    process = live()
    start = process.runner.initial_offset()
    end = process.plan(start)
    del shown.positions[:]
    process = live()
    process.read(start, end)
    assert shown.positions == []
    process.plan(end)
    assert shown.positions == [{0: 2, 1: 1}]


def test_a_split_that_is_gone_is_not_shown(log: Path, live: Any, shown: Shown) -> None:
    write(log, TWO)
    process = live()
    end = process.run(process.runner.initial_offset())
    (log / "log-0.jsonl").unlink()
    process = live(failOnDataLoss="false")
    process.run(end)
    assert shown.positions[-1] == {1: 1}


def test_the_end_of_the_runner_is_the_end_of_what_shows_its_progress(log: Path, live: Any, shown: Shown) -> None:
    write(log, TWO)
    process = live()
    process.runner.close()
    assert shown.closed


def test_a_signal_to_end_shows_the_last_progress(log: Path, live: Any, shown: Shown) -> None:
    write(log, TWO)
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    live()
    signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, former)
    assert shown.closed
