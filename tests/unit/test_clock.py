"""The clock's two readings when the system's clock is set."""

from __future__ import annotations

import time

import pytest

from watermark_source.clock import Clock


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    at = {"wall": 1_000.0, "monotonic": 50.0}
    monkeypatch.setattr(time, "time", lambda: at["wall"])
    monkeypatch.setattr(time, "monotonic", lambda: at["monotonic"])
    return at


def test_both_readings_go_on_together(system: dict[str, float]) -> None:
    clock = Clock()
    system["wall"] += 2.5
    system["monotonic"] += 2.5
    assert clock.now() == clock.elapsed() == 1_002_500


def test_a_step_forward_is_the_time_but_no_time_that_passed(system: dict[str, float]) -> None:
    clock = Clock()
    system["wall"] += 3_600
    assert clock.now() == 4_600_000
    assert clock.elapsed() == 1_000_000


def test_after_a_step_forward_what_passes_is_counted_from_there_on_wish(system: dict[str, float]) -> None:
    clock = Clock()
    system["wall"] += 0.9
    assert not clock.catch_up()
    system["wall"] += 3_600
    assert clock.catch_up()
    assert clock.elapsed() == clock.wall() == 4_600_900
    assert not clock.catch_up()
    system["wall"] -= 7_200
    assert not clock.catch_up()
    assert clock.elapsed() == 4_600_900


def test_a_step_back_is_the_time_and_makes_none_that_passed(system: dict[str, float]) -> None:
    clock = Clock()
    system["wall"] -= 900
    system["monotonic"] += 1
    assert clock.now() == clock.elapsed() == 1_001_000
    assert clock.wall() == 100_000
