"""Splits that are created while a query runs: none of their rows is late where event time is the time of writing.

Splits are looked for beside planning, so a plan may not know the newest ones. The watermark advances only by rows whose
logs' ends were asked for before a look that has ended.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.driver import START, Driver
from tests.simulation.log import SimulatedLog, SplitLog
from watermark_source.eventtime.watermark import MIN
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import PlanPolicy, WatermarkStrategy
from watermark_source.planning.split import Split


class LookingDriver(Driver):
    """A driver that knows the splits that its last look found."""

    def __init__(self, log: SimulatedLog, policy: PlanPolicy) -> None:
        super().__init__(log, policy)
        self.seen: Set[Split] = frozenset(log.splits)
        self.looked = 0
        self.rows_planned = 0
        self.steps = 0

    def look(self) -> None:
        self.seen, self.looked = frozenset(self.log.splits), self.steps

    def observe(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Observation:
        found = super().observe(one_batch=one_batch, unknown=unknown)
        logs, newest = found.logs, found.logs.times.newest
        known = replace(
            logs,
            ends={s: end for s, end in logs.ends.items() if s in self.seen},
            added={s: start for s, start in logs.added.items() if s in self.seen},
            times=replace(logs.times, newest={s: at for s, at in newest.items() if s in self.seen}),
            all_found=self.looked >= self.rows_planned,
        )
        return replace(found, logs=known)

    def step(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Plan:
        self.steps += 1
        planned = super().step(one_batch=one_batch, unknown=unknown)
        if planned.has_rows:
            self.rows_planned = self.steps
        return planned


actions = st.lists(st.sampled_from([0, 0, 1, 2, "look", "step", "step"]), min_size=20, max_size=40)


@settings(max_examples=300)
@given(actions, st.sampled_from([0, 3]))
def test_no_row_of_a_new_split_is_late(script: list[int | str], out_of_orderness: int) -> None:
    log = SimulatedLog(1)
    driver = LookingDriver(log, PlanPolicy(strategy=WatermarkStrategy(out_of_orderness=out_of_orderness)))
    clock = START
    for action in [*script, "look", "step", "step", "look", "step"]:
        clock += 1
        if action == "look":
            driver.look()
        elif action == "step":
            driver.step()
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
