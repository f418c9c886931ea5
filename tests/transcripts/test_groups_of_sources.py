"""The vectors of alignment groups, with members that are sources of their own and meet in a store, or only plan."""

from __future__ import annotations

import random
import re
import time
from functools import partial
from pathlib import Path

import pytest

from tests.simulation.group import MemberDriver, Store
from tests.simulation.log import SimulatedLog, SplitLog
from tests.transcripts.drivers_store import StoreAggregatorDriver, StoreDriver
from tests.transcripts.grammar import Driver, Transcript, label, load, run
from watermark_source.group_store.database import database_of
from watermark_source.group_store.heartbeat_client import HeartbeatClient
from watermark_source.group_store.store import GroupStore, Identity
from watermark_source.planning.group import GroupMember, MemberStatus
from watermark_source.planning.policy import Alignment, Idleness, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SplitStatus
from watermark_source.planning.strategy import ProcessingTime
from watermark_source.planning.watermark import MAX, MIN, Millis

ACROSS = load("groups.yaml")
NOT_OF_SEVERAL = {
    **dict.fromkeys((145, 146, 151), "an announcer calls its members; a store is polled by them"),
    **dict.fromkeys((153, 154, 155), "nothing is sampled: a source tells what it has planned"),
    **dict.fromkeys((169, 170, 171), "what one source sends on, which its group does not change"),
    **dict.fromkeys((192, 193, 194), "no reader is paused: its range ends where the plan says"),
    **dict.fromkeys((195, 196, 197, 198), "what is shown of one split"),
}
DRIFT = 1_000
TIMEOUT = 100


@pytest.mark.parametrize("transcript", ACROSS, ids=label)
def test_sources_that_meet_in_a_store_get_the_limits_of_the_vectors(transcript: Transcript, tmp_path: Path) -> None:
    drivers: dict[str, type[Driver]] = {
        "group": partial(StoreDriver, folder=tmp_path),  # type: ignore[dict-item]
        "aggregator": partial(StoreAggregatorDriver, folder=tmp_path),  # type: ignore[dict-item]
    }
    run(transcript, drivers, ACROSS)


def test_every_vector_of_alignment_and_of_the_clock_is_shown_of_several_sources() -> None:
    """By a transcript, or by a test here that has its number in its name."""
    shown = {number for transcript in ACROSS for number in transcript.vectors}
    for name in globals():
        for first, last in re.findall(r"(?<=_)(\d+)(?:_to_(\d+))?(?=_)", name if name.startswith("test_") else ""):
            shown.update(range(int(first), int(last or first) + 1))
    assert sorted(shown | NOT_OF_SEVERAL.keys()) == list(range(132, 206))
    assert not shown & NOT_OF_SEVERAL.keys()


@pytest.mark.parametrize("keys", [3, 100])
def test_142_what_is_known_of_the_others_is_their_true_minimum(keys: int, tmp_path: Path) -> None:
    chance, truth, driver = random.Random(keys), {}, StoreAggregatorDriver(tmp_path)
    for _ in range(150):
        key, value = chance.randrange(keys), Millis(chance.choice([MIN, MAX, *range(-50, 50)]))
        truth[key] = value
        driver.do_report((key, value))
        assert driver.minimum == min(truth.values())


class Source(MemberDriver):
    """A source beside one that reports what a vector states; times are what a split's watermark is after a record."""

    def __init__(
        self,
        *splits: list[int],
        idle: bool = False,
        final: bool = False,
        drift: int = DRIFT,
        name: str = "source",
        store: Store | None = None,
        max_rows: int | None = None,
    ) -> None:
        log = SimulatedLog(len(splits))
        policy = PlanPolicy(alignment=Alignment(max_drift=drift), idleness=Idleness(timeout=TIMEOUT if idle else None))
        super().__init__(name, store or Store(), log, policy, final=False, max_rows=max_rows)
        for number, times in enumerate(splits):
            self.write(number, *times)
        if final:
            self.restart(final=True)
        # Those that start together know of each other by now.
        self.introduced = self.settled = True

    def write(self, number: int, *times: int) -> None:
        """Append records to a split, which may be a new one."""
        split = self.log.splits.setdefault(Split("log", number), SplitLog())
        split.append(self.policy.strategy.event_time_of(Millis(time)) for time in times)

    def limit(self, value: int) -> None:
        """Let the group's limit be this one: of another source that is a drift behind it."""
        self.other(GroupMember(MemberStatus.ACTIVE, Millis(value - DRIFT)))

    def other(self, report: GroupMember) -> None:
        self.store.reports["other"] = report
        self.exchange()

    def all(self) -> list[int]:
        """Plan until there is nothing more, and return the watermarks that were reached, by split."""
        self.run()
        return [-1 if t.watermark is None else t.watermark for t in self.state().splits.values()]

    @property
    def report(self) -> GroupMember:
        return self.store.reports[self.name]

    def position(self) -> int:
        """How far the first split is read."""
        return self.state().splits[Split("log", 0)].position

    def status(self, number: int = 0) -> SplitStatus:
        return self.state().splits[Split("log", number)].status


