"""The option table of ``aligned-kafka``: what is accepted, what comes out, and what each error states."""

from __future__ import annotations

import pickle
import re

import pytest

from pyspark_aligned_kafka import DefaultSource
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.options.kafka_option_table import FORMAT, KAFKA_COLUMNS, KAFKA_OPTIONS, OPTION_TABLE
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions, parse
from pyspark_aligned_kafka.options.positions import (
    At,
    AtTime,
    Earliest,
    Everywhere,
    Latest,
    NoMatch,
    OffsetRetries,
    PerSplit,
)
from pyspark_aligned_kafka.options.subscription import Assign, Subscribe, SubscribePattern
from pyspark_aligned_kafka.records.event_time_choice import EventTimeChoice, Format, InHeader, InTimestamp
from pyspark_aligned_kafka.source import KafkaSource
from watermark_source.errors import OptionError, UnknownOptionError
from watermark_source.planning.policy import AfterCatchUp, MinimumRows
from watermark_source.planning.split import Split
from watermark_source.planning.strategy import Punctuated
from watermark_source.planning.watermark import Millis

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
T0, T1 = Split("t", 0), Split("t", 1)


def parsed(**given: str) -> KafkaOptions:
    return parse({**SERVERS, "subscribe": "t", **given})


def refusal(given: dict[str, str]) -> OptionError:
    with pytest.raises(OptionError) as caught:
        parse(given)
    return caught.value


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    options = parsed()
    assert (options.start, options.end) == (None, None)
    assert options.fail_on_data_loss is True
    assert options.limits.most is None
    assert options.poll_timeout_ms == 120_000
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert options.client.read_committed is False
    assert options.engine.source_name == FORMAT == "aligned-kafka"


def test_names_ignore_case() -> None:
    options = parse({
        "KAFKA.Bootstrap.Servers": "localhost:9092", "SUBSCRIBE": "t", "FAILONDATALOSS": "FALSE",
        "startingoffsets": "EARLIEST", "KafkaConsumer.PollTimeoutMs": "7",
    })  # fmt: skip
    assert options.fail_on_data_loss is False
    assert options.start is not None
    assert options.start.rule == Everywhere(Earliest())
    assert options.poll_timeout_ms == 7


def test_nothing_is_committed_unless_a_group_is_named() -> None:
    assert parsed().commit_group is None
    assert parsed(commitGroupId=" checkout ").commit_group == "checkout"
    assert "longer than 32767 bytes" in str(refusal({**SERVERS, "subscribe": "t", "commitGroupId": "ü" * 16_384}))


def test_options_are_picklable() -> None:
    options = parsed(startingOffsets='{"t":{"0":23,"1":-2}}')
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("subscribe", " a, b ,,", Subscribe(frozenset({"a", "b"}))),
        ("subscribePattern", "a.*", SubscribePattern(re.compile("a.*", re.ASCII))),
        ("assign", '{"t":[0,1]}', Assign(frozenset({T0, T1}))),
    ],
)
def test_each_way_to_say_what_is_read(option: str, text: str, expected: object) -> None:
    assert parse({**SERVERS, option: text}).subscription == expected


def test_nothing_to_read_is_refused() -> None:
    error = refusal(SERVERS)
    assert "one of subscribe, subscribePattern and assign is needed" in str(error)
    assert error.example is not None


@pytest.mark.parametrize("second", [("subscribePattern", "a"), ("assign", '{"t":[0]}')])
def test_two_ways_to_say_what_is_read_are_refused(second: tuple[str, str]) -> None:
    error = refusal({**SERVERS, "subscribe": "t", second[0]: second[1]})
    assert (error.option, error.seen) == second
    assert "excludes subscribe" in str(error)


def test_bootstrap_servers_are_needed() -> None:
    error = refusal({"subscribe": "t"})
    assert error.option == "kafka.bootstrap.servers"
    assert error.example == "broker1:9092,broker2:9092"


