"""Ends that seem to go back are asked for again; the answers are prepared."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.list_offsets import OffsetAndTimestamp
from pyspark_aligned_kafka.cluster.offset_lookup import OffsetsInTime
from pyspark_aligned_kafka.lookup.offsets import KafkaLogBounds
from pyspark_aligned_kafka.options.positions import OffsetRetries
from watermark_source.contract.stream import Ends
from watermark_source.planning.split import Split

T0, T1 = Split("t", 0), Split("t", 1)


class Answers(KafkaAdmin):
    """One answer after the other; the last one stays."""

    def __init__(self, *ends: Mapping[Split, int]) -> None:
        self.ends = list(ends)
        self.asked = 0

    def list_offsets(self, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
        self.asked += 1
        ends = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        return {split: OffsetAndTimestamp(end, None) for split, end in ends.items() if split in wanted}

    def list_offsets_in_time(self, wanted: Mapping[Split, int]) -> OffsetsInTime:
        found = self.list_offsets(wanted)
        return OffsetsInTime(found, dict.fromkeys(wanted.keys() - found.keys()))


def test_an_end_that_goes_back_for_a_moment_is_asked_for_again() -> None:
    answers = Answers({T0: 10, T1: 5}, {T0: 8, T1: 6}, {T0: 9, T1: 6}, {T0: 11, T1: 6})
    bounds = KafkaLogBounds(answers, OffsetRetries(retries=3, interval_ms=0))
    assert bounds.end_positions({T0, T1}) == {T0: 10, T1: 5}
    assert bounds.end_positions({T0, T1}) == {T0: 11, T1: 6}
    assert answers.asked == 4


@pytest.mark.parametrize("retries", [0, 2])
def test_an_end_that_stays_back_is_believed_after_so_many_tries(retries: int) -> None:
    answers = Answers({T0: 10}, {T0: 3})
    bounds = KafkaLogBounds(answers, OffsetRetries(retries, interval_ms=0))
    bounds.end_positions({T0})
    assert bounds.end_positions({T0}) == {T0: 3}
    assert answers.asked == 2 + retries
    # From now on it is what is known.
    assert bounds.end_positions({T0}) == {T0: 3}
    assert answers.asked == 3 + retries


def test_another_leader_is_seen_where_no_end_has_moved() -> None:
    class Leaders(Answers):
        epoch = 1

        def list_offsets(self, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
            return {s: of._replace(epoch=self.epoch) for s, of in super().list_offsets(wanted).items()}

    answers = Leaders({T0: 10, T1: 5})
    bounds = KafkaLogBounds(answers)
    for each in (bounds.current_ends, bounds.end_positions, bounds.current_ends):
        for answers.epoch in (1, 1, 2, 1):
            each({T0, T1})
            assert bounds.epochs == {T0: answers.epoch, T1: answers.epoch}


def test_a_split_that_is_gone_is_not_waited_for() -> None:
    answers = Answers({T0: 10, T1: 5}, {T1: 5})
    bounds = KafkaLogBounds(answers, OffsetRetries(retries=3, interval_ms=0))
    bounds.end_positions({T0, T1})
    assert bounds.end_positions({T0, T1}) == {T1: 5}
    assert answers.asked == 2


def test_an_end_that_is_not_known_for_a_while_may_not_go_back_either() -> None:
    answers = Answers({T0: 10, T1: 5}, {T1: 6}, {T0: 9, T1: 6}, {T0: 10, T1: 6})
    bounds = KafkaLogBounds(answers, OffsetRetries(retries=3, interval_ms=0))
    assert bounds.current_ends({T0, T1}) == Ends({T0: 10, T1: 5})
    assert bounds.current_ends({T0, T1}) == Ends({T1: 6}, {T0: None})
    assert bounds.current_ends({T0, T1}) == Ends({T0: 10, T1: 6})
    assert answers.asked == 4
