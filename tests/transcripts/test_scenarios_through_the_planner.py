"""The scenarios of the reference's classes through ``plan()`` and the group's store: what queries decide by.

1 800 of them. Where a planner of batches decides otherwise a rule reports it; a difference that no rule explains fails.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.transcripts.planned_inputs import PlannedInputs, PlannedRecords, PlannedWriters, row_of
from watermark_source.errors import OptionError
from watermark_source.group_store.database import database_of
from watermark_source.group_store.store import GroupStore, Identity
from watermark_source.option_table import Option
from watermark_source.planning.group import GroupMember, MemberStatus, counts_with, limit
from watermark_source.planning.state import SplitStatus
from watermark_source.planning.watermark import MAX, MIN, Millis
from watermark_source.spark.option_rows import ENGINE_OPTIONS

ACTIVE, IDLE = SplitStatus.ACTIVE, SplitStatus.IDLE
Event = dict[str, Any]
Scenario = dict[str, Any]
Answer = dict[str, Any]
FOLDER = Path(__file__).parent / "scenarios"


def lines(name: str) -> Iterator[tuple[int, Scenario, Answer]]:
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt") as file:
        for number, line in enumerate(file, start=1):
            read = json.loads(line)
            yield number, read["scenario"], read["result"]


class Output(NamedTuple):
    """What has gone out by the end of an event."""

    watermark: int | None = None
    is_idle: bool = False

    @property
    def at(self) -> int:
        return MIN if self.watermark is None else self.watermark


def expected(scenario: Scenario, result: Answer) -> Iterator[Output]:
    """Yield what the reference has output after each event. No row can say the end of time: it states one less."""
    output, sent = Output(), list(result["out"])
    for index in range(len(scenario["events"])):
        while sent and sent[0]["i"] == index:
            one = sent.pop(0)
            if "wm" in one:
                output = output._replace(watermark=min(one["wm"], MAX - 1))
            else:
                output = output._replace(is_idle=one["status"] == "idle")
        yield output


# Premises: what of a scenario can happen to splits of a log.
#
# - An idle split has no rows, and one that has some is active: so a watermark of an idle *channel*, which a valve
#   ignores, does not come. An *input* of an operator is moved by it and stays idle: its watermark is compared, and its
#   status no more.
# - What is reported to a multiplexer for its next probe is seen at the next plan.


def through_inputs(scenario: Scenario) -> Iterator[Output]:
    inputs = PlannedInputs(range(scenario["inputs"]))
    idle: set[int] = set()
    is_compared = True
    for event in scenario["events"]:
        change = inputs.change(event["in"])
        if "wm" in event:
            is_compared &= event["in"] not in idle
            change.rows.append(row_of(event["wm"]))
        else:
            change.status = IDLE if event["idle"] else ACTIVE
            (idle.add if event["idle"] else idle.discard)(event["in"])
        inputs.settle()
        yield (
            Output(inputs.watermark, inputs.is_idle)
            if is_compared
            else Output(inputs.watermark, is_idle=NotImplemented)
        )


def through_channels(scenario: Scenario) -> Iterator[Output]:
    inputs = PlannedInputs(range(scenario["channels"]), passes_returning=True)
    idle: set[int] = set()
    for event in scenario["events"]:
        channel = event["ch"]
        if "status" in event:
            (idle.add if event["status"] == "idle" else idle.discard)(channel)
            inputs.change(channel).status = IDLE if event["status"] == "idle" else ACTIVE
        elif channel not in idle:
            inputs.change(channel).rows.append(row_of(event["wm"]))
        inputs.settle()
        yield Output(inputs.watermark, inputs.is_idle)


def through_splits(scenario: Scenario) -> Iterator[Output | None]:
    inputs = PlannedInputs()
    for event in scenario["events"]:
        what = event["op"]
        if what == "register":
            inputs.add(event["id"])
        elif what == "wm":
            inputs.change(event["id"]).rows.append(row_of(event["t"]))
            inputs.change(event["id"]).status = None
        elif what != "periodic":
            inputs.change(event["id"]).status = IDLE if what == "idle" else ACTIVE
        if what == "periodic" or event.get("mode") == "imm":
            inputs.settle()
            yield Output(inputs.watermark, inputs.is_idle)
        else:
            yield None


def through_records(scenario: Scenario) -> Iterator[Output]:
    records = PlannedRecords(scenario.get("bound", 0), scenario.get("idle"))
    now, pauses = 1_000_000, 0
    for event in scenario["events"]:
        if "t" in event:
            records.rows.append(event["t"])
        elif "clock" in event:
            now += 0 if pauses else event["clock"]
        elif "pause" in event or "resume" in event:
            pauses = pauses + 1 if "pause" in event else max(0, pauses - 1)
        else:
            records.plan(now)
        yield Output(records.state.watermark, records.state.splits[records.split].status is IDLE)


def through_writers(scenario: Scenario) -> Iterator[Output]:
    """The channels as writers of a topic, which announce each event. A source has no status, only writers have."""
    writers = PlannedWriters(scenario["channels"])
    at: dict[int, Millis | None] = {}
    idle: set[int] = set()
    for event in scenario["events"]:
        channel = event["ch"]
        if "status" in event:
            (idle.add if event["status"] == "idle" else idle.discard)(channel)
            writers.announce(channel, at.get(channel), idle=channel in idle)
        elif channel not in idle:
            at[channel] = None if event["wm"] == MIN else Millis(event["wm"])
            writers.announce(channel, at[channel], idle=False)
        yield Output(writers.state.watermark, is_idle=NotImplemented)


# Rules: why a plan states something else than the reference does after the same events.


def returned_without_a_row(scenario: Scenario, events: Sequence[Event], want: Output, got: Output) -> bool:
    """A split that comes back is waited for until it is read: its rows may be older than any, and on time.

    A valve leaves a channel out until it has a watermark that is not behind.
    """
    idle, returned = set(), set()
    for event in events:
        channel = event["ch"]
        if event.get("status") == "idle":
            idle.add(channel)
            returned.discard(channel)
        elif "status" in event:
            returned |= idle & {channel}
            idle.discard(channel)
        else:
            returned.discard(channel)
    return got.at < want.at and bool(returned)


def returned_behind(scenario: Scenario, events: Sequence[Event], want: Output, got: Output) -> bool:
    """A writer that comes back from idleness is waited for until it has caught up, as ``idleReturn=wait`` has it.

    A valve leaves it out until then, and all its rows are late.
    """
    idle: set[int] = set()
    returned: set[int] = set()
    for event in events:
        channel = event["ch"]
        if event.get("status") == "idle":
            idle.add(channel)
            returned.discard(channel)
        elif "status" in event:
            returned |= idle & {channel}
            idle.discard(channel)
    return got.at < want.at and bool(returned)


def ended_beside_idle(scenario: Scenario, events: Sequence[Event], want: Output, got: Output) -> bool:
    """The end of one writer is not the end of the stream while another one is idle: its next rows would all be late."""
    return got.at < want.at == MAX - 1


Rule = Callable[[Scenario, Sequence[Event], Output, Output], bool]
RULES: dict[str, tuple[Rule, ...]] = {
    "combined": (),
    "multiplexer": (),
    "generator": (),
    "valve": (returned_without_a_row,),
    "valve_tight": (returned_without_a_row,),
}
RULES_OF_WRITERS: tuple[Rule, ...] = (returned_behind, ended_beside_idle)
THROUGH: dict[str, Callable[[Scenario], Iterator[Output | None]]] = {
    "combined": through_inputs,
    "multiplexer": through_splits,
    "generator": through_records,
    "valve": through_channels,
    "valve_tight": through_channels,
}


@pytest.mark.parametrize("name", THROUGH)
def test_the_planner_decides_as_the_reference_or_by_a_rule(name: str) -> None:
    count, by_rule = 0, Counter[str]()
    for number, scenario, result in lines(name):
        count += 1
        if result.get("rejected"):
            assert is_refused(scenario), f"{name} line {number}: {scenario}"
            continue
        output = zip(expected(scenario, result), THROUGH[name](scenario), strict=True)
        for index, (want, got) in enumerate(output):
            if got is None or want == got or (got.is_idle is NotImplemented and want.watermark == got.watermark):
                continue
            events = scenario["events"][: index + 1]
            rule = next((r.__name__ for r in RULES[name] if r(scenario, events, want, got)), None)
            assert rule is not None, f"{name} line {number}, event {index}: {want}, by the planner {got}; {events}"
            # From here on the two have different pasts.
            by_rule[rule] += 1
            break
    assert count == 300
    # A rule that explains nothing any more is to go.
    assert sum(by_rule.values()) <= 80
    assert by_rule or not RULES[name]


def is_refused(scenario: Scenario) -> bool:
    """Whether the options of a query refuse a scenario's parameters."""
    options = {option.name: option for option in ENGINE_OPTIONS}
    given = {"maxOutOfOrderness": scenario.get("bound"), "idleTimeout": scenario.get("idle")}
    return any(value is not None and not _is_accepted(options[name], f"{value} ms") for name, value in given.items())


