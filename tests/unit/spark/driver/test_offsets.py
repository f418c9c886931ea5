"""What a process that continues from an offset of another one knows of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark.queries import write
from tests.unit.spark.runner_process import TWO
from watermark_source.contract.stream import SourceDefinition
from watermark_source.errors import OffsetError

COMMITTED, CREATED = "eventTimeColumn = committed", "eventTimeColumn = created"


def test_a_watermark_of_another_event_time_is_reported_once(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def resume(event_time: str | None, end: Any) -> tuple[Any, list[str]]:
        monkeypatch.setattr(SourceDefinition, "event_time", event_time)
        caplog.clear()
        process = live()
        end = process.run(process.runner.initial_offset() if end is None else end)
        return end, [text for record in caplog.records if "is of" in (text := record.getMessage())]

    log.mkdir()
    end, warnings = resume(COMMITTED, None)
    assert warnings == []
    # Nothing was planned yet that could be of another time.
    end, warnings = resume(CREATED, end)
    assert warnings == []
    write(log, TWO)
    end, warnings = resume(CREATED, end)
    assert warnings == []
    assert end["wm"] is not None
    for before, now in ((CREATED, COMMITTED), (COMMITTED, None), (None, CREATED)):
        end, (text,) = resume(now, end)
        assert f"is of {before or 'the default event time'}, and the query's event time" in text
        assert f"is now {now or 'the default event time'}:" in text
        assert "2023-11-14 22:13:06.999" in text
        assert end.get("time") == now
        end, warnings = resume(now, end)
        assert warnings == []


def test_where_event_time_is_the_clock_no_row_is_behind_another_ones_watermark(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SourceDefinition, "event_time", CREATED)
    write(log, TWO)
    process = live()
    end = process.run(process.runner.initial_offset())
    monkeypatch.setattr(SourceDefinition, "event_time", None)
    live(watermarkStrategy="none").plan(end)
    assert "is of" not in caplog.text


def test_a_checkpoint_of_other_logs_is_refused_with_both_names(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, TWO)
    process = live()
    end = process.run(process.runner.initial_offset())
    monkeypatch.setattr(SourceDefinition, "selects", lambda _self, _log: False)
    monkeypatch.setattr(SourceDefinition, "selection", "subscribe is meter")
    with pytest.raises(
        OffsetError, match=r"was written for \w+, and subscribe is meter: did you mean another checkpointLocation\?"
    ):
        live().plan(end)
    # Who sets failOnDataLoss=false wants it so.
    live(failOnDataLoss="false").plan(end)


def test_a_checkpoint_without_a_watermark_tells_of_another_event_time_too(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Windows of rows by one time would be closed by the other."""
    write(log, {0: [(100, 1)], 1: []})
    monkeypatch.setattr(SourceDefinition, "event_time", COMMITTED)
    process = live()
    end = process.run(process.runner.initial_offset())
    assert "wm" not in end
    monkeypatch.setattr(SourceDefinition, "event_time", CREATED)
    live().plan(end)
    (warned,) = [text for record in caplog.records if "event time" in (text := record.getMessage())]
    assert f"the event time of the checkpoint's query was {COMMITTED}, and is now {CREATED}" in warned


def test_a_clock_that_stands_still_in_the_future_is_warned_of_once(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shift, true_time = 3_600.0, time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + shift)
    write(log, TWO)
    process = live(watermarkStrategy="none")
    end = process.run(process.runner.initial_offset())
    shift = 0.0
    process = live(watermarkStrategy="none")
    end = process.run(end)
    process.run(end)
    assert len([record for record in caplog.records if "stands still at the checkpoint's" in record.getMessage()]) == 1
