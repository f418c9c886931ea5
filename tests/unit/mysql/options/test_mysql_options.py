"""The options of ``mysql-cdc-wm``: what is refused without connecting, and what the others mean."""

from __future__ import annotations

import re

import pytest

from pyspark_mysql_cdc_wm.binlog.statement_effects import LoggedStatements, Unlogged
from pyspark_mysql_cdc_wm.options import mysql_options
from pyspark_mysql_cdc_wm.options.mysql_option_table import NOT_NEEDED_HERE
from pyspark_mysql_cdc_wm.options.start import StartAt, StartAtTime, StartMode
from watermark_source.errors import OptionError, UnknownOptionError
from watermark_source.planning.strategy import ProcessingTime

GIVEN = {"hostname": "localhost", "port": "1", "username": "u", "password": "hidden", "tables": "shop.orders"}


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("tables", "orders", "not database.table"),
        ("tables", "shop.orders.*", r"in a regular expression for both is written \."),
        ("tables", "mysql.user", "tables of system databases are not read"),
        ("tables", r"shop\.(orders", "not a regular expression"),
        ("tables", "shop.%", "% is not a wildcard, write *"),
        ("tables", "shop.a, shop.a", "twice"),
        ("startingOffsets", "soon", 'earliest, latest, {"file":…,"position":…} or {"gtid":…}, for example'),
        ("startingOffsets", '{"gtid":"a:1"}', "'a' is not the UUID"),
        ("startingOffsets", '{"gtid":7}', "gtid must be a text"),
        ("startingOffsets", '{"file":"binlog.000001"}', "file and position"),
        ("startingOffsets", '{"file":"binlog","position":4}', "not the name of a binlog file"),
        ("startingOffsets", '{"file":"binlog.000001","position":1}', "from 4 to"),
        ("columns", "a,A", "twice"),
        ("minPartitions", "0", "at least 1"),
        ("maxRecordsPerPartition", "3", "has no meaning here"),
        ("lookaheadRows", "3", "has no meaning here: watermarkStrategy lookahead is not needed here: the source's log"),
        ("lookaheadRows", "3", "with eventTimeColumn it needs a log that can be read from any position on"),
        ("watermarkPercentile", "99", "watermarkStrategy percentile needs positions that count rows"),
        ("maxWatermarkLag", "3 s", "has no meaning here: watermarkStrategy ingestion is not needed here"),
        ("maxWatermarkLag", "3 s", "with eventTimeColumn it is not supported: its rows alone move the watermark"),
        ("whenCaughtUp", "clock", "has no meaning here"),
        ("startingTimestamp", "yesterday", "must be milliseconds since the epoch"),
        ("maxRowsPerTrigger", "0", "at least 1"),
        ("timeZone", "Berlin", "no such time zone is known here"),
        ("timeZone", "Europe/Berlin", "eventTimeColumn, which is not set"),
        *((name, "1", "is not needed") for name in NOT_NEEDED_HERE),
    ],
)
def test_what_cannot_work_is_refused_without_connecting(option: str, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=rf"option {option} = .*{re.escape(message)}") as refused:
        mysql_options.parse({**GIVEN, option: text})
    assert "hidden" not in str(refused.value)


def test_the_clock_is_asked_for_by_the_strategy_or_the_option_of_earlier_versions() -> None:
    earlier = {"useProcessingTimeDuringBinlog": "true"}
    for clock in ({"watermarkStrategy": "none"}, earlier, {"watermarkStrategy": "none", **earlier}):
        assert mysql_options.parse({**GIVEN, **clock}).engine.policy.strategy == ProcessingTime()
    with pytest.raises(OptionError, match=r"useProcessingTimeDuringBinlog.*: is watermarkStrategy now, which is given"):
        mysql_options.parse({**GIVEN, "watermarkStrategy": "bounded", **earlier})


def test_time_may_move_on_while_nothing_is_written() -> None:
    assert mysql_options.parse({**GIVEN, "watermarkInterval": "5 seconds"}).engine.policy.watermark_interval == 5_000


@pytest.mark.parametrize(("column", "text"), [({}, "is not needed here"), ({"eventTimeColumn": "at"}, "not supported")])
def test_ingestion_watermarks_are_for_logs_without_a_clock_of_their_own(column: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=f"option watermarkStrategy = .ingestion.: .*{text}"):
        mysql_options.parse({**GIVEN, **column, "watermarkStrategy": "ingestion", "maxOutOfOrderness": "1 minute"})


