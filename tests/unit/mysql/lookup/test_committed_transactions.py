"""Ends before which all is committed, and the transactions before them, by the answers of a server."""

from __future__ import annotations

import pymysql
import pytest

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet, LogPosition, position_number
from pyspark_mysql_cdc_wm.lookup import binlog_search
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus
from pyspark_mysql_cdc_wm.lookup.committed_transactions import Transactions, has_gtids
from tests.unit.mysql.recorded_answers import Answer, RecordedConnection, in_turn
from watermark_source.errors import OffsetError, RefusedError, SourceError

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
END = position_number(5, 900)


def shown(offset: int, executed: str) -> list[tuple[object, ...]]:
    return [("binlog.000005", offset, "", "", f"{SERVER}:{executed}")]


def gtid(offset: int, number: int) -> tuple[object, ...]:
    return ("binlog.000005", offset - 79, "Gtid", 1, offset, f"SET @@SESSION.GTID_NEXT= '{SERVER}:{number}'")


def transactions(**more: Answer) -> tuple[Transactions, RecordedConnection]:
    answers: dict[str, Answer] = {
        "SHOW BINARY LOG STATUS": shown(900, "1-50"),
        "SELECT @@GLOBAL.gtid_owned": [("",)],
        "SELECT @@GLOBAL.gtid_purged": [("",)],
        "SELECT @@GLOBAL.log_bin_basename": [("binlog",)],
        "SELECT WAIT_FOR_EXECUTED_GTID_SET": [(0,)],
        "SHOW BINLOG EVENTS IN 'binlog.000005' LIMIT 2": [("", 126, "Previous_gtids", 1, 157, f"{SERVER}:1-47")],
        "SHOW BINLOG EVENTS IN 'binlog.000005' FROM 4 ": [gtid(236, 48), ("", 236, "Xid", 1, 267, ""), gtid(900, 49)],
        **more,
    }
    connection = RecordedConnection(answers)
    return Transactions(connection, LogStatus(connection)), connection


def known(found: Transactions, place: int) -> str:
    return str(found.before(place))


@pytest.mark.parametrize(
    ("shown_mode", "has"),
    [
        ([("gtid_mode", "ON")], True), ([("gtid_mode", "on")], True), ([("gtid_mode", "ON_PERMISSIVE")], False),
        ([("gtid_mode", "OFF")], False), ([], False),
    ],
)  # fmt: skip
def test_only_where_every_transaction_has_a_gtid_they_are_used(shown_mode: list[tuple[str, str]], has: bool) -> None:
    connection = RecordedConnection({"SHOW GLOBAL VARIABLES LIKE 'gtid_mode'": shown_mode})
    assert has_gtids(connection) is has
    assert (Transactions.of(connection, LogStatus(connection)) is not None) is has


def test_an_end_at_which_nothing_is_being_committed_has_the_executed_transactions() -> None:
    found, connection = transactions()
    assert found.newest_end() == (LogPosition(5, 900), True)
    assert known(found, END) == f"{SERVER}:1-50"
    assert not any("EVENTS" in statement for statement in connection.sent)
    # It is known from then on.
    connection.sent.clear()
    assert found.end() == LogPosition(5, 900)
    assert connection.sent == ["SHOW BINARY LOG STATUS"]


def test_an_end_that_moves_or_a_commit_under_way_is_tried_again() -> None:
    ends = in_turn(shown(700, "1-48"), shown(800, "1-49"), shown(900, "1-50"))
    owned = in_turn([("",)], [(f"{SERVER}:50#7",)], [("",)])
    found, _ = transactions(**{"SHOW BINARY LOG STATUS": ends, "SELECT @@GLOBAL.gtid_owned": owned})
    assert found.newest_end() == (LogPosition(5, 900), True)
    assert known(found, END) == f"{SERVER}:1-50"


def test_where_commits_never_pause_the_binlog_itself_is_read_up_to_the_end() -> None:
    found, connection = transactions(**{"SELECT @@GLOBAL.gtid_owned": [(f"{SERVER}:50#7",)]})
    assert found.newest_end() == (LogPosition(5, 900), True)
    # That of the file's beginning, and those that are listed before the end.
    assert known(found, END) == f"{SERVER}:1-49"
    assert connection.sent[-1].startswith("SELECT WAIT_FOR_EXECUTED_GTID_SET")


def test_the_list_is_read_from_the_nearest_known_position() -> None:
    listed: Answer = [gtid(900, 49)]
    found, connection = transactions(**{"SHOW BINLOG EVENTS IN 'binlog.000005' FROM 267 ": listed})
    found.remember(position_number(4, 4), GtidSet.parse(f"{SERVER}:1-20"))
    found.remember(position_number(5, 267), GtidSet.parse(f"{SERVER}:1-48"))
    assert known(found, END) == f"{SERVER}:1-49"
    assert not any("LIMIT 2" in statement for statement in connection.sent)


def test_a_list_that_is_behind_its_end_is_requested_again() -> None:
    listed = in_turn([gtid(236, 48)], [], [gtid(236, 48), gtid(900, 49), ("", 900, "Xid", 1, 931, "")])
    found, connection = transactions(**{"SHOW BINLOG EVENTS IN 'binlog.000005' FROM 4 ": listed})
    assert known(found, END) == f"{SERVER}:1-49"
    assert sum("FROM 4" in statement for statement in connection.sent) == 3


def refused(code: int) -> SourceError:
    error = SourceError("Error when executing command SHOW BINLOG EVENTS")
    error.__cause__ = pymysql.err.OperationalError(code, "")
    return error


def test_events_too_large_to_list_and_long_ranges_are_read_from_a_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []

    def between(_settings: object, _base: str, start: int, end: int) -> GtidSet:
        read.append((start, end))
        return GtidSet.parse(f"{SERVER}:48-49")

    monkeypatch.setattr(binlog_search, "transactions_between", between)
    found, _ = transactions(**{"SHOW BINLOG EVENTS IN 'binlog.000005' FROM 4 ": refused(1220)})
    assert known(found, END) == f"{SERVER}:1-49"
    far = position_number(5, 1_000_000)
    assert known(transactions()[0], far) == f"{SERVER}:1-49"
    assert read == [(LogPosition(5).number, END), (LogPosition(5).number, far)]
    other, _ = transactions(**{"SHOW BINLOG EVENTS IN 'binlog.000005' FROM 4 ": refused(1045)})
    with pytest.raises(SourceError, match="Error when executing"):
        other.before(END)


def test_a_server_that_lost_what_was_read_is_refused_at_the_next_end() -> None:
    found, _ = transactions()
    found.remember(position_number(5, 500), GtidSet.parse(f"{SERVER}:1-60"))
    with pytest.raises(OffsetError, match=rf"does not have \(any more\): {SERVER}:51-60"):
        found.end()


def test_the_last_four_positions_are_remembered() -> None:
    found, _ = transactions(**{"SHOW BINLOG EVENTS IN 'binlog.000005' LIMIT 2": RefusedError("read again")})
    for number in range(1, 6):
        found.remember(position_number(5, 100 * number), GtidSet.parse(f"{SERVER}:1-{number}"))
    assert [known(found, position_number(5, 100 * number)) for number in (2, 5)] == [f"{SERVER}:1-2", f"{SERVER}:1-5"]
    with pytest.raises(RefusedError, match="read again"):
        found.before(position_number(5, 100))
