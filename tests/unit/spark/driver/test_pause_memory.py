"""What a process learns of pauses from its plans."""

from __future__ import annotations

from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.pauses import LONGEST, SHORTEST
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitState, SplitStatus
from watermark_source.spark.driver.pause_memory import PauseMemory

SPLIT = Split("log", 0)


def planned(
    memory: PauseMemory, end: int, at: int, *, since: int | None = None, status: SplitStatus = SplitStatus.ACTIVE,
    is_first: bool = False, final: bool = False,
) -> int | None:  # fmt: skip
    state = SourceState({SPLIT: SplitState(10, 10, status=status, since=None if since is None else Millis(since))})
    logs = ObservedLogs(asked_at=Millis(at), ends={SPLIT: end}, ends_are_final=final)
    return memory.timeouts(state, logs, is_first=is_first).get(SPLIT)


def test_only_a_split_with_nothing_left_has_a_timeout() -> None:
    memory = PauseMemory()
    assert planned(memory, 10, 0) == LONGEST
    assert planned(memory, 11, 0) is None


def test_pauses_run_from_the_first_plan_without_rows_to_the_first_with_some() -> None:
    memory = PauseMemory()
    for _ in range(10):
        planned(memory, 11, 130_000, since=100_000)
    assert planned(memory, 10, 200_000) == 45_000


def test_a_split_that_was_idle_was_quiet_before_too() -> None:
    memory = PauseMemory()
    for _ in range(10):
        planned(memory, 11, 0)
    assert planned(memory, 10, 0) == SHORTEST
    planned(memory, 11, 150_000, since=100_000, status=SplitStatus.IDLE)
    assert planned(memory, 10, 200_000) == 90_000


def test_nothing_is_learned_of_what_came_before_the_process_of_paused_splits_and_of_fixed_ends() -> None:
    memory = PauseMemory()
    for _ in range(10):
        planned(memory, 11, 0)
    planned(memory, 11, 130_000, since=100_000, is_first=True)
    planned(memory, 11, 130_000, since=100_000, status=SplitStatus.PAUSED)
    planned(memory, 11, 130_000, since=100_000, final=True)
    assert planned(memory, 10, 200_000) == SHORTEST
