"""What a user should know of a server that is read all the same, by its answers."""

from __future__ import annotations

import time

import pytest

from pyspark_mysql_cdc_wm.lookup.server_cautions import advice
from pyspark_mysql_cdc_wm.lookup.server_checks import checks_of
from tests.unit.mysql.lookup.test_table_columns import COLLATIONS, column
from tests.unit.mysql.recorded_answers import Answer, checked_server
from watermark_source.checks import CheckVerdict, Finding, examine
from watermark_source.errors import RefusedError, UnknownSplitError

MYSQL, MARIADB = "9.7.4", "11.8.9-MariaDB"
TABLES: dict[str, Answer] = {
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE": [("shop", "t", "BASE TABLE", "InnoDB")],
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, LOWER(DATA_TYPE)": [("shop", "t", "id", "int", "select", "PRI")],
}


def found(
    check: str,
    version: str = MYSQL,
    *,
    settings: dict[str, str] | None = None,
    answers: dict[str, Answer] | None = None,
    **options: str,
) -> Finding:
    variables: Answer = list((settings or {}).items())
    server = checked_server({"SHOW GLOBAL VARIABLES": variables, **TABLES, **(answers or {})}, version, **options)
    every = {each.name: each for each in (*checks_of(server.options), *advice(server.options))}
    (finding,) = examine([every[check]], server)
    return finding


def shown(finding: Finding) -> tuple[CheckVerdict, str]:
    return finding.verdict, finding.text


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({"log_bin": "OFF"}, "log_bin is OFF, and must be ON: there is no binlog to read"),
        ({"binlog_format": "MIXED"}, "binlog_format is MIXED, and must be ROW: other formats log statements"),
        ({"binlog_row_image": "minimal"}, "binlog_row_image is minimal, and must be FULL: rows would lack columns"),
        ({"binlog_row_image": ""}, "binlog_row_image is empty, and must be FULL"),
        ({"server_id": "0"}, "server_id is 0, and must be another number"),
        ({}, "there is no binlog_row_metadata, and the binlog does not describe columns without it"),
    ],
)
def test_a_setting_without_which_rows_cannot_be_read_is_refused(settings: dict[str, str], seen: str) -> None:
    finding = found(next(iter(settings), "binlog_row_metadata"), settings=settings)
    assert finding.verdict is CheckVerdict.FAILED
    assert seen in finding.text


@pytest.mark.parametrize(
    ("setting", "value"),
    [("log_bin", "ON"), ("log_bin", "1"), ("binlog_format", "row"), ("binlog_row_image", "Full"),
     ("binlog_row_metadata", "FULL"), ("server_id", "7"), ("binlog_format", None)],
)  # fmt: skip
def test_a_setting_as_it_is_needed_or_that_a_server_does_not_have_is_in_order(setting: str, value: str | None) -> None:
    assert found(setting, settings={} if value is None else {setting: value}).verdict is CheckVerdict.OK


@pytest.mark.parametrize(
    ("version", "remedy"),
    [(MYSQL, "SET PERSIST {} = 'FULL'"), (MARIADB, "SET GLOBAL {} = 'FULL'. Write the same in its configuration file")],
)
def test_the_least_metadata_is_read_with_a_caution_and_a_statement_that_outlives_a_restart(
    version: str, remedy: str
) -> None:
    name = "binlog_row_metadata"
    finding = found(name, version, settings={name: "MINIMAL"})
    assert finding.verdict is CheckVerdict.WARNING
    assert finding.text.endswith(f"On the server: {remedy.format(name)}")


def test_no_statement_is_stored_where_the_configuration_must_change() -> None:
    assert found("log_bin", MARIADB, settings={"log_bin": "OFF"}).text.endswith("configuration and restart it")


def test_without_gtids_a_snapshot_is_slower_and_no_replica_continues_the_query() -> None:
    verdict, text = shown(found("gtid_mode", settings={"gtid_mode": "OFF"}))
    assert verdict is CheckVerdict.WARNING
    assert "no query can continue on a replica. On the server, one after another: SET PERSIST enforce" in text
    assert found("gtid_mode", settings={"gtid_mode": "ON"}).verdict is CheckVerdict.OK
    assert found("gtid_mode", MARIADB).verdict is CheckVerdict.OK


