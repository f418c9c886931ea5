"""MariaDB's binlog through the source."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pymysql
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_mysql_cdc_wm.records.changes import Changes
from services.containers import Where
from services.mysql import mysql_service
from services.mysql_program import Flavour
from tests.integration.mysql_binlog import Database, end_of_binlog, new_database
from tests.integration.mysql_lives import ALL, Life
from tests.integration.mysql_streams import RIGHTS, USER, make_user
from watermark_source.errors import OffsetError, RefusedError, UnsupportedFormatError

pytestmark = pytest.mark.service


_ANEW = "CREATE OR REPLACE TABLE {} (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Database]:
    with mysql_service(flavour=Flavour.MARIADB, where=Where.LOCAL) as server:
        make_user(server, USER, *RIGHTS)
        with new_database(server) as database:
            database.run("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)")
            yield database


def test_changes_come_in_order_from_file_to_file(mariadb: Database) -> None:
    life = Life(mariadb, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    mariadb.run(
        "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2)", "FLUSH BINARY LOGS",
        "UPDATE t SET name = 'x' WHERE id = 1",
        "BEGIN", "UPDATE t SET id = 3 WHERE id = 2", "DELETE FROM t WHERE id = 1", "COMMIT",
    )  # fmt: skip
    end = life.reader.latestOffset(start, ALL)
    found = sorted(life.changes(start, end))
    assert [change[2:5] for change in found] == [
        ("insert", 1, "one"), ("insert", 2, "two"), ("update_preimage", 1, "one"), ("update_postimage", 1, "x"),
        ("delete", 2, "two"), ("insert", 3, "two"), ("delete", 1, "x"),
    ]  # fmt: skip
    assert len({change[0] for change in found}) == 3
    assert life.reader.latestOffset(end, ALL)["wm"] > 0
    life.reader.stop()


def test_sequences_that_match_are_left_out_as_in_a_snapshot(mariadb: Database) -> None:
    mariadb.run("CREATE TABLE se_first (id INT PRIMARY KEY)")
    life = Life(mariadb, tables=f"{mariadb.name}.se*", rowFormat="json", startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    mariadb.run(
        "CREATE SEQUENCE se_one", "SELECT NEXTVAL(se_one)", "CREATE SEQUENCE se_gone AS TINYINT UNSIGNED",
        "SELECT NEXTVAL(se_gone)", "DROP SEQUENCE se_gone",
        # A table is one whatever its columns are called.
        "CREATE TABLE se_table AS SELECT * FROM se_one",
    )  # fmt: skip
    end = life.reader.latestOffset(start, ALL)
    assert [row["_table"] for row in life.rows(start, end)] == ["se_table"]
    life.reader.stop()


def test_who_may_not_have_the_binlog_is_refused_at_load(mariadb: Database) -> None:
    # Its statements about the binlog take REPLICATION CLIENT alone.
    make_user(mariadb.server, "poor", *(right for right in RIGHTS if not right.startswith("REPLICATION SLAVE")))
    with pytest.raises(RefusedError, match=r"REPLICATION SLAVE .* GRANT REPLICATION SLAVE, .* TO 'poor'@'%'"):
        Life(mariadb, username="poor")


def test_a_type_that_is_not_read_can_be_left_out(mariadb: Database) -> None:
    mariadb.run("CREATE TABLE odd (id INT PRIMARY KEY, name UUID)")
    with pytest.raises(UnsupportedFormatError, match="column name: the type uuid is not read; leave it out by"):
        Life(mariadb, tables=f"{mariadb.name}.odd")
    life = Life(mariadb, tables=f"{mariadb.name}.odd", excludeColumns="name", startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    mariadb.run("INSERT INTO odd VALUES (7, UUID())")
    assert [row["id"] for row in life.rows(start, life.reader.latestOffset(start, ALL))] == [7]
    life.reader.stop()


def test_a_compressed_column_can_be_left_out_and_is_no_matter_in_a_table_that_is_not_read(mariadb: Database) -> None:
    mariadb.run(
        _ANEW.format("v"),
        "CREATE OR REPLACE TABLE squeezed (id INT PRIMARY KEY, a VARCHAR(400) COMPRESSED CHARACTER SET latin1,"
        " b TEXT COMPRESSED CHARACTER SET latin2, c BLOB COMPRESSED, name VARCHAR(40) CHARACTER SET latin1, p POINT,"
        " amount BIGINT UNSIGNED)",
    )
    squeezed = f"{mariadb.name}.squeezed"
    lives = [
        Life(mariadb, tables=f"{mariadb.name}.v", startingOffsets="latest"),
        Life(mariadb, tables=squeezed, columns="id,name,amount", startingOffsets="latest", maxRowsPerTrigger=100),
        Life(mariadb, tables=squeezed, excludeColumns="a,b,c,p", rowFormat="json", startingOffsets="latest"),
    ]
    starts = [life.reader.initialOffset() for life in lives]
    values = "REPEAT('b', 300), REPEAT('č', 900), 'c', 'é', NULL, 7"
    mariadb.run(f"INSERT INTO squeezed VALUES (1, {values})", "INSERT INTO v VALUES (2, 'n', 3)")
    v, chosen, as_json = (
        life.rows(start, life.reader.latestOffset(start, ALL)) for life, start in zip(lives, starts, strict=True)
    )
    assert [row["id"] for row in v] == [2]
    assert [(row["id"], row["name"], row["amount"]) for row in chosen] == [(1, "é", 7)]
    assert [json.loads(row["_row"]) for row in as_json] == [{"id": 1, "name": "é", "amount": 7}]
    for life in lives:
        life.reader.stop()
    with pytest.raises(UnsupportedFormatError, match="squeezed column a: COMPRESSED is not read; leave it out by the"):
        Life(mariadb, tables=squeezed)


def test_events_that_are_compressed_one_by_one_hold_the_same_changes(mariadb: Database) -> None:
    name = "CONCAT(REPEAT('n', 30), id)"
    history = (
        "CREATE TABLE {} (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)",
        "INSERT INTO {} SELECT seq, REPEAT('a', 40), 7 FROM seq_1_to_2000",
        "UPDATE {} SET name = " + name + " WHERE id % 3 = 0",
        "DELETE FROM {} WHERE id > 1900",
        "INSERT INTO {} VALUES (9999, 'short', 0)",
        "ALTER TABLE {} ADD COLUMN more INT COMMENT '" + 300 * "x" + "'",
        "INSERT INTO {} SELECT id + 10000, name, amount, 5 FROM {} WHERE id < 1000",
    )
    mariadb.run(*(each.replace("{}", "plain") for each in history))
    since = end_of_binlog(mariadb.server)
    mariadb.run("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
    try:
        # Sessions take it up when they begin.
        mariadb.run(*(each.replace("{}", "packed") for each in history))
        end = end_of_binlog(mariadb.server)
        life = Life(mariadb, tables=f"{mariadb.name}.packed", startingOffsets="latest")
        start: Mapping[str, Any] = life.reader.initialOffset()
        mariadb.run("UPDATE packed SET amount = 8 WHERE id < 1000", "FLUSH BINARY LOGS", "DELETE FROM packed")
        found = life.changes(start, life.reader.latestOffset(start, ALL))
        life.reader.stop()
    finally:
        mariadb.run("SET GLOBAL log_bin_compress = OFF", "SET GLOBAL log_bin_compress_min_len = 256")
    plain, packed = ([row for each in mariadb.changes(table) for row in images(each)] for table in ("plain", "packed"))
    assert plain == packed[: len(plain)]
    assert len(found) == 2 * 999 + 2900
    assert end.position - since.position < 60_000
    end = end_of_binlog(mariadb.server)
    mariadb.run("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
    try:
        mariadb.run(f"/* {300 * 'y'} */ TRUNCATE TABLE packed /* {300 * 'z'} */")
    finally:
        mariadb.run("SET GLOBAL log_bin_compress = OFF", "SET GLOBAL log_bin_compress_min_len = 256")
    place = json.dumps({"file": end.file, "position": end.position})
    life = Life(mariadb, tables=f"{mariadb.name}.packed", startingOffsets=place)
    start = life.reader.initialOffset()
    with pytest.raises(UnsupportedFormatError, match=r"it changed .*packed as a whole"):
        life.rows(start, life.reader.latestOffset(start, ALL))


def images(changes: Changes) -> list[tuple[Any, ...]]:
    """Return the row images, each with what it is."""
    return list(zip(changes.images.kinds.tolist(), *(column.to_pylist() for column in changes.columns), strict=True))


def test_a_table_that_is_replaced_is_one_that_was_dropped(mariadb: Database, caplog: pytest.LogCaptureFixture) -> None:
    anew = "CREATE OR REPLACE TABLE u (id INT PRIMARY KEY, name VARCHAR(40), amount BIGINT)"
    mariadb.run(anew, "INSERT INTO u VALUES (1, 'one', 1), (2, 'two', 2)")
    life = Life(mariadb, tables=f"{mariadb.name}.u")
    start: Mapping[str, Any] = life.reader.initialOffset()
    end = life.reader.latestOffset(start, ALL)
    mariadb.run("UPDATE u SET amount = 3 WHERE id = 2", anew, "INSERT INTO u VALUES (2, 'new', 4)")
    assert [change[3:] for change in life.changes(start, end)] == [(2, "two", 2)]
    found = life.changes(end, life.reader.latestOffset(end, ALL))
    life.reader.stop()
    assert [change[2:] for change in sorted(found)] == [
        ("update_preimage", 2, "two", 2), ("update_postimage", 2, "two", 3), ("insert", 2, "new", 4),
    ]  # fmt: skip
    assert ".u was dropped; no deletions follow for its delivered rows" in caplog.text


@pytest.mark.parametrize(
    "statements",
    [
        ("SET STATEMENT lock_wait_timeout = 9, sql_mode = '' FOR TRUNCATE TABLE v",),
        (
            _ANEW.format("p") + " PARTITION BY RANGE (id) (PARTITION p1 VALUES LESS THAN (200))",
            "ALTER TABLE p CONVERT TABLE v TO PARTITION p2 VALUES LESS THAN (300)",
        ),
        ("SET sql_mode = 'ANSI_QUOTES'", 'SET STATEMENT sql_mode = \'\' FOR ALTER TABLE "v" RENAME TO "w"'),
        # Rows that do not fit are dropped.
        ("INSERT INTO v VALUES (251, 'n', 0)", "ALTER IGNORE TABLE v ADD UNIQUE (name)"),
    ],
)
def test_what_empties_a_table_in_words_that_mariadb_alone_has_is_refused(
    mariadb: Database, statements: tuple[str, ...]
) -> None:
    mariadb.run(_ANEW.format("v"), "INSERT INTO v VALUES (250, 'n', 0)")
    life = Life(mariadb, tables=f"{mariadb.name}.v", startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    mariadb.run(*statements)
    with pytest.raises(UnsupportedFormatError, match=r"it changed .*[.]v as a whole"):
        life.changes(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()


def test_an_alter_in_two_phases_counts_when_it_is_done_and_not_when_it_failed(mariadb: Database) -> None:
    mariadb.run(_ANEW.format("v"), "INSERT INTO v VALUES (1, 'n', 0), (2, 'n', 0)")
    life = Life(mariadb, tables=f"{mariadb.name}.v", startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    phases = "SET binlog_alter_two_phase = 1"
    with pytest.raises(pymysql.IntegrityError):
        mariadb.run(phases, "ALTER TABLE v ADD UNIQUE (name), RENAME TO phased")
    mariadb.run("DELETE FROM v WHERE id = 1")
    end = life.reader.latestOffset(start, ALL)
    assert [change[2:4] for change in life.changes(start, end)] == [("delete", 1)]
    mariadb.run(phases, "ALTER TABLE v ADD UNIQUE (name), RENAME TO phased", "DROP TABLE phased")
    with pytest.raises(UnsupportedFormatError, match=r"it changed .*[.]v as a whole"):
        life.changes(end, life.reader.latestOffset(end, ALL))
    life.reader.stop()


def test_an_analyzed_statement_in_place_of_rows_is_refused(mariadb: Database) -> None:
    mariadb.run(_ANEW.format("v"), "INSERT INTO v VALUES (1, 'n', 0)")
    life = Life(mariadb, tables=f"{mariadb.name}.v", startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    mariadb.run("SET binlog_format = STATEMENT", "ANALYZE UPDATE v SET amount = 1")
    with pytest.raises(UnsupportedFormatError, match=r"ANALYZE UPDATE v .*: a statement was logged, not the rows"):
        life.changes(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()


def test_what_is_logged_and_rolled_back_does_not_come(mariadb: Database) -> None:
    mariadb.run(_ANEW.format("v"), "CREATE TABLE m (id INT) ENGINE = MyISAM")
    life = Life(mariadb, tables=f"{mariadb.name}.v", startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    insert, own = "INSERT INTO v VALUES ({}, 'n', 0)", "CREATE TEMPORARY TABLE {} (id INT)"
    mariadb.run("BEGIN", insert.format(1), own.format("one"), insert.format(2), "ROLLBACK")
    mariadb.run(
        "BEGIN", insert.format(3), "SAVEPOINT a", insert.format(4), "INSERT INTO m VALUES (1)", "ROLLBACK TO a",
        insert.format(5), "SAVEPOINT b", insert.format(6), "ROLLBACK TO A", insert.format(7), "COMMIT",
    )  # fmt: skip
    end = life.reader.latestOffset(start, ALL)
    held = [id_ for (id_,) in mariadb.run("SELECT id FROM v ORDER BY id")]
    assert [(change[1], change[3]) for change in life.changes(start, end)] == list(enumerate(held)) == [(0, 3), (1, 7)]
    # Too much to be kept: its first rows are gone when its end is seen.
    mariadb.run(
        "BEGIN", "INSERT INTO v SELECT seq, REPEAT('n', 40), 0 FROM seq_10_to_200000", own.format("two"), "ROLLBACK"
    )
    with pytest.raises(UnsupportedFormatError, match="was logged and rolled back, and is too long to be left out"):
        life.changes(end, life.reader.latestOffset(end, ALL))
    life.reader.stop()


def test_what_is_rolled_back_does_not_come_wherever_it_lies_in_a_long_range(mariadb: Database) -> None:
    mariadb.run(_ANEW.format("v"))
    life = Life(mariadb, tables=f"{mariadb.name}.v", startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    for i in range(40):
        rows = f"INSERT INTO v SELECT seq, REPEAT('n', 40), 0 FROM seq_{i}0000_to_{i}4999"
        mariadb.run("BEGIN", rows, f"CREATE TEMPORARY TABLE one{i} (id INT)", ("COMMIT", "ROLLBACK")[i % 2])
    end = life.reader.latestOffset(start, ALL)
    held = [id_ for (id_,) in mariadb.run("SELECT id FROM v ORDER BY id")]
    assert len(held) == 100_000
    for pieces in (1, 7):
        again = Life(mariadb, tables=f"{mariadb.name}.v", minPartitions=pieces)
        partitions = again.reader.partitions(dict(start), dict(end))
        assert len(partitions) == pieces
        batches = [batch for partition in partitions for batch in again.reader.read(partition)]
        assert [id_ for batch in batches for id_ in batch.column("id").to_pylist() if id_ is not None] == held
        again.reader.stop()
    life.reader.stop()


_MOMENTS = (
    ", since TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, until TIMESTAMP(6) GENERATED ALWAYS AS ROW END"
    " INVISIBLE, PERIOD FOR SYSTEM_TIME (since, until)"
)
_NUMBERS = _MOMENTS.replace("TIMESTAMP(6)", "BIGINT UNSIGNED")


@pytest.mark.parametrize("form", ["columns", "json"])
@pytest.mark.parametrize("period", ["", _MOMENTS, _NUMBERS], ids=["hidden", "moments", "numbers"])
def test_a_table_that_keeps_former_rows_is_refused_at_load(mariadb: Database, period: str, form: str) -> None:
    mariadb.run(f"CREATE OR REPLACE TABLE kept (id INT PRIMARY KEY{period}) WITH SYSTEM VERSIONING")
    for start in ("latest", "snapshot"):
        with pytest.raises(UnsupportedFormatError, match=r"kept: it is WITH SYSTEM VERSIONING, .* DROP SYSTEM VERSION"):
            Life(mariadb, tables=f"{mariadb.name}.kept", startingOffsets=start, rowFormat=form)


@pytest.mark.parametrize("form", ["columns", "json"])
@pytest.mark.parametrize("period", ["", _MOMENTS.replace(", ", ", ADD ", 2)], ids=["hidden", "moments"])
def test_a_table_that_begins_to_keep_former_rows_ends_the_query(mariadb: Database, period: str, form: str) -> None:
    mariadb.run(_ANEW.format("kept"))
    life = Life(
        mariadb, tables=f"{mariadb.name}.kept", startingOffsets="latest", rowFormat=form, ignoredChanges="columns"
    )
    start: Mapping[str, Any] = life.reader.initialOffset()
    added = period.replace(", PERIOD", ", ADD PERIOD").lstrip(", ")
    mariadb.run(
        f"ALTER TABLE kept {f'{added}, ' if added else ''}ADD SYSTEM VERSIONING",
        "INSERT INTO kept VALUES (1, 'a', 1)", "UPDATE kept SET amount = 2",
    )  # fmt: skip
    with pytest.raises(UnsupportedFormatError, match=r"kept: it is WITH SYSTEM VERSIONING"):
        life.rows(start, life.reader.latestOffset(start, ALL))
    life.reader.stop()


@pytest.mark.parametrize("unique", ["UNIQUE (name)", "UNIQUE (amount) USING HASH, UNIQUE (name)"])
def test_the_hash_of_a_unique_text_is_no_column(mariadb: Database, unique: str) -> None:
    # The table has a column of the name that the server gives the first hash.
    mariadb.run(
        f"CREATE OR REPLACE TABLE hashed (id INT PRIMARY KEY, name TEXT, amount VARCHAR(5000), DB_ROW_HASH_1 BIGINT,"
        f" {unique})", "INSERT INTO hashed VALUES (1, 'a', 'x', 7)",
    )  # fmt: skip
    found = []
    for form in ("columns", "json"):
        life = Life(mariadb, tables=f"{mariadb.name}.hashed", rowFormat=form)
        start: Mapping[str, Any] = life.reader.initialOffset()
        end = life.reader.latestOffset(start, ALL)
        rows = life.rows(start, end)
        mariadb.run("UPDATE hashed SET name = 'b'", "REPLACE INTO hashed VALUES (1, 'a', 'x', 7)")
        while (start := end) != (end := life.reader.latestOffset(end, ALL)):
            rows += sorted(life.rows(start, end), key=lambda row: (row["_commit_version"], row["_change_number"]))
        life.reader.stop()
        texts = [json.loads(row["_row"]) if form == "json" else row for row in rows]
        names = ("id", "name", "amount", "DB_ROW_HASH_1")
        assert all(form == "columns" or tuple(text) == names for text in texts)
        found.append([(row["_change_type"], *(text[n] for n in names)) for row, text in zip(rows, texts, strict=True)])
    assert found[0] == found[1]
    row_a, row_b = (1, "a", "x", 7), (1, "b", "x", 7)
    assert found[0][:3] == [("insert", *row_a), ("update_preimage", *row_a), ("update_postimage", *row_b)]
    assert found[0][-1][1:] == row_a


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("YEAR(2)", r"the type year\(2\) is not read, because a SELECT shows two .* excludeColumns. .* MODIFY `odd`"),
        (
            "DATETIME(3)",
            r"the type datetime\(3\) .* mariadb-5.3 .* does not have the length of .* MODIFY `odd` DATETIME",
        ),
        ("TIME(2)", r"the type time\(2\) .* mariadb-5.3 .* does not have the length of its values"),
        ("INET4", "the type inet4 is not read; leave it out by the option excludeColumns"),
        ("INET6", "the type inet6 is not read; leave it out by the option excludeColumns"),
    ],
)
def test_a_type_whose_values_are_not_whole_is_refused_at_load(mariadb: Database, declared: str, message: str) -> None:
    mariadb.run(
        "SET GLOBAL mysql56_temporal_format = OFF", f"CREATE OR REPLACE TABLE old (id INT PRIMARY KEY, odd {declared})",
        "SET GLOBAL mysql56_temporal_format = ON",
    )  # fmt: skip
    for form in ("columns", "json"):
        with pytest.raises(UnsupportedFormatError, match=message):
            Life(mariadb, tables=f"{mariadb.name}.old", rowFormat=form)
        Life(mariadb, tables=f"{mariadb.name}.old", rowFormat=form, excludeColumns="odd").reader.stop()


def test_times_of_old_that_have_no_fraction_are_read(mariadb: Database) -> None:
    mariadb.run(
        "SET GLOBAL mysql56_temporal_format = OFF",
        "CREATE OR REPLACE TABLE old (id INT PRIMARY KEY, a DATETIME, b TIME, c TIMESTAMP NULL)",
        "SET GLOBAL mysql56_temporal_format = ON", "SET time_zone = '+00:00'",
    )  # fmt: skip
    end = end_of_binlog(mariadb.server)
    since = json.dumps({"file": end.file, "position": end.position})
    mariadb.run("INSERT INTO old VALUES (1, '2024-05-07 12:30:15', '-838:59:59', '2001-02-03 04:05:06')")
    texts = []
    for start in ("snapshot", since):
        life = Life(mariadb, tables=f"{mariadb.name}.old", startingOffsets=start, rowFormat="json")
        begin = life.reader.initialOffset()
        texts += [row["_row"] for row in life.rows(begin, life.reader.latestOffset(begin, ALL))]
        life.reader.stop()
    assert texts == ['{"id":1,"a":"2024-05-07 12:30:15","b":"-838:59:59","c":"2001-02-03 04:05:06Z"}'] * 2


def test_a_checkpoint_of_another_server_is_refused(mariadb: Database) -> None:
    life = Life(mariadb, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    assert start["system"] == "server_id 101"
    elsewhere = {**start, "system": "server_id 2"}
    refused = r"of another server, and mean nothing to MySQL at .* without GTIDs"
    with pytest.raises(OffsetError, match=refused):
        life.reader.latestOffset(elsewhere, ALL)
    with pytest.raises(OffsetError, match=refused):
        life.reader.partitions(elsewhere, start)
    life.reader.stop()


def test_a_limit_cuts_and_a_moment_is_found_by_the_second(mariadb: Database) -> None:
    life = Life(mariadb, startingOffsets="latest")
    start: Mapping[str, Any] = life.reader.initialOffset()
    mariadb.run("DELETE FROM t", *(f"INSERT INTO t VALUES ({key}, 'n', 0)" for key in range(10, 16)))
    time.sleep(2.1)
    moment = 1_000 * int(time.time())
    mariadb.run("FLUSH BINARY LOGS", *(f"INSERT INTO t VALUES ({key}, 'n', 0)" for key in range(20, 26)))
    found = []
    while (end := life.reader.latestOffset(start, ReadMaxRows(4))) != start:
        rows = [change[3] for change in life.changes(start, end) if change[2] == "insert"]
        assert len(rows) <= 4
        found += rows
        start = end
    assert found == [*range(10, 16), *range(20, 26)]
    later = Life(mariadb, startingTimestamp=moment)
    begin = later.reader.initialOffset()
    assert [change[3] for change in later.changes(begin, later.reader.latestOffset(begin, ALL))] == [*range(20, 26)]
    # There are no commit times to align by: batches continue in steps.
    grouped = Life(mariadb, startingTimestamp=moment, alignmentGroup="g", alignmentMaxDrift="1 second")
    assert len(grouped.changes(begin, grouped.reader.latestOffset(begin, ALL))) == 6
    for each in (life, later, grouped):
        each.reader.stop()