@pytest.mark.parametrize(
    ("given", "option", "rule"),
    [
        ({"startingOffsets": "earliest"}, "startingOffsets", Everywhere(Earliest())),
        ({"startingOffsets": " Latest "}, "startingOffsets", Everywhere(Latest())),
        (
            {"startingOffsets": '{"t":{"0":5,"1":-2}}'},
            "startingOffsets",
            PerSplit({T0: At(5), T1: Earliest()}),
        ),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets", PerSplit({T0: Latest()})),
        (
            {"startingOffsets": '{"t":{"0":5},"u":"Earliest","v":"latest"}'},
            "startingOffsets",
            PerSplit({T0: At(5)}, {"u": Earliest(), "v": Latest()}),
        ),
        ({"startingOffsets": '{"t":"earliest"}'}, "startingOffsets", PerSplit({}, {"t": Earliest()})),
        ({"startingTimestamp": "1000"}, "startingTimestamp", Everywhere(AtTime(Millis(1000)))),
        ({"startingTimestamp": "1970-01-01T00:00:01"}, "startingTimestamp", Everywhere(AtTime(Millis(1000)))),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":1000}}'},
            "startingOffsetsByTimestamp",
            PerSplit({T0: AtTime(Millis(1000))}),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":1000}}', "startingOffsets": "earliest"},
            "startingOffsetsByTimestamp",
            PerSplit({T0: AtTime(Millis(1000))}),
        ),
        (
            {
                "startingTimestamp": "9",
                "startingOffsetsByTimestamp": '{"t":{"0":1000}}',
                "startingOffsets": "earliest",
            },
            "startingTimestamp",
            Everywhere(AtTime(Millis(9))),
        ),
    ],
)
def test_starting_options_and_which_one_wins(given: dict[str, str], option: str, rule: object) -> None:
    start = parsed(**given).start
    assert start is not None
    assert start.no_match is NoMatch.ERROR
    assert (start.option, start.rule) == (option, rule)


@pytest.mark.parametrize(
    ("given", "option", "rule"),
    [
        ({"endingOffsets": " LATEST "}, "endingOffsets", Everywhere(Latest())),
        ({"endingOffsets": '{"t":{"0":50,"1":-1}}'}, "endingOffsets", PerSplit({T0: At(50), T1: Latest()})),
        ({"endingOffsets": '{"t":"latest"}'}, "endingOffsets", PerSplit({}, {"t": Latest()})),
        (
            {"endingOffsetsByTimestamp": '{"t":{"0":1000}}', "endingOffsets": "latest"},
            "endingOffsetsByTimestamp",
            PerSplit({T0: AtTime(Millis(1000))}),
        ),
        (
            {"ENDINGTIMESTAMP": "9", "endingOffsetsByTimestamp": '{"t":{"0":1000}}', "endingOffsets": "latest"},
            "endingTimestamp",
            Everywhere(AtTime(Millis(9))),
        ),
    ],
)
def test_ending_options_and_which_one_wins(given: dict[str, str], option: str, rule: object) -> None:
    end = parsed(**given).end
    assert end is not None
    # The strategy is about where to begin; an end that nothing has reached is latest.
    assert (end.option, end.rule, end.no_match) == (option, rule, NoMatch.LATEST)


def test_an_option_that_does_not_win_is_checked_all_the_same() -> None:
    assert refusal({**SERVERS, "subscribe": "t", "startingTimestamp": "9", "startingOffsets": "often"}).option == (
        "startingOffsets"
    )


