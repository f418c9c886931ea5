"""All numbered vectors, as transcripts; and that neither the runner nor a transcript accepts just anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.transcripts import drivers_alignment, drivers_clock, drivers_job, drivers_source, drivers_time
from tests.transcripts.grammar import Driver, GrammarError, MismatchError, Transcript, chain, load, parse, run

HERE = Path(__file__).parent
DRIVERS: dict[str, type[Driver]] = {
    **drivers_time.DRIVERS,
    **drivers_clock.DRIVERS,
    **drivers_alignment.DRIVERS,
    **drivers_source.DRIVERS,
    **drivers_job.DRIVERS,
}
TRANSCRIPTS = load(HERE / "vectors")
VARIANTS = [variant for transcript in TRANSCRIPTS for variant in transcript.variants()]
NEGATIVE = yaml.safe_load((HERE / "negative.yaml").read_text())


def label(transcript: Transcript) -> str:
    return f"{'-'.join(map(str, transcript.vectors))} {transcript.claim}"


@pytest.mark.parametrize("transcript", VARIANTS, ids=label)
def test_transcript_holds(transcript: Transcript) -> None:
    run(transcript, DRIVERS, TRANSCRIPTS)


def test_every_vector_has_a_transcript() -> None:
    assert sorted({number for t in TRANSCRIPTS for number in t.vectors}) == list(range(1, 206))


@pytest.mark.parametrize("read", NEGATIVE, ids=lambda read: read["fails"])
def test_wrong_transcript_fails(read: Mapping[str, Any]) -> None:
    kind = {"mismatch": MismatchError, "grammar": GrammarError}[read["kind"]]
    with pytest.raises(kind, match=read["because"]):
        run(parse(read["transcript"]), DRIVERS, TRANSCRIPTS)


def falsified(step: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every way of saying something else about one step."""
    expected = step.get("expect", [])
    if "error" in step:
        yield {**step, "error": "words that no error has"}
        yield {**{k: v for k, v in step.items() if k != "error"}, "expect": []}
    else:
        yield {**step, "expect": [*expected, "W5"]}
        yield {**{k: v for k, v in step.items() if k != "expect"}, "error": "anything"}
    if expected:
        yield {**step, "expect": expected[:-1]}
        yield {**step, "expect": [*expected[:-1], "W-987654321"]}
    if len(expected) > 1 and expected != expected[::-1]:
        yield {**step, "expect": expected[::-1]}
    for name in step.get("then", {}):
        yield {**step, "then": {**step["then"], name: "something else"}}


@pytest.mark.parametrize("transcript", VARIANTS, ids=label)
def test_transcript_fails_when_any_of_its_checks_says_something_else(transcript: Transcript) -> None:
    given, _ = chain(transcript, TRANSCRIPTS)
    for position, step in enumerate(transcript.steps):
        for wrong in falsified(step):
            steps = (*transcript.steps[:position], wrong, *transcript.steps[position + 1 :])
            with pytest.raises(MismatchError):
                run(replace(transcript, given=given, steps=steps), DRIVERS, TRANSCRIPTS)
