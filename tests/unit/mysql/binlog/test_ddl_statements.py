"""What statements of a binlog do to the tables that are read, and those that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_mysql_cdc_wm.binlog.alter_table import AlteredColumns
from pyspark_mysql_cdc_wm.binlog.ddl_statements import (
    ColumnChange,
    Definitions,
    check_statements,
    defined_until,
    redefinitions,
)
from pyspark_mysql_cdc_wm.binlog.event_headers import FLAGS, HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.query_events import Session, session_of, statements
from pyspark_mysql_cdc_wm.binlog.statement_effects import REFUSED, LoggedStatements, Unlogged
from pyspark_mysql_cdc_wm.reading.schema_changes import check_unpacked
from tests.unit.mysql.made_events import logged
from watermark_source.errors import CorruptDataError, UnsupportedFormatError

T, U = ("shop", "t"), ("shop", "u")
IGNORED = Unlogged(ignores_whole=True)
OTHERS_IGNORED = Unlogged(statements=LoggedStatements.OTHERS_IGNORED)
ALL_IGNORED = Unlogged(statements=LoggedStatements.IGNORED)
ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 4, 1 << 20


def is_read(database: str, table: str) -> bool:
    return database == "shop" and table in ("t", "u", "größe")


def mode(sql_mode: int = 0, *, collation: int = 45, phase: int | None = None) -> bytes:
    """The variables that servers log with a statement."""
    charset = b"\4" + 3 * collation.to_bytes(2, "little")
    ended = b"" if phase is None else b"\x81" + bytes(8) + bytes([130, phase]) + (bytes(8) if phase & 12 else b"")
    return bytes(5) + b"\1" + sql_mode.to_bytes(8, "little") + b"\6\3std" + charset + b"\x0c\2a\0b\0" + ended


def seen(
    *texts: str | bytes, unlogged: Unlogged = REFUSED, variables: bytes = b"", mariadb: bool | None = None
) -> Definitions:
    memory, events = logged(*texts, variables=variables)
    if mariadb is not None:
        events[1, TYPE] = EventType.MARIADB_GTID if mariadb else EventType.GTID
    return check_statements(memory, events, "log.000001", is_read, unlogged)


def test_ignored_statements_are_refused_where_earlier_rows_are_wanted_but_for_those_of_other_tables() -> None:
    for unlogged, table in ((ALL_IGNORED, "t"), (OTHERS_IGNORED, "other")):
        memory, events = logged(f"DELETE FROM {table}")
        check_unpacked(is_read, unlogged, memory, events, "f")
        if unlogged is ALL_IGNORED:
            with pytest.raises(UnsupportedFormatError, match="let the query read on, and certify then"):
                check_unpacked(is_read, unlogged._replace(wants_past=True), memory, events, "f")
        else:
            check_unpacked(is_read, unlogged._replace(wants_past=True), memory, events, "f")


def test_statements_come_with_their_session_and_place_but_for_a_begin() -> None:
    found = list(statements(*logged("DROP /* a */ TABLE t", "COMMIT", database="s" * 200, variables=b"\xfe" * 300)))
    assert [(each.database, each.text, each.position, each.number) for each in found] == [
        ("s" * 200, "DROP /* a */ TABLE t", 200, 2), ("s" * 200, "COMMIT", 300, 3),
    ]  # fmt: skip
    assert [each.text for each in statements(*logged("DO(1)", "BEGIN", "begin"))] == ["DO(1)", "begin"]


def test_a_statement_and_a_name_that_are_no_utf_8_are_not_passed_over() -> None:
    memory, events = logged("DROP TABLE t")
    memory[[events[2, START] + HEADER_SIZE + 13, events[2, STOP] - 1]] = 0xFF
    ((database, text, effect, *_),) = statements(memory, events)
    assert (database, text, effect) == ("\ufffdhop", "DROP TABLE \ufffd", None)
    with pytest.raises(UnsupportedFormatError, match=r"it cannot be followed: there is \ufffd where a name should be"):
        check_statements(memory, events, "f", is_read)


def test_a_block_may_have_no_statement_and_its_last_one_may_be_cut_short() -> None:
    memory, events = logged()
    assert list(statements(memory, events[1:])) == []
    events[1, [TYPE, POSITION]] = EventType.QUERY, 700
    with pytest.raises(CorruptDataError, match=r"position 700: .* does not fit its event"):
        list(statements(memory, events[1:]))


@pytest.mark.parametrize(
    ("kind", "cut"), [(EventType.QUERY, 12), (EventType.QUERY, 13 + 4), (EventType.EXECUTE_LOAD_QUERY, 25)]
)
def test_a_statement_that_does_not_fit_its_event_is_corrupt(kind: EventType, cut: int) -> None:
    memory, events = logged("DROP TABLE t")
    events[2, TYPE], events[2, STOP] = kind, events[2, START] + HEADER_SIZE + cut
    with pytest.raises(CorruptDataError, match="a statement that does not fit its event"):
        list(statements(memory, events))
    events[2, TYPE], events[2, STOP] = EventType.QUERY, events[2, START] + HEADER_SIZE + 13 + 5
    assert [each.text for each in statements(memory, events)] == [""]


def test_of_tables_that_are_read_it_is_returned_what_was_done_to_them() -> None:
    found = seen("DROP TABLE t, other.t, v", "ALTER TABLE u FORCE", "ALTER TABLE v ADD a INT", "DROP DATABASE old")
    altered = {U: "binlog log.000001 position 300: ALTER TABLE u FORCE"}
    assert found == Definitions({T}, altered, {}, {"old"}, [], [])
    # Of several that altered it, the last.
    assert (
        seen("ALTER TABLE t ADD a INT", "ALTER TABLE t ADD b INT").altered[T].endswith("300: ALTER TABLE t ADD b INT")
    )
    renamed = "ALTER TABLE t DROP b, RENAME COLUMN a TO b"
    change = ColumnChange(f"binlog log.000001 position 200: {renamed}", AlteredColumns((("a", "b"),), frozenset({"b"})))
    assert seen(renamed, "ALTER TABLE v RENAME COLUMN a TO b").columns == [(T, change)]


@pytest.mark.parametrize(
    ("text", "redefined"),
    [
        ("ALTER TABLE t MODIFY a INT AFTER b", {T}),
        ("ALTER TABLE t CHANGE a a INT FIRST", {T}),
        ("ALTER TABLE t ADD a INT", {T}),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b)", {T}),
        ("DROP INDEX `PRIMARY` ON t", {T}),
        ("DROP INDEX IF EXISTS `primary` ON shop.t ALGORITHM = INPLACE", {T}),
        ("DROP INDEX i ON t", None),
        ("RENAME TABLE t TO u", {T, U}),
        ("CREATE OR REPLACE TABLE t (a INT)", {T}),
        ("DROP TABLE t", {T}),
        ("ALTER TABLE t ADD INDEX (a), ALTER COLUMN a SET DEFAULT 1, ENGINE = InnoDB", None),
        ("CREATE TABLE IF NOT EXISTS t (a INT)", None),
        ("TRUNCATE t", None),
    ],
)
def test_a_statement_after_which_a_table_may_have_other_columns_is_found(text: str, redefined: set[Any] | None) -> None:
    memory, events = logged(text)
    found = list(redefinitions(memory, events, "log.000001"))
    assert [set(each.tables) for each in found] == ([] if redefined is None else [redefined])
    assert all(each.where.startswith("binlog log.000001 position") and not each.unfollowed for each in found)


def test_a_statement_that_cannot_be_followed_may_have_changed_any_table() -> None:
    (found,) = redefinitions(*logged("ALTER TABLE v COMMENT 'a"), "log.000001")
    assert found.concerns(T, lambda *name: name)
    (found,) = redefinitions(*logged("DROP DATABASE Shop"), "log.000001")
    assert found.concerns(T, lambda database, table: (database.lower(), table))
    assert not found.concerns(T, lambda *name: name)


@pytest.mark.parametrize("text", ["TRUNCATE t", "RENAME TABLE t TO v", "ALTER TABLE t DROP PARTITION p"])
def test_a_change_of_all_of_a_table_is_refused_or_returned(text: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"log.000001 position 200: {text}: it changed shop.t as a whole"):
        seen(text)
    assert seen(text, unlogged=IGNORED).whole == {T: f"binlog log.000001 position 200: {text}"}
    assert seen(text.replace(" t", " v")) == seen()


@pytest.mark.parametrize(
    "text", ["INSERT INTO t VALUES (1)", "update t set a = 1", "CREATE TABLE t AS SELECT 1", "DELETE FROM shop.u"]
)
def test_a_statement_in_place_of_rows_names_the_table_and_the_setting(text: str) -> None:
    for unlogged in (REFUSED, IGNORED, OTHERS_IGNORED):
        with pytest.raises(
            UnsupportedFormatError,
            match=r"200: .*not the rows of shop\.[tu] it changed.* add statements to ignoredChanges",
        ):
            seen(text, unlogged=unlogged)
    assert seen(text, unlogged=ALL_IGNORED).ignored == [f"binlog log.000001 position 200: {text}"]


@pytest.mark.parametrize("text", ["INSERT INTO v SELECT * FROM t", "UPDATE v SET a = 1", "CREATE TABLE v SELECT 1"])
def test_one_of_another_table_may_have_changed_ours_by_a_trigger(text: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"triggers and functions may .* or otherStatements if no"):
        seen(text)
    for unlogged in (OTHERS_IGNORED, ALL_IGNORED):
        assert seen(text, unlogged=unlogged).ignored == [f"binlog log.000001 position 200: {text}"]


@pytest.mark.parametrize("text", ["SELECT `shop`.`f`()", "CALL p(t)", "DO f()", "ANALYZE UPDATE v SET a = 1", "FROB"])
def test_one_that_names_no_table_is_refused_unless_all_are_ignored(text: str) -> None:
    for unlogged in (REFUSED, OTHERS_IGNORED):
        with pytest.raises(
            UnsupportedFormatError, match=r"it does not name their tables.* add statements to ignoredChanges$"
        ):
            seen(text, unlogged=unlogged)
    assert seen(text, unlogged=ALL_IGNORED).ignored == [f"binlog log.000001 position 200: {text}"]


def test_a_definition_that_cannot_be_followed_is_refused_whichever_table_it_names() -> None:
    for unlogged in (REFUSED, OTHERS_IGNORED):
        with pytest.raises(
            UnsupportedFormatError, match=r"a quoted text has no end\. If you know that it changed none"
        ):
            seen("ALTER TABLE v COMMENT 'a", unlogged=unlogged)
    assert len(seen("ALTER TABLE v COMMENT 'a", unlogged=ALL_IGNORED).ignored) == 1


def test_heartbeats_of_a_clouds_service_end_nothing() -> None:
    beat = "INSERT INTO mysql.rds_heartbeat2(id, value) values (1,{}) ON DUPLICATE KEY UPDATE value = 1"
    assert seen(beat.format(1), "DELETE FROM mysql.rds_sysinfo where name = 'x'") == seen()
    for text in (beat.format("shop.f()"), beat.replace("rds_heartbeat2", "v").format(1)):
        with pytest.raises(UnsupportedFormatError, match="triggers and functions"):
            seen(text)


def test_a_table_that_a_restart_emptied_is_no_statement_of_a_session() -> None:
    memory, events = logged("DELETE FROM `shop`.`m`", "DELETE FROM `shop`.`t`")
    with pytest.raises(UnsupportedFormatError, match="triggers and functions"):
        check_statements(memory, events, "f", is_read)
    events[:, FLAGS] = 8
    with pytest.raises(UnsupportedFormatError, match=r"it changed shop\.t as a whole"):
        check_statements(memory, events, "f", is_read)
    assert check_statements(memory, events[:3], "f", is_read) == seen()


def test_a_statement_is_read_by_the_mode_of_its_session() -> None:
    renamed = "ALTER TABLE t COMMENT 'C:\\', RENAME TO old_t, ALTER a SET DEFAULT '1'"
    with pytest.raises(UnsupportedFormatError, match=r"it changed shop\.t as a whole"):
        seen(renamed, variables=mode(NO_BACKSLASH_ESCAPES))
    with pytest.raises(UnsupportedFormatError, match="it cannot be followed"):
        seen(renamed, variables=mode())
    with pytest.raises(UnsupportedFormatError, match=r"it changed shop\.t as a whole"):
        seen('TRUNCATE TABLE "t"', variables=mode(ANSI_QUOTES))


def test_what_is_set_for_one_statement_is_not_what_it_was_read_by() -> None:
    text = "SET STATEMENT sql_mode = 'NO_BACKSLASH_ESCAPES' FOR ALTER TABLE t COMMENT 'it\\'s', RENAME TO v"
    for mariadb in (True, None):
        with pytest.raises(UnsupportedFormatError, match=r"it changed shop\.t as a whole"):
            seen(text, variables=mode(NO_BACKSLASH_ESCAPES), mariadb=mariadb)


def test_what_mariadb_alone_executes_counts_where_the_server_may_be_one() -> None:
    text = "/*M!100100 TRUNCATE TABLE t */"
    assert seen(text, mariadb=False) == seen()
    for mariadb in (True, None):
        with pytest.raises(UnsupportedFormatError, match=r"it changed shop\.t as a whole"):
            seen(text, mariadb=mariadb)


def test_a_remark_that_mariadb_copies_into_a_drop_is_not_executed_again() -> None:
    for copied in ("/*!TABLE*/", "/*!50000 u */", "/*!50000 t, */"):
        assert seen(f"DROP TABLE {copied} `u` /* generated by server */", mariadb=True).dropped == {U}
    assert seen("DROP TABLE `u` /* generated by server */", mariadb=True).dropped == {U}
    quoted = seen('DROP TABLE "g","/**/u" /* generated by server */', variables=mode(ANSI_QUOTES), mariadb=True)
    assert quoted.dropped == set()
    assert seen("DROP TABLE `a/*b`,`u`,`c*/d` /* generated by server */", mariadb=True).dropped == {U}


@pytest.mark.parametrize(
    ("text", "codec", "collation"),
    [
        ("TRUNCATE\xa0TABLE größe", "cp1252", 8),
        ("DROP TABLE v, `größe` /* generated by server */", "utf-8", 8),
        ("ALTER TABLE t COMMENT 'ソ', RENAME TO v", "cp932", 13),
    ],
)
def test_a_statement_is_read_by_the_letters_of_its_session(text: str, codec: str, collation: int) -> None:
    found = seen(text.encode(codec), unlogged=IGNORED, variables=mode(collation=collation))
    assert found.whole or found.dropped == {("shop", "größe")}


def test_an_alter_in_two_phases_counts_when_it_is_committed() -> None:
    text = "ALTER TABLE t ADD UNIQUE (a), RENAME TO v"
    for phase in (2, 8):
        assert seen(text, variables=mode(phase=phase), mariadb=True) == seen()
    with pytest.raises(UnsupportedFormatError, match=r"it changed shop\.t as a whole"):
        seen(text, variables=mode(phase=4), mariadb=True)


def test_settings_are_found_among_all_variables_that_are_logged() -> None:
    before = b"\2\3std\0" + b"\x0b\1a\2bc" + b"\x83\1" + bytes(4) + b"\5\3UTC" + b"\x0c\xfe"
    assert session_of(before + mode(5, collation=8, phase=4) + b"\xfd\1\7") == Session(5, 8, 4)


@pytest.mark.parametrize("cut", ["", "01", "04", "0401", "06", "06ff", "fd040800", "000000", "0bff", "0c0361", "83ff"])
def test_variables_that_are_cut_short_are_those_of_no_session(cut: str) -> None:
    session = session_of(bytes.fromhex(cut))
    assert session._replace(collation=0) == Session()
    assert session.collation <= 1


@pytest.mark.parametrize(
    ("text", "defines"),
    [
        ("DROP TABLE t", True), ("DROP DATABASE shop", True), ("ALTER TABLE t ADD a INT", True), ("TRUNCATE t", True),
        ("RENAME TABLE v TO t", True), ("DROP TABLE v", False), ("DROP DATABASE other", False),
        ("ALTER TABLE other.t ADD a INT", False), ("FROB t", False), ("ALTER TABLE t COMMENT 'a", False),
        ("INSERT INTO t VALUES (1)", False), ("CREATE TABLE t (a INT)", False),
    ],
)  # fmt: skip
def test_a_table_is_defined_until_the_last_statement_that_does_so(text: str, defines: bool) -> None:
    assert defined_until(*logged(text, "COMMIT"), is_read, "t") == (3 if defines else 0)
    assert defined_until(*logged("TRUNCATE t", "COMMIT", text), is_read, "t") == (5 if defines else 3)