def active(watermark: int) -> GroupMember:
    return GroupMember(MemberStatus.ACTIVE, Millis(watermark))


def by_turns(sources: list[Source], *, turns: int) -> None:
    for _ in range(turns):
        for source in sources:
            source.now += 1
            source.exchange()
            source.step()


def test_149_sources_that_come_to_their_end_let_each_other_read_everything() -> None:
    store = Store()
    sources = [
        Source(list(range(first, end)), final=True, drift=10, name=name, store=store, max_rows=3)
        for name, first, end in (("first half", 0, 50), ("second half", 50, 101))
    ]
    while (read := [source.position() for source in sources]) != [50, 51]:
        by_turns(sources, turns=1)
        assert read != [source.position() for source in sources]
        # The second half begins with one row across the gap, and continues when the first has come near.
        assert sources[1].position() <= 1 or sources[0].position() >= 40
    by_turns(sources, turns=1)
    assert {source.report.status for source in sources} == {MemberStatus.FINISHED}


def test_150_a_fast_source_is_never_further_ahead_of_a_slow_one_than_the_drift_and_a_record() -> None:
    store, numbers = Store(), list(range(1_000))
    slow = Source(numbers, drift=10, name="slow", store=store, max_rows=1)
    fast = Source(numbers, drift=10, name="fast", store=store, max_rows=1)
    apart = []
    for now in range(500):
        by_turns([slow, fast] if now % 10 == 0 else [fast], turns=1)
        apart.append(fast.position() - slow.position())
    assert max(apart) <= 11
    assert min(apart[100:]) >= 9


def test_156_to_161_a_source_beyond_the_limit_waits_and_at_the_limit_it_does_not() -> None:
    source = Source([1_000])
    assert source.all() == [1_000]
    assert source.report == active(1_000)
    source.write(0, 2_000)
    for limit in (999, 1_000):
        # Equal is allowed, but the next record is beyond both.
        source.limit(limit)
        assert source.all() == [1_000]
        assert (source.status(), source.report.watermark) == (SplitStatus.PAUSED, max(limit, 1_000))
    source.limit(2_000)
    assert source.all() == [2_000]


def test_162_a_source_that_waits_can_be_stopped_and_then_holds_no_one_beyond_its_time_to_live(tmp_path: Path) -> None:
    store = GroupStore(database_of(f"sqlite:///{tmp_path / 'alignment.sqlite'}"))
    waiting = HeartbeatClient(store, Identity("g", "waiting-id", "waiting", DRIFT, 100))
    waiting.others(None)
    waiting.publish(active(5_000), waits=True)
    waiting.close()
    time.sleep(0.2)
    looking = GroupStore(database_of(f"sqlite:///{tmp_path / 'alignment.sqlite'}"))
    found = looking.exchange(Identity("g", "other-id", "other", DRIFT, 30_000), active(1))
    assert found is not None
    assert (found.members, found.minimum) == (0, None)


def test_163_164_an_idle_source_reports_no_watermark_and_its_own_again_when_it_is_active() -> None:
    source = Source([1], idle=True)
    source.all()
    source.now += 2 * TIMEOUT
    source.all()
    assert (source.report.status, source.status()) == (MemberStatus.IDLE, SplitStatus.IDLE)
    source.other(GroupMember(MemberStatus.IDLE, Millis(50)))
    source.write(0, 0)
    assert source.all() == [1]
    assert source.report == active(1)


def test_165_166_a_source_without_splits_reports_nothing_that_could_hold_anybody() -> None:
    source = Source()
    source.all()
    assert source.report == GroupMember(MemberStatus.WAITING)
    source.write(0, 10)
    source.all()
    assert source.report == active(10)


