"""Whether a SELECT sees all that the binlog has, by the answers of servers."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.lookup import committed_transactions
from pyspark_mysql_cdc_wm.lookup.committed_transactions import shows_all_of_its_end, wait_until_visible
from tests.unit.mysql.recorded_answers import Answer, RecordedConnection, in_turn
from watermark_source.errors import ResponseTimeoutError

MARIADB = "11.8.9-MariaDB"


def visible(file: str, offset: int) -> Answer:
    return [
        ("Binlog_snapshot_file", file),
        ("Binlog_snapshot_position", str(offset)),
        ("binlog_snapshot_gtid", "0-1-7"),
    ]


def mariadb(*seen: Answer) -> RecordedConnection:
    answers: dict[str, Answer] = {
        "SHOW MASTER STATUS": [("bin.000002", 500, "", "")],
        "START TRANSACTION WITH CONSISTENT SNAPSHOT": [],
        "SHOW STATUS LIKE 'binlog_snapshot_%'": in_turn(*seen),
        "ROLLBACK": [],
    }
    return RecordedConnection(answers, MARIADB)


def test_a_snapshot_waits_until_all_of_the_binlog_is_visible() -> None:
    connection = mariadb(visible("bin.000001", 900), visible("bin.000002", 499), visible("bin.000002", 500))
    wait_until_visible(connection)
    assert connection.sent.count("SHOW STATUS LIKE 'binlog_snapshot_%'") == 3
    assert connection.sent.count("SHOW MASTER STATUS") == 1


def test_what_stays_invisible_is_an_error_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_transactions, "_VISIBLE_SECONDS", 0)
    with pytest.raises(ResponseTimeoutError, match="from file 2 position 499 on were not committed within 0 s"):
        wait_until_visible(mariadb(visible("bin.000002", 499)))


@pytest.mark.parametrize(
    ("version", "mode", "shows"), [("9.7.4", "ON", True), ("9.7.4", "OFF", False), (MARIADB, "", True)]
)
def test_mysql_shows_all_before_its_ends_with_gtids_alone(version: str, mode: str, shows: bool) -> None:
    answers: dict[str, Answer] = {"SHOW GLOBAL VARIABLES LIKE 'gtid_mode'": [("gtid_mode", mode)]}
    assert shows_all_of_its_end(RecordedConnection(answers, version)) is shows
