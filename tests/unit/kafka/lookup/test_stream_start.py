"""Start policies, resolved with a dictionary in the place of a cluster."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pyspark_aligned_kafka.lookup.offsets import resolve
from pyspark_aligned_kafka.options.positions import (
    At,
    AtTime,
    Earliest,
    Everywhere,
    Latest,
    NoMatch,
    PerSplit,
    PositionPolicy,
    start_of_stream,
)
from tests.unit.kafka.example_logs import LOGS, T0, T1, T2, Log, Logs
from watermark_source.errors import OptionError
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis


def policy(rule: Everywhere | PerSplit, no_match: NoMatch = NoMatch.ERROR) -> PositionPolicy:
    return PositionPolicy("startingOffsets", "(as given)", rule, no_match)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Everywhere(Earliest()), {T0: 10, T1: 10, T2: 10}),
        (Everywhere(Latest()), {T0: 13, T1: 11, T2: 10}),
        (PerSplit({T0: At(12), T1: Earliest(), T2: Latest()}), {T0: 12, T1: 10, T2: 10}),
    ],
)
def test_offsets(rule: Everywhere | PerSplit, expected: dict[Split, int]) -> None:
    assert resolve(policy(rule), {T0, T1, T2}, LOGS) == expected


def test_an_offset_beyond_the_end_is_an_error_that_names_the_end() -> None:
    at_the_end = PerSplit({T0: At(13), T1: At(11), T2: At(10)})
    assert resolve(policy(at_the_end), {T0, T1, T2}, LOGS) == {T0: 13, T1: 11, T2: 10}
    with pytest.raises(OptionError, match="t-1 ends at 11, before its offset 12"):
        resolve(policy(PerSplit({T0: At(13), T1: At(12), T2: At(10)})), {T0, T1, T2}, LOGS)


def test_a_timestamp_is_the_first_record_at_or_after_it() -> None:
    assert resolve(policy(Everywhere(AtTime(Millis(200)))), {T0}, LOGS) == {T0: 11}


def test_no_record_that_new_is_an_error_that_names_the_partitions_and_the_way_out() -> None:
    with pytest.raises(OptionError, match=r"no record is that new in t-1, t-2; .*startingOffsetsByTimestampStrategy"):
        resolve(policy(Everywhere(AtTime(Millis(200)))), {T0, T1, T2}, LOGS)


def test_no_record_that_new_begins_at_the_end_with_strategy_latest() -> None:
    rule = Everywhere(AtTime(Millis(200)))
    assert resolve(policy(rule, NoMatch.LATEST), {T0, T1, T2}, LOGS) == {T0: 11, T1: 11, T2: 10}


class WrittenMeanwhile(Logs):
    """A record that is new enough is written just after it was looked for."""

    def at_time(self, wanted: Mapping[Split, Millis]) -> Mapping[Split, int | None]:
        found = super().at_time(wanted)
        self._logs = {split: Log((*log.timestamps, 200)) for split, log in self._logs.items()}
        return found


def test_a_record_that_is_written_while_its_time_is_looked_up_is_read() -> None:
    rule = Everywhere(AtTime(Millis(200)))
    assert resolve(policy(rule, NoMatch.LATEST), {T0, T1, T2}, WrittenMeanwhile(LOGS._logs)) == {T0: 11, T1: 11, T2: 10}


@pytest.mark.spark_case("KafkaOffsetReaderSuite", "SPARK-48383: START_OFFSET_DOES_NOT_MATCH_ASSIGNED error class")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({T0: At(1)}, "it does not list t-1; the partitions are t-0, t-1"),
        ({T0: At(1), T1: At(1), T2: At(1)}, "it lists t-2; the partitions are t-0, t-1"),
        ({T0: At(1), T2: At(1)}, "it does not list t-1 and lists t-2; the partitions are t-0, t-1"),
        ({T0: At(1), Split("u", 1): At(0)}, "it does not list t-1 and lists u-1"),
    ],
)
def test_json_must_list_exactly_the_partitions_that_are_read(given: dict[Split, At], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        resolve(policy(PerSplit(given)), {T0, T1}, LOGS)
    condition = "[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED]"
    assert str(caught.value).startswith(f'{condition} option startingOffsets = "(as given)": must list exactly the')
    assert message in str(caught.value)


def test_a_topic_may_have_one_position_for_all_of_its_partitions() -> None:
    other = Split("u", 0)
    logs = Logs({T0: Log((1, 2)), T1: Log((1,)), other: Log((1, 2, 3))})
    rule = PerSplit({other: At(11)}, {"t": Latest()})
    assert resolve(policy(rule), {T0, T1, other}, logs) == {T0: 12, T1: 11, other: 11}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (PerSplit({}, {"t": Earliest(), "u": Latest()}), "it names topic u; the partitions are t-0, t-1"),
        (PerSplit({T0: At(1), T1: At(1)}, {"u": Earliest()}), "it names topic u; the partitions are t-0, t-1"),
        (PerSplit({Split("u", 0): At(1)}, {"t": Earliest()}), "it lists u-0; the partitions are t-0, t-1"),
        (PerSplit({}, {"u": Earliest()}), "it does not list t-0, t-1 and names topic u"),
    ],
)
def test_a_topic_that_is_not_read_is_refused(rule: PerSplit, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        resolve(policy(rule), {T0, T1}, LOGS)
    assert message in str(caught.value)


@pytest.mark.spark_case("KafkaOffsetReaderSuite", "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED error class")
def test_times_that_do_not_fit_the_partitions_have_a_condition_of_their_own() -> None:
    with pytest.raises(OptionError) as caught:
        resolve(policy(PerSplit({T0: AtTime(Millis(1))})), {T0, T1}, LOGS)
    assert str(caught.value).startswith("[KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED] ")


def test_a_stream_begins_at_latest_unless_asked_otherwise() -> None:
    assert start_of_stream(None, None).rule == Everywhere(Latest())
    given = policy(Everywhere(Earliest()))
    assert start_of_stream(given, None) is given


def test_a_stream_has_no_end() -> None:
    end = PositionPolicy("endingTimestamp", "9", Everywhere(AtTime(Millis(9))), NoMatch.LATEST)
    with pytest.raises(OptionError, match=r'option endingTimestamp = "9": not supported in a stream: .*AvailableNow'):
        start_of_stream(None, end)
