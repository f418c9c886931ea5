"""What statements do to tables."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pyspark_mysql_cdc_wm.binlog.sql_scanner import PLAIN, Dialect, LoggedTable, UnfollowedError
from pyspark_mysql_cdc_wm.binlog.statement_effects import (
    NOTHING,
    RowsStatement,
    StatementEffect,
    Undoing,
    effect_of,
)

ANSI = PLAIN._replace(ansi_quotes=True)
RAW = PLAIN._replace(backslash_escapes=False)


def names(tables: Iterable[LoggedTable]) -> set[str]:
    return {each.table if each.database is None else f"{each.database}.{each.table}" for each in tables}


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("TRUNCATE TABLE scratch.tmp", "scratch.tmp"),
        ("truncate t /* t2 */", "t"),
        ("TRUNCATE `a``b` . `c.d`", "a`b.c.d"),
        ("TRUNCATE/* all of */TABLE -- of\n `t#` # that", "t#"),
        ("TRUNCATE`t`", "t"),
        ("TRUNCATE TABLE t WAIT 5", "t"),
        ("TRUNCATE TABLE t; -- x", "t"),
        ("TRUNCATE .t", "t"),
        ("--\nTRUNCATE TABLE t", "t"),
        ("TRUNCATE --\nTABLE t", "t"),
        ("--\x01 x\nTRUNCATE TABLE t", "t"),
        ("/*!50100 TRUNCATE /* of all */ TABLE t */", "t"),
        ("/* don't keep */ /*!50100 TRUNCATE TABLE t */ /* it's gone */", "t"),
        ("TRUNCATE TABLE तालिका", "तालिका"),
        ("TRUNCATE TABLE a\u0301€°·\u200d", "a\u0301€°·\u200d"),
        ("RENAME TABLES t TO u", "t u"),
        ("RENAME TABLE t TO old.t, `new` TO t", "t old.t new"),
        ("RENAME TABLE IF EXISTS t NOWAIT TO u", "t u"),
        ("ALTER TABLE t --\nRENAME u", "t u"),
        ("ALTER TABLE `t`RENAME`old_t` ", "t old_t"),
        ("ALTER TABLE t€ RENAME TO u", "t€ u"),
        ("ALTER IGNORE TABLE`t` COMMENT 'a # b', RENAME TO u", "t u"),
        ("ALTER TABLE IF EXISTS t WAIT 9 RENAME u", "t u"),
        ("ALTER TABLE t RENAME TO other.u", "t other.u"),
        ("ALTER TABLE other.t RENAME `v`", "other.t v"),
        ("ALTER TABLE t RENAME = other.v, RENAME KEY a TO b", "t other.v"),
        ("ALTER TABLE t ADD COLUMN a INT, RENAME AS u PARTITION BY HASH (a)", "t u"),
        ("ALTER TABLE t DROP `it's`, RENAME TO u, COMMENT 'rename v'", "t u"),
        ("""ALTER TABLE t ADD e ENUM("a\\"b'"), RENAME TO u, ADD d ENUM('x')""", "t u"),
        ('ALTER TABLE t COMMENT "5\\" -- wide", RENAME TO u', "t u"),
        ("ALTER TABLE p TRUNCATE --\n PARTITION p0", "p"),
        ("ALTER TABLE t DROP PARTITION p0, p1", "t"),
        ("ALTER TABLE t REPAIR PARTITION p0", "t"),
        ("REPAIR TABLE t", "t"),
        ("repair local table t quick use_frm", "t"),
        ("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE other.t", "p other.t"),
        ("ALTER TABLE p CONVERT PARTITION p0 TO TABLE t", "p t"),
        ("ALTER TABLE p CONVERT TABLE t TO PARTITION p0 VALUES LESS THAN (9)", "p t"),
        ("ALTER TABLE t DISCARD TABLESPACE", "t"),
        ("ALTER TABLE t IMPORT PARTITION p0, p1 TABLESPACE", "t"),
        ("ALTER TABLE t ENGINE = 'BLACKHOLE'", "t"),
        ("ALTER TABLE t COMMENT 'x' ENGINE MERGE UNION (a, b)", "t"),
        ("ALTER IGNORE TABLE t ADD UNIQUE (a)", "t"),
        ("ALTER IGNORE TABLE t MODIFY a INT", "t"),
        ("SET STATEMENT max_statement_time = 9, sql_mode = ' for x' FOR TRUNCATE t", "t"),
        ("/* a */ set statement a = (SELECT 1 FOR UPDATE), c = 1\nFOR\nTRUNCATE t", "t"),
    ],
)
def test_what_changes_a_table_as_a_whole(text: str, whole: str) -> None:
    found = effect_of(text)
    assert names(found.whole) == set(whole.split(" "))
    assert found == StatementEffect(whole=found.whole, keeps_columns=found.keeps_columns)


