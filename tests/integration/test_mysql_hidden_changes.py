"""What changes rows and logs none is refused, never passed over in silence."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from services.mysql_client import run
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, purge_before_end
from tests.integration.mysql_lives import ALL, Life
from watermark_source.errors import DataLossError, UnsupportedFormatError

pytestmark = pytest.mark.service

_TABLE = "CREATE TABLE {} (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"


def read(database: Database, *statements: str, **options: str) -> list[str]:
    """Return the kinds of the changes that some statements in one session make to table ``t``."""
    life = Life(database, startingOffsets="latest", **options)
    start = life.reader.initialOffset()
    database.run(*statements)
    end = life.reader.latestOffset(start, ALL)
    found = [change[2] for change in sorted(life.changes(start, end))]
    life.reader.stop()
    return found


@pytest.fixture
def database(mysql_database: Database) -> Database:
    mysql_database.run(_TABLE.format("t"), _TABLE.format("tt"), "INSERT INTO t VALUES (1, 'one', 1)")
    return mysql_database


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (("TRUNCATE TABLE t",), "it changed .*[.]t as a whole"),
        (("RENAME TABLE t TO other",), "it changed .*[.]t as a whole"),
        (("ALTER TABLE t RENAME TO other",), "it changed .*[.]t as a whole"),
        (("ALTER TABLE t RENAME other",), "it changed .*[.]t as a whole"),
        (("ALTER TABLE t RENAME = other",), "it changed .*[.]t as a whole"),
        (
            (
                _TABLE.format("p") + " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100))",
                "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t",
            ),
            "it changed .*[.]t as a whole",
        ),
        (("TRUNCATE --\nTABLE t",), "it changed .*[.]t as a whole"),
        (
            ("/* don't keep */ /*!50100 TRUNCATE /* of all */ TABLE t */ /* it's gone */",),
            "it changed .*[.]t as a whole",
        ),
        (
            (
                "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'",
                "ALTER TABLE t COMMENT 'C:\\', RENAME TO other, ALTER amount SET DEFAULT '1'",
            ),
            "it changed .*[.]t as a whole",
        ),
        (("SET SESSION binlog_format = 'STATEMENT'", "UPDATE t SET amount = 2"), "not the rows of .*[.]t it changed"),
        (
            ("ALTER TABLE t MODIFY amount VARCHAR(20)", "UPDATE t SET amount = 2"),
            "the column amount is string.* It was altered by binlog .* ALTER TABLE t MODIFY amount VARCHAR",
        ),
        (("ALTER TABLE t MODIFY amount BIGINT AS (id * 3) STORED",), "it gave .*[.]t an expression for amount, which"),
        (("ALTER TABLE t MODIFY amount BIGINT UNSIGNED", "UPDATE t SET amount = 2"), "the column amount is decimal128"),
    ],
)
def test_it_is_refused(database: Database, statements: tuple[str, ...], message: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=message):
        read(database, *statements)


@pytest.mark.parametrize(
    ("charset", "name"), [("latin1", "größe"), ("gbk", "联通"), ("sjis", "ソート"), ("utf8mb4", "größe")]
)
@pytest.mark.parametrize(
    "statement", ["TRUNCATE TABLE {}", "RENAME TABLE {} TO other", "ALTER TABLE `{}` RENAME other"]
)
def test_it_is_refused_in_any_character_set(database: Database, charset: str, name: str, statement: str) -> None:
    database.run(_TABLE.format(name))
    life = Life(database, tables=f"{database.name}.{name}", startingOffsets="latest")
    start = life.reader.initialOffset()
    run(database.server.host, database.server.port, statement.format(name), database=database.name, charset=charset)
    with pytest.raises(UnsupportedFormatError, match=f"it changed .*[.]{name} as a whole"):
        life.changes(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()


_AS_STATEMENT = "SET SESSION binlog_format = 'STATEMENT'"
_WRITER = "CREATE FUNCTION f() RETURNS INT DETERMINISTIC BEGIN UPDATE t SET amount = 2; RETURN 1; END"


@pytest.mark.parametrize(
    ("before", "statement"),
    [
        ((_WRITER,), "SELECT f()"),
        ((_WRITER,), "DO f()"),
        ((_WRITER,), "SET @x = f()"),
        ((_WRITER,), "INSERT INTO tt VALUES (1, 'one', f())"),
        (
            ("CREATE TRIGGER g AFTER INSERT ON tt FOR EACH ROW UPDATE t SET amount = 2",),
            "INSERT INTO tt VALUES (1, '', 1)",
        ),
        (("CREATE VIEW v AS SELECT * FROM t",), "UPDATE v SET amount = 2"),
        ((), "CREATE TABLE c AS SELECT * FROM t"),
        ((), "--\nUPDATE t SET amount = 2"),
    ],
)
def test_a_statement_in_place_of_rows_is_refused_whatever_it_names(
    database: Database, before: tuple[str, ...], statement: str
) -> None:
    refused = r"binlog \S+ position \d+: .*: a statement was logged, not the rows .* add statements to ignoredChanges"
    with pytest.raises(UnsupportedFormatError, match=refused):
        read(database, *before, _AS_STATEMENT, statement)
    database.run("DELETE FROM tt", "DROP TABLE IF EXISTS c")
    assert read(database, _AS_STATEMENT, statement, ignoredChanges="statements") == []


def test_statements_of_other_tables_can_be_ignored(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    others = (
        _AS_STATEMENT, "DELETE FROM tt WHERE name = 't'", "REPLACE INTO tt SELECT * FROM t",
        "UPDATE tt SET amount = 1 WHERE name <> 't'",
    )  # fmt: skip
    assert read(database, *others, ignoredChanges="otherStatements") == []
    assert "DELETE FROM tt WHERE name = 't'" in caplog.text
    # One warning for each block of events.
    warned = re.findall(r"(?:, and (\d+) more)?: logged in place of rows", caplog.text)
    assert sum(1 + int(more or 0) for more in warned) == 3
    with pytest.raises(UnsupportedFormatError, match=r"not the rows of .*[.]t it changed"):
        read(database, *others, "DELETE FROM t", ignoredChanges="otherStatements")


def test_a_table_in_memory_that_a_restart_emptied_is_no_statement_of_a_session(database: Database) -> None:
    database.run("CREATE TABLE m (id INT) ENGINE = MEMORY", "INSERT INTO m VALUES (1)")
    life = Life(database, startingOffsets="latest")
    start = life.reader.initialOffset()
    database.server.restart()
    assert database.run("SELECT * FROM m") == ()
    database.run("UPDATE t SET amount = 2")
    end = life.reader.latestOffset(start, ALL)
    assert [change[2] for change in sorted(life.changes(start, end))] == ["update_preimage", "update_postimage"]
    life.reader.stop()
    emptied = Life(database, tables=f"{database.name}.m")
    with pytest.raises(UnsupportedFormatError, match=r"TRUNCATE TABLE .*[.]m as a whole"):
        emptied.changes(start, end)


@pytest.mark.parametrize("name", ["तालिका", "a\u0301€°·\u200d"])
@pytest.mark.parametrize(
    "statement", ["TRUNCATE TABLE {}", "ALTER TABLE {} RENAME other", "SET binlog_format = 'STATEMENT'|DELETE FROM {}"]
)
def test_it_is_refused_of_a_table_with_any_name_that_servers_take_without_quotes(
    database: Database, name: str, statement: str
) -> None:
    database.run(_TABLE.format(name))
    life = Life(database, tables=f"{database.name}.{name}", startingOffsets="latest")
    start = life.reader.initialOffset()
    database.run(*statement.format(name).split("|"))
    with pytest.raises(UnsupportedFormatError, match=rf"(it changed|not the rows of) .*[.]{name} "):
        life.changes(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()


@pytest.mark.parametrize("rows", [10, 20_000])
@pytest.mark.parametrize("is_read", [True, False])
def test_a_file_that_is_logged_in_place_of_its_rows_is_refused(
    database: Database, tmp_path: Path, rows: int, is_read: bool
) -> None:
    file = tmp_path / "t"
    file.write_text("".join(f"{i}\tname\t{i}\n" for i in range(2, rows)), encoding="ascii")
    life = Life(database, startingOffsets="latest", ignoredChanges="otherStatements")
    start = life.reader.initialOffset()
    server = database.server
    run(
        server.host, server.port, "SET GLOBAL local_infile = ON", "SET SESSION binlog_format = STATEMENT",
        f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {'t' if is_read else 'tt'}", "SET SESSION binlog_format = ROW",
        "UPDATE t SET amount = 7 WHERE id = 1", database=database.name, local_infile=True,
    )  # fmt: skip
    end = life.reader.latestOffset(start, ALL)
    if is_read:
        with pytest.raises(
            UnsupportedFormatError, match=r"LOAD DATA .*: a statement was logged, not the rows of .*[.]t"
        ):
            life.changes(start, end)
    else:
        assert [change[5] for change in sorted(life.changes(start, end))] == [1, 7]
    life.reader.stop()


@pytest.mark.parametrize(
    ("statements", "kinds"),
    [
        (("TRUNCATE TABLE tt", "DROP TABLE tt"), []),
        (("XA START 'x'", "UPDATE t SET amount = 2", "XA END 'x'", "XA COMMIT 'x' ONE PHASE"), ["update"]),
        (("XA START 'x'", "UPDATE t SET amount = 2", "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'"), []),
        (("ALTER TABLE t ALTER amount SET DEFAULT 1, ADD INDEX (name)", "UPDATE t SET amount = 2"), ["update"]),
        (("ALTER TABLE t COMMENT 'rename to u, drop partition'", "UPDATE t SET amount = 2"), ["update"]),
        (
            ('ALTER TABLE t MODIFY name VARCHAR(40) COMMENT "drop partition later"', "UPDATE t SET amount = 2"),
            ["update"],
        ),
        (
            (
                "ALTER TABLE tt ADD e ENUM('x', 'TRUNCATE PARTITION y'), ADD `tablespace` INT",
                "ALTER TABLE tt DROP tablespace",
                "ALTER TABLE t ADD `tablespace` INT",
                "ALTER TABLE t DROP tablespace",
            ),
            [],
        ),
        (("CREATE INDEX t ON tt (name)", "/* t */ UPDATE t SET amount = 2"), ["update"]),
        (("BEGIN", "UPDATE t SET amount = 2", "SAVEPOINT s", "DELETE FROM t", "ROLLBACK TO s", "COMMIT"), ["update"]),
    ],
)
def test_what_logs_its_rows_or_concerns_others_is_not(
    database: Database, statements: tuple[str, ...], kinds: list[str]
) -> None:
    expected = [each for _ in kinds for each in ("update_preimage", "update_postimage")]
    assert read(database, *statements) == expected


def test_a_table_of_one_session_alone_is_none_that_is_read(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    shadowed = ("SET SESSION binlog_format = 'STATEMENT'", _TABLE.replace("TABLE", "TEMPORARY TABLE").format("t"))
    # The second is logged as the server writes it when the session ends.
    assert read(database, *shadowed, "DROP TEMPORARY TABLE t") == read(database, *shadowed) == []
    assert "was dropped" not in caplog.text
    assert read(database, "DROP TABLE t") == []
    assert f"{database.name}.t was dropped" in caplog.text


def test_changes_by_foreign_keys_come_where_the_server_logs_them(database: Database) -> None:
    database.run("CREATE TABLE p (id INT PRIMARY KEY)", "INSERT INTO p VALUES (1), (2)", "UPDATE t SET amount = 1")
    database.run("ALTER TABLE t ADD COLUMN p INT, ADD FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE")
    database.run("UPDATE t SET p = 1")
    ((version,),) = database.run("SELECT VERSION()")
    logged = database.server.flavour is Flavour.MYSQL and tuple(map(int, version.split(".")[:2])) >= (9, 6)
    assert read(database, "DELETE FROM p WHERE id = 1") == (["delete"] if logged else [])
    assert database.run("SELECT COUNT(*) FROM t") == ((0,),)


def test_what_was_purged_before_it_was_read_is_data_loss(database: Database) -> None:
    life = Life(database, startingOffsets="latest")
    start = life.reader.initialOffset()
    database.run("UPDATE t SET amount = 2", "FLUSH BINARY LOGS", "UPDATE t SET amount = 3")
    end = life.reader.latestOffset(start, ALL)
    purge_before_end(database)
    with pytest.raises(DataLossError, match="the server does not have this file of the binlog: it was purged"):
        life.changes(start, end)
    at = r"file \d+ position"
    with pytest.raises(
        DataLossError, match=rf"read only up to {at} \d+, and begins at {at} 4 now: .* was deleted before"
    ):
        Life(database).reader.latestOffset(start, ALL)
    going_on = Life(database, startingOffsets="latest", failOnDataLoss="false")
    assert [change[5] for change in sorted(going_on.changes(start, end))] == [2, 3]


@pytest.mark.needs_mysql("has GTIDs always, of a form of its own")
def test_what_was_purged_after_it_was_read_is_no_loss(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    running = Life(database, startingOffsets="latest")
    start = running.reader.initialOffset()
    database.run("UPDATE t SET amount = 2")
    end = running.reader.latestOffset(start, ALL)
    assert [change[5] for change in sorted(running.changes(start, end))] == [1, 2]
    database.run("FLUSH BINARY LOGS")
    purge_before_end(database)
    database.run("UPDATE t SET amount = 3")
    # Planned by who has read up to there, or by another process; read by both.
    for planning in (running, Life(database)):
        later = planning.reader.latestOffset(end, ALL)
        for reading in (planning, Life(database), Life(database, failOnDataLoss="false")):
            assert [change[5] for change in sorted(reading.changes(end, later))] == [2, 3]
        # And the watermark continues with what was read.
        assert planning.reader.latestOffset(later, ALL).get("wm") is not None
    assert sorted(Life(database).changes(end, later)) == sorted(running.changes(end, later))
    assert "failOnDataLoss" not in caplog.text


@pytest.mark.needs_mysql("logs no values of generated columns in updates")
def test_virtual_columns_that_depend_on_a_session_are_refused_unless_left_out(mysql_database: Database) -> None:
    database = mysql_database
    columns = {
        "shown VARCHAR(26)": "CAST(at AS CHAR(26))", "same TIMESTAMP": "at", "day DATE": "FROM_UNIXTIME(id)",
        "later CHAR(30)": "CONCAT(shown, id)", "twice INT": "id * 2",
    }  # fmt: skip
    virtual = ", ".join(f"{column} AS ({expression})" for column, expression in columns.items())
    kept = "kept VARCHAR(26) AS (CAST(at AS CHAR(26))) STORED"
    database.run(f"CREATE TABLE v (id INT PRIMARY KEY, at TIMESTAMP, {virtual}, {kept})")
    with pytest.raises(UnsupportedFormatError, match=r"[.]v: .* shown, day, later depend on the time "):
        Life(database, tables=f"{database.name}.v")
    chosen = {"tables": f"{database.name}.v", "excludeColumns": "shown,day,later"}
    database.run("SET SESSION time_zone = '+05:00'", "INSERT INTO v (id, at) VALUES (1, '2024-05-07 12:30:15')")
    rows = []
    for start in (dict[str, object](), {"file": database.since.file, "position": database.since.position}):
        life = Life(database, **chosen, **({"startingOffsets": json.dumps(start)} if start else {}))
        begin = life.reader.initialOffset()
        (row,) = life.rows(begin, life.reader.latestOffset(begin, ALL))
        life.reader.stop()
        rows.append([row[name] for name in ("same", "twice", "kept")])
    assert rows[0] == rows[1]
    assert rows[0][2] == "2024-05-07 12:30:15"
