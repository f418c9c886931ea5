"""Brokers that are late, silent, dead, back, or no leader any more, and partitions that come, go and come back.

The real look-ups and the real planner run against simulated brokers and a simulated clock.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_aligned_kafka.cluster import metadata, offset_lookup, retry
from pyspark_aligned_kafka.lookup.offsets import KafkaLogBounds
from tests.simulation.brokers import LIMIT_MS, Admin, Brokers
from tests.simulation.driver import CODEC, START, Driver
from tests.simulation.log import SimulatedLog, SplitLog
from watermark_source.contract.stream import Connector, EarliestOrLatest, Ends, SplitDiscovery
from watermark_source.errors import ResponseTimeoutError, UnreachableError
from watermark_source.planning.observation import Observation
from watermark_source.planning.planner import Plan
from watermark_source.planning.policy import Idleness, OnLoss, PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitStatus
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver import logs, silence_watch
from watermark_source.spark.driver.logs import Logs
from watermark_source.spark.driver.silence_watch import PolledSplits

LIMIT = LIMIT_MS / 1_000
PATIENCE = 3.0
LONGEST_CALL = 2 * PATIENCE + metadata.GONE_AFTER_S + 1.0
"""Seconds for what was sent before, for what is sent now, and for a partition whose leader is gone."""
IDLE = 8_000


class Discovery(SplitDiscovery):
    def __init__(self, brokers: Brokers, admin: Admin) -> None:
        self.brokers, self.admin = brokers, admin
        self.found: Set[Split] = frozenset()
        self.at = 0.0
        self.list()

    def list(self) -> None:
        self.found, self.at = frozenset(self.brokers.log.splits), self.brokers.time.now
        self.admin.note_listed(self.found)

    def discover(self) -> Set[Split]:
        return self.found

    def ids(self) -> Mapping[str, str]:
        return {}

    def looked_since(self, moment: float, *, wait: float) -> bool:
        return self.at >= moment


class SimulatedClock:
    def __init__(self, brokers: Brokers) -> None:
        self.time = brokers.time

    def elapsed(self) -> Millis:
        return Millis(START + round(self.time.now * 1_000))

    wall = elapsed

    def catch_up(self) -> bool:
        return False


class Query(Driver):
    """A query whose logs are polled at simulated brokers."""

    def __init__(self, brokers: Brokers, policy: PlanPolicy) -> None:
        self.brokers = brokers
        super().__init__(brokers.log, policy, index=False)

    def restart(self, *, final: bool = False) -> None:
        super().restart(final=final)
        admin = Admin(self.brokers)
        self.discovery = Discovery(self.brokers, admin)
        self.clock = cast(Any, SimulatedClock(self.brokers))
        bounds = KafkaLogBounds(admin)
        connector = Connector(discovery=self.discovery, starts=EarliestOrLatest(bounds, earliest=True), bounds=bounds)
        self.logs = Logs(connector, self.clock, self.policy, quiet=None)

    def observe(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Observation:
        began = self.brokers.time.now
        now = self.logs.poll(self.state(), None)
        self.took = self.brokers.time.now - began
        self.now = self.clock.elapsed()
        simulated = super().observe()
        self.polled = replace(
            simulated.logs,
            asked_at=now.asked_at, ends=now.ends, unknown=now.unknown, stale=now.stale, all_found=now.all_found,
            earliest={}, added=dict.fromkeys(now.ends.keys() - self.state().splits.keys(), 0),
        )  # fmt: skip
        return replace(simulated, logs=self.polled)

    def step(self, *, one_batch: bool = False, unknown: Set[Split] = frozenset()) -> Plan:
        planned = super().step()
        self.logs.note(planned)
        return planned

    def _write(self, planned: Plan, observation: Observation, before: SourceState) -> None:
        text = json.dumps(CODEC.encode(planned.state))
        if text == self.text:
            # A partition came and was deleted again before any offset had it: Spark makes no batch of that.
            self._memory = text, planned.state
        else:
            super()._write(planned, observation, before)


class Story:
    """What happens to the brokers, and the plans in between, with what must hold after each."""

    def __init__(self, idleness: Idleness) -> None:
        self.brokers = Brokers(SimulatedLog(4))
        self.time, self.log = self.brokers.time, self.brokers.log
        with self.simulated_time():
            self.query = Query(self.brokers, PlanPolicy(idleness=idleness, on_loss=OnLoss(fails=False)))
        self.ends: dict[Split, int] = {}
        self.silent_since: dict[Split, float] = {}
        self.idle: set[Split] = set()
        self.lines = Lines()

    @contextmanager
    def simulated_time(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            for module in (metadata, offset_lookup, retry, logs, silence_watch):
                patched.setattr(module, "time", self.time.module())
            yield

    def happen(self, action: str, number: int) -> None:
        node, split = number % 3, Split("log", number)
        broker = self.brokers.brokers[node]
        if action == "write" and split in self.log.splits:
            self.time.advance(0.001)
            self.log.splits[split].append([START + round(self.time.now * 1_000)])
        elif action == "freeze":
            broker.frozen = not broker.down
        elif action == "kill":
            self.brokers.kill(node)
        elif action == "resume":
            self.brokers.resume(node)
        elif action == "resume later":
            # In a call, or between two.
            self.time.at(self.time.now + 1.5 + number, lambda: self.brokers.resume(node))
        elif action == "slow":
            broker.delay = 4.0 if broker.delay < 1 else 0.01
        elif action == "move" and split in self.log.splits:
            self.brokers.move(split, (number + 1) % 3)
        elif action == "create" and split not in self.log.splits:
            self.log.splits[split] = SplitLog()
            self.brokers.create(split, node)
        elif action == "delete":
            self.delete(split)
        elif action == "list":
            self.query.discovery.list()
        elif action == "wait":
            self.time.advance((0.05, 1.0, 4.0, 7.0, 0.3)[number])
        elif action == "plan":
            self.plan()

    def delete(self, split: Split) -> None:
        if len(self.log.splits) > 1 and self.log.splits.pop(split, None) is not None:
            del self.brokers.leaders[split]
            self.ends.pop(split, None)
            self.silent_since.pop(split, None)
            self.lines.open.discard(split)
            # What is deleted and created again between two plans is one and the same to the query.
            self.query.discovery.list()
            self.plan()
            while split in self.query.state().splits:
                self.plan()

    def plan(self) -> None:
        began = self.time.now
        overdue = any(began - since >= LIMIT - PATIENCE for since in self.silent_since.values())
        batches = len(self.query.batches)
        try:
            self.query.step()
        except (ResponseTimeoutError, UnreachableError):
            ended = self.time.now
            assert any(ended - since >= LIMIT - 2 * PATIENCE for since in self.silent_since.values())
            for node in self.brokers.brokers:
                self.brokers.resume(node)
            self.silent_since.clear()
            self.lines.open.clear()
            self.query.restart()
            return
        assert self.query.took <= LONGEST_CALL + (LIMIT if overdue else 0)
        self.check(began, self.query.batches[batches:])

    def check(self, began: float, batches: list[Any]) -> None:
        observed, state = self.query.polled, self.query.state()
        for split, end in observed.ends.items():
            assert end >= self.ends.get(split, 0), "an end went back"
            self.ends[split] = end
        for split in self.log.splits.keys() & self.query.discovery.found:
            node, _ = self.brokers.leaders[split]
            broker = self.brokers.brokers[node]
            if split in observed.ends and split not in observed.stale:
                self.silent_since.pop(split, None)
            elif split in observed.unknown | observed.stale:
                self.silent_since.setdefault(split, began)
            assert broker.frozen or broker.down or split in observed.ends.keys() | observed.unknown
        for batch in batches:
            for split, rows in batch.rows.items():
                before, passed = batch.before.splits.get(split), batch.before.watermark
                was_idle = before is not None and before.status is SplitStatus.IDLE
                assert passed is None or was_idle or all(row.event_time > passed for row in rows)
        for split, at in state.splits.items():
            if at.status is SplitStatus.IDLE and split in self.log.splits.keys() - self.idle:
                unread = self.log.splits[split].read(at.position, self.log.splits[split].end)
                limit = START + round(began * 1_000) - IDLE
                assert all(row.event_time > limit for row in unread), "idle with rows that its broker did not show"
        self.idle = {split for split, at in state.splits.items() if at.status is SplitStatus.IDLE}

    def end(self) -> None:
        """All brokers are well again: everything is read, and nothing is silent."""
        for node, broker in self.brokers.brokers.items():
            broker.delay = 0.01
            self.brokers.resume(node)
        for _ in range(30):
            self.time.advance(1.0)
            self.query.discovery.list()
            self.plan()
        state = self.query.state()
        assert {s: t.position for s, t in state.splits.items()} == self.log.ends()
        assert not self.lines.open
        if self.query.policy.idleness.timeout is None and all(t.rows for t in self.log.splits.values()):
            assert state.watermark == min(t.rows[-1].event_time for t in self.log.splits.values()) - 1


class Lines(logging.Handler):
    """Checks that each silence is logged once, and its end once."""

    def __init__(self) -> None:
        super().__init__()
        self.open: set[Split] = set()

    def emit(self, record: logging.LogRecord) -> None:
        names, _, text = record.getMessage().partition(": ")
        splits = {Split("log", int(name.rpartition("-")[2])) for name in names.split(", ")}
        if text.startswith("no answer about the end"):
            assert not splits & self.open
            self.open |= splits
        else:
            assert text.startswith("the end is answered again, after ")
            assert splits <= self.open
            self.open -= splits


_ACTIONS = (
    "write", "write", "plan", "plan", "plan", "freeze", "kill", "resume", "resume later", "slow", "move", "create",
    "delete", "list", "wait", "wait",
)  # fmt: skip
stories = st.lists(st.tuples(st.sampled_from(_ACTIONS), st.integers(0, 4)), min_size=15, max_size=60)


@given(stories, st.sampled_from([Idleness(), Idleness(timeout=IDLE)]))
def test_no_broker_loses_rows_holds_others_up_takes_an_end_back_or_is_logged_twice(
    actions: list[tuple[str, int]], idleness: Idleness
) -> None:
    story = Story(idleness)
    logger = logging.getLogger(silence_watch.__name__)
    logger.addHandler(story.lines)
    try:
        with story.simulated_time():
            for action, number in actions:
                story.happen(action, number)
            story.end()
    finally:
        logger.removeHandler(story.lines)


def _reported_late(story: Story) -> None:
    story.happen("freeze", 0)
    story.happen("plan", 0)
    story.happen("write", 0)
    story.happen("resume", 0)
    story.happen("wait", 1)
    story.happen("freeze", 0)


def test_a_late_answer_is_read_up_to_while_its_broker_is_silent_again() -> None:
    story = Story(Idleness())
    with story.simulated_time():
        story.happen("plan", 0)
        _reported_late(story)
        story.plan()
        assert story.query.polled.stale == {Split("log", 0)}
        assert [row.position for row in story.query.batches[-1].rows[Split("log", 0)]] == [0]


def test_a_late_answer_about_a_deleted_partition_is_not_for_one_created_again() -> None:
    story = Story(Idleness())
    with story.simulated_time():
        story.happen("plan", 0)
        _reported_late(story)
        story.log.splits.pop(Split("log", 0))
        story.query.discovery.list()
        story.log.splits[Split("log", 0)] = SplitLog()
        story.query.discovery.list()
        for _ in range(2):
            story.plan()
            assert story.query.polled.stale == set()


polls = st.lists(st.tuples(st.sets(st.integers(0, 2)), st.sets(st.integers(0, 2))), max_size=20)


@given(polls)
def test_plans_and_the_watch_log_a_silence_once_and_its_end_once(history: list[tuple[set[int], set[int]]]) -> None:
    lines, polled, silent = Lines(), PolledSplits(), set[Split]()
    logger = logging.getLogger(silence_watch.__name__)
    logger.addHandler(lines)
    try:
        for at, (numbers, unanswered) in enumerate(history):
            splits = {Split("log", number) for number in numbers}
            unknown = {split for split in splits if split.number in unanswered}
            polled.note_poll(splits, Ends(dict.fromkeys(splits - unknown, 1), dict.fromkeys(unknown)), float(at))
            silent = (silent - splits) | unknown
            assert polled.silent == lines.open == silent
    finally:
        logger.removeHandler(lines)
