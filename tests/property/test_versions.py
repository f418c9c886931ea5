"""Versions of rows by time: each question gets the version of its time, and dropping old ones changes no answer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watermark_source.operators.join_processor import Version, merged, needed_after, valid_at

KEYS = st.integers(0, 3)
TIMES = st.integers(-5, 12)
HISTORY = st.lists(st.tuples(KEYS, TIMES), max_size=20)
ROWS = st.one_of(st.none(), st.integers(0, 9))
VERSIONS = st.dictionaries(TIMES, ROWS, max_size=8).map(
    lambda found: [Version(*each) for each in sorted(found.items())]
)


def numbers(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def answer(versions: list[Version], time: int) -> object:
    """Return what a key had at a time, by looking at all versions."""
    return next((version.row for version in reversed(versions) if version.time <= time), None)


@given(HISTORY, st.lists(st.tuples(st.integers(-1, 3), TIMES), max_size=20))
def test_a_question_gets_the_last_version_of_its_key_at_or_before_its_time(
    history: list[tuple[int, int]], questions: list[tuple[int, int]]
) -> None:
    found = valid_at(*(numbers([row[n] for row in part]) for part in (history, questions) for n in (0, 1)))
    expected = []
    for key, time in questions:
        fitting = [(when, place) for place, (of, when) in enumerate(history) if of == key and when <= time]
        expected.append(max(fitting)[1] if fitting else -1)
    assert found.tolist() == expected


@given(VERSIONS, st.lists(st.tuples(TIMES, ROWS), max_size=8))
def test_of_equal_times_the_version_that_came_last_counts(
    known: list[Version], came: list[tuple[int, int | None]]
) -> None:
    new = [Version(*each) for each in sorted(came, key=lambda each: each[0])]
    expected = {version.time: version.row for version in (*known, *new)}
    assert merged(known, new) == [Version(*each) for each in sorted(expected.items())]


@given(VERSIONS, TIMES, TIMES)
def test_what_is_dropped_answers_no_question_from_then_on(versions: list[Version], moment: int, later: int) -> None:
    kept = list(needed_after(versions, moment))
    assert answer(kept, max(moment, later)) == answer(versions, max(moment, later))


@given(VERSIONS, TIMES)
def test_of_the_past_no_more_than_one_version_is_kept_and_no_deletion(versions: list[Version], moment: int) -> None:
    past = [version for version in needed_after(versions, moment) if version.time <= moment]
    assert len(past) <= 1
    assert all(version.row is not None for version in past)