@pytest.mark.parametrize(
    ("text", "dialect", "whole"),
    [
        ("ALTER TABLE t COMMENT 'C:\\', RENAME TO old_t, ALTER a SET DEFAULT '1'", RAW, {"t", "old_t"}),
        ("ALTER TABLE t COMMENT 'C:\\', RENAME TO old_t, ALTER a SET DEFAULT '1'", PLAIN, set()),
        ('TRUNCATE TABLE "other"."t"', ANSI, {"other.t"}),
        ('ALTER TABLE t COMMENT=\'with table "v"\', ADD "my comment " INT, RENAME TO "u"', ANSI, {"t", "u"}),
        ('ALTER TABLE comment RENAME "u", CONVERT PARTITION "p" TO TABLE "v"', ANSI, {"comment", "u", "v"}),
        ('ALTER TABLE t ADD n TEXT DEFAULT "rename u" COMMENT "a \\" rename v"', PLAIN, set()),
    ],
)
def test_quotes_are_those_of_the_session(text: str, dialect: Dialect, whole: set[str]) -> None:
    if not whole and dialect is PLAIN and "C:" in text:
        with pytest.raises(UnfollowedError, match="a quoted text has no end"):
            effect_of(text)
    else:
        assert names(effect_of(text, dialect).whole) == whole


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t RENAME COLUMN a TO b",
        "ALTER TABLE t RENAME /* a */ COLUMN a TO b, RENAME\n INDEX c TO d",
        "ALTER TABLE t COMMENT 'it''s rename to u, with table v', ADD `rename` INT",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
        "ALTER TABLE t CHAR SET = utf8mb4",
        "ALTER TABLE t DROP discard PARTITION BY HASH (a)",
        "ALTER TABLE t UPGRADE PARTITIONING",
        "ALTER TABLE t DROP tablespace",
        "ALTER TABLE t ADD truncate INT, DROP discard, ADD engine VARCHAR(9)",
        'ALTER TABLE t MODIFY e ENUM("x", "TRUNCATE PARTITION y")',
        "ALTER TABLE t ADD UNIQUE (a)",
        "ALTER IGNORE TABLE t COMMENT 'x', ADD INDEX (a), ADD b INT",
        "ALTER TABLE t ORDER BY a, truncate DESC",
        "ALTER TABLE t ADD PARTITION (PARTITION p VALUES LESS THAN (9)), ALGORITHM = INPLACE",
        "ALTER TABLE t REORGANIZE PARTITION p0, p1 INTO (PARTITION p VALUES LESS THAN (9))",
        "ALTER TABLE t ENGINE = InnoDB ROW_FORMAT = DYNAMIC, PAGE_COMPRESSED = 1, `x` = 1",
        "ALTER TABLE t ADD c INT CHECK (c > 0), ADD CONSTRAINT x FOREIGN KEY (a) REFERENCES u (a)",
        "ALTER TABLE t ALTER a SET DEFAULT (1 + (2)), FORCE;",
        "ALTER TABLE t",
    ],
)
def test_what_alters_a_table_and_keeps_its_rows(text: str) -> None:
    found = effect_of(text)
    assert names(found.altered) == {"t"}
    assert found.whole == frozenset()


