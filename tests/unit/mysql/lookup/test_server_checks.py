"""Settings that keep changes out of a binlog, by the answers of servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pyspark_mysql_cdc_wm.lookup.server_cautions import gaps
from pyspark_mysql_cdc_wm.lookup.server_checks import LoggedDatabases, checks_of
from pyspark_mysql_cdc_wm.options.tables import TableName, parse_tables
from tests.unit.mysql.recorded_answers import Answer, RecordedConnection, checked_server
from watermark_source.checks import CheckVerdict, Finding, examine
from watermark_source.errors import RefusedError, UnsupportedFormatError

MYSQL, MARIADB = "9.7.4", "11.8.9-MariaDB"
REFUSED = RefusedError("needs SLAVE MONITOR")
# Name and address of a source, as the two servers show it.
SOURCE: Mapping[str, Answer] = {
    "SHOW REPLICA STATUS": [("", "db0", "repl", 3306)],
    "SHOW ALL SLAVES STATUS": [("", "", "", "db0", "r", 3306)],
}
NO_SOURCE: Mapping[str, Answer] = {"SHOW REPLICA STATUS": [], "SHOW ALL SLAVES STATUS": []}


def found(
    check: str, settings: Mapping[str, str], version: str = MYSQL, answers: Mapping[str, Answer] = NO_SOURCE
) -> Finding:
    server = checked_server({"SHOW GLOBAL VARIABLES": list(settings.items()), **answers}, version)
    every = {each.name: each for each in (*checks_of(server.options), *gaps(server.options))}
    (finding,) = examine([every[check]], server)
    return finding


@pytest.mark.parametrize(("version", "setting"), [(MYSQL, "log_replica_updates"), (MARIADB, "log_slave_updates")])
def test_a_replica_that_does_not_log_what_it_applies_is_refused(version: str, setting: str) -> None:
    refused = found("log_replica_updates", {setting: "OFF"}, version, SOURCE)
    assert refused.verdict is CheckVerdict.FAILED
    assert f"{setting} is OFF, and must be ON: the server is a replica of db0:3306" in refused.text
    assert found("log_replica_updates", {setting: "ON"}, version, SOURCE).verdict is CheckVerdict.OK
    assert found("log_replica_updates", {setting: "OFF"}, version).verdict is CheckVerdict.OK


@pytest.mark.parametrize(
    ("running", "applied", "verdict", "text"),
    [
        ("1", "", CheckVerdict.FAILED, "the server is a replica (Slaves_running is 1)"),
        ("0", "0-1-7", CheckVerdict.WARNING, "the server has been a replica (gtid_slave_pos is 0-1-7)"),
        ("0", "", CheckVerdict.OK, "no other server is replicated"),
    ],
)
def test_a_user_who_may_not_see_the_sources_learns_what_shows_them(
    running: str, applied: str, verdict: CheckVerdict, text: str
) -> None:
    answers: Mapping[str, Answer] = {
        "SHOW ALL SLAVES STATUS": REFUSED, "SHOW GLOBAL STATUS LIKE 'Slaves_running'": [("Slaves_running", running)],
    }  # fmt: skip
    finding = found("log_replica_updates", {"log_slave_updates": "OFF", "gtid_slave_pos": applied}, MARIADB, answers)
    assert finding.verdict is verdict
    assert text in finding.text
    assert ("GRANT SLAVE MONITOR" in finding.text) == (verdict is CheckVerdict.WARNING)


def test_a_node_of_a_cluster_that_does_not_log_what_others_write_is_refused() -> None:
    refused = found("log_replica_updates", {"log_slave_updates": "OFF", "wsrep_on": "ON"}, MARIADB)
    assert refused.verdict is CheckVerdict.FAILED
    assert "the server is a node of a Galera cluster (wsrep_on)" in refused.text


@pytest.mark.parametrize(
    ("version", "settings", "verdict"),
    [
        (MARIADB, {"server_id": "1"}, CheckVerdict.WARNING), (MARIADB, {"server_id": "7"}, CheckVerdict.OK),
        (MARIADB, {"server_id": "7", "wsrep_on": "ON"}, CheckVerdict.WARNING),
        (MYSQL, {"server_id": "1"}, CheckVerdict.OK),
    ],
)  # fmt: skip
def test_an_id_that_another_server_of_mariadb_may_have_is_a_warning(
    version: str, settings: Mapping[str, str], verdict: CheckVerdict
) -> None:
    finding = found("server_id", settings, version)
    assert finding.verdict is verdict
    assert ("a query knows a MariaDB server by this number" in finding.text) == (verdict is CheckVerdict.WARNING)


def test_a_binlog_without_files_is_refused() -> None:
    refused = found("binlog_storage_engine", {"binlog_storage_engine": "innodb"}, MARIADB)
    assert refused.verdict is CheckVerdict.FAILED
    assert "binlog_storage_engine is innodb, and must be empty" in refused.text


@pytest.mark.parametrize(
    ("only", "never", "folds_case", "setting"),
    [
        ("shop,other", "", False, None), ("", "other", False, None), ("other", "", False, "binlog_do_db"),
        ("", "shop", False, "binlog_ignore_db"),
        # Servers compare with the case of the name, unless MySQL ignores that of tables.
        ("Shop", "", False, "binlog_do_db"), ("Shop", "", True, None), ("", "Shop", False, None),
        ("", "Shop", True, "binlog_ignore_db"),
    ],
)  # fmt: skip
def test_databases_are_left_out_by_names_as_the_server_compares_them(
    only: str, never: str, folds_case: bool, setting: str | None
) -> None:
    selection = replace(parse_tables("shop.t"), ignores_case=folds_case)
    logged = LoggedDatabases.of(("binlog.000001", 4, only, never), RecordedConnection({}), selection)
    if setting is None:
        logged.check("MySQL at db1:3306", [TableName("shop", "t")])
    else:
        with pytest.raises(UnsupportedFormatError, match=rf"leaves out the database shop \({setting}\)"):
            logged.check("MySQL at db1:3306", [TableName("shop", "t")])


def test_databases_that_are_left_out_are_a_warning_and_so_are_several_that_may_be_one_name() -> None:
    def shown(only: str, never: str = "") -> Finding:
        return found("binlog_do_db", {}, answers={"SHOW BINARY LOG STATUS": [("binlog.000001", 4, only, never)]})

    once = "give binlog_do_db once for each database"
    assert shown("").verdict is CheckVerdict.OK
    assert {shown("shop").verdict, shown("", "ops").verdict, shown("a,b").verdict} == {CheckVerdict.WARNING}
    assert shown("", "ops").text.startswith("binlog_ignore_db is ops: the server logs statements that")
    assert (once in shown("a,b").text, once in shown("shop").text) == (True, False)


def test_a_server_that_goes_on_without_its_binlog_is_a_warning() -> None:
    assert found("binlog_error_action", {"binlog_error_action": "ABORT_SERVER"}).verdict is CheckVerdict.OK
    assert found("binlog_error_action", {"binlog_error_action": "IGNORE_ERROR"}).verdict is CheckVerdict.WARNING
