"""Hypothesis strategies: event times of a split, and what may happen to a log between two plans."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.simulation.driver import START, Driver
from tests.simulation.log import SimulatedLog, SplitLog
from watermark_source.planning.split import Split

FAR_FUTURE = 4_070_908_800_000
"""2099."""
budgets = st.none() | st.integers(1, 40)
"""Most positions of a batch."""


@dataclass(frozen=True)
class Append:
    number: int
    event_times: tuple[int, ...]
    gap: int = 0


@dataclass(frozen=True)
class Open:
    """Rows of a transaction, which stays open."""

    number: int
    event_times: tuple[int, ...]


@dataclass(frozen=True)
class Close:
    """The end of the transaction that is open, if one is: a control record, and rows that may be read or are gone."""

    number: int
    commits: bool


@dataclass(frozen=True)
class Wait:
    millis: int


@dataclass(frozen=True)
class Step:
    """Plan, and send the batch if there is one."""


@dataclass(frozen=True)
class Kill:
    """The process ends without a word; the next one has the last offset only."""


@dataclass(frozen=True)
class KillPlanning:
    """The process ends after planning, before the offset is written."""


@dataclass(frozen=True)
class StepUnanswered:
    """The same while the system does not answer for one split."""

    number: int


@dataclass(frozen=True)
class Outage:
    """Within one batch a split cannot be reached for a while, by no one; when the next plan asks it can."""

    number: int
    millis: int


Action = Append | Open | Close | Wait | Step | Kill | KillPlanning | StepUnanswered | Outage


def event_times(*, most: int = 30, disorder: int = 0, origin: int = START) -> SearchStrategy[tuple[int, ...]]:
    """Times that go up by steps of every size, ties and gaps of hours among them, less a little disorder."""
    steps = st.one_of(st.integers(0, 3), st.integers(0, 1_000), st.sampled_from([0, 0, 60_000, 3_600_000]))
    rows = st.tuples(steps, st.integers(0, disorder))
    start = st.integers(0, 2_000).map(lambda shift: origin + shift)

    def walk(drawn: tuple[int, list[tuple[int, int]]]) -> tuple[int, ...]:
        at, found = drawn[0], []
        for step, back in drawn[1]:
            at += step
            found.append(at - back)
        return tuple(found)

    return st.tuples(start, st.lists(rows, max_size=most)).map(walk)


@st.composite
def logs(
    draw: st.DrawFn, *, splits: int = 4, most: int = 30, disorder: int = 0, gaps: bool = True, noise: bool = False
) -> SimulatedLog:
    """A log with a backlog."""
    log = SimulatedLog(draw(st.integers(1, splits)))
    for split in log.splits.values():
        times = list(draw(event_times(most=most, disorder=disorder)))
        if noise and times:
            times.insert(draw(st.integers(0, len(times))), FAR_FUTURE)
        split.append(times, gap=draw(st.integers(0, 2)) if gaps else 0)
    return log


def actions(
    splits: int = 4, *, most: int = 40, disorder: int = 0, kills: bool = True, transactions: bool = False
) -> SearchStrategy[list[Action]]:
    """What happens to a query and its log."""
    number = st.integers(0, splits - 1)
    later = st.sampled_from([0, 1_000, 60_000, 7_200_000])
    times = later.flatmap(lambda shift: event_times(most=6, disorder=disorder, origin=START + shift))
    append = st.builds(Append, number, times, st.integers(0, 2))
    wait = st.builds(Wait, st.sampled_from([1, 500, 1_001, 5_000, 60_000]))
    unanswered = st.builds(StepUnanswered, number)
    outage = st.builds(Outage, number, st.sampled_from([1, 1_001, 60_000]))
    known: list[SearchStrategy[Action]] = [append, wait, st.just(Step()), st.just(Step()), unanswered, outage]
    if transactions:
        known += [st.builds(Open, number, times), st.builds(Close, number, st.booleans())]
    if kills:
        known += [st.just(Kill()), st.just(KillPlanning())]
    return st.lists(st.one_of(known), max_size=most)


def perform(driver: Driver, action: Action, *, adds_splits: bool = False) -> None:
    """Let an action happen; an append to a split that does not exist adds it, or does nothing."""
    if isinstance(action, Append):
        split = Split("log", action.number)
        if adds_splits:
            driver.log.splits.setdefault(split, SplitLog())
        if split in driver.log.splits:
            driver.log.splits[split].append(action.event_times, gap=action.gap)
    elif isinstance(action, Open | Close):
        _perform_in_transaction(driver, action)
    elif isinstance(action, Wait):
        driver.now += action.millis
    elif isinstance(action, Step):
        driver.step()
    elif isinstance(action, StepUnanswered):
        driver.step(unknown={Split("log", action.number)})
    elif isinstance(action, Outage):
        driver.be_away(Split("log", action.number), action.millis)
    elif isinstance(action, Kill):
        driver.restart()
    else:
        written, batches = driver.text, len(driver.batches)
        driver.step()
        driver.text = written
        del driver.batches[batches:]
        driver.restart()


def close_all(log: SimulatedLog) -> None:
    """Commit what is open."""
    for split in log.splits.values():
        split.close(commits=True)


def _perform_in_transaction(driver: Driver, action: Open | Close) -> None:
    log = driver.log.splits.get(Split("log", action.number))
    if log is None:
        return
    if isinstance(action, Open):
        log.open(action.event_times)
    else:
        log.close(commits=action.commits)
