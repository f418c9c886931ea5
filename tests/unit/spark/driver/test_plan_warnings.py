"""Which warnings of its watermark a source's process logs."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark.queries import START, Rows, write
from tests.unit.spark.runner_process import Process
from watermark_source.planning.state import SourceState
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.plan_warnings import warn_of

OF_ONE: dict[int, list[tuple[int, int]]] = {0: [(100, 1), (101, 2)], 1: []}
"""The second split never has a row."""


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def lasts(process: Process, offset: Any, seconds: float) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        offset = process.run(offset)
    return offset


def test_a_split_without_rows_is_warned_of_once(log: Path, live: Any, caplog: pytest.LogCaptureFixture) -> None:
    write(log, OF_ONE)
    process = live(watermarkWarningAfter="200 ms")
    lasts(process, process.runner.initial_offset(), 0.6)
    (text,) = warned(caplog)
    assert "held back by log-1: no record seen yet" in text
    assert '.option("idleTimeout", "30 seconds")' in text


def test_a_run_that_closes_nothing_is_warned_of_at_its_end(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, OF_ONE)
    process = live()
    process.runner.freeze()
    end = process.run(process.runner.initial_offset())
    process.plan(end)
    (text,) = warned(caplog)
    assert text.startswith("the run is over, and the source's watermark closed no window: 2 rows read")
    assert "log-1: no record seen yet" in text


def test_a_split_whose_rows_come_is_not_called_silent(log: Path, live: Any, caplog: pytest.LogCaptureFixture) -> None:
    """All its rows have the same event time, so that the watermark stands; each plan has read it to its end."""
    write(log, {0: [(100, 1)], 1: [(7, 2)]})
    process = live(watermarkWarningAfter="200 ms")
    end = process.run(process.runner.initial_offset())
    until = time.monotonic() + 0.6
    while time.monotonic() < until:
        write(log, {0: [(100 + 600 - until + time.monotonic(), 3)], 1: [(7, 4)]})
        end = process.run(end)
    (text,) = warned(caplog)
    assert "It is held back by log-1: all is read; its newest record is of 2023-11-14 22:13:07.000 UTC. Its" in text
    assert "idleTimeout" not in text


@pytest.mark.parametrize(
    ("rows", "read"),
    [(OF_ONE, [["2 rows"], ["0 rows"], ["1 row"], ["0 rows"]]), ({**OF_ONE, 1: [(90, 3)]}, [[], [], ["1 row"], []])],
    ids=["no watermark", "a watermark that stays"],
)
def test_a_run_reports_its_own_rows_at_its_end(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture, rows: Rows, read: list[list[str]]
) -> None:
    """What the run before read last is looked at again, for its event times."""
    write(log, rows)
    end: Any = None
    texts = []
    for added in (0, 0, 1, 0):
        process = live()
        write(log, {0: [(200 + n, n) for n in range(added)]})
        caplog.clear()
        process.runner.freeze()
        end = process.run(process.runner.initial_offset() if end is None else end)
        process.plan(end)
        texts.append([text.partition("closed no window: ")[2].partition(" read,")[0] for text in warned(caplog)])
    assert texts == read


@pytest.mark.parametrize("given", [{"includeMarkers": "false"}, {"watermarkStrategy": "none"}])
def test_where_no_window_follows_the_watermark_nothing_is_reported(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture, given: dict[str, str]
) -> None:
    write(log, OF_ONE)
    process = live(**given)
    process.runner.freeze()
    process.plan(process.run(process.runner.initial_offset()))
    assert "window" not in caplog.text


def test_a_watermark_of_the_future_is_warned_of_again_after_a_restart(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    far = time.time() + 10_000 - START / 1_000
    write(log, {0: [(far, 1)], 1: [(far, 2)]})
    process = live()
    end = lasts(process, process.runner.initial_offset(), 0.3)
    (moved,) = warned(caplog)
    caplog.clear()
    live().plan(end)
    (stands,) = warned(caplog)
    assert stands.startswith("the checkpoint's watermark, 2")
    for text in (moved, stands):
        assert "is more than an hour in the future: rows of now are late" in text
        assert 'begin with a new checkpoint location; write .option("maxFutureSkew", "1 hour")' in text


def hour_ahead(less: float = 0.0) -> float:
    """Seconds since START of a row without its zone, an hour east of UTC, written ``less`` seconds ago."""
    return time.time() + 3_600 - less - START / 1_000


@pytest.mark.parametrize("given", [{}, {"maxFutureSkew": "1 hour"}, {"maxOutOfOrderness": "20 minutes"}])
def test_rows_that_stay_an_hour_ahead_less_a_delay_are_warned_of_once(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture, given: dict[str, str]
) -> None:
    process, end, n = live(watermarkWarningAfter="300 ms", **given), None, 0
    until, more = time.monotonic() + 20, 5
    while more and time.monotonic() < until:
        n, more = n + 1, more - bool(warned(caplog))
        write(log, {split: [(hour_ahead(less=120), 2 * n + split)] for split in range(2)})
        end = process.run(process.runner.initial_offset() if end is None else end)
    (text,) = warned(caplog)
    assert text.startswith("event times are 57 min")
    assert "1 h may be the difference of a time zone" in text


def test_a_run_of_rows_an_hour_ahead_less_a_delay_is_warned_of_at_its_end(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, {0: [(hour_ahead(less=300), 1)], 1: [(hour_ahead(less=320), 2)]})
    process = live()
    process.runner.freeze()
    process.plan(process.run(process.runner.initial_offset()))
    (text,) = warned(caplog)
    assert text.startswith("event times are 54 min")
    assert "1 h may be the difference of a time zone" in text


def test_a_run_whose_watermark_moves_is_not_warned_of(log: Path, live: Any, caplog: pytest.LogCaptureFixture) -> None:
    write(log, {0: [(100, 1)], 1: [(101, 2)]})
    process = live()
    process.runner.freeze()
    process.run(process.runner.initial_offset())
    assert warned(caplog) == []


def test_the_first_late_rows_of_a_split_that_was_idle_are_warned_of(
    log: Path, live: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, {0: [(100, 1)], 1: [(200, 2)]})
    process = live(idleTimeout="50 ms")
    end = lasts(process, process.runner.initial_offset(), 0.4)
    write(log, {0: [(150, 3)], 1: [(210, 4)]})
    end = process.run(end)
    write(log, {0: [(151, 5)], 1: [(211, 6)]})
    process.run(end)
    (text,) = warned(caplog)
    assert text.startswith("1 row of log-0 came up to 49 s late")
    assert 'To wait for it, write a longer one: .option("idleTimeout", ' in text


@pytest.mark.parametrize(
    ("skew", "ahead", "logged"),
    [
        (None, 7_200_000, "a row with a wrong event time moved it"),
        (7_300_000, 7_200_000, None),
        (60_000, 7_200_000, "another source of the alignment group did (idleFollows=group). Set maxFutureSkew there"),
    ],
)
def test_a_watermark_of_the_future_names_who_can_have_moved_it(
    skew: int | None, ahead: int, logged: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    now, before = Millis(START), SourceState(watermark=Millis(START), run=1)
    state = SourceState(watermark=Millis(START + ahead), run=1)
    warn_of(state, before, now, skew)
    lines = warned(caplog)
    assert len(lines) == (logged is not None)
    assert logged is None or logged in lines[0]
