"""A source whose watermark follows the driver's clock, when that is set."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.queries import write
from tests.unit.spark.runner_process import TWO, Process

INGESTION = {"watermarkStrategy": "ingestion", "maxWatermarkLag": "100 ms", "watermarkInterval": "20 ms"}


def test_after_the_clock_was_set_back_the_watermark_stands_still_until_it_is_as_late_again(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift, true_time = 300.0, time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + shift)

    def wall() -> float:
        return time.time() * 1_000

    write(log, TWO)
    process: Process = live(**INGESTION)
    end = until(process, process.runner.initial_offset(), lambda offset: offset.get("wm", 0) > wall() - 1_000)
    shift = 0.0
    for _ in range(10):
        time.sleep(0.03)
        assert process.run(end) == end
    shift = 301.0
    end = until(process, end, lambda offset: offset["wm"] > wall() - 1_000)
    assert end["wm"] <= wall() - 100


def test_a_clock_that_was_set_forward_makes_no_split_idle_in_the_next_process_either(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift, true_time = 0.0, time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + shift)
    idle = {"idleTimeout": "30 seconds"}
    write(log, TWO)
    process = live(**idle)
    end = process.run(process.runner.initial_offset())
    shift = 60.0
    write(log, {0: [(200, 4)]})
    for after in (process, live(**idle)):
        end = after.run(end)
        assert all(fields[3:4] != ["i"] for fields in end["splits"]["log"].values())


def until(
    process: Process, end: Mapping[str, Any], condition: Callable[[Mapping[str, Any]], bool]
) -> Mapping[str, Any]:
    deadline = time.monotonic() + 120
    while not condition(end):
        assert time.monotonic() < deadline, end
        end = process.run(end)
    return end
