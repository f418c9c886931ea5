"""Scenarios answered by the reference implementation's own classes, replayed line by line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reference.alignment import group as alignment
from tests.reference.alignment.aggregator import Aggregator, latest
from tests.reference.eventtime import multiplexer as mux
from tests.reference.eventtime import operator as op
from tests.reference.eventtime import output as out
from tests.reference.eventtime import strategy as strat
from tests.reference.eventtime import valve as valves
from tests.reference.eventtime.idleness import PausableClock
from tests.reference.eventtime.strategy import bounded, monotonous
from tests.reference.eventtime.watermark import Emission, Status, Watermark
from watermark_source.errors import UsageError
from watermark_source.eventtime.watermark import MAX, MIN, Millis

Scenario = dict[str, Any]
Answer = dict[str, Any]

FOLDER = Path(__file__).parent / "scenarios"
NOW = Millis(0)


def lines(name: str) -> Iterator[tuple[int, Scenario, Answer]]:
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt") as file:
        for number, line in enumerate(file, start=1):
            read = json.loads(line)
            yield number, read["scenario"], read["result"]


def shown(index: int, emissions: tuple[Emission, ...]) -> list[Answer]:
    return [
        {"i": index, "wm": e.timestamp} if isinstance(e, Watermark) else {"i": index, "status": e.value}
        for e in emissions
    ]


def replay_valve(scenario: Scenario) -> list[Answer]:
    state, answers = valves.valve(scenario["channels"]), []
    for i, event in enumerate(scenario["events"]):
        if "wm" in event:
            state, sent = valves.on_watermark(state, event["ch"], Watermark(event["wm"]))
        else:
            state, sent = valves.on_status(state, event["ch"], Status(event["status"]))
        answers += shown(i, sent)
    return answers


def replay_combined(scenario: Scenario) -> list[Answer]:
    state, answers = op.operator(scenario["inputs"]), []
    for i, event in enumerate(scenario["events"]):
        if "wm" in event:
            state, sent = op.on_watermark(state, event["in"], Watermark(event["wm"]))
        else:
            state, sent = op.on_status(state, event["in"], Status.IDLE if event["idle"] else Status.ACTIVE)
        answers += shown(i, sent)
    return answers


MODES = {"imm": mux.Mode.IMMEDIATE, "def": mux.Mode.DEFERRED}


def replay_multiplexer(scenario: Scenario) -> list[Answer]:
    state: mux.Multiplexer[str] = mux.Multiplexer()
    source, answers = out.SourceOutput(), []
    for i, event in enumerate(scenario["events"]):
        what, split = event["op"], event.get("id")
        if what == "register":
            state, said = mux.register(state, split)
        elif what == "periodic":
            state, said = mux.tick(state)
        elif what == "wm":
            state, said = mux.update(state, split, Watermark(event["t"]), MODES[event["mode"]])
        else:
            state, said = mux.set_status(state, split, Status(what), MODES[event["mode"]])
        for emission in said:
            source, sent = out.feed(source, out.Feeder.SPLITS, emission, NOW)
            answers += shown(i, sent)
    return answers


def replay_generator(scenario: Scenario) -> list[Answer] | None:
    try:
        strategy = bounded(scenario["bound"]) if scenario["gen"] == "bounded" else monotonous()
        if "idle" in scenario:
            strategy = strategy.with_idleness(scenario["idle"])
    except UsageError:
        return None
    split, output, clock, now = strategy.start(), out.Output(), PausableClock(), 0
    answers: list[Answer] = []
    for i, event in enumerate(scenario["events"]):
        sent: tuple[Emission, ...] = ()
        if "t" in event:
            split, _ = strat.observe(split, event["t"])
        elif "clock" in event:
            now += event["clock"]
        elif "pause" in event:
            clock = clock.pause(now)
        elif "resume" in event:
            clock = clock.resume(now)
        else:
            split, found = strat.probe_split(split, clock.read(now))
            if found is strat.ProbeResult.IDLE:
                output, sent = out.mark(output, Status.IDLE)
            elif not isinstance(found, strat.ProbeResult):
                output, sent = out.emit(output, Watermark(found), NOW)
        answers += shown(i, sent)
    return answers


def replay_aggregator(scenario: Scenario) -> list[Answer]:
    state: Aggregator[str] = Aggregator()
    answers = []
    for i, event in enumerate(scenario["events"]):
        # The reference has no "nothing yet": its empty minimum is the start of time.
        before = MIN if state.minimum is None else state.minimum
        state = latest(state, event["key"], event["report"])
        answers.append({"i": i, "changed": state.minimum != before, "agg": state.minimum})
    return answers


def replay_alignment(scenario: Scenario) -> list[Answer]:
    if scenario.get("impl") == "aggregator":
        return replay_aggregator(scenario)
    sources = scenario["sources"]
    # The reference gives each source its own drift; a group of ours has one, so the limit is taken from the minimum.
    groups: dict[str, alignment.Group[tuple[int, int]]] = {
        s["group"]: alignment.Group(s["group"], s["drift"]) for s in sources
    }
    answers: list[Answer] = []
    for i, event in enumerate(scenario["events"]):
        if "report" in event:
            key, name = (event["src"], event["sub"]), sources[event["src"]]["group"]
            group = alignment.join(groups[name], key, drift=groups[name].drift)
            if event["report"] == MAX:
                group = alignment.change(alignment.report(group, key, MAX), key, alignment.MemberStatus.IDLE)
            else:
                group = alignment.report(group, key, event["report"])
            groups[name] = group
            continue
        for number, source in enumerate(sources):
            group = groups[source["group"]]
            if event.get("src", number) == number:
                answers += [
                    {"i": i, "src": src, "sub": sub, "max": alignment.limit(group.counting.minimum, source["drift"])}
                    for src, sub in sorted(group.members)
                    if src == number
                ]
    return answers


DRIVERS: dict[str, Callable[[Scenario], list[Answer] | None]] = {
    "valve": replay_valve,
    "valve_tight": replay_valve,
    "generator": replay_generator,
    "multiplexer": replay_multiplexer,
    "combined": replay_combined,
    "alignment": replay_alignment,
}


@pytest.mark.parametrize("name", DRIVERS)
def test_every_scenario_gives_the_answer_of_the_reference(name: str) -> None:
    count = 0
    for number, scenario, result in lines(name):
        expected = None if result.get("rejected") else result["out"]
        answers = DRIVERS[name](scenario)
        assert answers == expected, f"{name} line {number}: {scenario}"
        count += 1
    assert count == 300