@pytest.mark.parametrize(
    ("text", "renamed", "dropped", "added"),
    [
        ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO `a`", (("a", "b"), ("b", "a")), set(), set()),
        ("ALTER TABLE t DROP COLUMN b, CHANGE COLUMN IF EXISTS t.a b INT", (("a", "b"),), {"b"}, set()),
        ("ALTER TABLE t DROP IF EXISTS b, CHANGE a a BIGINT", (("a", "a"),), {"b"}, set()),
        ("ALTER TABLE t DROP PRIMARY KEY, DROP INDEX i, DROP FOREIGN KEY f, DROP CHECK c", (), set(), set()),
        ("ALTER TABLE t DROP b, ADD COLUMN IF NOT EXISTS b INT DEFAULT 0, ADD `c` INT", (), {"b"}, {"b", "c"}),
        ("ALTER TABLE t DROP b, ADD (b DECIMAL(9, 2), c INT CHECK (c IN (1, 2)), UNIQUE (b))", (), {"b"}, {"b", "c"}),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS (vector INT, period INT), FORCE", (), set(), {"vector", "period"}),
        ("ALTER TABLE t ADD IF NOT EXISTS (b INT, c INT)", (), set(), {"b", "c"}),
        (
            "ALTER TABLE t ADD UNIQUE (a), ADD INDEX i (a, b), ADD PERIOD FOR p (a, b), ADD PRIMARY KEY (a)",
            (),
            set(),
            set(),
        ),
    ],
)
def test_columns_that_are_added_or_dropped_or_get_other_names_are_named(
    text: str, renamed: tuple[tuple[str, str], ...], dropped: set[str], added: set[str]
) -> None:
    assert effect_of(text).columns[:3] == (renamed, dropped, added)


@pytest.mark.parametrize(
    ("text", "generated", "converts"),
    [
        ("MODIFY v INT AS (a * 3)", {"v"}, True),
        ("MODIFY COLUMN IF EXISTS t.`v` INT UNSIGNED GENERATED ALWAYS AS (a * 3) STORED FIRST", {"v"}, True),
        ("ADD i INT, CHANGE v w VARCHAR(9) CHARACTER SET latin1 AS (CAST(a AS CHAR)) PERSISTENT", {"v", "w"}, True),
        ("MODIFY v INT DEFAULT (CAST(a AS SIGNED)) COMMENT 'AS (a * 3)', MODIFY `AS` INT", set(), True),
        ("MODIFY s TIMESTAMP(6) GENERATED ALWAYS AS ROW START", set(), True),
        ("MODIFY e ENUM('b', 'a'), MODIFY at DATETIME, CHANGE u u TINYINT UNSIGNED", set(), True),
        ("CONVERT TO CHARACTER SET latin1", set(), True),
        # The values of a new column are those of its definition, in each of its rows.
        ("ADD v INT AS (a * 3), ADD w INT DEFAULT (1 + 2)", set(), False),
        ("AUTO_INCREMENT = 7, ALTER a SET DEFAULT 3, DROP PRIMARY KEY, CHARACTER SET latin1, FORCE", set(), False),
    ],
)
def test_columns_whose_values_may_be_others_are_named(text: str, generated: set[str], converts: bool) -> None:
    columns = effect_of(f"ALTER TABLE t {text}").columns
    assert (columns.generated, columns.converts) == (generated, converts)


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        ("DROP TABLE IF EXISTS `t`, other.u /* generated by server */", "t other.u"),
        ("drop tables t, other.u WAIT 3 CASCADE", "t other.u"),
        ("DROP TABLE `to`, t/* a */", "to t"),
        ("DROP TABLE तालिका, a\u0301€°·\u200d", "तालिका a\u0301€°·\u200d"),
        ("CREATE OR REPLACE TABLE t LIKE u", "t"),
        ("# c\n/* d */ create or replace table t (a INT)", "t"),
        ("/*M!100100 DROP TABLE t */", "t"),
    ],
)
def test_a_table_that_all_sessions_have_is_dropped(text: str, dropped: str) -> None:
    assert names(effect_of(text, PLAIN._replace(mariadb=True)).dropped) == set(dropped.split(" "))


@pytest.mark.parametrize(
    ("text", "databases"),
    [
        ("DROP DATABASE shop", {"shop"}),
        ("drop schema/* the old */if exists `my.shop` /* a remark */", {"my.shop"}),
        ("CREATE OR REPLACE DATABASE shop CHARACTER SET utf8mb4", {"shop"}),
        ("CREATE DATABASE IF NOT EXISTS shop", set()),
    ],
)
def test_a_database_that_is_dropped_or_replaced_is_named(text: str, databases: set[str]) -> None:
    assert effect_of(text) == StatementEffect(databases=frozenset(databases))


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("CREATE TABLE IF NOT EXISTS t LIKE u", "t"),
        ("CREATE TABLE t", "t"),
        ("create or replace table other.t (id INT)", "other.t"),
        ("CREATE TABLE `t` (\n  `id` int NOT NULL\n) START TRANSACTION", "t"),
        ("CREATE TABLE t (value INT, `select` INT DEFAULT (ABS(1)), key (value)) COMMENT 'AS SELECT'", "t"),
        ("CREATE TABLE t (a INT) PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (9))", "t"),
        ("CREATE TABLE t (a INT) PARTITION BY LIST (a) (PARTITION q VALUES IN (3))", "t"),
    ],
)
def test_a_table_that_is_made_is_the_first_that_is_named(text: str, made: str) -> None:
    assert names(effect_of(text).made) == {made}
    assert effect_of(text).rows is None


