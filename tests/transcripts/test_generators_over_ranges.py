"""The vectors of generators, held by the product's: a range is one record, and the output rule is the split's own."""

from __future__ import annotations

import pytest

from tests.transcripts.grammar import Driver, Transcript, label, load, named, run
from watermark_source.planning.disorder import RangeSummary
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import Bounded, Punctuated, WatermarkStrategy
from watermark_source.planning.watermark import MIN, Millis

TRANSCRIPTS = load("generators.yaml")


class RangeDriver(Driver):
    """A periodic strategy states what it has come to when it is asked, a punctuated one at once."""

    def __init__(self, strategy: str, bound: int = 0) -> None:
        super().__init__()
        self.periodic = strategy != "punctuated"
        self.generator: WatermarkStrategy = Bounded(bound) if self.periodic else Punctuated()
        self.watermark = MIN

    def do_event(self, event_time: Millis) -> list[str]:
        return self.see_range(RangeSummary(event_time))

    def do_marked(self, event_time: Millis) -> list[str]:
        return self.see_range(RangeSummary(event_time, marked=event_time))

    def do_probe(self, _: object) -> list[str]:
        return [named(self.watermark)] if self.periodic else []

    def see_range(self, summary: RangeSummary) -> list[str]:
        found = self.generator.on_range(Split("log", 0), None, summary, None).watermark
        self.watermark = Millis(max(self.watermark, MIN if found is None else found))
        return [] if found is None or self.periodic else [named(found)]


class RecordDriver(RangeDriver):
    """The subject ``assigner``: what goes out after each record, which never goes back."""

    def do_record(self, event_time: Millis) -> list[str]:
        return [f"record {event_time}", *self.sent(RangeSummary(event_time))]

    def do_marked(self, event_time: Millis) -> list[str]:
        return [f"record {event_time}", *self.sent(RangeSummary(event_time, marked=event_time))]

    def sent(self, summary: RangeSummary) -> list[str]:
        before = self.watermark
        self.see_range(summary)
        return [f"W{named(self.watermark)}"] if self.watermark > before else []


DRIVERS: dict[str, type[Driver]] = {"generator": RangeDriver, "assigner": RecordDriver}


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=label)
def test_the_products_generator_emits_what_the_vector_expects(transcript: Transcript) -> None:
    run(transcript, DRIVERS, TRANSCRIPTS)
