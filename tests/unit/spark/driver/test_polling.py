"""The pace of looks for new rows."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from watermark_source.spark.driver.pace import Pace


def pause(monkeypatch: pytest.MonkeyPatch, *, rest: float, cpu: float) -> float:
    """Return the pause after looks of a price, so many seconds after a batch."""
    monkeypatch.setattr(time, "monotonic", lambda: 1_000.0)
    paced = Pace(last_batch=1_000.0 - rest, cpu=(cpu, cpu)).after(is_batch=False)
    return paced.next_look - 1_000.0


@pytest.mark.parametrize(
    ("rest", "cpu", "expected"),
    [
        (0.0, 0.0, 0.015),
        (1.0, 0.0, 0.04),
        (60.0, 0.002, 0.1),
        (0.0, 0.016, 0.24),
        (1.0, 0.016, 0.44),
        (2.0, 0.0, 0.08),
        (2.0, 0.002, 0.08),
        (2.0, 0.016, 0.64),
        (60.0, 0.015, 0.6),
        (0.0, 0.05, 1.0),
        (60.0, 9.9, 1.0),
    ],
)
def test_looks_become_rarer_while_nothing_comes_and_rarer_still_when_they_cost_much(
    monkeypatch: pytest.MonkeyPatch, rest: float, cpu: float, expected: float
) -> None:
    assert pause(monkeypatch, rest=rest, cpu=cpu) == pytest.approx(expected)


@pytest.mark.parametrize("rest", [0.0, 0.5, 2.0, 5.0, 60.0])
def test_a_pause_grows_evenly_with_the_price_of_a_look_and_right_after_a_batch_not_before_ten_milliseconds(
    monkeypatch: pytest.MonkeyPatch, rest: float
) -> None:
    pauses = [pause(monkeypatch, rest=rest, cpu=n / 10_000) for n in range(600)]
    assert all(0 <= after - before < 0.0041 for before, after in pairwise(pauses))
    spared = round(100 * max(0.0, 1.0 - rest / 2.0))
    assert [*map(pytest.approx, pauses[:spared])] == [
        min(max(0.1, n / 10_000 / 0.025), max(0.015, 0.04 * rest)) for n in range(spared)
    ]


def test_one_look_that_does_more_sets_no_pause_and_batches_leave_the_price() -> None:
    begun = time.monotonic()
    pace = Pace().after_look(0.003).after_look(5.0)
    assert pace.after(is_batch=True).after(is_batch=False).next_look < begun + 60 * 0.04 + 0.015
    dear = pace.after_look(5.0).after(is_batch=True)
    assert dear.after(is_batch=False).next_look >= begun + 1.0


@pytest.mark.parametrize("cpu", [0.01, 0.015, 0.02, 0.03])
def test_many_splits_at_rest_take_a_twenty_fifth_of_a_core(monkeypatch: pytest.MonkeyPatch, cpu: float) -> None:
    """Looks of 15 to 30 ms are those of ten thousand, and the status may take a hundredth."""
    now, used, pace = 1_000.0, 0.0, Pace(last_batch=998.0)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    while now < 1_010.0:
        pace = pace.after_look(cpu).after(is_batch=False)
        used += cpu
        now = pace.next_look + cpu
    assert used <= 0.04 * 10


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


@pytest.mark.parametrize(("waited", "expected"), [(0.0, 0.015), (2.0, 0.08), (10.0, 0.4), (60.0, 1.0)])
def test_batches_without_rows_of_a_run_that_waits_for_its_group_become_rarer(
    monkeypatch: pytest.MonkeyPatch, waited: float, expected: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1_000.0)
    paced = Pace(last_batch=1_000.0 - waited).after(is_batch=True, held=True)
    assert paced.next_look == pytest.approx(1_000.0 + expected)
