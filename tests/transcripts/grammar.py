"""Transcripts: one grammar for everything that happens over time, and the runner that holds a driver to it.

A file is a list of transcripts. A transcript names the vectors it states, a claim, a subject (the driver) with what it
is given, and steps. A step is a line of the clock (``at`` or ``after``, milliseconds), or one event with what it is
expected to give, in order; ``then`` compares what can be seen afterwards, ``error`` names words of the error an event
must raise. ``continues`` runs another transcript first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from watermark_source.errors import WatermarkSourceError
from watermark_source.planning.watermark import MAX, MIN, Millis

VECTORS = Path(__file__).parent / "vectors"
TIMES = {"MIN": MIN, "MAX": MAX, "MAX-1": Millis(MAX - 1), "MIN+1": Millis(MIN + 1)}
NAMES = {MIN: "MIN", MAX: "MAX", MAX - 1: "MAX-1"}
CLOCK = ("at", "after")
CHECKS = ("expect", "then", "error")
KEYS = {"vectors", "claim", "subject", "given", "steps", "continues", "defect"}


class GrammarError(Exception):
    """The transcript itself is wrong: it states something no driver could be held to."""


class MismatchError(AssertionError):
    """The driver did not do what the transcript states."""


@dataclass(frozen=True)
class Transcript:
    vectors: tuple[int, ...]
    claim: str
    subject: str
    given: Mapping[str, Any]
    steps: tuple[Mapping[str, Any], ...]
    continues: int | None = None
    defect: str | None = None
    """The defect of the reference implementation instead of which this is the desired behaviour."""


class Driver:
    """Events are methods ``do_<event>(argument)`` that return outputs; ``see_<name>()`` is what can be seen."""

    def __init__(self) -> None:
        self.now = 0

    def clock(self, now: int) -> list[str]:
        """Let the clock come to ``now``; returns what that causes."""
        self.now = now
        return []


def parse(read: Mapping[str, Any]) -> Transcript:
    unknown = set(read) - KEYS
    if unknown:
        raise GrammarError(f"unknown keys {sorted(unknown)}")
    for key in ("vectors", "claim", "subject", "steps"):
        if not read.get(key):
            raise GrammarError(f"{key} is missing")
    for step in read["steps"]:
        _check_step(step)
    return Transcript(
        tuple(read["vectors"]),
        read["claim"],
        read["subject"],
        times(read.get("given", {})),
        tuple({k: v if k in ("expect", "error") else times(v) for k, v in step.items()} for step in read["steps"]),
        read.get("continues"),
        read.get("defect"),
    )


def _check_step(step: Mapping[str, Any]) -> None:
    events = [key for key in step if key not in (*CLOCK, *CHECKS)]
    if len(events) > 1:
        raise GrammarError(f"several events in one step: {step}")
    if not events and not any(key in step for key in CLOCK):
        raise GrammarError(f"neither an event nor a line of the clock: {step}")
    if events and "expect" not in step and "error" not in step:
        raise GrammarError(f"an event without what is expected of it: {step}")
    if "expect" in step and ("error" in step or not isinstance(step["expect"], list)):
        raise GrammarError(f"expect must be a list, and excludes error: {step}")
    if ("then" in step and not step["then"]) or ("error" in step and not step["error"]):
        raise GrammarError(f"a check that checks nothing: {step}")


def times(value: Any) -> Any:
    """Read the names of times, at any depth."""
    if isinstance(value, str):
        return TIMES.get(value, value)
    if isinstance(value, Mapping):
        return {key: times(inner) for key, inner in value.items()}
    return [times(inner) for inner in value] if isinstance(value, list) else value


def named(time: int) -> str:
    """Print a time the way transcripts write it."""
    return NAMES.get(time, str(time))


def load(file: str) -> list[Transcript]:
    """Read the transcripts of a file of the vectors."""
    return [parse(read) for read in yaml.safe_load((VECTORS / file).read_text())]


def label(transcript: Transcript) -> str:
    """Return a transcript's name in the list of tests."""
    return f"{'-'.join(map(str, transcript.vectors))} {transcript.claim}"


def chain(transcript: Transcript, others: Sequence[Transcript]) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Return what the driver is given and all steps, those of continued transcripts first."""
    if transcript.continues is None:
        return transcript.given, list(transcript.steps)
    before = [t for t in others if transcript.continues in t.vectors]
    if len(before) != 1:
        raise GrammarError(f"continues {transcript.continues}, which {len(before)} transcripts state")
    if before[0].subject != transcript.subject:
        raise GrammarError(f"continues {transcript.continues}, which drives something else")
    given, steps = chain(before[0], others)
    return {**given, **transcript.given}, [*steps, *transcript.steps]


def run(transcript: Transcript, drivers: Mapping[str, type[Driver]], others: Sequence[Transcript] = ()) -> None:
    """Run all steps; raises ``MismatchError`` at the first one that goes differently."""
    given, steps = chain(transcript, others)
    if transcript.subject not in drivers:
        raise GrammarError(f"unknown subject {transcript.subject}")
    driver = drivers[transcript.subject](**{k.replace("-", "_"): v for k, v in given.items()})
    for number, step in enumerate(steps, start=1):
        where = f"vectors {list(transcript.vectors)} step {number} {dict(step)}"
        try:
            seen = _perform(driver, step)
        except WatermarkSourceError as error:
            if "error" not in step or step["error"] not in str(error):
                raise MismatchError(f"{where}: raised {error!r}") from error
        else:
            if "error" in step:
                raise MismatchError(f"{where}: no error, but {seen}")
            if seen != step.get("expect", []):
                raise MismatchError(f"{where}: gave {seen}")
        for name, expected in step.get("then", {}).items():
            actual = _method(driver, "see", name)()
            if actual != expected:
                raise MismatchError(f"{where}: {name} is {actual!r}")


def _perform(driver: Driver, step: Mapping[str, Any]) -> list[str]:
    seen: list[str] = []
    if "at" in step or "after" in step:
        now = step["at"] if "at" in step else driver.now + step["after"]
        if now < driver.now:
            raise GrammarError(f"the clock goes back: {step}")
        seen += driver.clock(now)
    for key, argument in step.items():
        if key not in (*CLOCK, *CHECKS):
            seen += _method(driver, "do", key)(argument)
    return seen


def _method(driver: Driver, verb: str, name: str) -> Any:
    method = getattr(driver, f"{verb}_{name.replace('-', '_')}", None)
    if method is None:
        raise GrammarError(f"{type(driver).__name__} does not know {name}")
    return method
