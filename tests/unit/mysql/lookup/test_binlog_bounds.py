"""Where a new query begins in the binlog, and which starts are refused, by the answers of a server."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG, GtidSet, LogPosition, position_number
from pyspark_mysql_cdc_wm.lookup import binlog_search
from pyspark_mysql_cdc_wm.lookup.binlog_bounds import BinlogBounds
from pyspark_mysql_cdc_wm.lookup.binlog_search import FileBegin
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions
from pyspark_mysql_cdc_wm.lookup.time_index import BinlogTimeIndex
from pyspark_mysql_cdc_wm.options.start import Start, StartAfter, StartAt, StartAtTime, StartMode
from tests.unit.mysql.recorded_answers import Answer, RecordedConnection
from watermark_source.errors import DataLossError, OptionError, ResponseTimeoutError

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
NOW = 1_700_000_000_000
END = LogPosition(5, 900)
ANSWERS: dict[str, Answer] = {
    "SHOW BINARY LOG STATUS": [("binlog.000005", 900, "", "", f"{SERVER}:1-50")],
    "SHOW BINARY LOGS": [("binlog.000003", 500), ("binlog.000004", 500), ("binlog.000005", 900)],
    "SELECT @@GLOBAL.log_bin_basename": [("/data/binlog",)],
    "SELECT @@GLOBAL.gtid_purged": [(f"{SERVER}:1-9",)],
    "SELECT @@GLOBAL.gtid_owned": [("",)],
    "SELECT FLOOR(UNIX_TIMESTAMP": [(NOW,)],
    "SHOW BINLOG EVENTS IN 'binlog.000004' FROM 236 LIMIT 1": [("binlog.000004", 236, "Gtid", 1, 315, "")],
    "SHOW BINLOG EVENTS": [("binlog.000004", 400, "Query", 1, 480, "BEGIN")],
}


def bounds(
    start: Start,
    version: str = "9.7.4",
    *,
    gtids: bool = True,
    by_commit: bool = True,
    fails: bool = True,
    more: Mapping[str, Answer] | None = None,
) -> BinlogBounds:
    connection = RecordedConnection({**ANSWERS, **(more or {})}, version)
    status = LogStatus(connection)
    transactions = Transactions(connection, status) if gtids else None
    times = BinlogTimeIndex(connection, status, transactions)
    return BinlogBounds(status, transactions, times, start, by_commit=by_commit, fail_on_data_loss=fails)


def first(start: Start, *, gtids: bool = True, fails: bool = True) -> LogPosition:
    found = bounds(start, gtids=gtids, fails=fails).initial_positions(frozenset({BINLOG}))
    return LogPosition.of(found[BINLOG])


@pytest.mark.parametrize("gtids", [True, False])
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (StartMode.EARLIEST, LogPosition(3)),
        (StartMode.LATEST, END),
        (StartMode.INITIAL, END),
        (StartAt("binlog.000004", 236), LogPosition(4, 236)),
        # At the end itself no event begins yet.
        (StartAt("binlog.000005", 900), END),
    ],
)
def test_a_query_begins_where_its_option_states(start: Start, expected: LogPosition, gtids: bool) -> None:
    assert first(start, gtids=gtids) == expected


@pytest.mark.parametrize(
    ("start", "refusal"),
    [
        (StartAt("other.000004", 236), r"the server's files are named binlog\.000001 and so on"),
        (StartAt("binlog.000002", 4), r"binlog begins in binlog\.000003 and ends at binlog\.000005 position 900"),
        (StartAt("binlog.000005", 901), r"binlog begins in binlog\.000003 and ends at binlog\.000005 position 900"),
        (StartAt("binlog.000004", 400), "no transaction begins there; SHOW BINLOG EVENTS lists those that do"),
    ],
)
def test_a_position_that_the_server_does_not_have_is_refused(start: StartAt, refusal: str) -> None:
    with pytest.raises(OptionError, match=refusal):
        first(start)


@pytest.mark.parametrize(
    ("left_out", "refusal"),
    [
        ("1-50", None),
        ("1-9", None),
        ("1-8", f"no longer has all other transactions: purged are {SERVER}:9"),
        ("1-60", f"has not executed {SERVER}:51-60; it has executed {SERVER}:1-50"),
    ],
)
def test_a_set_to_begin_after_has_all_that_was_purged_and_nothing_that_was_not_executed(
    left_out: str, refusal: str | None
) -> None:
    start = StartAfter(GtidSet.parse(f"{SERVER}:{left_out}"))
    if refusal is None:
        assert first(start) == LogPosition(0, 0)
    else:
        with pytest.raises(OptionError, match=refusal):
            first(start)
    with pytest.raises(OptionError, match=r"has no GTIDs of MySQL's form \(gtid_mode\); give file and position"):
        first(start, gtids=False)


def begun_at(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    monkeypatch.setattr(binlog_search, "file_begin", lambda _, file: FileBegin(seconds, None))


def test_a_time_before_the_oldest_file_is_data_loss_if_files_were_purged(monkeypatch: pytest.MonkeyPatch) -> None:
    begun_at(monkeypatch, NOW // 1_000)
    with pytest.raises(DataLossError, match=r"begins later, in binlog\.000003, and earlier changes were purged"):
        first(StartAtTime(NOW))


@pytest.mark.parametrize(("purged", "gtids"), [(f"{SERVER}:1-9", True), ("", True), (f"{SERVER}:1-9", False)])
def test_a_time_before_the_first_file_is_data_loss_on_a_server_set_up_from_a_backup(
    monkeypatch: pytest.MonkeyPatch, purged: str, gtids: bool
) -> None:
    begun_at(monkeypatch, NOW // 1_000)
    monkeypatch.setattr(binlog_search, "first_committed_after", lambda *_: None)
    more: dict[str, Answer] = {"SHOW BINARY LOGS": [("binlog.000001", 500)], "SELECT @@GLOBAL.gtid_purged": [(purged,)]}
    found = bounds(StartAtTime(NOW), gtids=gtids, more=more)
    if purged and gtids:
        with pytest.raises(DataLossError, match=r"begins later, in binlog\.000001, and earlier changes were purged"):
            found.initial_positions(frozenset({BINLOG}))
    else:
        assert found.initial_positions(frozenset({BINLOG})) == {BINLOG: END.number}


def test_a_time_before_the_oldest_file_begins_with_it_where_that_is_accepted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun_at(monkeypatch, NOW // 1_000)
    searched: list[int] = []
    monkeypatch.setattr(binlog_search, "first_committed_after", lambda _s, _b, start, *_: searched.append(start))
    assert first(StartAtTime(NOW), fails=False) == END
    assert searched == [LogPosition(3).number]
    assert "failOnDataLoss=false: beginning with the oldest file" in caplog.text


def test_a_time_that_is_still_to_come_begins_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    begun_at(monkeypatch, 0)
    assert first(StartAtTime(NOW + 1)) == END


def test_the_ends_come_with_the_time_before_which_nothing_commits_any_more() -> None:
    found = bounds(StartMode.LATEST).current_ends(frozenset({BINLOG}))
    assert (found.positions, found.reached) == ({BINLOG: END.number}, {BINLOG: NOW})
    # Where event time is a column, the server's clock is no promise.
    assert bounds(StartMode.LATEST, by_commit=False).current_ends(frozenset({BINLOG})).reached == {}
    assert bounds(StartMode.LATEST).current_ends(frozenset()).positions == {}


def test_no_time_is_promised_while_a_transaction_before_the_end_is_not_committed() -> None:
    waits: dict[str, Answer] = {
        "SELECT @@GLOBAL.gtid_owned": [("3e11fa47-71ca-11e1-9e33-c80aa9429562:50#7",)],
        "SHOW BINLOG EVENTS IN 'binlog.000005' LIMIT 2": [("", 126, "Previous_gtids", 1, 157, f"{SERVER}:10-49")],
        "SHOW BINLOG EVENTS IN 'binlog.000005' FROM 4 ": [
            ("binlog.000005", 157, "Gtid", 1, 900, f"SET @@SESSION.GTID_NEXT= '{SERVER}:50'")
        ],
        "SELECT WAIT_FOR_EXECUTED_GTID_SET": [(1,)],
    }
    connection = RecordedConnection({**ANSWERS, **waits})
    status = LogStatus(connection)
    transactions = Transactions(connection, status)
    earlier = position_number(4, 236)
    transactions.remember(earlier, GtidSet.parse(f"{SERVER}:1-30"))
    times = BinlogTimeIndex(connection, status, transactions)
    found = BinlogBounds(
        status, transactions, times, StartMode.LATEST, by_commit=True, fail_on_data_loss=True
    ).current_ends(frozenset({BINLOG}))
    assert (found.positions, found.reached) == ({BINLOG: earlier}, {})
    # A query that knows no earlier end cannot go around it.
    with pytest.raises(
        ResponseTimeoutError, match=r"were not committed within 30 s; is the server waiting for a replica"
    ):
        bounds(StartMode.LATEST, more=waits).end_positions(frozenset({BINLOG}))