def test_167_a_split_that_comes_later_takes_no_watermark_back_and_the_others_wait_for_it() -> None:
    source = Source([2_000])
    source.all()
    assert (source.report, source.state().watermark) == (active(2_000), 2_000)
    source.write(1, 1_000)
    assert source.all() == [2_000, 1_000]
    assert (source.report, source.state().watermark) == (active(1_000), 2_000)


def test_168_a_source_that_has_come_to_its_end_holds_no_one() -> None:
    source = Source([1], final=True)
    source.all()
    assert source.report.status is MemberStatus.FINISHED


def test_172_173_an_idle_source_below_the_limit_comes_back_with_an_active_value() -> None:
    source = Source([100], [9], idle=True)
    source.all()
    source.now += 2 * TIMEOUT
    source.all()
    source.limit(50)
    source.write(1, 6)
    source.all()
    assert source.report == active(9)


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


def test_182_what_has_come_to_the_end_of_its_run_is_not_paused() -> None:
    source = Source([5], [3], final=True)
    source.limit(5)
    assert source.all() == [5, 3]
    source.limit(4)
    source.all()
    assert SplitStatus.PAUSED not in {source.status(0), source.status(1)}


def test_183_to_186_the_split_that_waits_is_not_idle_and_the_quiet_one_is() -> None:
    source = Source([5, 6], [3], idle=True)
    source.limit(5)
    assert source.all() == [5, 3]
    source.limit(4)
    source.all()
    assert (source.status(0), source.status(1)) == (SplitStatus.PAUSED, SplitStatus.ACTIVE)
    source.now += 2 * TIMEOUT
    source.all()
    assert (source.status(0), source.status(1)) == (SplitStatus.PAUSED, SplitStatus.IDLE)
    source.limit(7)
    assert source.all() == [6, 3]
    assert (source.status(0), source.status(1)) == (SplitStatus.ACTIVE, SplitStatus.IDLE)
    source.write(1, 8)
    assert source.all() == [6, 3]
    assert source.status(1) is SplitStatus.PAUSED
    source.limit(10)
    assert source.all() == [6, 8]
    assert (source.status(0), source.status(1)) == (SplitStatus.ACTIVE, SplitStatus.ACTIVE)


def test_189_190_what_is_idle_is_not_paused_before_it_has_a_record_beyond_the_limit() -> None:
    source = Source([7], idle=True)
    source.all()
    source.now += 2 * TIMEOUT
    source.all()
    source.limit(4)
    source.all()
    assert source.status() is SplitStatus.IDLE
    source.write(0, 8)
    source.all()
    assert source.status() is SplitStatus.PAUSED
    source.limit(8)
    assert source.all() == [8]


def test_191_what_waits_when_its_timeout_runs_out_is_not_idle_and_goes_on_with_the_limit() -> None:
    source = Source([5], idle=True)
    source.limit(5)
    source.all()
    source.now += TIMEOUT
    source.limit(4)
    source.write(0, 6)
    for _ in range(3):
        source.all()
        assert source.status() is SplitStatus.PAUSED
        source.now += 2 * TIMEOUT
    source.limit(7)
    assert source.all() == [6]
    assert source.status() is SplitStatus.ACTIVE


@pytest.mark.parametrize("of_the_clock", [MIN, 0, MAX])
def test_202_to_205_a_source_that_goes_with_the_clock_is_never_the_slowest(of_the_clock: int) -> None:
    source = Source([1_000, 900_000])
    source.other(GroupMember(MemberStatus.CLOCK, Millis(of_the_clock)))
    assert source.all() == [900_000]


def test_199_to_201_a_source_on_the_clock_waits_only_for_one_that_holds_all() -> None:
    log = SimulatedLog(1)
    log.splits[Split("log", 0)].append([1, 2])
    source = MemberDriver("source", Store(), log, PlanPolicy(strategy=ProcessingTime()))
    source.introduced = source.settled = True
    for report in (GroupMember(MemberStatus.HOLDING), GroupMember(MemberStatus.HOLDING)):
        source.store.reports["other"] = report
        source.exchange()
        source.step()
        assert source.state().splits[Split("log", 0)].position == 0
    source.store.reports["other"] = active(-5)
    source.exchange()
    planned = source.step()
    assert (planned.state.splits[Split("log", 0)].position, planned.member().status) == (2, MemberStatus.CLOCK)
    assert planned.state.use_processing_time