def test_strategy_for_timestamps_without_a_match() -> None:
    start = parsed(startingOffsetsByTimestampStrategy="LATEST", startingTimestamp="9").start
    assert start is not None
    assert start.no_match is NoMatch.LATEST


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("subscribe", "", "names no topic"),
        ("subscribe", " , ", "names no topic"),
        ("subscribe", "a b", '"a b" cannot be the name of a topic'),
        ("subscribePattern", "(", "not a regular expression"),
        ("subscribePattern", "", "is empty"),
        ("subscribePattern", "a{99999999999999999999}", "the repetition number is too large"),
        ("assign", "t", "not JSON"),
        ("assign", "[0]", "must be a JSON object of topics"),
        ("assign", "{}", "names no topic"),
        ("assign", '{"t":[]}', "names no partition"),
        ("assign", '{"t":[true]}', "holds true"),
        ("assign", '{"t":[-1]}', "holds -1"),
        ("assign", '{"t":0}', "must hold a list"),
        ("startingOffsets", "", "not JSON"),
        ("startingOffsets", "first", "not JSON"),
        ("startingOffsets", '{"t":5}', '"t" must hold an object of partition numbers'),
        ("startingOffsets", '{"t":"soon"}', '"t" has "soon", which is neither earliest nor latest'),
        ("startingOffsets", '{"t":null}', '"t" must hold an object of partition numbers'),
        ("startingOffsets", '{"t":{"0":-3}}', "t-0 has -3, and an offset is at least 0, or -2 or -1"),
        ("startingOffsets", '{"t":{"0":-1001}}', "t-0 has -1001"),
        ("startingOffsets", '{"t":{"0":true}}', "t-0 has true"),
        ("startingOffsets", '{"t":{"0":1.0}}', "t-0 has 1.0"),
        ("startingOffsets", '{"t":{"0":"1"}}', 't-0 has "1"'),
        ("startingOffsets", '{"t":{"x":1}}', 'the key "x", which is not a partition number'),
        ("startingOffsets", '{"t":{"-1":1}}', 'the key "-1"'),
        ("startingOffsets", '{"t":{"00":1}}', 'the key "00"'),
        ("startingOffsets", '{"t":{"0":1,"0":2}}', '"0" is there twice'),
        ("startingOffsets", '{"t":{"0":1}', "not JSON"),
        ("startingTimestamp", "", "milliseconds since the epoch"),
        ("startingTimestamp", "-1", "must be at least 0"),
        ("startingTimestamp", "10 parsecs ago", "not a duration: '10 parsecs'"),
        ("startingTimestamp", "1969-12-31", "before the epoch"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}', "t-0 has -1, which is before the epoch"),
        ("startingOffsetsByTimestamp", '{"t":"latest"}', '"t" must hold an object of partition numbers'),
        ("startingOffsetsByTimestampStrategy", "earliest", "must be error or latest"),
        ("endingOffsets", "first", "not JSON"),
        ("endingOffsets", '{"t":{"0":-3}}', "t-0 has -3, and an offset is at least 0, or -2 or -1"),
        ("endingTimestamp", "tomorrow", "or how long ago, such as 10 minutes ago"),
        ("endingOffsetsByTimestamp", '{"t":{"0":-1}}', "t-0 has -1, which is before the epoch"),
        ("maxOffsetsPerTrigger", "0", "must be at least 1"),
        ("maxOffsetsPerTrigger", "1_000", "not a whole number"),
        ("failOnDataLoss", "no", "must be true or false"),
        ("includeHeaders", "1", "must be true or false"),
        ("columns", "", '"" is none of them'),
        ("columns", "value,val", '"val" is none of them'),
        ("columns", "value,VALUE", "one is there twice"),
        ("eventTimeColumn", "value.ts", "must be timestamp"),
        ("eventTimeColumn", "timestamp or value:$.a", "timestamp is always there, and can only be the last one"),
        ("eventTimeColumn", r"value:$['\ud800']", "has half of a pair of surrogates"),
        ("eventTimeColumn", "m:f or value:$.a", "only value:, key: and header: can be alternatives"),
        ("kafkaConsumer.pollTimeoutMs", "2 minutes", "not a whole number"),
        ("maxDecompressedBatchBytes", "2147483648", "must be at most 2147483647"),
        ("commitGroupId", " ", "is empty"),
    ],
)
def test_an_error_says_option_value_what_is_accepted_and_an_example(option: str, text: str, message: str) -> None:
    given = {**SERVERS, "subscribe": "t", option: text}
    if option in ("assign", "subscribePattern"):
        del given["subscribe"]
    error = refusal(given)
    row = next(row for row in KAFKA_OPTIONS if row.name == option)
    assert (error.option, error.seen) == (option, text)
    assert str(error).startswith(f'option {option} = "{text}": {row.accepted}')
    assert message in str(error)
    assert str(error).endswith(f"for example {row.example}")


