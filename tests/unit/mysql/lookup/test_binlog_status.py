"""The end, the files and the events of a binlog, by the answers of servers."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet, LogPosition
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus, end_statement, replica_statement
from tests.unit.mysql.recorded_answers import Answer, RecordedConnection
from watermark_source.errors import RefusedError, SourceError, UnreachableError, UnsupportedFormatError

MARIADB = "11.8.9-MariaDB"
SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def status(answers: dict[str, Answer], version: str = "9.7.4") -> LogStatus:
    return LogStatus(RecordedConnection(answers, version))


@pytest.mark.parametrize(
    ("version", "end", "sources"),
    [
        ("8.0.21", "SHOW MASTER STATUS", "SHOW SLAVE STATUS"),
        ("8.0.22", "SHOW MASTER STATUS", "SHOW REPLICA STATUS"),
        ("8.1.0-cluster", "SHOW MASTER STATUS", "SHOW REPLICA STATUS"),
        ("8.2.0", "SHOW BINARY LOG STATUS", "SHOW REPLICA STATUS"),
        ("10.0.1", "SHOW BINARY LOG STATUS", "SHOW REPLICA STATUS"),
    ],
)
def test_each_version_of_mysql_gets_the_statements_that_it_knows(version: str, end: str, sources: str) -> None:
    connection = RecordedConnection({}, version)
    assert (end_statement(connection), replica_statement(connection)) == (end, sources)


def test_mariadb_shows_its_end_by_the_old_statement_and_has_no_executed_set() -> None:
    found = status({"SHOW MASTER STATUS": [("bin.000012", 345, "", "")]}, MARIADB)
    assert found.executed_end() == (LogPosition(12, 345), GtidSet())
    assert found.now() is None


def test_the_end_of_mysql_comes_with_the_transactions_executed_before() -> None:
    found = status({"SHOW BINARY LOG STATUS": [("binlog.000003", 197, "", "", f"{SERVER}:1-5")]})
    assert found.executed_end() == (LogPosition(3, 197), GtidSet.parse(f"{SERVER}:1-5"))
    assert found.end() == LogPosition(3, 197)


def test_a_server_without_a_binlog_is_asked_to_write_one() -> None:
    with pytest.raises(UnsupportedFormatError, match=r"MySQL at db1:3306 writes no binlog \(log_bin is OFF\)"):
        status({"SHOW BINARY LOG STATUS": []}).end()
    with pytest.raises(SourceError, match="lists no binlog files"):
        status({"SHOW BINARY LOGS": []}).files()
    with pytest.raises(SourceError, match="log_bin_basename is empty"):
        status({"SELECT @@GLOBAL.log_bin_basename": [(None,)]}).base()


@pytest.mark.parametrize("name", ["/var/lib/mysql/binlog", r"C:\data\binlog", "binlog"])
def test_the_base_name_is_without_its_folder_on_any_system(name: str) -> None:
    assert status({"SELECT @@GLOBAL.log_bin_basename": [(name,)]}).base() == "binlog"


def test_files_are_in_their_order_with_their_sizes() -> None:
    found = status({"SHOW BINARY LOGS": [("binlog.000002", 180, "No"), ("binlog.000003", 1_000, "No")]})
    assert found.sizes() == {"binlog.000002": 180, "binlog.000003": 1_000}
    assert found.earliest() == LogPosition(2)


@pytest.mark.parametrize(
    ("event", "begins"),
    [
        (("b.000001", 157, "Gtid", 1, 236, ""), True),
        (("b.000001", 157, "Anonymous_Gtid", 1, 236, ""), True),
        (("b.000001", 157, "Gtid_list", 1, 236, ""), True),
        (("b.000001", 157, "Rotate", 1, 236, ""), True),
        (("b.000001", 157, "Binlog_checkpoint", 1, 236, ""), True),
        (("b.000001", 157, "Query", 1, 236, "BEGIN"), False),
        (("b.000001", 157, "Write_rows_v1", 1, 236, ""), False),
        # The server began its list at the next event instead.
        (("b.000001", 200, "Gtid", 1, 236, ""), False),
        (None, False),
        (SourceError("Error when executing command SHOW BINLOG EVENTS: Wrong offset or I/O error"), False),
    ],
)
def test_only_where_an_event_begins_between_transactions_a_query_may_begin(
    event: tuple[object, ...] | Exception | None, begins: bool
) -> None:
    answer: Answer = event if isinstance(event, Exception) else [] if event is None else [event]
    found = status({"SHOW BINLOG EVENTS IN 'b.000001' FROM 157 LIMIT 1": answer})
    assert found.begins_transaction("b.000001", 157) is begins


@pytest.mark.parametrize("failure", [RefusedError("no privilege"), UnreachableError("gone")])
def test_a_server_that_does_not_answer_has_not_reported_that_no_event_begins_there(failure: Exception) -> None:
    with pytest.raises(type(failure)):
        status({"SHOW BINLOG EVENTS": failure}).begins_transaction("b.000001", 157)


def test_before_a_file_are_its_previous_transactions_and_those_that_no_file_has() -> None:
    head = [("b.000004", 4, "Format_desc", 1, 126, ""), ("b.000004", 126, "Previous_gtids", 1, 157, f"{SERVER}:4-9")]
    answers: dict[str, Answer] = {"SHOW BINLOG EVENTS": head, "SELECT @@GLOBAL.gtid_purged": [(f"{SERVER}:1-3",)]}
    assert status(answers).before_file("b.000004") == GtidSet.parse(f"{SERVER}:1-9")
    answers["SHOW BINLOG EVENTS"] = head[:1]
    with pytest.raises(SourceError, match=r"b\.000004 does not begin with its previous GTIDs"):
        status(answers).before_file("b.000004")