@pytest.mark.parametrize(
    "text",
    [
        "", "/* nothing */ ;", "# Dummy event replacing event type 160 that slave cannot handle.", "BEGIN", "COMMIT",
        "XA START X'78',X'',1", "DROP TEMPORARY TABLE IF EXISTS `t` /* generated by server */",
        "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`", "CREATE OR REPLACE TEMPORARY TABLE t (id INT)",
        "CREATE DEFINER=`root`@`localhost` FUNCTION `f`() RETURNS int BEGIN INSERT INTO t VALUES (1); RETURN 1; END",
        "CREATE ALGORITHM=UNDEFINED DEFINER=`a`@`%` SQL SECURITY DEFINER VIEW `v` AS SELECT f()",
        "CREATE FUNCTION f() RETURNS INT LANGUAGE JAVASCRIPT AS $$ return 'it is' $$",
        "CREATE UNIQUE INDEX t ON u (a)", "DROP INDEX t ON u", "CREATE DATABASE t", "ALTER SCHEMA t CHARACTER SET utf8",
        "CREATE SEQUENCE s", "ALTER SEQUENCE s RESTART 3", "DROP SEQUENCE `s` /* generated by server */",
        "CREATE USER 'u'@'%' IDENTIFIED WITH 'x' AS '$A$005$\x1e\\'", "GRANT SELECT ON *.* TO u", "REVOKE r FROM u",
        "SET PASSWORD FOR 'u1'@'%'='*7446'", "SET DEFAULT ROLE r1 TO u1", "RENAME USER a TO b", "FLUSH TABLES",
        "ANALYZE TABLE t", "ANALYZE NO_WRITE_TO_BINLOG TABLES t", "OPTIMIZE TABLE t", "REPAIR VIEW v",
        "INSTALL PLUGIN a SONAME 'b'", "ALTER INSTANCE ROTATE INNODB MASTER KEY", "CREATE UNDO TABLESPACE u",
        "SET STATEMENT a = 1 FOR ANALYZE TABLE t", "RELEASE SAVEPOINT a",
    ],
)  # fmt: skip
def test_what_servers_log_beside_rows_changes_no_row(text: str) -> None:
    assert effect_of(text) == NOTHING


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (r"LOAD DATA LOCAL INFILE '/u/into table v\'' IGNORE INTO TABLE `t` (`id`, @`u`)", {"t"}),
        ("LOAD XML INFILE 'u' REPLACE INTO TABLE other.t SET a = (SELECT 1 FROM u)", {"other.t"}),
        ("REPLACE INTO `sums`.`u` (db, tbl) SELECT 'shop', 't', COUNT(*) FROM `shop`.`t` /* t */", {"sums.u"}),
        ("insert low_priority ignore`t` SELECT * FROM v", {"t"}),
        ("INSERT t(v) VALUES (1)", {"t"}),
        ("UPDATE `sums`.`u` SET n = '2' WHERE db = 'shop' AND tbl = 't'", {"sums.u"}),
        ("--\nUPDATE t SET a = 1", {"t"}),
        ("UPDATE t€ SET a = 1", {"t€"}),
        ("delete from u where tbl = 't'", {"u"}),
        ("DELETE FROM t", {"t"}),
        ("SET STATEMENT a = 1 FOR DELETE FROM t", {"t"}),
        ("CREATE TABLE c AS SELECT 1", {"c"}),
        ("CREATE TABLE c (a INT) IGNORE (SELECT f())", {"c"}),
        ("CREATE TABLE c TABLE t", {"c"}),
        ("CREATE TABLE c VALUES (1)", {"c"}),
        ("CREATE TEMPORARY TABLE c WITH q AS (SELECT f()) SELECT * FROM q", {"c"}),
        ("UPDATE asset, t SET a = 1", None),
        ("UPDATE t AS x SET a = 1", None),
        ("DELETE FROM t, u USING t, u", None),
        ("DELETE t FROM t JOIN u", None),
        ("DELETE HISTORY FROM t", None),
        ("SELECT `shop`.`f`()", None),
        ("(SELECT f())", None),
        ("SET STATEMENT a = 1 FOR SET STATEMENT b = 1 FOR DELETE FROM t", None),
        ("DO f()", None),
        ("SET @x = f()", None),
        ("CALL p()", None),
        ("WITH q AS (SELECT 1) DELETE FROM t", None),
        ("ANALYZE UPDATE t SET a = 1", None),
        ("ANALYZE FORMAT=JSON DELETE FROM t", None),
        ("SELECT NEXT VALUE FOR s", None),
        ("HANDLER t OPEN", None),
        ("IMPORT TABLE FROM 'x.sdi'", None),
        ("BEGIN NOT ATOMIC TRUNCATE t; END", None),
        ("'x'", None),
    ],
)
def test_everything_else_stands_for_rows(text: str, changes: set[str] | None) -> None:
    try:
        rows = effect_of(text).rows
    except UnfollowedError:
        assert text.startswith("BEGIN NOT")
        return
    assert rows is not None
    assert (None if rows.changes is None else names(rows.changes)) == changes


