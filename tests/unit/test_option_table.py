"""Option tables: names, values, defaults and what their errors say."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from watermark_source.clock import Clock
from watermark_source.errors import OptionError, UnknownOptionError
from watermark_source.option_table import (
    Option,
    OptionTable,
    Renamed,
    _warn_once,
    a_duration,
    boolean,
    duration,
    host_name,
    non_empty,
    one_of,
    ports,
    positive_integer,
    time_millis,
    word,
)

WIDTH = Option(
    name="boxWidth", parse=positive_integer, default=3, accepted="must be a whole number", example="7", doc="Width."
)
TOKEN = Option(
    name="accessToken", parse=word(("open", "shut")), accepted="must be a token", example="open", doc="", secret=True
)
TABLE = OptionTable((WIDTH, TOKEN), prefixes=("client.",), family_names=("client.address",))


def test_values_come_by_the_tables_names_with_defaults() -> None:
    assert TABLE.parse({}) == {"boxWidth": 3, "accessToken": None}
    assert TABLE.parse({"BOXWIDTH": "5", "accesstoken": "OPEN"}) == {"boxWidth": 5, "accessToken": "open"}


def test_a_wrong_value_says_option_value_accepted_and_example() -> None:
    with pytest.raises(OptionError) as caught:
        TABLE.parse({"boxwidth": "0"})
    assert str(caught.value) == ('option boxWidth = "0": must be a whole number (must be at least 1), for example 7')


def test_a_row_of_words_says_which_and_gives_what_they_mean() -> None:
    row = one_of(name="lid", choices=("open", "ajar", "shut"), kind=str.upper, default="shut", example="open", doc="")
    assert (row.default, row.default_text, row.read(" Ajar ")) == ("SHUT", "shut", "AJAR")
    with pytest.raises(OptionError, match='lid = "up": must be open, ajar or shut, for example open'):
        row.read("up")


def test_a_default_that_is_no_value_is_had_by_leaving_the_option_out() -> None:
    row = Option(
        name="lidDelay", parse=duration(minimum=1), default_text="off", accepted="must be a time", example="1 s", doc=""
    )
    with pytest.raises(OptionError, match=r'lidDelay = "Off": must be a time .*; left out, it is off, for example 1 s'):
        row.read("Off")


def test_a_long_name_value_or_reason_is_cut() -> None:
    row = Option(name="box", parse=_echo, accepted="must be short", example="7", doc="")
    with pytest.raises(OptionError) as caught:
        row.read("x" * 5_000)
    assert "must be short (xxx" in str(caught.value)
    assert len(str(caught.value)) < 900
    with pytest.raises(OptionError, match=r"write it so\), for example"):
        row.read("the types " + "shop.Order in " * 20 + "itself: write it so")
    assert len(str(OptionError("x" * 5_000, None, "is needed"))) < 300


def _echo(text: str) -> None:
    raise ValueError(text)


def test_a_wrong_secret_is_not_shown() -> None:
    with pytest.raises(OptionError) as caught:
        TABLE.parse({"accessToken": "geheim"})
    assert str(caught.value) == 'option accessToken = "***": must be a token, for example open'
    assert "geheim" not in repr(caught.value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("boxWith", "boxWidth"),
        ("token", "accessToken"),
        ("address", "client.address"),
        # Its end is left out.
        ("acce", "accessToken"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownOptionError, match=f"option {name}: there is no such option; the nearest is {nearest}"):
        TABLE.parse({name: "1"})


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(UnknownOptionError, match=r"option zzz: there is no such option, and no similar one"):
        TABLE.parse({"zzz": "1"})


def test_an_option_that_is_needed_is_asked_for() -> None:
    folder = Option(name="folder", parse=str, needed=True, accepted="must be a path", example="/a", doc="")
    table = OptionTable((folder,))
    assert table.parse({"Folder": "/b"}) == {"folder": "/b"}
    with pytest.raises(OptionError, match=r"^option folder: is needed, for example /a$"):
        table.parse({})


def test_names_with_a_prefix_are_passed_on_unread() -> None:
    assert TABLE.parse({"Client.Anything": "1"}) == TABLE.parse({})


@pytest.mark.parametrize("name", ["path", "paths", "PATH"])
def test_what_spark_adds_by_itself_is_no_unknown_option(name: str) -> None:
    assert TABLE.parse({name: "x"}) == TABLE.parse({})


def test_an_error_keeps_its_parts_when_it_is_pickled() -> None:
    error = UnknownOptionError("a", "b", "must be c", example="d")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.option, copy.example) == (UnknownOptionError, str(error), "a", "d")


@pytest.mark.parametrize(("text", "value"), [("true", True), (" FALSE ", False)])
def test_booleans(text: str, value: bool) -> None:
    assert boolean(text) is value


@pytest.mark.parametrize("text", ["", "1", "yes", "on", "t", "none"])
def test_nothing_else_is_a_boolean(text: str) -> None:
    with pytest.raises(ValueError):
        boolean(text)


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1 000", "1_0", "٣", "9" * 20, "9" * 5_000, "x"])
def test_what_is_no_integer_of_at_least_one(text: str) -> None:
    with pytest.raises(ValueError):
        positive_integer(text)


@pytest.mark.parametrize(("text", "found"), [
    ("4040", range(4040, 4041)), (" 4040 - 4042 ", range(4040, 4043)), ("65535-65535", range(65_535, 65_536)),
])  # fmt: skip
def test_ports(text: str, found: range) -> None:
    assert ports(text) == found


@pytest.mark.parametrize("text", ["", "0", "65536", "5-4", "-5", "1-2-3", "1,2", "http", "1-65536", "4040-"])
def test_what_are_no_ports(text: str) -> None:
    with pytest.raises(ValueError):
        ports(text)


def test_a_word_keeps_the_tables_spelling() -> None:
    assert word(("PLAIN", "Scram"))(" scram ") == "Scram"


def test_blank_is_empty() -> None:
    assert non_empty(" a ") == "a"
    with pytest.raises(ValueError, match="is empty"):
        non_empty("  ")


@pytest.mark.parametrize(("minimum", "text", "message"), [
    (1, "0 ms", "must be greater than zero"),
    (100, "99 ms", "must be at least 100 ms"),
    (0, "5", "not a duration"),
])  # fmt: skip
def test_a_duration_below_its_minimum_is_refused(minimum: int, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        duration(minimum=minimum)(text)


@pytest.mark.parametrize(("limits", "text"), [
    ({}, ""),
    ({"minimum": "1 ms"}, ", greater than zero"),
    ({"minimum": "1 second"}, ", at least 1 second"),
    ({"minimum": "1 second", "maximum": "1 day"}, ", 1 second to 1 day"),
])  # fmt: skip
def test_a_row_of_a_duration_states_the_limits_that_it_enforces(limits: dict[str, str], text: str) -> None:
    row = a_duration(name="pause", example="5 seconds", doc="", default="2 seconds", **limits)
    assert row.accepted == f"must be a number and a unit (ms, seconds, minutes, hours, days){text}"
    assert (row.default, row.default_text, row.read("1 minute")) == (2_000, "2 seconds", 60_000)
    for refused in ("0 ms",) * bool(limits) + ("2 days",) * ("maximum" in limits):
        with pytest.raises(OptionError, match="must be a number and a unit"):
            row.read(refused)


def test_a_duration_at_its_minimum_is_accepted() -> None:
    assert duration(minimum=0)("0 ms") == 0
    assert duration(minimum=100)("100 ms") == 100


def test_an_error_shows_one_line_of_a_long_value() -> None:
    text = str(OptionError("boxes", "[1,\n" + "2," * 5_000, "must be few"))
    assert text.startswith('option boxes = "[1, 2,2,')
    assert len(text) < 300
    assert "\n" not in text


@pytest.mark.parametrize("text", ["db1", "db1.example.org", "192.0.2.1", "::1", "fe80::1%eth0", "bücher.example"])
def test_a_host_is_a_name_or_an_address(text: str) -> None:
    assert host_name(f" {text} ") == text


@pytest.mark.parametrize("text", ["", "db..example.org", f"{'k' * 64}.org", "a b", "http://db1", "user@db1"])
def test_what_no_resolver_can_be_asked_for_is_no_host(text: str) -> None:
    with pytest.raises(ValueError):
        host_name(text)


TABLE_OF_SPARK = {
    "provider": "aligned-kafka", "owner": "root", "option.boxwidth": "5", "boxWidth": "5", "comment": "mine",
    "collation": "UTF8_LCASE", "location": "file:/w/t",
}  # fmt: skip
"""As Spark 4.3 gives the options of a table."""


def test_what_spark_adds_to_the_options_of_a_table_is_no_option() -> None:
    assert TABLE.parse(TABLE_OF_SPARK)["boxWidth"] == 5
    hive = {"provider": "aligned-kafka", "path": "/w/t", "serialization.format": "1", "boxWidth": "5"}
    assert TABLE.parse(hive)["boxWidth"] == 5
    with pytest.raises(UnknownOptionError, match="boxwidht: there is no such option; the nearest is boxWidth"):
        TABLE.parse({**TABLE_OF_SPARK, "option.boxwidht": "5", "boxwidht": "5"})


@pytest.mark.parametrize(
    "name", ["owner", "provider", "comment", "location", "collation", "external", "option.boxwidth"]
)
def test_what_spark_adds_to_a_table_is_an_unknown_option_elsewhere(name: str) -> None:
    with pytest.raises(UnknownOptionError, match=name):
        TABLE.parse({name: "x", "boxWidth": "5"})
    if name not in ("owner", "provider"):
        with pytest.raises(UnknownOptionError, match=f"{name}|provider"):
            TABLE.parse({"provider": "x", name: "x", "boxWidth": "5"})


@pytest.mark.parametrize("options", [{}, {"option.accesstoken": "open", "accesstoken": "open"}])
def test_an_option_among_tblproperties_counts_and_nothing_else_passes_there(options: dict[str, str]) -> None:
    of_table = {"provider": "aligned-kafka", "owner": "root", **options}
    assert TABLE.parse({**of_table, "boxwidth": "5"})["boxWidth"] == 5
    with pytest.raises(UnknownOptionError, match="boxwidht: there is no such option; the nearest is boxWidth"):
        TABLE.parse({**of_table, "boxwidht": "5"})
    with pytest.raises(UnknownOptionError, match=r"qqq: .*a table's TBLPROPERTIES are read as its OPTIONS"):
        TABLE.parse({**of_table, "qqq": "mine"})
    with pytest.raises(UnknownOptionError, match=r"option\.boxwidth"):
        TABLE.parse({**of_table, "option.boxwidth": "5"})
    with pytest.raises(UnknownOptionError, match="comment"):
        TABLE.parse({**of_table, "option.comment": "c", "comment": "c"})


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("0", 0), ("1735689600000", 1735689600000), (" 2025-01-01 ", 1735689600000),
        ("2025-01-01T01:30:00+01:30", 1735689600000), ("2025-01-01T00:00:00.5Z", 1735689600500),
    ],
)  # fmt: skip
def test_a_time_is_milliseconds_or_iso_8601(text: str, millis: int) -> None:
    assert time_millis(text) == millis


@pytest.mark.parametrize(("text", "ago"), [("10 minutes ago", 600_000), ("1h 30min  AGO", 5_400_000), ("0 s ago", 0)])
def test_a_time_may_be_so_long_ago(text: str, ago: int) -> None:
    before = Clock().wall()
    millis = time_millis(text)
    assert before <= millis + ago <= Clock().wall()


def test_a_time_before_the_epoch_is_none_and_a_long_time_ago_is_the_epoch() -> None:
    assert time_millis("30000 days ago") == 0
    for text in ("-1", "1969-12-31T23:59:59Z"):
        with pytest.raises(ValueError, match=r"at least 0|before the epoch"):
            time_millis(text)


@pytest.mark.parametrize("text", ["", "ago", "yesterday", "10 ago", "ten minutes ago", "10 minutes", "2025-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^$|not a duration"):
        time_millis(text)


OLD = replace(
    TABLE,
    renamed=(
        Renamed("lidWidth", "boxWidth"),
        Renamed("doubleWidth", "boxWidth", {"true": "6", "false": None}),
        Renamed("lidColour", None, why="boxes have no lids"),
    ),
)


@pytest.mark.parametrize(
    ("given", "now", "line"),
    [
        (
            {"LIDwidth": "5"},
            {"boxWidth": "5"},
            'lidWidth is an option of earlier versions: write .option("boxWidth", "5")',
        ),
        ({"doubleWidth": " True "}, {"boxWidth": "6"}, 'write .option("boxWidth", "6")'),
        ({"doubleWidth": "false", "a": "b"}, {"a": "b"}, "doubleWidth is an option of earlier versions: leave it out"),
        ({"lidColour": "red"}, {}, "leave it out; boxes have no lids"),
        ({"option.lidwidth": "5", "lidwidth": "5"}, {"option.boxWidth": "5", "boxWidth": "5"}, '("boxWidth", "5")'),
        ({"lidWidth": "6", "doubleWidth": "true"}, {"boxWidth": "6"}, 'write .option("boxWidth", "6")'),
    ],
)
def test_an_option_of_earlier_versions_is_logged_once_with_the_line_to_write(
    given: dict[str, str], now: dict[str, str], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    _warn_once.cache_clear()
    assert OLD.current(given) == OLD.current(given) == now
    assert line in caplog.text
    assert len(caplog.records) == len({name.removeprefix("option.").lower() for name in given if "idth" in name.lower()
                                       or name == "lidColour"})  # fmt: skip


@pytest.mark.parametrize("given", [{"lidWidth": "5", "boxwidth": "4"}, {"lidWidth": "5", "doubleWidth": "true"}])
def test_an_option_that_is_given_by_two_names_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"is boxWidth now, which is given too, for example leave it out"):
        OLD.current(given)


PARTS = replace(
    TABLE,
    renamed=(Renamed("lidTop", "accessToken", joined=""), Renamed("lidRim", "accessToken", prefix=":", joined="")),
)


@pytest.mark.parametrize(
    ("given", "whole"),
    [({"lidTop": "a"}, "a"), ({"lidrim": "b"}, ":b"), ({"lidRim": "b", "lidTop": "a"}, "a:b")],
)
def test_parts_of_an_option_that_had_names_of_their_own_become_one_text(given: dict[str, str], whole: str) -> None:
    assert PARTS.current(given) == {"accessToken": whole}


def test_a_part_is_refused_beside_the_whole_option() -> None:
    with pytest.raises(OptionError, match=r"lidRim.*is accessToken now, which is given too"):
        PARTS.current({"lidRim": "b", "accesstoken": "a"})


def test_an_option_of_another_reader_that_changes_nothing_is_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _warn_once.cache_clear()
    table = replace(TABLE, without_effect={"boxOwner": "boxes belong to all"})
    assert "boxOwner" not in table.parse({"BOXOWNER": "me"})
    assert caplog.messages == ["boxOwner has no effect: boxes belong to all"]