@pytest.mark.parametrize(
    ("settings", "size", "verdict", "text"),
    [
        ({"binlog_expire_logs_seconds": "86400"}, 0, CheckVerdict.OK, "1 d"),
        ({"binlog_expire_logs_seconds": "86399"}, 0, CheckVerdict.WARNING, "binlog_expire_logs_seconds = 604800"),
        # The other variable is not there before MariaDB 10.6, and MySQL 8.0 refuses it while this one is not 0.
        ({"expire_logs_days": "0.5"}, 0, CheckVerdict.WARNING, "for 12 h. A query that is stopped for longer cannot"),
        (
            {"expire_logs_days": "1", "binlog_expire_logs_seconds": "0"},
            600_000_000_000,
            CheckVerdict.WARNING,
            "SET PERSIST expire_logs_days = 7",
        ),
        ({"binlog_expire_logs_seconds": "0"}, 0, CheckVerdict.OK, "until an administrator purges it"),
        (
            {"binlog_expire_logs_seconds": "1", "binlog_expire_logs_auto_purge": "0"},
            0,
            CheckVerdict.OK,
            "until an admin",
        ),
        # A slow snapshot of 600 GB takes 60 000 s: three times that is kept.
        (
            {"binlog_expire_logs_seconds": "86400"},
            600_000_000_000,
            CheckVerdict.WARNING,
            "a snapshot of 600000 MB takes up to",
        ),
        ({"binlog_expire_logs_seconds": "180000"}, 600_000_000_000, CheckVerdict.OK, "a snapshot of 600000 MB"),
    ],
)
def test_a_binlog_that_is_kept_for_less_than_a_day_or_than_slow_snapshots_take_is_a_caution(
    settings: dict[str, str], size: int, verdict: CheckVerdict, text: str
) -> None:
    finding = found(
        "binlog kept",
        settings=settings,
        answers={"SELECT TABLE_SCHEMA, TABLE_NAME, DATA_LENGTH": [("shop", "t", size)]},
    )
    assert finding.verdict is verdict
    assert text in finding.text


def test_tables_of_other_engines_are_not_as_of_one_moment() -> None:
    other: dict[str, Answer] = {"SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE": [("shop", "t", "BASE TABLE", "MyISAM")]}
    verdict, text = shown(found("engine", answers=other))
    assert (verdict, "shop.t (MyISAM): only InnoDB" in text) == (CheckVerdict.WARNING, True)
    assert found("engine").verdict is CheckVerdict.OK


@pytest.mark.parametrize(
    ("tables", "verdict", "seen"),
    [
        ("shop.t", CheckVerdict.OK, "none"),
        (
            "shop.*",
            CheckVerdict.WARNING,
            "the user 'cdc' may not read shop.secret: the stream lacks this table. On the",
        ),
        ("shop.t,shop.secret*", CheckVerdict.WARNING, "GRANT SELECT ON `shop`.`secret` TO 'cdc'@'%'"),
        (
            "shop.t,shop.u*,sho.*",
            CheckVerdict.WARNING,
            "no table is like shop.u*, sho.* now. One that is created later",
        ),
        ("unseen.*,shop.t", CheckVerdict.WARNING, "GRANT SELECT ON `unseen`.* TO 'cdc'@'%'"),
    ],
)
def test_what_a_pattern_does_not_find_and_what_may_not_be_read_is_named(
    tables: str, verdict: CheckVerdict, seen: str
) -> None:
    more: dict[str, Answer] = {
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE": [
            ("shop", name, "BASE TABLE", "InnoDB") for name in ("t", "secret")
        ],
        "SELECT 1 FROM": UnknownSplitError("no such table"), "SELECT 1 FROM `unseen`": RefusedError("no"),
    }  # fmt: skip
    finding = found("tables left out", answers=more, tables=tables)
    assert finding.verdict is verdict
    assert seen in finding.text


def test_a_label_that_is_kept_once_its_table_is_dropped_is_a_caution() -> None:
    labels = "shop.gone:a,shop.t:b"
    more: dict[str, Answer] = {
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, LOWER(DATA_TYPE)": [column("id")],
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, SUB_PART": [("shop", "t", "id", None)],
        "SELECT ID, CHARACTER_SET_NAME": COLLATIONS,
        "SELECT 1 FROM": [],
    }
    finding = found("primary key", answers=more, tables="shop.*", rereadTables=labels)
    assert shown(finding) == (CheckVerdict.OK, "(id)")
    text = "no table is like shop.gone of rereadTables now. One that is created later is read"
    finding = found("tables left out", answers=more, tables="shop.*", rereadTables=labels)
    assert shown(finding) == (CheckVerdict.WARNING, text)
    more["SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, SUB_PART"] = []
    refused = found("primary key", answers=more, tables="shop.*", rereadTables=labels)
    assert refused.verdict is CheckVerdict.FAILED
    assert "has no primary key, by which its rows" in refused.text


