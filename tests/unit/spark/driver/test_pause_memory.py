"""What a process learns of pauses from its plans."""

from __future__ import annotations

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.learned_idle_timeout import LONGEST, SHORTEST
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.spark.driver.pause_memory import PauseMemory

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
        """Return the timeout; then so many of the rows are read as the batch takes: all of them, unless told."""
        moment = None if since is None else Millis(since)
        state = SourceState({SPLIT: SplitState(self.read, self.read, status=status, since=moment)})
        ends = {SPLIT: self.read + rows}
        logs = ObservedLogs(asked_at=Millis(at), ends=ends, ends_are_final=final)
        self.read += rows if read is None else read
        return self.memory.timeouts(state, logs).get(SPLIT)

    def look_often(self, at: int = 0, *, since: int | None = None) -> None:
        self.look(rows=0)
        for _ in range(10):
            self.look(at, since=since)


def test_only_a_split_with_nothing_left_has_a_timeout() -> None:
    watched = Watched()
    assert watched.look(rows=0) == LONGEST
    assert watched.look() is None


def test_pauses_run_from_the_first_plan_without_rows_to_the_first_with_some() -> None:
    watched = Watched()
    watched.look_often(130_000, since=100_000)
    assert watched.look(200_000, rows=0) == 45_000


def test_a_split_that_was_idle_was_quiet_before_too() -> None:
    watched = Watched()
    watched.look_often()
    assert watched.look(rows=0) == SHORTEST
    watched.look(150_000, since=100_000, status=SplitStatus.IDLE)
    assert watched.look(200_000, rows=0) == 90_000


def test_nothing_is_learned_of_what_came_before_the_process_of_paused_splits_and_of_fixed_ends() -> None:
    watched = Watched()
    watched.look(130_000, since=100_000)
    for _ in range(9):
        watched.look()
    assert watched.look(rows=0) == LONGEST
    watched.look()
    watched.look(130_000, since=100_000, status=SplitStatus.PAUSED)
    watched.look(130_000, since=100_000, final=True)
    assert watched.look(200_000, rows=0) == SHORTEST


def test_batches_of_a_backlog_tell_nothing_of_when_its_rows_came() -> None:
    """Rows half a minute apart, read as fast as a batch takes some of them."""
    watched = Watched()
    for left in range(40, 0, -1):
        watched.look(rows=left, read=1)
    assert watched.look(rows=0) == LONGEST
    # Nor do those that come until it has caught up.
    watched.look(rows=2, read=1)
    for _ in range(40):
        watched.look(rows=2, read=1)
    watched.look()
    assert watched.look(rows=0) == LONGEST