def _is_accepted(option: Option, text: str) -> bool:
    try:
        option.read(text)
    except OptionError:
        return False
    return True


@pytest.mark.parametrize("of", [20, pytest.param(1, marks=pytest.mark.long("every twentieth of them"))])
def test_the_groups_store_has_the_limits_of_the_reference(of: int, tmp_path: Path) -> None:
    store = GroupStore(database_of(f"sqlite:///{tmp_path / 'alignment.sqlite'}"))
    for number, scenario, result in list(lines("alignment"))[::of]:
        through = keys_through_the_store if scenario.get("impl") == "aggregator" else groups_through_the_store
        assert through(store, scenario, number) == result["out"], f"line {number}: {scenario}"
    store.close()


class Members:
    """The members of a scenario's groups, each with what it has reported last."""

    def __init__(self, store: GroupStore, number: int) -> None:
        self.store, self.number = store, number
        self.reports: dict[tuple[str, str], GroupMember] = {}

    def report(self, group: str, name: str, watermark: int) -> Millis | None:
        """Report, MAX for idle; return the lowest watermark of all members of the group that count."""
        is_idle = watermark == MAX
        reported = GroupMember(MemberStatus.IDLE if is_idle else MemberStatus.ACTIVE, Millis(watermark))
        self.reports[group, name] = reported
        return self.minimum(group, name)

    def minimum(self, group: str, name: str) -> Millis | None:
        reported = self.reports[group, name]
        answer = self.store.exchange(Identity(f"{self.number}.{group}", name, name, 0, 3_600_000), reported)
        assert answer is not None
        return min((w for w in (answer.minimum, counts_with(reported)) if w is not None), default=None)


