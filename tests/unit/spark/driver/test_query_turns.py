"""The sources of a query read each other's turns from files; those of other queries are none of theirs."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.spark.driver.test_group_membership import NOTHING
from watermark_source.errors import UnreachableError
from watermark_source.group_store.local_members import LocalMembers
from watermark_source.planning.group import NO_OTHERS, GroupMember, MemberStatus, OtherMember, OtherMembers
from watermark_source.planning.planner import Plan
from watermark_source.planning.watermark import Millis
from watermark_source.spark.driver.query_turns import SharedTurns, turns_of
from watermark_source.spark_process import ABOUT

RUN = "7860 0d2c9f3e"
ACTIVE = GroupMember(MemberStatus.ACTIVE, Millis(100))
TOLD = f'["{RUN}", "orders", "a", %d, ["active", 50], %s, %s, null]'
_PROGRAM = """
import sys
from pathlib import Path
from watermark_source.group_store.local_members import LocalMembers
member = LocalMembers(Path(sys.argv[1]), sys.argv[2])
for line in sys.stdin:
    member.write(line.rstrip())
    print("written", flush=True)
"""


class Source:
    """Another source of the group, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, text: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline()


@contextmanager
def another(folder: Path, group: str = "g") -> Iterator[Source]:
    program = [sys.executable, "-c", _PROGRAM, str(folder), group]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Source(process)
        finally:
            process.kill()


OTHERS = OtherMembers(Millis(900), OtherMember("elsewhere"), 2, apart=frozenset({"a"}))


def plan_of(reach: Callable[[], Millis | None], others: OtherMembers = OTHERS) -> Plan:
    return replace(NOTHING, reach=reach, observation=replace(NOTHING.observation, others=others))


def six_hundred() -> Millis:
    return Millis(600)


def test_a_source_counts_those_of_its_run_and_names_what_it_falls_short_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, turns = LocalMembers(tmp_path, "g"), SharedTurns("clicks")
    with another(tmp_path) as source:
        source.tell(TOLD % (1, 700, 50))
        turns.read(None, own)
        assert (turns.members, turns.queries) == (set(), {"7860"})
        turns.write(plan_of(six_hundred), ACTIVE, "b", own, 30)
        turns.read(RUN, own)
        assert turns.members == {"a"}
        assert turns.seen(OTHERS, None, Millis(0)).minimum == 700
        turns.write(plan_of(six_hundred), ACTIVE, "b", own, 30)
        assert turns.shortfall is None
        # It has planned this batch, and relied on what this one had reported.
        source.tell(TOLD % (3, 900, 630))
        turns.read(RUN, own)
        assert turns.seen(OTHERS, None, Millis(0)).minimum == 50
        with caplog.at_level(logging.WARNING):
            turns.write(plan_of(six_hundred), ACTIVE, "b", own, 30)
        assert str(turns.trouble) in caplog.text
        assert "orders is ahead by 530 ms" in str(turns.trouble)
        # Folded with those of the next batches.
        assert vars(caplog.records[-1])[ABOUT] == "shortfall"
        turns.read(RUN, own)
        turns.write(plan_of(six_hundred), ACTIVE, "b", own, 30)
        source.tell(TOLD % (5, 900, 630))
        turns.read(RUN, own)
        turns.write(plan_of(six_hundred), GroupMember(MemberStatus.STARTING), "b", own, 30)
        assert "of time" not in str(turns.trouble)
        # Nothing is reported before the store leaves the others out: until then they hold this one back by it.
        turns.read(RUN, own)
        turns.write(plan_of(six_hundred, NO_OTHERS), ACTIVE, "b", own, 30)
        source.tell(TOLD % (7, 900, 630))
        turns.read(RUN, own)
        turns.write(plan_of(six_hundred), ACTIVE, "b", own, 30)
        assert turns.shortfall is None
        # Of another run, or half written.
        for text in (TOLD.replace(RUN, "7860 1e3d0a4f") % (7, 900, 630), "[", ""):
            source.tell(text)
            turns.read(RUN, own)
            assert not turns.members
        assert not turns.queries
    own.close()


def test_a_broker_that_stops_answering_after_the_plan_costs_the_reach_and_not_the_query(tmp_path: Path) -> None:
    def unreachable() -> Millis | None:
        raise UnreachableError("no broker answers")

    own, turns = LocalMembers(tmp_path, "g"), SharedTurns("clicks")
    with another(tmp_path) as source:
        source.tell(TOLD % (1, 700, 50))
        turns.read(RUN, own)
        turns.write(plan_of(unreachable), ACTIVE, "b", own, 30)
    own.close()


def test_the_longest_names_of_any_letters_are_reported_whole(tmp_path: Path) -> None:
    for letter in ("\U0001f600", "\x01", "\ud800"):
        own, turns = LocalMembers(tmp_path, "g"), SharedTurns(letter * 500)
        others = OtherMembers(Millis(-(10**18)), OtherMember(letter * 500, Millis(10**13)), 2, apart=frozenset({"a"}))
        with another(tmp_path) as source:
            source.tell(TOLD % (1, 700, 50))
            turns.read(RUN, own)
            turns.write(plan_of(six_hundred, turns.seen(others, None, Millis(0))), ACTIVE, "b", own, 30)
            (folder,) = tmp_path.iterdir()
            reported = turns_of(RUN, [each.read_text() for each in folder.iterdir()])
            assert {turn.member: len(turn.source) for turn in reported} == {"a": 6, "b": 190}
        own.close()
