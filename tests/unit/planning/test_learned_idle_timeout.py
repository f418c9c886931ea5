"""Pauses: how long a split must be quiet to be idle, where that is learned."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from watermark_source.planning.status_transitions import LONGEST_IDLE_TIMEOUT, SHORTEST_IDLE_TIMEOUT, Pauses


def learned(*pauses: int | None) -> Pauses:
    known = Pauses()
    for pause in pauses:
        known = known.after(pause)
    return known


def test_of_a_split_of_which_little_is_known_the_timeout_is_the_longest() -> None:
    assert Pauses().timeout == 300_000 == LONGEST_IDLE_TIMEOUT
    assert learned(*[100] * 9).timeout == LONGEST_IDLE_TIMEOUT
    assert learned(*[100] * 10).timeout == 10_000 == SHORTEST_IDLE_TIMEOUT


def test_a_split_that_always_had_rows_is_idle_soonest() -> None:
    assert learned(*[None] * 10).timeout == SHORTEST_IDLE_TIMEOUT


def test_the_timeout_is_half_as_long_again_as_the_longest_pause() -> None:
    assert learned(*[1_000] * 20, 40_000, *[1_000] * 20).timeout == 60_000
    assert learned(*[1_000] * 20, 250_000).timeout == LONGEST_IDLE_TIMEOUT


def test_a_long_pause_is_forgotten_after_a_thousand_others_and_not_before() -> None:
    assert learned(40_000, *[1_000] * 1_998).timeout == 60_000
    assert learned(40_000, *[1_000] * 1_999).timeout == SHORTEST_IDLE_TIMEOUT


def test_a_silence_longer_than_any_timeout_teaches_nothing() -> None:
    assert learned(*[1_000] * 20, LONGEST_IDLE_TIMEOUT).timeout == LONGEST_IDLE_TIMEOUT
    assert learned(*[1_000] * 20, LONGEST_IDLE_TIMEOUT + 1).timeout == SHORTEST_IDLE_TIMEOUT
    assert learned(*[LONGEST_IDLE_TIMEOUT + 180_000] * 20).timeout == LONGEST_IDLE_TIMEOUT


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.2, 1, 10, 1_000])
def test_hardly_a_row_of_a_steady_stream_finds_its_split_idle(rate: float) -> None:
    """Rows come at random, and a plan a second sees them; the last silence lasts no longer than twice its pauses."""
    chance = np.random.default_rng(5)
    rows = np.cumsum(chance.exponential(1 / rate, max(4_000, round(300 * rate)))) * 1_000
    plans = np.unique(np.ceil(rows / 1_000) * 1_000)
    known, idle, seen = Pauses(), 0, []
    for before, at in itertools.pairwise(plans):
        # What a plan finds that comes right after another is no pause.
        pause = None if at - before <= 1_000 else int(at - before - 1_000)
        idle += pause is not None and pause > known.timeout
        known = known.after(pause)
        seen.append(0 if pause is None else pause)
    assert idle <= 0.004 * len(plans)
    if rate >= 0.05:
        assert idle <= 0.001 * len(plans)
    assert known.timeout <= max(SHORTEST_IDLE_TIMEOUT, 2 * max(seen))