@pytest.mark.parametrize(
    ("strategy", "by_commit", "by_column"),
    [
        ("percentile", "needs positions that count rows", "needs positions that count rows"),
        ("punctuated", "those of this source carry none", "those of this source carry none"),
        ("announced", "is not needed here", "the writers of this source's data have none"),
        ("lookahead", "is not needed here", "needs a log that can be read from any position on"),
    ],
)
def test_a_strategy_of_records_is_refused_with_a_column_too(strategy: str, by_commit: str, by_column: str) -> None:
    with pytest.raises(OptionError, match=f"option watermarkStrategy = .{strategy}.: .*{by_column}"):
        mysql_options.parse({**GIVEN, "eventTimeColumn": "at", "watermarkStrategy": strategy})
    with pytest.raises(OptionError, match=f"option watermarkStrategy = .{strategy}.: .*{by_commit}"):
        mysql_options.parse({**GIVEN, "watermarkStrategy": strategy})


@pytest.mark.parametrize("name", ["hostname", "username", "tables"])
def test_what_is_needed_is_asked_for(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: is needed"):
        mysql_options.parse({key: text for key, text in GIVEN.items() if key != name})


def test_an_unknown_option_learns_its_nearest() -> None:
    with pytest.raises(UnknownOptionError, match="nearest is startingOffsets"):
        mysql_options.parse({**GIVEN, "startingOffset": "latest"})


def test_an_unknown_option_like_no_other_learns_the_page_of_this_source() -> None:
    with pytest.raises(UnknownOptionError, match=r"docs/mysql-options\.md"):
        mysql_options.parse({**GIVEN, "zzz": "1"})


@pytest.mark.parametrize(("name", "ours"), [("server-id", "serverId"), ("heartbeat.interval", "heartbeatInterval")])
def test_options_of_flink_cdc_are_known_by_its_own_spelling(name: str, ours: str) -> None:
    with pytest.raises(OptionError, match=f"option {ours} = .*is not needed"):
        mysql_options.parse({**GIVEN, name: "1"})


def test_the_password_is_in_no_text_of_the_options() -> None:
    assert "hidden" not in repr(mysql_options.parse(GIVEN))


def test_where_to_begin() -> None:
    assert mysql_options.parse(GIVEN).start is StartMode.INITIAL
    given = {**GIVEN, "startingOffsets": '{"file":"binlog.000003","position":157}'}
    assert mysql_options.parse(given).start == StartAt("binlog.000003", 157)
    for text, millis in (("0", 0), ("1970-01-01T01:00:01+01:00", 1_000)):
        assert mysql_options.parse({**given, "startingTimestamp": text}).start == StartAtTime(millis)


@pytest.mark.parametrize(
    ("given", "columns", "unlogged"),
    [
        ({}, False, Unlogged()),
        ({"ignoredChanges": "Columns, tables"}, True, Unlogged(ignores_whole=True)),
        ({"ignoredChanges": "otherStatements"}, False, Unlogged(statements=LoggedStatements.OTHERS_IGNORED)),
        ({"ignoredChanges": "otherStatements,statements"}, False, Unlogged(statements=LoggedStatements.IGNORED)),
        (
            {"loggedStatementBehavior": "ignoreOtherTables", "schemaChangeBehavior": "ignore"},
            True,
            Unlogged(statements=LoggedStatements.OTHERS_IGNORED),
        ),
        (
            {"unloggedChangeBehavior": "ignore", "schemaChangeBehavior": "exception"},
            False,
            Unlogged(ignores_whole=True),
        ),
    ],
)
def test_one_option_lists_the_changes_that_are_ignored(
    given: dict[str, str], columns: bool, unlogged: Unlogged
) -> None:
    options = mysql_options.parse({**GIVEN, **given})
    assert (options.ignores_new_columns, options.unlogged) == (columns, unlogged)


@pytest.mark.parametrize("text", ["", "rows", "columns;tables"])
def test_what_names_no_kind_of_change_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="must be a comma list of columns, tables, statements and otherStatements"):
        mysql_options.parse({**GIVEN, "ignoredChanges": text})
