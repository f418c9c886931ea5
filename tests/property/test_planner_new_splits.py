"""Splits that are created while a query runs: none of their rows is late where event time is the time of writing.

Splits are looked for beside planning, so a plan may not know the newest ones. The watermark advances only by rows whose
logs' ends were asked for before a look that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples_by_day import at_least
from tests.simulation.driver import START, Driver
from tests.simulation.group import MemberDriver, Store
from tests.simulation.log import SimulatedLog, SplitLog
from watermark_source.planning.combined_watermark import due_now
from watermark_source.planning.group import GroupMember, MemberStatus
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import Idleness, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import Bounded, Ingestion, WatermarkStrategy
from watermark_source.planning.watermark import MIN, Millis
from watermark_source.spark.driver.logs import TimeAtDiscovery


class LookingDriver(Driver):
    """A driver that knows the splits that its last look found."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: Set[Split] = frozenset(self.log.splits)
        self.looks_at_once = False
        self.looks_taken, self.looked = 0, 0
        self.rows_planned, self.rows_at = 0, Millis(START)
        self.steps = 0
        self.combined: Millis | None = None
        self.under_way: tuple[Set[Split], int] | None = None
        self.ends_meanwhile = False
        self.clock_at_look, self.others_at_look, self.rows_at_look = (
            TimeAtDiscovery(self, clock=lambda: self.steps) for _ in range(3)
        )

    def look(self) -> None:
        self.begin_look()
        self.end_look()

    def begin_look(self) -> None:
        self.under_way = self.under_way or (frozenset(self.log.splits), self.steps)

    def end_look(self) -> None:
        if self.under_way is not None:
            self.seen, self.looked = self.under_way
            self.under_way = None
            self.looks_taken += 1

    def discover(self) -> Set[Split]:
        return self.seen

    def looked_since(self, moment: float, *, wait: float) -> bool:
        """Where no look comes when it is asked for, the next one comes when it comes."""
        if self.looks_at_once and self.looked < moment:
            self.look()
        return self.looked >= moment

    def expect(self, splits: Set[Split], ids: Mapping[str, str]) -> None: ...

    def ids(self) -> Mapping[str, str]:
        return {}

    def observe(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Observation:
        found = super().observe(one_batch=one_batch, unknown=unknown)
        logs, newest = found.logs, found.logs.times.newest
        state, rest, policy = self.state(), found.history.rest, self.policy
        sent = state.watermark
        all_found = self.looked_since(self.rows_planned, wait=0)
        found_at, followed = None, found.followed
        if logs.times.reached:
            if all_found:
                self.clock_at_look.note_ended(self.rows_at)
            interval = policy.watermark_interval
            due = policy.strategy.clock_due(due_now(sent, rest, interval), found.now, interval)
            assert due is not None
            found_at = self.clock_at_look.as_of(found.now, due)
        if followed is not None:
            followed = self.others_at_look.as_of(followed, due_now(sent, rest, policy.watermark_interval))
        seen = self.seen
        if self.ends_meanwhile:
            # While the ends are asked for.
            self.end_look()
            self.ends_meanwhile = False
        known = replace(
            logs,
            ends={s: end for s, end in logs.ends.items() if s in seen},
            unknown=logs.unknown & seen,
            added={s: start for s, start in logs.added.items() if s in seen},
            times=replace(
                logs.times,
                newest={s: at for s, at in newest.items() if s in seen},
                reached={} if found_at is None else dict.fromkeys(seen, found_at),
            ),
            all_found=all_found,
        )
        combined = self.combined
        if not all_found and combined is not None:
            combined = self.rows_at_look.as_of(combined, MIN if sent is None else sent, since=self.rows_planned)
        knows_all = known.ends.keys() | known.unknown <= state.splits.keys() and self.seen <= seen
        history = replace(found.history, combined=combined if knows_all else None)
        return replace(found, logs=known, followed=followed, history=history)

    def step(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Plan:
        self.steps += 1
        planned = super().step(one_batch=one_batch, unknown=unknown)
        self.combined = planned.watermarks.combined
        if planned.has_rows:
            self.rows_planned, self.rows_at = self.steps, Millis(self.now)
        return planned


actions = st.lists(
    st.sampled_from([0, 0, 1, 2, "look", "begin", "end", "meanwhile", "step", "step", "silent"]),
    min_size=20,
    max_size=40,
)


@at_least(150)
@given(
    actions,
    st.sampled_from(
        [
            Bounded(),
            Bounded(3),
            Ingestion(0),
            Ingestion(2),
        ]
    ),
)
def test_no_row_of_a_new_split_is_late(script: list[int | str], strategy: WatermarkStrategy) -> None:
    log = SimulatedLog(1)
    driver = LookingDriver(
        log, PlanPolicy(strategy=strategy, watermark_interval=1), dated=isinstance(strategy, Ingestion)
    )
    clock = START
    for action in [*script, "look", "step", "step", "look", "step"]:
        clock += 1
        driver.now = clock
        if action == "look":
            driver.look()
        elif action == "begin":
            driver.begin_look()
        elif action == "end":
            driver.end_look()
        elif action == "meanwhile":
            driver.ends_meanwhile = True
        elif action in ("step", "silent"):
            # No one states of the new ones where they end.
            driver.step(unknown={Split("log", 1), Split("log", 2)} if action == "silent" else frozenset())
        else:
            log.splits.setdefault(Split("log", int(action)), SplitLog()).append([clock])
    for batch in driver.batches:
        passed = MIN if batch.before.watermark is None else batch.before.watermark
        assert all(row.event_time > passed for rows in batch.rows.values() for row in rows)


def test_the_watermark_waits_for_a_look_and_goes_on_after_it() -> None:
    log = SimulatedLog(1)
    driver = LookingDriver(log, PlanPolicy())
    log.splits[Split("log", 0)].append([START, START + 5])
    assert driver.step().has_rows
    assert not driver.step().is_batch
    assert driver.state().watermark is None
    driver.look()
    driver.step()
    assert driver.state().watermark == START + 4


def test_the_watermark_goes_on_while_each_look_takes_longer_than_a_batch() -> None:
    log = SimulatedLog(1)
    driver = LookingDriver(log, PlanPolicy())
    behind = []
    for step in range(60):
        driver.now += 100
        log.splits[Split("log", 0)].append([driver.now])
        if step % 5 == 0:
            driver.end_look()
        assert driver.step().has_rows
        driver.begin_look()
        behind.append(driver.now - (driver.state().watermark or 0))
    # What leads so far was there before the look, and the watermark stands until the next one has ended.
    assert max(behind[20:]) <= 100 * (2 * 5 + 2)


BY_CLOCK = PlanPolicy(strategy=Ingestion(1_000), watermark_interval=1_000)


def test_the_clock_passes_no_row_of_a_split_that_is_not_found_yet() -> None:
    log = SimulatedLog(1)
    driver = LookingDriver(log, BY_CLOCK, dated=True)
    log.splits[Split("log", 0)].append([driver.now])
    driver.step()
    driver.look()

    def rest() -> None:
        for _ in range(50):
            driver.now += 100
            driver.step()

    rest()
    written = driver.now
    assert _passed_by_when_found(driver, rest) < written


def test_in_silence_a_look_an_interval_advances_the_clock() -> None:
    log = SimulatedLog(1)
    driver = LookingDriver(log, BY_CLOCK, dated=True)
    driver.looks_at_once = True
    log.splits[Split("log", 0)].append([driver.now])
    driver.step()
    driver.step()
    batches, looks = len(driver.batches), driver.looks_taken
    for _ in range(200):
        driver.now += 100
        driver.step()
    reached = driver.state().watermark
    assert reached is not None
    assert driver.now - reached <= 1_000 + 2 * 1_000 + 2
    assert len(driver.batches) - batches <= 20
    assert driver.looks_taken - looks <= 20


class LookingMember(LookingDriver, MemberDriver):
    """The same in an alignment group."""


@pytest.mark.parametrize("splits", [0, 1])
def test_the_others_pass_no_row_of_a_split_that_is_not_found_yet(splits: int) -> None:
    """A source that has no split yet continues with them too."""
    log, store = SimulatedLog(splits), Store()
    policy = PlanPolicy(idleness=Idleness(timeout=500, follows_group=True))
    driver = LookingMember("silent", store, log, policy)

    def rest() -> None:
        for _ in range(50):
            driver.now += 100
            store.reports["busy"] = GroupMember(MemberStatus.ACTIVE, Millis(driver.now - 1))
            driver.exchange()
            driver.step()

    rest()
    driver.look()
    rest()
    assert driver.state().watermark is not None
    written = driver.now
    assert _passed_by_when_found(driver, rest) < written


def _passed_by_when_found(driver: LookingDriver, rest: Callable[[], None]) -> int:
    """Return the watermark before the only row of a split that is made now, and found after a rest."""
    split = Split("log", 1)
    driver.log.splits[split] = SplitLog()
    driver.log.splits[split].append([driver.now])
    rest()
    driver.look()
    driver.step()
    (batch,) = (batch for batch in driver.batches if batch.rows.get(split))
    assert batch.before.watermark is not None
    return batch.before.watermark