CASCADING = """CREATE TABLE `t` (
  `id` int,
  CONSTRAINT `of_user` FOREIGN KEY (`user`) REFERENCES `users` (`id`) ON DELETE CASCADE,
  CONSTRAINT `of_shop` FOREIGN KEY (`shop`) REFERENCES `shops` (`id`) ON UPDATE SET NULL,
  CONSTRAINT `of_none` FOREIGN KEY (`none`) REFERENCES `none` (`id`) ON DELETE RESTRICT
)"""


@pytest.mark.parametrize(
    ("version", "settings", "verdict"),
    [
        ("9.5.9", {}, CheckVerdict.WARNING), ("9.6.0", {}, CheckVerdict.OK), ("10.0.0", {}, CheckVerdict.OK),
        (MARIADB, {}, CheckVerdict.WARNING),
        ("9.6.0", {"innodb_native_foreign_keys": "ON"}, CheckVerdict.WARNING),
    ],
)  # fmt: skip
def test_changes_by_foreign_keys_that_a_server_does_not_log_are_named(
    version: str, settings: dict[str, str], verdict: CheckVerdict
) -> None:
    keys: dict[str, Answer] = {
        "SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME": [("shop", "t", "of_user"), ("shop", "t", "of_shop")],
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE": [("shop", "t")],
        "SHOW CREATE TABLE": [("t", CASCADING)],
    }
    finding = found("foreign keys", version, settings=settings, answers=keys)
    assert finding.verdict is verdict
    assert ("shop.t of_user, shop.t of_shop:" in finding.text) == (verdict is CheckVerdict.WARNING)
    keys |= {"SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME": [], "SHOW CREATE TABLE": [("t", "CREATE TABLE `t`")]}
    none = found("foreign keys", version, settings=settings, answers=keys)
    assert none.verdict is CheckVerdict.OK


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [({}, CheckVerdict.OK), ({"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1"}, CheckVerdict.OK),
     ({"sync_binlog": "0"}, CheckVerdict.WARNING), ({"innodb_flush_log_at_trx_commit": "2"}, CheckVerdict.WARNING)],
)  # fmt: skip
def test_a_commit_that_is_not_written_to_disk_is_a_caution(settings: dict[str, str], verdict: CheckVerdict) -> None:
    finding = found("sync_binlog", settings=settings)
    assert finding.verdict is verdict
    assert all(f"SET PERSIST {name} = 1" in finding.text for name in settings if verdict is CheckVerdict.WARNING)


@pytest.mark.parametrize(
    ("skew", "verdict"), [(0.0, CheckVerdict.OK), (-3_600.0, CheckVerdict.WARNING), (7.0, CheckVerdict.WARNING)]
)
def test_a_server_whose_clock_differs_makes_lags_wrong(skew: float, verdict: CheckVerdict) -> None:
    finding = found("clock", answers={"SELECT UNIX_TIMESTAMP": lambda: [(time.time() + skew,)]})
    assert finding.verdict is verdict
    assert ("behind" if skew < 0 else "ahead of") in finding.text or verdict is CheckVerdict.OK


def test_a_connection_without_tls_is_a_caution_and_an_unverified_certificate_is_reported() -> None:
    assert found("TLS", answers={"SHOW STATUS LIKE 'Ssl_%'": [("Ssl_cipher", "")]}).verdict is CheckVerdict.WARNING
    tls: Answer = [("Ssl_cipher", "TLS_AES_256_GCM_SHA384"), ("Ssl_version", "TLSv1.3")]
    verdict, text = shown(found("TLS", answers={"SHOW STATUS LIKE 'Ssl_%'": tls}))
    assert verdict is CheckVerdict.OK
    assert text.startswith("TLSv1.3 TLS_AES_256_GCM_SHA384; the certificate is not verified")


def test_the_end_of_the_binlog_and_the_account_are_shown() -> None:
    end: Answer = [("binlog.000003", 157, "", "")]
    assert found("REPLICATION CLIENT", answers={"SHOW BINARY LOG STATUS": end}).text.endswith(
        "the binlog ends in binlog.000003 at position 157"
    )
    none = found("REPLICATION CLIENT", answers={"SHOW BINARY LOG STATUS": []})
    assert (none.verdict, "writes no binlog (log_bin is OFF). Set log_bin" in none.text) == (CheckVerdict.FAILED, True)
