"""The options every source has: defaults, and combinations that are refused."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from watermark_source.errors import OptionError
from watermark_source.option_table import OptionTable
from watermark_source.planning.announced import AnnouncedBy
from watermark_source.planning.policy import GroupHold
from watermark_source.planning.strategy import (
    Abilities,
    Announced,
    Bounded,
    Ingestion,
    LookAhead,
    Percentile,
    ProcessingTime,
)
from watermark_source.spark.option_rows import ENGINE_OPTIONS, NOT_NEEDED
from watermark_source.spark.options import EngineOptions, ReportOptions
from watermark_source.spark.strategy_rows import STRATEGIES, StrategyRow

TABLE = OptionTable(ENGINE_OPTIONS, not_needed=NOT_NEEDED)
ABLE = Abilities(marks=True, row_positions=True, rows_ahead=True, announcements=True)


def parsed(**given: str) -> EngineOptions:
    return EngineOptions.of(TABLE.parse(given), format_name="some-format", given=given, abilities=ABLE)


def refusal(**given: str) -> OptionError:
    with pytest.raises(OptionError) as caught:
        parsed(**given)
    return caught.value


def test_defaults() -> None:
    options = parsed()
    assert options.source_name == "some-format"
    assert options.policy.strategy == Bounded(0)
    assert options.policy.idleness.timeout is None
    assert options.group is None
    assert options.policy.sends_markers is True


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"watermarkStrategy": "none"}, "has no meaning with watermarkStrategy none: the watermark is the clock"),
        ({"includeMarkers": "false"}, "has no meaning with includeMarkers false"),
    ],
)
def test_a_warning_that_never_comes_cannot_be_set(given: dict[str, str], why: str) -> None:
    error = refusal(watermarkWarningAfter="5 minutes", **given)
    assert (error.option, error.seen) == ("watermarkWarningAfter", "5 minutes")
    assert why in str(error)
    parsed(**given)


@pytest.mark.parametrize(("given", "missing"), [
    ({"alignmentGroup": "g"}, "alignmentMaxDrift"),
    ({"alignmentMaxDrift": "1 minute"}, "alignmentGroup"),
])  # fmt: skip
def test_group_and_drift_go_together(given: dict[str, str], missing: str) -> None:
    error = refusal(**given)
    assert error.option == missing
    assert f"is needed because {next(iter(given))} is set" in str(error)
    assert error.example is not None


def test_who_only_follows_its_group_needs_no_drift() -> None:
    options = parsed(alignmentGroup="g", idleFollows="group", idleTimeout="5 seconds")
    assert options.policy.idleness.follows_group
    assert options.policy.alignment.max_drift is None
    assert options.group is not None


@pytest.mark.parametrize(("name", "logged"), [("g" * 191, "has 191 characters"), ("g\0", "has a NUL")])
def test_a_groups_name_is_one_that_every_database_takes(name: str, logged: str) -> None:
    error = refusal(alignmentGroup=name, alignmentMaxDrift="1 minute")
    assert error.option == "alignmentGroup"
    assert f"must be a name of at most 190 characters ({logged})" in str(error)


@pytest.mark.parametrize("strategy", ["monotonous", "none"])
def test_out_of_orderness_belongs_to_the_bounded_strategy(strategy: str) -> None:
    error = refusal(watermarkStrategy=strategy, MAXOUTOFORDERNESS="5 seconds")
    assert (error.option, error.seen) == ("maxOutOfOrderness", "5 seconds")
    assert f"the strategy is {strategy}" in str(error)


@pytest.mark.parametrize(("given", "strategy"), [
    ({}, "bounded"),
    ({"watermarkStrategy": "monotonous"}, "monotonous"),
])  # fmt: skip
def test_the_clocks_interval_belongs_to_strategy_none(given: dict[str, str], strategy: str) -> None:
    error = refusal(WATERMARKINTERVAL="5 seconds", **given)
    assert (error.option, error.seen) == ("watermarkInterval", "5 seconds")
    assert f"the strategy is {strategy}" in str(error)
    assert parsed(watermarkInterval="5 seconds", watermarkStrategy="none").policy.watermark_interval == 5_000


def test_looking_ahead_has_a_band_and_a_bound() -> None:
    ahead = parsed(watermarkStrategy="lookahead", maxOutOfOrderness="5 seconds")
    assert ahead.policy.strategy == LookAhead(rows_ahead=200_000, bound=5_000)
    assert parsed(watermarkStrategy="lookahead", lookaheadRows="7").policy.strategy == LookAhead(rows_ahead=7)


@pytest.mark.parametrize(("given", "option", "logged"), [
    ({"lookaheadRows": "5"}, "lookaheadRows", "belongs to watermarkStrategy lookahead, and the strategy is bounded"),
    ({"lookaheadRows": "5", "watermarkStrategy": "ingestion"}, "lookaheadRows", "the strategy is ingestion"),
    ({"lookaheadRows": "0", "watermarkStrategy": "lookahead"}, "lookaheadRows", "at least 1"),
    ({"watermarkStrategy": "lookahead", "idleReturn": "pass", "idleTimeout": "5 s"}, "idleReturn", "left out"),
])  # fmt: skip
def test_what_cannot_be_with_or_without_looking_ahead(given: dict[str, str], option: str, logged: str) -> None:
    error = refusal(**given)
    assert error.option == option
    assert logged in str(error)


def test_a_log_in_the_order_of_its_times_needs_no_looking_ahead() -> None:
    given = {"watermarkStrategy": "lookahead"}
    with pytest.raises(OptionError, match="in the order in which its system dates the rows"):
        EngineOptions.of(TABLE.parse(given), format_name="f", given=given, abilities=Abilities(dates_rows=True))


def test_ingestion_has_a_lag() -> None:
    assert parsed(watermarkStrategy="ingestion").policy.strategy == Ingestion(10_000)
    assert parsed(watermarkStrategy="ingestion", maxWatermarkLag="3 seconds").policy.strategy == Ingestion(3_000)
    applications = parsed(watermarkStrategy="ingestion", maxWatermarkLag="1 minute", maxOutOfOrderness="20 seconds")
    assert applications.policy.strategy == Ingestion(60_000, 20_000)
    assert parsed(watermarkStrategy="ingestion", watermarkInterval="5 seconds").policy.watermark_interval == 5_000


@pytest.mark.parametrize(("given", "option", "text"), [
    ({"maxWatermarkLag": "1 second"}, "maxWatermarkLag", "belongs to watermarkStrategy ingestion"),
    ({"maxWatermarkLag": "1 second", "watermarkStrategy": "none"}, "maxWatermarkLag", "and the strategy is none"),
    ({"maxOutOfOrderness": "20 seconds", "watermarkStrategy": "ingestion"}, "maxOutOfOrderness",
     "must not exceed maxWatermarkLag, which is 10 s"),
])  # fmt: skip
def test_what_does_not_go_with_a_lag_is_refused(given: dict[str, str], option: str, text: str) -> None:
    error = refusal(**given)
    assert error.option == option
    assert text in str(error)


def test_a_learned_bound_has_a_wish_and_an_upper_bound() -> None:
    plain = parsed(watermarkStrategy="percentile", maxOutOfOrderness="10 minutes")
    assert plain.policy.strategy == Percentile(on_time=999_000, rows=100_000, most=600_000)
    assert plain.policy.strategy.bound == 600_000
    chosen = parsed(watermarkStrategy="PERCENTILE", maxOutOfOrderness="1 hour", watermarkPercentile="95 %")
    assert chosen.policy.strategy == Percentile(on_time=950_000, rows=2_000, most=3_600_000)
    assert parsed(maxOutOfOrderness="10 minutes").policy.strategy == Bounded(600_000)


PERCENTILE = {"watermarkStrategy": "percentile", "maxOutOfOrderness": "10 minutes"}


@pytest.mark.parametrize(("given", "option", "text"), [
    ({"watermarkPercentile": "99"}, "watermarkPercentile", "belongs to watermarkStrategy percentile"),
    ({"watermarkStrategy": "percentile"}, "maxOutOfOrderness", "it is the largest bound that may be learned"),
    ({"watermarkStrategy": "percentile", "maxOutOfOrderness": "0 ms"}, "maxOutOfOrderness", "is needed"),
    ({**PERCENTILE, "maxRecordsPerPartition": "65535"}, "maxRecordsPerPartition", "must be at least 65536 with"),
    ({**PERCENTILE, "watermarkPercentile": "100"}, "watermarkPercentile", "must be at least 50 and less than 100"),
    ({**PERCENTILE, "watermarkPercentile": "nan"}, "watermarkPercentile", "at least 50"),
    ({**PERCENTILE, "watermarkPercentile": "most"}, "watermarkPercentile", "not a number"),
    ({**PERCENTILE, "watermarkPercentile": "99.99999"}, "watermarkPercentile", "more than four digits"),
    ({"watermarkStrategy": "punctuated", "maxOutOfOrderness": "1 s"}, "maxOutOfOrderness", "belongs to watermarkStr"),
])  # fmt: skip
def test_what_does_not_go_with_a_learned_bound_is_refused(given: dict[str, str], option: str, text: str) -> None:
    error = refusal(**given)
    assert error.option == option
    assert re.search(text, str(error))


ABILITIES = [each.name for each in fields(Abilities)]


def test_the_option_of_strategies_names_and_accepts_each() -> None:
    (row,) = (row for row in ENGINE_OPTIONS if row.name == "watermarkStrategy")
    names = [each.name for each in STRATEGIES]
    assert [row.parse(name) for name in names] == names
    assert re.findall(r"`(\w+)`: ", row.doc) == names


@pytest.mark.parametrize("ability", [None, *ABILITIES])
@pytest.mark.parametrize("row", STRATEGIES, ids=lambda row: row.name)
def test_a_strategy_that_a_connector_cannot_serve_is_refused(row: StrategyRow, ability: str | None) -> None:
    strategy = row.name
    given = {"watermarkStrategy": strategy} | ({"maxOutOfOrderness": "1 minute"} if strategy == "percentile" else {})
    abilities = Abilities() if ability is None else Abilities(**{ability: True})
    needless = ability == "dates_rows" and row.kind.needless_where_dated is not None
    if not needless and row.kind.needs.keys() <= {ability}:
        EngineOptions.of(TABLE.parse(given), format_name="some-format", given=given, abilities=abilities)
        return
    with pytest.raises(OptionError, match="is not needed here" if needless else "needs .* this source") as refused:
        EngineOptions.of(TABLE.parse(given), format_name="some-format", given=given, abilities=abilities)
    assert (refused.value.option, refused.value.seen, refused.value.example) == (
        "watermarkStrategy", strategy, "bounded"
    )  # fmt: skip


@pytest.mark.parametrize("given", [
    {"alignmentMaxDrift": "1 minute", "alignmentGroup": "g"},
    {"idleTimeout": "1 minute"},
    {"maxFutureSkew": "1 minute"},
])  # fmt: skip
def test_without_event_time_there_is_neither_drift_nor_idleness_nor_a_future(given: dict[str, str]) -> None:
    assert refusal(watermarkStrategy="none", **given).option == next(iter(given))


def test_on_the_clock_no_one_can_wait_for_a_first_row() -> None:
    given = {"alignmentGroup": "g", "alignmentHold": "firstWatermark"}
    assert refusal(watermarkStrategy="none", **given).option == "alignmentHold"
    assert parsed(alignmentMaxDrift="1 minute", **given).policy.alignment.hold is GroupHold.FIRST_WATERMARK


def test_strategy_none_is_processing_time() -> None:
    assert parsed(watermarkStrategy="NONE").policy.strategy == ProcessingTime()


@pytest.mark.parametrize(("name", "text"), [
    ("idleTimeout", "0 seconds"), ("idleTimeout", "-1 seconds"), ("idleTimeout", "soon"),
    ("maxOutOfOrderness", "5"), ("alignmentMaxDrift", "2 min utes"), ("watermarkInterval", "0 ms"),
])  # fmt: skip
def test_durations_that_are_none_or_not_positive_are_refused_at_once(name: str, text: str) -> None:
    error = refusal(**{name: text})
    assert (error.option, error.seen) == (name, text)
    assert "a number and a unit" in str(error)
    assert error.example is not None


@pytest.mark.parametrize("row", ENGINE_OPTIONS, ids=lambda row: row.name)
def test_the_example_of_every_option_is_accepted(row: object) -> None:
    row.read(row.example)  # type: ignore[attr-defined]


GROUP = {"alignmentGroup": "g", "alignmentMaxDrift": "1 minute"}


@pytest.mark.parametrize(("given", "missing"), [
    ({"alignmentStore": "driver"}, "alignmentGroup"),
    ({"alignmentStore": "none"}, "alignmentGroup"),
    ({"alignmentMembers": "2"}, "alignmentGroup"),
    ({"alignmentMembers": "2", "alignmentStore": "none", **GROUP}, "alignmentStore"),
    ({"idleFollows": "group", "idleTimeout": "5 s", "alignmentStore": "none", **GROUP}, "alignmentStore"),
    ({"watermarkStrategy": "none", "alignmentGroup": "g", "alignmentStore": "none"}, "alignmentStore"),
])  # fmt: skip
def test_what_concerns_other_sources_needs_a_place_where_they_meet(given: dict[str, str], missing: str) -> None:
    error = refusal(**given)
    assert (error.option, error.example is not None) == (missing, True)


def test_sources_of_a_group_meet_in_their_driver_unless_asked_otherwise() -> None:
    assert parsed().group is None

    def store(**given: str) -> str | None:
        group = parsed(**given).group
        assert group is not None
        return group.store

    assert store(**GROUP) == "driver"
    assert store(alignmentStore="Driver", **GROUP) == "driver"
    assert store(alignmentStore="None", **GROUP) is None
    assert store(watermarkStrategy="none", alignmentGroup="g") == "driver"


def test_a_store_is_looked_at_at_once_and_never_shown() -> None:
    assert "hidden" not in repr(parsed(alignmentStore="postgresql+psycopg://user:hidden@host/db", **GROUP))
    assert "hidden" not in str(refusal(alignmentStore="sqlite:////tmp/x?password=hidden", **GROUP))
    assert "hidden" not in str(refusal(alignmentStore="postgresql+nothing://user:hidden@host/db", **GROUP))


@pytest.mark.parametrize("name", NOT_NEEDED)
def test_an_option_of_flink_that_has_no_place_here_is_refused_with_the_reason(name: str) -> None:
    error = refusal(**{name.upper(): "1 second"})
    assert error.option == name
    assert NOT_NEEDED[name] in str(error)
    assert "leave it out" in str(error)


def test_an_idle_timeout_that_is_learned_has_a_longest() -> None:
    learned = parsed(idleTimeout="Auto")
    assert (learned.policy.idleness.timeout, learned.policy.idleness.learned) == (300_000, True)
    plain = parsed(idleTimeout="30 seconds")
    assert (plain.policy.idleness.timeout, plain.policy.idleness.learned) == (30_000, False)
    assert refusal(watermarkStrategy="none", idleTimeout="auto").option == "idleTimeout"


ANNOUNCED = {"watermarkStrategy": "announced"}


def test_announced_watermarks_follow_the_named_writers_at_an_interval_of_their_own() -> None:
    plain = parsed(**ANNOUNCED)
    assert plain.policy.strategy == Announced(AnnouncedBy())
    assert plain.policy.watermark_interval == 200
    chosen = parsed(**ANNOUNCED, announcedBy="a, b", writerTimeToLive="1 minute", watermarkInterval="1 second")
    assert chosen.policy.strategy == Announced(AnnouncedBy(frozenset({"a", "b"}), 60_000))
    assert chosen.policy.watermark_interval == 1_000
    assert parsed().policy.watermark_interval == 1_000


@pytest.mark.parametrize(("given", "option", "text"), [
    ({"announcedBy": "a"}, "announcedBy", "belongs to watermarkStrategy announced, and the strategy is bounded"),
    ({"writerTimeToLive": "1 minute"}, "writerTimeToLive", "belongs to watermarkStrategy announced"),
    ({**ANNOUNCED, "announcedBy": " , "}, "announcedBy", "comma list of the names of writers"),
    ({**ANNOUNCED, "announcedBy": "a,b\nc"}, "announcedBy", "no writer can have the name 'b"),
    ({**ANNOUNCED, "announcedBy": "a" * 256}, "announcedBy", "no writer can have the name 'aaa"),
    ({**ANNOUNCED, "maxOutOfOrderness": "1 s"}, "maxOutOfOrderness", "and the strategy is announced"),
    ({**ANNOUNCED, "idleTimeout": "1 s"}, "idleTimeout", "a writer that is silent does, and writerTimeToLive ends"),
    ({**ANNOUNCED, "idleReturn": "pass"}, "idleReturn", "a writer that comes back is waited for"),
    ({**ANNOUNCED, "idleFollows": "group"}, "idleFollows", "no partition is idle"),
    ({**ANNOUNCED, "alignmentMaxDrift": "1 s"}, "alignmentGroup", "is needed because alignmentMaxDrift is set"),
    ({**ANNOUNCED, "alignmentGroup": "g"}, "alignmentMaxDrift", "is needed because alignmentGroup is set"),
])  # fmt: skip
def test_what_does_not_go_with_announced_watermarks_is_refused(given: dict[str, str], option: str, text: str) -> None:
    error = refusal(**given)
    assert error.option == option
    assert text in str(error)


@pytest.mark.parametrize(
    ("text", "host", "ports"),
    [
        ("driver.example.org", "driver.example.org", None),
        ("driver.example.org:40000-40015", "driver.example.org", range(40_000, 40_016)),
        (":40000", None, range(40_000, 40_001)),
        ("[fe80::1]:40000", "fe80::1", range(40_000, 40_001)),
    ],
)
def test_executors_report_to_a_host_to_ports_or_to_both(text: str, host: str | None, ports: range | None) -> None:
    assert parsed(reportAddress=text).reports == ReportOptions(host, ports)


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "is empty"), ("fe80::1", "an IPv6 address is in brackets"), (":0", "at least 1"), ("a b", "host")],
)
def test_what_is_no_address_of_reports_is_refused(text: str, why: str) -> None:
    assert why in str(refusal(reportAddress=text))