def test_a_pattern_nested_too_deeply_is_refused() -> None:
    error = refusal({**SERVERS, "subscribePattern": "(" * 1_000 + ")" * 1_000})
    assert "is nested too deeply" in str(error)


@pytest.mark.parametrize("row", OPTION_TABLE.options, ids=lambda row: row.name)
def test_the_example_of_every_option_is_accepted(row: object) -> None:
    row.read(row.example)  # type: ignore[attr-defined]


def test_an_unknown_option_names_the_nearest_one() -> None:
    with pytest.raises(UnknownOptionError, match="nearest is startingOffsets"):
        parsed(startingOffset="latest")
    with pytest.raises(UnknownOptionError, match=r"nearest is kafka\.bootstrap\.servers"):
        parse({"bootstrap.servers": "localhost:9092", "subscribe": "orders"})
    with pytest.raises(UnknownOptionError, match=r"nearest is kafka\.bootstrap\.servers"):
        parse({"bootstrap": "localhost:9092", "subscribe": "orders"})
    with pytest.raises(UnknownOptionError, match="nearest is eventTimeColumn"):
        parsed(eventTime="value:$.at")


@pytest.mark.parametrize(
    ("place", "column"),
    [
        ({"eventTimeColumn": "value:$.after.at or value:$.before.at"}, "timestamp"),
        ({"eventTimeColumn": "value:$.ts_ms"}, None),
        ({}, None),
    ],
)
def test_a_deletion_that_is_dated_by_its_row_has_its_time_in_another_column(
    place: dict[str, str], column: str | None
) -> None:
    found = KafkaSource(kafka_options.parse({**SERVERS, "subscribe": "t", **place})).deletion_time_column
    assert found == column


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("value,event_time", ("value",)),
        ("value", ("value",)),
        ("event_time", ()),
        ("offset, KEY ,timestamptype", ("key", "offset", "timestampType")),
        (",".join(KAFKA_COLUMNS), KAFKA_COLUMNS),
    ],
)
def test_columns_keep_sparks_order(columns: str, expected: tuple[str, ...]) -> None:
    assert parsed(columns=columns).columns == expected


def test_headers_are_there_when_asked_for() -> None:
    assert parsed(includeHeaders="true").columns == KAFKA_COLUMNS
    assert parsed(includeHeaders="true", columns="value,headers").columns == ("value", "headers")


@pytest.mark.parametrize(
    ("include", "columns", "message"), [("true", "value", "leaves headers out"), ("false", "headers", "names headers")]
)
def test_headers_and_columns_must_not_contradict_each_other(include: str, columns: str, message: str) -> None:
    error = refusal({**SERVERS, "subscribe": "t", "includeHeaders": include, "columns": columns})
    assert error.option == "includeHeaders"
    assert message in str(error)


def test_the_engines_options_are_parsed_with_them() -> None:
    engine = parsed(maxOutOfOrderness="5 seconds", idleTimeout="1 minute", sourceName="orders").engine
    assert (engine.policy.strategy.bound, engine.policy.idleness.timeout, engine.source_name) == (
        5_000,
        60_000,
        "orders",
    )