def keys_through_the_store(store: GroupStore, scenario: Scenario, number: int) -> list[Answer]:
    members, before, answers = Members(store, number), MIN, []
    for index, event in enumerate(scenario["events"]):
        found = members.report("g", event["key"], event["report"])
        # An idle key counts with the end of time.
        at = MAX if found is None else found
        answers.append({"i": index, "changed": at != before, "agg": at})
        before = at
    return answers


def groups_through_the_store(store: GroupStore, scenario: Scenario, number: int) -> list[Answer]:
    """In one group of ours the lowest drift counts for all; a source of the reference has its own."""
    members, answers = Members(store, number), []
    sources = scenario["sources"]
    for index, event in enumerate(scenario["events"]):
        if "report" in event:
            members.report(sources[event["src"]]["group"], f"{event['src']}.{event['sub']}", event["report"])
            continue
        for src, source in enumerate(sources):
            if event.get("src", src) != src:
                continue
            mine = sorted(int(name.split(".")[1]) for _, name in members.reports if name.startswith(f"{src}."))
            answers += [
                {"i": index, "src": src, "sub": sub, "max": limit(found, source["drift"])}
                for sub in mine
                for found in (members.minimum(source["group"], f"{src}.{sub}"),)
            ]
    return answers


# Writers that announce watermarks, as the channels of a valve.


