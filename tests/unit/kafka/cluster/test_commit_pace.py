"""When the next commit is due, at moments the tests choose."""

from __future__ import annotations

import pytest

from pyspark_aligned_kafka.cluster.group_commits import CommitPace


def test_the_first_commit_is_due_at_once() -> None:
    assert CommitPace().wait(1_000.0, news=True) == 0.0


def test_news_is_committed_once_a_second() -> None:
    pace = CommitPace().after_success(1_000.0)
    assert pace.wait(1_000.0, news=True) == 1.0
    assert pace.wait(1_000.4, news=True) == pytest.approx(0.6)
    assert pace.wait(1_001.0, news=True) == 0.0
    # However long ago it became due, it is once.
    assert pace.after_success(2_000.0).wait(2_000.0, news=True) == 1.0


def test_what_is_committed_is_committed_again_each_minute() -> None:
    pace = CommitPace().after_success(1_000.0)
    assert pace.wait(1_001.0, news=False) == 59.0
    assert pace.wait(1_060.0, news=False) == 0.0


def test_pauses_double_while_it_fails_and_end_with_the_first_success() -> None:
    pace, pauses = CommitPace(), []
    for _ in range(2_000):
        pace = pace.after_failure(0.0)
        pauses.append(pace.wait(0.0, news=True))
    assert pauses[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert pauses[-1] == 30.0
    pace = pace.after_success(0.0)
    assert pace.wait(0.0, news=True) == 1.0
    assert pace.after_failure(0.0).wait(0.0, news=True) == 1.0


def test_a_repetition_that_failed_is_tried_again_as_news_would_be() -> None:
    pace = CommitPace().after_success(0.0).after_failure(60.0)
    assert pace.wait(60.0, news=False) == pace.wait(60.0, news=True) == 1.0
