"""The mailbox and its thread; the group is one that does at each commit what the test states, which no broker does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from pyspark_aligned_kafka.cluster import group_commits
from pyspark_aligned_kafka.cluster.group_commits import CommitPace, GroupCommits
from watermark_source.errors import RefusedError, SourceError, UnreachableError
from watermark_source.planning.split import Split

Positions = Mapping[Split, int]


def at(position: int) -> Positions:
    return {Split("t", 0): position}


class Group:
    """Stands for ``ConsumerGroup``."""

    name = "g"

    def __init__(self) -> None:
        self.tried: list[int] = []
        self.limits: list[float] = []
        self.closed = 0
        self.act: Callable[[], object] = lambda: None

    def commit(self, positions: Positions, limit_ms: float) -> None:
        self.tried.append(positions[Split("t", 0)])
        self.limits.append(limit_ms)
        self.act()

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def progress(group: Group) -> Iterator[GroupCommits]:
    made = GroupCommits(group)  # type: ignore[arg-type]  # see Group
    yield made
    group.act = lambda: None
    made.close()


@pytest.fixture
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommitPace, "wait", lambda *_, news: 0.0 if news else 60.0)


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.005)


def raising(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_nothing_is_begun_before_there_is_progress_to_show(group: Group) -> None:
    before = set(threading.enumerate())
    progress = GroupCommits(group)  # type: ignore[arg-type]  # see Group
    assert not set(threading.enumerate()) - before
    progress.close()
    assert not set(threading.enumerate()) - before
    assert group.tried == []


@pytest.mark.usefixtures("_without_pauses")
def test_while_a_commit_takes_its_time_no_one_waits_and_the_latest_wins(group: Group, progress: GroupCommits) -> None:
    may_commit = threading.Event()
    group.act = lambda: may_commit.wait(120) and None
    begun = time.monotonic()
    progress.record(at(1))
    wait_for(lambda: group.tried)
    for position in range(2, 1_000):
        progress.record(at(position))
    assert time.monotonic() - begun < 60
    may_commit.set()
    wait_for(lambda: group.tried == [1, 999])


@pytest.mark.usefixtures("_without_pauses")
def test_what_is_committed_is_not_committed_again_though_reported_again(group: Group, progress: GroupCommits) -> None:
    for position in (1, 1, 1, 2, 2):
        progress.record(at(position))
        wait_for(lambda position=position: group.tried[-1:] == [position])  # type: ignore[misc]
    assert group.tried == [1, 2]


def test_the_end_commits_what_waits_for_its_turn(
    group: Group, progress: GroupCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commits, "PAUSE_S", 60.0)
    progress.record(at(1))
    wait_for(lambda: group.tried == [1])
    progress.record(at(2))
    begun = time.monotonic()
    progress.close()
    assert time.monotonic() - begun < 50
    assert group.tried == [1, 2]
    assert 0 < group.limits[-1] <= 2_000
    assert group.closed == 1


def test_the_end_tries_once_more_in_the_middle_of_a_pause_and_only_once(
    group: Group, progress: GroupCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commits, "PAUSE_S", 60.0)
    group.act = raising(UnreachableError("away"))
    progress.record(at(1))
    wait_for(lambda: group.tried == [1])
    begun = time.monotonic()
    progress.close()
    assert time.monotonic() - begun < 50
    assert group.tried == [1, 1]


def test_the_end_waits_two_seconds_for_a_commit_that_hangs(group: Group, progress: GroupCommits) -> None:
    hung = threading.Event()
    group.act = lambda: hung.wait(120) and None
    progress.record(at(1))
    wait_for(lambda: group.tried)
    progress.record(at(2))
    begun = time.monotonic()
    progress.close()
    progress.close()
    assert 1.9 < time.monotonic() - begun < 60
    hung.set()
    time.sleep(0.1)
    # Its time is over.
    assert group.tried == [1]


@pytest.mark.usefixtures("_without_pauses")
def test_each_kind_of_trouble_is_reported_once_until_it_is_over(
    group: Group, progress: GroupCommits, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def warnings() -> list[str]:
        return [record.message for record in caplog.records if record.name == group_commits.__name__]

    for number, error in enumerate(
        (RefusedError("no right"), UnreachableError("away"), RefusedError("still no right"))
    ):
        group.act = raising(error)
        progress.record(at(number))
        wait_for(lambda number=number: group.tried.count(number) > 3)  # type: ignore[misc]
    assert len(warnings()) == 2
    assert "consumer group g" in warnings()[0]
    assert "no right" in warnings()[0]
    assert "away" in warnings()[1]
    group.act = lambda: None
    wait_for(lambda: "committed to consumer group g again" in warnings()[-1])
    group.act = raising(RefusedError("no right again"))
    progress.record(at(100))
    wait_for(lambda: "no right again" in warnings()[-1])
    assert len(warnings()) == 4


@pytest.mark.usefixtures("_without_pauses")
def test_errors_of_one_type_are_different_trouble_if_the_broker_reported_different_things(
    group: Group, progress: GroupCommits, caplog: pytest.LogCaptureFixture
) -> None:
    for cause in (KeyError("a"), IndexError("b")):
        error = SourceError(f"because of {cause}")
        error.__cause__ = cause
        group.act = raising(error)
        progress.record(at(1))
        wait_for(lambda error=error: str(error) in caplog.text)  # type: ignore[misc]


@pytest.mark.usefixtures("_without_pauses")
def test_an_error_no_one_foresaw_is_reported_and_the_next_commit_begins_with_new_connections(
    group: Group, progress: GroupCommits, caplog: pytest.LogCaptureFixture
) -> None:
    group.act = raising(RuntimeError("a bug of the client's"))
    progress.record(at(1))
    wait_for(lambda: "RuntimeError: a bug of the client's" in caplog.text)
    wait_for(lambda: group.closed)
    group.act = lambda: None
    progress.record(at(2))
    wait_for(lambda: group.tried[-1] == 2)