class Valve:
    """The reference's valve in brief: checked against its recorded answers, it answers random scenarios."""

    def __init__(self, channels: int) -> None:
        self.at = [MIN] * channels
        self.idle: set[int] = set()
        self.left_out: set[int] = set()
        self.output = Output()

    def take(self, event: Event) -> Output:
        channel = event["ch"]
        if event.get("status") == "idle":
            self._turn_idle(channel)
        elif "status" in event:
            if channel in self.idle:
                self.idle.discard(channel)
                if self.at[channel] >= self.output.at:
                    self.left_out.discard(channel)
        elif channel not in self.idle and event["wm"] > self.at[channel]:
            self.at[channel] = event["wm"]
            if self.at[channel] >= self.output.at:
                self.left_out.discard(channel)
            self._say(min)
        return self.output

    def _turn_idle(self, channel: int) -> None:
        if channel in self.idle:
            return
        self.idle.add(channel)
        self.left_out.add(channel)
        self._say(max if len(self.idle) == len(self.at) else min)

    def _say(self, of: Callable[[list[Millis]], Millis]) -> None:
        counting = [at for n, at in enumerate(self.at) if n not in self.left_out or of is max]
        if counting and of(counting) > self.output.at:
            self.output = Output(Millis(min(of(counting), MAX - 1)))


def random_scenario(seed: int) -> Scenario:
    chance = random.Random(seed)
    channels = chance.randint(1, 5)
    times = [*range(12), MAX] if chance.random() < 0.3 else [*range(12)]

    def event() -> Event:
        what = {"status": chance.choice(["idle", "active"])} if chance.random() < 0.3 else {"wm": chance.choice(times)}
        return {"ch": chance.randrange(channels), **what}

    return {"channels": channels, "events": [event() for _ in range(chance.randint(1, 40))]}


def differences(scenario: Scenario, wanted: Iterator[Output]) -> str | None:
    """Return the rule by which writers differ from channels, if they do; fails without a rule."""
    for index, (want, got) in enumerate(zip(wanted, through_writers(scenario), strict=True)):
        if want.watermark == got.watermark:
            continue
        events = scenario["events"][: index + 1]
        rule = next((r.__name__ for r in RULES_OF_WRITERS if r(scenario, events, want, got)), None)
        assert rule is not None, f"event {index}: {want}, by the planner {got}; {events}"
        return rule
    return None


@pytest.mark.parametrize("name", ["valve", "valve_tight"])
def test_writers_that_announce_are_combined_as_the_channels_of_the_reference_or_by_a_rule(name: str) -> None:
    found = [differences(scenario, expected(scenario, result)) for _, scenario, result in lines(name)]
    assert len(found) == 300
    by_rule = Counter(rule for rule in found if rule)
    assert sum(by_rule.values()) <= 150, by_rule


@pytest.mark.parametrize("name", ["valve", "valve_tight"])
def test_the_brief_valve_answers_as_recorded(name: str) -> None:
    for number, scenario, result in lines(name):
        valve = Valve(scenario["channels"])
        brief = [valve.take(event).watermark for event in scenario["events"]]
        assert brief == [output.watermark for output in expected(scenario, result)], f"{name} line {number}"


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.long("500 of them"))])
def test_writers_are_combined_as_channels_in_random_scenarios(count: int) -> None:
    by_rule: Counter[str | None] = Counter()
    for seed in range(count):
        scenario = random_scenario(seed)
        valve = Valve(scenario["channels"])
        by_rule[differences(scenario, map(valve.take, scenario["events"]))] += 1
    # A rule that explains nothing is to go.
    assert by_rule.keys() == {None, *(rule.__name__ for rule in RULES_OF_WRITERS)}
