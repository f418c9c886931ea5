"""What a process learns of pauses from its plans."""

from __future__ import annotations

from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.planning.status_transitions import LONGEST_IDLE_TIMEOUT, SHORTEST_IDLE_TIMEOUT
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.observer import PauseMemory

SPLIT = Split("log", 0)


class Watched:
    """A split of which each look finds one more row than was read, or none."""

    def __init__(self) -> None:
        self.memory = PauseMemory()
        self.read = 0

    def look(
        self, at: int = 0, *, rows: int = 1, read: int | None = None, since: int | None = None,
        status: SplitStatus = SplitStatus.ACTIVE, final: bool = False,
    ) -> int | None:  # fmt: skip
        """Return the timeout; then so many rows are read as the batch takes: all, unless asked otherwise."""
        moment = None if since is None else Millis(since)
        state = SourceState({SPLIT: SplitState(self.read, self.read, status=status, since=moment)})
        ends = {SPLIT: self.read + rows}
        logs = ObservedLogs(asked_at=Millis(at), ends=ends, ends_are_final=final)
        self.read += rows if read is None else read
        return self.memory.timeouts(state, logs).get(SPLIT)

    def look_often(self) -> None:
        self.look(rows=0)
        for _ in range(10):
            self.look()

    def pause(self, first: int, until: int) -> None:
        """Rows at ``first``, read by the plan of a second later, and the next at ``until``."""
        self.look(first - 1_000, rows=0)
        self.look(first)
        self.look(first + 1_000, rows=0)
        self.look(until - 1_000, rows=0, since=first + 1_000)
        self.look(until, since=first + 1_000)


def test_only_a_split_with_nothing_left_has_a_timeout() -> None:
    watched = Watched()
    assert watched.look(rows=0) == LONGEST_IDLE_TIMEOUT
    assert watched.look() is None


def test_pauses_run_from_the_first_plan_without_rows_to_the_first_with_some() -> None:
    """And from the plan before the last rows, which may have come right after it."""
    watched = Watched()
    watched.look_often()
    watched.pause(100_000, 130_000)
    assert watched.look(200_000, rows=0) == 46_500


def test_a_split_that_was_idle_was_quiet_before_too() -> None:
    watched = Watched()
    watched.look_often()
    assert watched.look(rows=0) == SHORTEST_IDLE_TIMEOUT
    watched.look(150_000, since=100_000, status=SplitStatus.IDLE)
    assert watched.look(200_000, rows=0) == 225_000


def test_rows_that_long_batches_find_each_time_are_no_knowledge_of_pauses() -> None:
    """A row every 12 seconds, and a batch takes 13: the next pause of 12 seconds is none to be idle in."""
    watched = Watched()
    watched.look(rows=0)
    for batch in range(1, 40):
        watched.look(13_000 * batch)
    assert watched.look(13_000 * 40, rows=0) == LONGEST_IDLE_TIMEOUT


def test_a_pause_that_long_batches_saw_may_have_been_longer_than_it_seemed() -> None:
    """A row every 20 seconds: two batches of three find one, and 13 seconds without rows were 20."""
    watched = Watched()
    watched.look(rows=0)
    since = None
    for batch in range(1, 60):
        at = 13_000 * batch
        rows = at // 20_000 - (at - 13_000) // 20_000
        watched.look(at, rows=rows, since=since)
        since = None if rows else since or at
    timeout = watched.look(13_000 * 60, rows=0)
    assert timeout is not None
    assert 30_000 <= timeout < LONGEST_IDLE_TIMEOUT


def test_nothing_is_learned_of_what_came_before_the_process_of_paused_splits_and_of_fixed_ends() -> None:
    watched = Watched()
    watched.look(130_000, since=100_000)
    for _ in range(9):
        watched.look(130_000)
    assert watched.look(130_000, rows=0) == LONGEST_IDLE_TIMEOUT
    watched.look(130_000)
    watched.look(230_000, since=130_000, status=SplitStatus.PAUSED)
    watched.look(230_000, since=130_000, final=True)
    assert watched.look(330_000, rows=0) == SHORTEST_IDLE_TIMEOUT


def test_batches_of_a_backlog_report_nothing_of_when_its_rows_came() -> None:
    """Rows half a minute apart, read as fast as a batch takes some of them."""
    watched = Watched()
    for left in range(40, 0, -1):
        watched.look(rows=left, read=1)
    assert watched.look(rows=0) == LONGEST_IDLE_TIMEOUT
    # Nor do those that come until it has caught up.
    watched.look(rows=2, read=1)
    for _ in range(40):
        watched.look(rows=2, read=1)
    watched.look()
    assert watched.look(rows=0) == LONGEST_IDLE_TIMEOUT