def test_rows_are_held_by_sparks_options() -> None:
    assert parsed(minOffsetsPerTrigger="5", maxTriggerDelay="10s").limits.minimum == MinimumRows(5, Millis(10_000))
    assert parsed(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5").limits.minimum == MinimumRows(5, Millis(900_000))
    assert parsed(maxTriggerDelay="10s").limits.minimum is None


def test_the_least_must_not_be_more_than_the_most() -> None:
    error = refusal({**SERVERS, "subscribe": "t", "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"})
    assert error.option == "minOffsetsPerTrigger"
    assert "must not be more than maxOffsetsPerTrigger, which is 5" in str(error)


def test_stale_ends_are_looked_up_again_by_sparks_options() -> None:
    assert parsed().offset_retries == OffsetRetries(retries=3, interval_ms=1_000)
    options = parsed(**{"fetchOffset.numRetries": "0", "fetchOffset.retryIntervalMs": "7", "groupIdPrefix": "g"})
    assert options.offset_retries == OffsetRetries(retries=0, interval_ms=7)


def test_how_large_a_decompressed_batch_may_be_reaches_the_tasks() -> None:
    source = KafkaSource(kafka_options.parse({**SERVERS, "subscribe": "t", "maxDecompressedBatchBytes": "5000"}))
    assert source.range_reader.decompressed_max_bytes == 5_000  # type: ignore[attr-defined]
    assert source.observing_reader.decompressed_max_bytes == 5_000  # type: ignore[attr-defined]


PUNCTUATED = {"watermarkStrategy": "punctuated"}


def test_where_records_carry_a_watermark_is_reported_as_for_event_times() -> None:
    assert parsed().marks is None
    header = parsed(watermarkColumn="header:w", eventTimeFormat="seconds", **PUNCTUATED)
    assert header.marks == EventTimeChoice(InHeader("w"), Format.SECONDS)
    assert header.engine.policy.strategy == Punctuated()
    assert parsed(watermarkColumn="timestamp", **PUNCTUATED).marks == EventTimeChoice(InTimestamp())


@pytest.mark.parametrize(
    "given", [{}, {"eventTimeColumn": "timestamp"}, {"watermarkColumn": "timestamp", **PUNCTUATED}]
)
def test_what_errors_may_show_means_nothing_where_no_content_is_read(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="no meaning where times are the records' timestamps") as caught:
        parsed(recordsInErrors="false", **given)
    assert caught.value.option == "recordsInErrors"


@pytest.mark.parametrize("given", [{"eventTimeColumn": "header:t"}, {"watermarkColumn": "header:w", **PUNCTUATED}])
def test_what_errors_may_show_goes_with_each_place_in_records(given: dict[str, str]) -> None:
    times = parsed(recordsInErrors="false", **given)
    chosen = times.event_time if times.marks is None else times.marks
    assert chosen is not None
    assert not chosen.shows_records


@pytest.mark.parametrize(("given", "reported"), [
    ({}, None),
    ({"eventTimeColumn": "Timestamp", "watermarkStrategy": "ingestion"}, None),
    ({"eventTimeColumn": " value:$.a.b "}, "eventTimeColumn = value:$.a.b"),
    ({"eventTimeColumn": "value:$.a[0]  OR Key:$.b"}, "eventTimeColumn = value:$.a[0] or key:$.b"),
    ({"eventTimeColumn": "header:a or b"}, "eventTimeColumn = header:a or b"),
    ({"eventTimeColumn": "value:$.at or Timestamp "}, "eventTimeColumn = value:$.at or timestamp"),
    ({"eventTimeColumn": "times:of"}, "eventTimeColumn = times:of"),
    ({"watermarkColumn": "timestamp", **PUNCTUATED}, "watermarkColumn = timestamp"),
    ({"watermarkColumn": "header:w", "eventTimeColumn": "header:t", **PUNCTUATED},
     "eventTimeColumn = header:t, watermarkColumn = header:w"),
])  # fmt: skip
def test_what_time_is_goes_into_the_offset_as_the_user_says_it(given: dict[str, str], reported: str | None) -> None:
    assert KafkaSource(kafka_options.parse({**SERVERS, "subscribe": "t", **given})).event_time == reported


@pytest.mark.parametrize(("given", "option", "text"), [
    (PUNCTUATED, "watermarkColumn", "is needed because watermarkStrategy is punctuated"),
    ({"watermarkColumn": "header:w"}, "watermarkColumn", "belongs to watermarkStrategy punctuated"),
    ({**PUNCTUATED, "watermarkColumn": "watermark"}, "watermarkColumn", "must be timestamp, value: or key:"),
    ({**PUNCTUATED, "watermarkColumn": "timestamp", "eventTimeFormat": "millis"}, "eventTimeFormat", "no meaning w"),
])  # fmt: skip
def test_a_watermark_in_records_and_its_strategy_go_together(given: dict[str, str], option: str, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parsed(**given)
    assert caught.value.option == option
    assert text in str(caught.value)


def test_announcements_of_a_topic_are_in_a_topic_of_their_own() -> None:
    assert parsed().announced is None
    assert parsed(watermarkStrategy="announced").announced == "t"


ANNOUNCED = {**SERVERS, "watermarkStrategy": "announced"}


@pytest.mark.parametrize(("given", "option", "text"), [
    ({**ANNOUNCED, "subscribe": "a,b"}, "watermarkStrategy", "needs subscribe with one topic, and subscribe is a, b"),
    ({**ANNOUNCED, "subscribe": "b,a,c"}, "watermarkStrategy",
     'follow_watermark(reader.option("subscribe", "a").load()).unionByName(follow_watermark(reader.option("subsc'),
    ({**ANNOUNCED, "subscribePattern": "a.*"}, "watermarkStrategy", "and subscribePattern is a.*"),
    ({**ANNOUNCED, "assign": '{"a":[0]}'}, "watermarkStrategy", 'counts: .option("subscribe", "TOPIC") for each topic'),
    ({**ANNOUNCED, "assign": '{"a":[0]}'}, "watermarkStrategy", "and assign is a"),
    ({**ANNOUNCED, "subscribe": "a" * 245}, "watermarkStrategy", "longer than the 249 characters of a topic's name"),
    ({**ANNOUNCED, "subscribe": "a", "announcedIn": "b"}, "announcedIn", "in the topic's name and .watermarks"),
])  # fmt: skip
def test_announcements_about_anything_but_one_topic_are_refused(given: dict[str, str], option: str, text: str) -> None:
    error = refusal(given)
    assert error.option == option
    assert text in str(error)


def test_what_begins_once_a_topic_is_read_to_its_end_is_one_of_two() -> None:
    assert parsed().engine.policy.after_catch_up is None
    assert parsed(whenCaughtUp="watermark").engine.policy.after_catch_up is AfterCatchUp.WATERMARK
    assert parsed(whenCaughtUp="clock").engine.policy.after_catch_up is AfterCatchUp.CLOCK


FIRST, THEN_CLOCK = {"whenCaughtUp": "watermark"}, {"whenCaughtUp": "clock"}


@pytest.mark.parametrize(("given", "option", "text"), [
    ({**FIRST, "includeMarkers": "false"}, "includeMarkers", "markers carry the watermark"),
    ({**THEN_CLOCK, "includeMarkers": "false"}, "includeMarkers", "markers carry the watermark"),
    ({**THEN_CLOCK, "watermarkStrategy": "none"}, "whenCaughtUp", "time is the clock from the start"),
    ({**THEN_CLOCK, "finalWatermark": "true"}, "finalWatermark", "a clock has no end"),
])  # fmt: skip
def test_what_has_no_meaning_beside_reading_to_the_end_is_refused(
    given: dict[str, str], option: str, text: str
) -> None:
    error = refusal({**SERVERS, "subscribe": "t", **given})
    assert error.option == option
    assert text in str(error)


@pytest.mark.parametrize("start", [{}, {"startingOffsets": "latest"}])
def test_nothing_is_read_first_from_the_end_on(start: dict[str, str]) -> None:
    source = DefaultSource({**SERVERS, "subscribe": "t", **FIRST, **start})
    with pytest.raises(OptionError, match=r"startingOffsets = .latest.: cannot be with whenCaughtUp .*earliest"):
        source.check_stream(source.source_options(source.options))
    early = DefaultSource({**SERVERS, "subscribe": "t", **FIRST, "startingOffsets": "earliest"})
    early.check_stream(early.source_options(early.options))
