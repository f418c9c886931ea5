"""In which order the outside is asked for a plan, and what follows from the answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.spark.queries import START, write
from tests.unit.planning.example_states import NOW, A, B, at, log_of, observed
from tests.unit.spark.runner_process import TWO, wm
from watermark_source.clock import Clock
from watermark_source.contract.lineage import Lineage, ReadUpTo
from watermark_source.planning.group import NO_OTHERS, OtherMembers
from watermark_source.planning.lineage import Cut, History, Parting
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.planner import plan
from watermark_source.planning.policy import PlanPolicy
from watermark_source.planning.split import Split
from watermark_source.planning.state import Epoch, SourceState
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.group_membership import Membership
from watermark_source.spark.driver.observer import EndsSeen, Observer, OpenTransactionsAtHolders, with_histories

FOLLOWS = {
    "idleFollows": "group",
    "alignmentGroup": "g",
    "alignmentMaxDrift": "1 hour",
    "idleTimeout": "20 ms",
    "watermarkInterval": "20 ms",
}


def test_a_row_written_before_the_others_were_asked_is_not_passed_over(
    log: Path, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, TWO)
    found = NO_OTHERS
    monkeypatch.setattr(Membership, "others", lambda *_: found)
    process = live(**FOLLOWS)
    end = process.run(process.runner.initial_offset())
    deadline = time.monotonic() + 120
    while any(fields[3:4] != ["i"] for fields in end["splits"]["log"].values()):
        assert time.monotonic() < deadline
        end = process.run(end)
    for _ in range(2):
        time.sleep(0.1)
        assert process.plan(end) == end

    def others(*_: object) -> OtherMembers:
        write(log, {0: [(200, 4)]})
        return OtherMembers(Millis(START + 300_000))

    monkeypatch.setattr(Membership, "others", others)
    batch = process.plan(end)
    assert process.read(end, batch)[0] == [4]
    assert wm(batch) == wm(end)
    monkeypatch.setattr(Membership, "others", lambda *_: OtherMembers(Millis(START + 300_000)))
    deadline = time.monotonic() + 120
    while wm(end) != 300_000:
        assert time.monotonic() < deadline
        end = process.run(batch)
        batch = end


# What a look-up shows of open transactions at the splits that hold the watermark.


class SetClock(Clock):
    """A clock that stands still until it is set."""

    at = NOW

    def elapsed(self) -> Millis:
        return self.at


class Behind:
    """``OpenTransactions``: how far the logs go, whether or not it can be read; no answer for those that it lacks."""

    def __init__(self, logs: Mapping[Split, int]) -> None:
        self.logs = logs

    def ends(self, splits: Set[Split]) -> Mapping[Split, int]:
        return {s: end for s, end in self.logs.items() if s in splits}


class Holding:
    """Two splits that are read to their ends, of which the second holds the watermark, as of one plan after another."""

    def __init__(self, logs: Mapping[Split, int]) -> None:
        self.clock, self.transactions = SetClock(), Behind(logs)
        self.open = OpenTransactionsAtHolders(self.transactions, PlanPolicy(), self.clock)

    def found(self, end: int = 1, *, later: int = 100, asked_at: Millis | None = None, **changes: Any) -> Set[Split]:
        self.clock.at = Millis(self.clock.at + later)
        at_end = {A: at(1, 200_000, since=NOW - 60_000), B: at(1, 100_000, since=NOW - 60_000)}
        seen = observed(asked_at or self.clock.at, {A: 1, B: end}, **changes)
        return self.open.after(plan(SourceState(splits=at_end), seen, PlanPolicy(), log_of([], [])))


def test_a_transaction_is_open_once_an_end_requested_later_is_still_before_its_rows() -> None:
    holding = Holding({A: 1, B: 3})
    assert [holding.found() for _ in range(3)] == [set(), {B}, {B}]
    assert holding.found(end=3) == set()


def test_rows_written_between_the_two_requests_are_in_no_open_transaction() -> None:
    holding = Holding({A: 1, B: 3})
    assert [holding.found(end=end) for end in (1, 3, 3)] == [set()] * 3


@pytest.mark.parametrize("held", [{}, {"uncommitted": {B}}], ids=["looked up for the status", "and for the plan"])
def test_a_split_without_an_answer_has_no_open_transaction(held: dict[str, Any]) -> None:
    holding = Holding({A: 1})
    assert [holding.found(later=2_000, **held) for _ in range(5)] == [set()] * 5
    holding.transactions.logs = {A: 1, B: 3}
    assert [holding.found(later=5_000) for _ in range(2)] == [set(), {B}]
    holding.transactions.logs = {A: 1}
    assert [holding.found(later=5_000) for _ in range(2)] == [{B}, set()]


def test_an_end_that_was_requested_before_the_look_up_shows_nothing() -> None:
    run, stale = Holding({A: 1, B: 3}), Holding({A: 1, B: 3})
    assert [run.found(asked_at=NOW, ends_are_final=True) for _ in range(3)] == [set()] * 3
    assert [stale.found(stale={B}) for _ in range(3)] == [set()] * 3


class Told(Lineage):
    def __init__(self, histories: Mapping[Split, History]) -> None:
        self.told = histories
        self.forgotten: Set[str] = frozenset()

    def histories(self, splits: Mapping[Split, ReadUpTo]) -> Mapping[Split, History]:
        return {split: history for split, history in self.told.items() if split in splits}

    def forget(self, logs: Set[str]) -> None:
        self.forgotten = logs


@pytest.mark.parametrize("ids", [{"log": "same"}, {}])
def test_a_leader_of_an_earlier_epoch_is_cut_off_unless_it_may_be_that_of_another_log(ids: dict[str, str]) -> None:
    state = SourceState({A: at(5, epoch=Epoch(3, 0)), B: at(5, epoch=Epoch(3, 0))}, ids=ids)
    known = ObservedLogs(asked_at=NOW, ends={A: 9, B: 9}, ids=ids)
    histories = {A: [Epoch(2, 0)], B: [Epoch(4, 7), Epoch(3, 0)]}
    found = with_histories(known, state, Told(histories))
    if ids:
        assert (found.ends, found.unknown, found.histories) == ({B: 9}, {A}, {B: histories[B]})
    else:
        assert (found.ends, found.histories) == (known.ends, histories)


def test_what_is_known_of_a_log_created_again_is_forgotten() -> None:
    state = SourceState({A: at(5, epoch=Epoch(3, 0))}, ids={"log": "old"})
    lineage = Told({A: [Epoch(0, 0)]})
    found = with_histories(ObservedLogs(asked_at=NOW, ends={A: 9}, ids={"log": "new"}), state, lineage)
    assert (lineage.forgotten, found.ends) == ({"log"}, {A: 9})


class Polled:
    """Logs of which one has another leader, and rows of that, when its end is requested again."""

    def with_newest(self, logs: ObservedLogs, splits: Set[Split]) -> ObservedLogs:
        return replace(logs, ends={**logs.ends, A: 120}, times=replace(logs.times, newest={A: None}))


def test_an_end_that_is_requested_again_has_the_epoch_of_the_leader_that_returned_it() -> None:
    """Else a task would expect the rows of the new leader to be of the one before, and report them lost."""
    lineage = Told({})
    outside: dict[str, Any] = dict.fromkeys(field.name for field in fields(Observer) if field.init)
    outside |= {"connector": SimpleNamespace(lineage=lineage, discovery=None), "policy": PlanPolicy(), "logs": Polled()}
    state = SourceState({A: at(100, epoch=Epoch(5, 0))}, ids={"log": "same"})
    first = observed(NOW, {A: 110})
    lineage.told = {A: [Epoch(6, 110), Epoch(5, 0)]}
    dated = Observer(**outside).dated(first, state)
    assert (dated.logs.ends, dated.logs.histories) == ({A: 120}, lineage.told)


def test_rows_that_were_seen_and_not_read_are_gone_where_another_leader_did_not_have_them() -> None:
    """A split that its group holds back, or a batch's limit, keeps rows waiting for long."""
    state, seen = SourceState({A: at(5, epoch=Epoch(3, 0)), B: at(5, epoch=Epoch(3, 0))}), EndsSeen()

    def cuts(ends: Mapping[Split, int], histories: Mapping[Split, History]) -> Mapping[Split, Cut]:
        return seen.cuts(ObservedLogs(asked_at=NOW, ends=ends, histories=histories), state)

    assert cuts({A: 50, B: 50}, {}) == {}
    # No one leads for a moment; then one that has all, and one that has not.
    assert cuts({}, {}) == {}
    after = {A: [Epoch(4, 50), Epoch(3, 0)], B: [Epoch(4, 30), Epoch(3, 0)]}
    assert cuts({A: 60, B: 70}, after) == {B: Cut(Parting(30, 4), 50)}
    assert cuts({A: 60, B: 70}, after) == {}
    # A leader that wrote nothing, and its successor with all its rows.
    assert cuts({A: 60}, {A: [Epoch(5, 60), Epoch(4, 50), Epoch(3, 0)]}) == {}
    assert cuts({A: 65}, {A: [Epoch(6, 60), Epoch(4, 50), Epoch(3, 0)]}) == {}
    assert cuts({A: 62}, {A: [Epoch(7, 61), Epoch(6, 60), Epoch(4, 50)]}) == {A: Cut(Parting(61, 7), 65)}
