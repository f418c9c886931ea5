"""The vectors of generators, held by the product's: a range is one record, and the output rule is the split's own."""

from __future__ import annotations

import pytest

from tests.transcripts.drivers_time import named
from tests.transcripts.grammar import Driver, Transcript, run
from tests.transcripts.test_transcripts import TRANSCRIPTS, VARIANTS, label
from watermark_source.eventtime.summary import RangeSummary
from watermark_source.eventtime.watermark import MIN, Millis
from watermark_source.eventtime.watermark_generators import BoundedOutOfOrderness, Generator, Punctuated

STRATEGIES = {"bounded", "monotonous", "punctuated"}


class RangeDriver(Driver):
    """A periodic strategy says what it has come to when it is asked, a punctuated one at once."""

    def __init__(self, strategy: str, bound: int = 0) -> None:
        super().__init__()
        self.periodic = strategy != "punctuated"
        self.generator: Generator = BoundedOutOfOrderness(bound) if self.periodic else Punctuated()
        self.watermark = MIN

    def do_event(self, event_time: Millis) -> list[str]:
        return self.see_range(RangeSummary(event_time))

    def do_marked(self, event_time: Millis) -> list[str]:
        return self.see_range(RangeSummary(event_time, marked=event_time))

    def do_probe(self, _: object) -> list[str]:
        return [named(self.watermark)] if self.periodic else []

    def see_range(self, summary: RangeSummary) -> list[str]:
        found = self.generator.on_range(summary)
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


def is_ours(transcript: Transcript) -> bool:
    """Whether it is about records and a strategy that a query can choose, without an idle timer or a clock."""
    events = {event for step in transcript.steps for event in step if event not in ("expect", "then", "error")}
    strategy = transcript.given.get("strategy")
    fits = {"generator": events <= {"event", "marked", "probe"}, "assigner": events <= {"record", "marked"}}
    punctuated = transcript.subject != "assigner" or strategy == "punctuated"
    known = strategy in STRATEGIES and set(transcript.given) <= {"strategy", "bound"}
    return fits.get(transcript.subject, False) and known and punctuated


OURS = [variant for variant in VARIANTS if is_ours(variant)]


@pytest.mark.parametrize("transcript", OURS, ids=label)
def test_the_products_generator_says_what_the_vector_expects(transcript: Transcript) -> None:
    run(transcript, DRIVERS, TRANSCRIPTS)


def test_no_vector_of_a_strategy_that_a_query_can_choose_is_left_out() -> None:
    held = {number for each in OURS for number in each.vectors}
    assert held >= {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 19}
