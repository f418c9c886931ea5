"""The vectors of alignment groups, with members that are sources of their own and meet in a store, or only plan."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.simulation.log import SimulatedLog
from tests.simulation.meeting import MemberDriver, Store
from tests.transcripts.drivers_store import StoreDriver
from tests.transcripts.grammar import Driver, Transcript, load, run
from watermark_source.alignment.group import GroupMember, MemberStatus
from watermark_source.eventtime.watermark import MAX, MIN, Millis
from watermark_source.planning.ends import event_time_of
from watermark_source.planning.observation import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitStatus

ALL = load(Path(__file__).parent / "vectors")
NOT_OF_A_STORE = {145, 146, 151}
"""Of an announcer that calls on members; a store is asked by them."""
ACROSS = [t for t in ALL if t.subject == "group" and not NOT_OF_A_STORE & set(t.vectors)]
DRIFT = 1_000
TIMEOUT = 100


@pytest.mark.parametrize("transcript", ACROSS, ids=lambda t: f"{'-'.join(map(str, t.vectors))} {t.claim}")
def test_sources_that_meet_in_a_store_get_the_limits_of_the_vectors(transcript: Transcript, tmp_path: Path) -> None:
    drivers: dict[str, type[Driver]] = {"group": partial(StoreDriver, folder=tmp_path)}  # type: ignore[dict-item]
    run(transcript, drivers, ALL)


class Source(MemberDriver):
    """A source beside one that reports what a vector says; times are what a split's watermark is after a record."""

    def __init__(self, *splits: list[int], idle: bool = False, final: bool = False, drift: int = DRIFT) -> None:
        log = SimulatedLog(len(splits))
        policy = PlanPolicy(max_drift=drift, idle_timeout=TIMEOUT if idle else None)
        for split, times in zip(log.splits.values(), splits, strict=True):
            split.append(event_time_of(Millis(time), policy) for time in times)
        super().__init__("source", Store(), log, policy, final=final)
        # Those that start together know of each other by now.
        self.introduced = self.settled = True

    def limit(self, value: int) -> None:
        """Let the group's limit be this one: of another source that is a drift behind it."""
        self.other(GroupMember(MemberStatus.ACTIVE, Millis(value - DRIFT)))

    def other(self, report: GroupMember) -> None:
        self.store.told["other"] = report
        self.ask()

    def all(self) -> list[int]:
        """Plan until there is nothing more, and return the watermarks that were reached, by split."""
        self.run()
        return [-1 if t.watermark is None else t.watermark for t in self.state().splits.values()]

    @property
    def told(self) -> GroupMember:
        return self.store.told["source"]

    def status(self, number: int = 0) -> SplitStatus:
        return self.state().splits[Split("log", number)].status


def active(watermark: int) -> GroupMember:
    return GroupMember(MemberStatus.ACTIVE, Millis(watermark))


def test_156_to_161_a_source_beyond_the_limit_waits_and_at_the_limit_it_does_not() -> None:
    source = Source([1_000])
    assert source.all() == [1_000]
    assert source.told == active(1_000)
    source.log.splits[Split("log", 0)].append([event_time_of(Millis(2_000), source.policy)])
    for limit in (999, 1_000):
        # Equal is allowed, but the next record is beyond both.
        source.limit(limit)
        assert source.all() == [1_000]
        assert (source.status(), source.told.watermark) == (SplitStatus.PAUSED, max(limit, 1_000))
    source.limit(2_000)
    assert source.all() == [2_000]


def test_163_164_an_idle_source_reports_no_watermark_and_its_own_again_when_it_is_active() -> None:
    source = Source([1], idle=True)
    source.all()
    source.now += 2 * TIMEOUT
    source.all()
    assert (source.told.status, source.status()) == (MemberStatus.IDLE, SplitStatus.IDLE)
    source.other(GroupMember(MemberStatus.IDLE, Millis(50)))
    source.log.splits[Split("log", 0)].append([event_time_of(Millis(0), source.policy)])
    assert source.all() == [1]
    assert source.told == active(1)


def test_165_166_a_source_without_splits_reports_nothing_that_could_hold_anybody() -> None:
    source = Source()
    source.all()
    assert source.told == GroupMember(MemberStatus.WAITING)


def test_168_a_source_that_has_come_to_its_end_holds_nobody() -> None:
    source = Source([1], final=True)
    source.all()
    assert source.told.status is MemberStatus.FINISHED


def test_172_173_an_idle_source_below_the_limit_comes_back_with_an_active_value() -> None:
    source = Source([100], [9], idle=True)
    source.all()
    source.now += 2 * TIMEOUT
    source.all()
    source.limit(50)
    source.log.splits[Split("log", 1)].append([event_time_of(Millis(6), source.policy)])
    source.all()
    assert source.told == active(9)


def test_174_to_179_splits_beyond_the_limit_of_another_source_are_paused_each_for_itself() -> None:
    source = Source([5, 11], [3, 12])
    for limit in (5, 4):
        source.limit(limit)
        assert source.all() == [5, 3]
        assert (source.status(0), source.status(1)) == (SplitStatus.PAUSED, SplitStatus.PAUSED)
    source.limit(11)
    assert source.all() == [11, 3]
    assert (source.status(0), source.status(1)) == (SplitStatus.ACTIVE, SplitStatus.PAUSED)
    source.limit(12)
    assert source.all() == [11, 12]


def test_180_181_187_188_what_another_source_holds_never_turns_idle() -> None:
    source = Source([5, 105], [3, 3, 7, 105], idle=True)
    source.limit(5)
    source.all()
    for _ in range(10):
        source.now += 10 * TIMEOUT
        assert source.all() == [5, 3]
        assert {source.status(0), source.status(1)} == {SplitStatus.PAUSED}
    source.limit(105)
    assert source.all() == [105, 105]
    source.now += 10 * TIMEOUT
    source.all()
    assert {source.status(0), source.status(1)} == {SplitStatus.IDLE}


def test_189_190_what_is_idle_is_not_paused_before_it_has_a_record_beyond_the_limit() -> None:
    source = Source([7], idle=True)
    source.all()
    source.now += 2 * TIMEOUT
    source.all()
    source.limit(4)
    source.all()
    assert source.status() is SplitStatus.IDLE
    source.log.splits[Split("log", 0)].append([event_time_of(Millis(8), source.policy)])
    source.all()
    assert source.status() is SplitStatus.PAUSED
    source.limit(8)
    assert source.all() == [8]


@pytest.mark.parametrize("of_the_clock", [MIN, 0, MAX])
def test_202_to_205_a_source_that_goes_with_the_clock_is_never_the_slowest(of_the_clock: int) -> None:
    source = Source([1_000, 900_000])
    source.other(GroupMember(MemberStatus.CLOCK, Millis(of_the_clock)))
    assert source.all() == [900_000]


def test_199_to_201_a_source_on_the_clock_waits_only_for_one_that_holds_all() -> None:
    log = SimulatedLog(1)
    log.splits[Split("log", 0)].append([1, 2])
    source = MemberDriver("source", Store(), log, PlanPolicy(use_processing_time=True))
    source.introduced = source.settled = True
    for report in (GroupMember(MemberStatus.HOLDING), GroupMember(MemberStatus.HOLDING)):
        source.store.told["other"] = report
        source.ask()
        source.step()
        assert source.state().splits[Split("log", 0)].position == 0
    source.store.told["other"] = active(-5)
    source.ask()
    planned = source.step()
    assert (planned.state.splits[Split("log", 0)].position, planned.member.status) == (2, MemberStatus.CLOCK)
    assert planned.state.use_processing_time
