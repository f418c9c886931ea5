"""The pace of looks for new rows."""

from __future__ import annotations

import time

import pytest

from watermark_source.spark.driver.pace import Pace


@pytest.mark.parametrize(
    ("rest", "cpu", "pause"),
    [
        (0.0, 0.0, 0.015),
        (1.0, 0.0, 0.04),
        (2.0, 0.0, 0.08),
        (60.0, 0.003, 0.1),
        (0.0, 0.02, 0.5),
        (2.0, 0.02, 0.5),
        (60.0, 0.02, 0.5),
        (60.0, 9.9, 1.0),
    ],
)
def test_looks_become_rarer_while_nothing_comes_and_rarer_still_when_they_cost_much(
    monkeypatch: pytest.MonkeyPatch, rest: float, cpu: float, pause: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1_000.0)
    paced = Pace(last_batch=1_000.0 - rest).after(is_batch=False, cpu=cpu)
    assert paced.next_look == pytest.approx(1_000.0 + pause)


def test_after_a_batch_the_next_look_is_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: 1_000.0)
    pace = Pace(last_batch=0.0).after(is_batch=False).after(is_batch=True)
    pace.wait(slept.append)
    assert not any(slept)
    assert pace.last_batch == 1_000.0


def test_a_wait_lasts_until_the_next_look() -> None:
    began = time.monotonic()
    Pace(next_look=began + 0.05).wait(time.sleep)
    assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize(("waited", "pause"), [(0.0, 0.015), (2.0, 0.08), (10.0, 0.4), (60.0, 1.0)])
def test_batches_without_rows_of_a_run_that_waits_for_its_group_become_rarer(
    monkeypatch: pytest.MonkeyPatch, waited: float, pause: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1_000.0)
    paced = Pace(last_batch=1_000.0 - waited).after(is_batch=True, held=True)
    assert paced.next_look == pytest.approx(1_000.0 + pause)