@pytest.mark.parametrize(
    ("text", "calls_nothing"),
    [
        ("INSERT INTO mysql.rds_heartbeat2(id, value) values (1, 2) ON DUPLICATE KEY UPDATE value = 2", True),
        ("DELETE FROM mysql.rds_sysinfo where name = 'innodb_txn_key'", True),
        ("INSERT INTO mysql.rds_x VALUES (f())", False),
        ("INSERT INTO mysql.rds_x SELECT x FROM v", False),
        ("UPDATE mysql.rds_x SET a = `f` (1)", False),
    ],
)
def test_a_statement_that_calls_nothing_is_known(text: str, calls_nothing: bool) -> None:
    rows = effect_of(text).rows
    assert rows is not None
    assert rows.calls_nothing is calls_nothing


def test_what_a_server_empties_itself_after_a_restart_is_changed_as_a_whole() -> None:
    emptied = "TRUNCATE TABLE `s`.`m` /* generated by server, implicitly emptying in-memory table */"
    assert names(effect_of(emptied).whole) == {"s.m"}
    assert names(effect_of("DELETE FROM `s`.`m`", by_server=True).whole) == {"s.m"}
    assert effect_of("DELETE FROM `s`.`m`").rows == RowsStatement(frozenset((LoggedTable("s", "m"),)))


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t FROB x", "ALTER TABLE t ADD a INT, WOBBLE p0", "ALTER FROB t", "CREATE FROB t", "DROP FROB t",
        "DROP TABLE", "DROP TABLE t u", "DROP TABLE 'a'", 'TRUNCATE TABLE "t"', "TRUNCATE t u", "TRUNCATE TABLE t; x",
        "RENAME TABLE t u", "RENAME FROB t TO u", "ALTER TABLE t COMMENT 'a", "ALTER TABLE t ADD (a INT",
        "DROP DATABASE", "ALTER TABLE t ADD a INT)", "ALTER TABLE t RENAME", "CREATE TABLE t (a INT",
        "ALTER TABLE t ADD a INT; x", "CREATE TABLE t (a INT); x", "TRUNCATE \ufffd", "ALTER TABLE t RENAME gr\ufffd",
        "SET STATEMENT a = 1 TRUNCATE t", "CREATE OR TABLE t", "DROP TABLE IF t",
        "TRUNCATE t WAIT x", "TRUNCATE `db`.1a",
    ],
)  # fmt: skip
def test_a_definition_that_cannot_be_followed_is_refused(text: str) -> None:
    with pytest.raises(UnfollowedError):
        effect_of(text)


@pytest.mark.parametrize(
    ("text", "undone"),
    [
        ("SAVEPOINT `A`", Undoing(True, "a")),
        ("savepoint b", Undoing(True, "b")),
        ("ROLLBACK TO `A`", Undoing(False, "a")),
        ("ROLLBACK WORK TO SAVEPOINT a", Undoing(False, "a")),
        ("rollback", Undoing(False, "")),
        ("COMMIT", None),
    ],
)
def test_what_is_undone_in_a_transaction(text: str, undone: Undoing | None) -> None:
    assert effect_of(text).undoing == undone
