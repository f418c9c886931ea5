"""What statements of a binlog do to the tables that are read, and those that are refused."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.binlog.ddl_statements import (
    Arrival,
    Definitions,
    Drop,
    arrivals,
    defined_until,
    drops,
    look_at_statements,
)
from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.query_events import Statement, statements
from tests.unit.mysql.made_events import logged
from watermark_source.errors import CorruptDataError, UnsupportedFormatError

T, U = ("shop", "t"), ("shop", "u")


def is_read(database: str, table: str) -> bool:
    return database == "shop" and table in ("t", "u")


def seen(*texts: str, ignores_unlogged: bool = False) -> Definitions:
    return look_at_statements(*logged(*texts), "log.000001", is_read, ignores_unlogged=ignores_unlogged)


def test_statements_come_with_their_session_and_place_but_for_a_begin() -> None:
    found = list(statements(*logged("DROP /* a */ TABLE t", "COMMIT", database="s" * 200, variables=b"\7" * 300)))
    assert found == [Statement("s" * 200, "DROP   TABLE t", 200, 2), Statement("s" * 200, "COMMIT", 300, 3)]


def test_a_statement_and_a_name_that_are_no_utf_8_are_read_all_the_same() -> None:
    memory, events = logged("DROP TABLE t")
    memory[[events[2, START] + HEADER_SIZE + 13, events[2, STOP] - 1]] = 0xFF
    assert [each[:2] for each in statements(memory, events)] == [("\ufffdhop", "DROP TABLE \ufffd")]


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


def test_of_tables_that_are_read_it_is_told_what_was_done_to_them() -> None:
    found = seen("DROP TABLE t, other.t, v", "ALTER TABLE u ADD a INT", "ALTER TABLE v ADD a INT", "DROP DATABASE old")
    assert found == Definitions({T}, {U: "binlog log.000001 position 300: ALTER TABLE u ADD a INT"}, {}, {"old"})
    # Of several that altered it, the last.
    assert (
        seen("ALTER TABLE t ADD a INT", "ALTER TABLE t ADD b INT").altered[T].endswith("300: ALTER TABLE t ADD b INT")
    )


@pytest.mark.parametrize("text", ["TRUNCATE t", "RENAME TABLE t TO v", "ALTER TABLE t DROP PARTITION p"])
def test_a_change_of_all_of_a_table_is_refused_or_told(text: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"log.000001 position 200: {text}: it changed shop.t as a whole"):
        seen(text)
    assert seen(text, ignores_unlogged=True).whole == {T: f"binlog log.000001 position 200: {text}"}
    assert seen(text.replace(" t", " v")) == seen()


@pytest.mark.parametrize("ignores_unlogged", [False, True])
@pytest.mark.parametrize("text", ["INSERT INTO t VALUES (1)", "update t set a = 1", "CALL p(t)"])
def test_a_statement_in_place_of_rows_is_refused_whatever_is_chosen(text: str, ignores_unlogged: bool) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"not the rows of shop\.t it changed"):
        seen(text, ignores_unlogged=ignores_unlogged)
    assert seen("INSERT INTO v VALUES (1)", "COMMIT", "CREATE TABLE t (a INT)") == seen()


def test_drops_and_arrivals_tell_how_many_events_lead_up_to_them() -> None:
    block = logged("DROP TABLE a, x.b", "CREATE TABLE c LIKE d", "DROP DATABASE e", "RENAME TABLE f TO g", "FLUSH LOGS")
    assert list(drops(*block)) == [Drop({("shop", "a"), ("x", "b")}, set(), 3), Drop(set(), {"e"}, 5)]
    assert list(arrivals(*block)) == [
        Arrival({("shop", "c")}, True, 4),
        Arrival({("shop", "f"), ("shop", "g")}, False, 6),
    ]


@pytest.mark.parametrize(
    ("text", "defines"),
    [
        ("DROP TABLE t", True), ("DROP DATABASE shop", True), ("ALTER TABLE t ADD a INT", True), ("TRUNCATE t", True),
        ("RENAME TABLE v TO t", True), ("DROP TABLE v", False), ("DROP DATABASE other", False),
        ("ALTER TABLE other.t ADD a INT", False), ("INSERT INTO t VALUES (1)", False),
        ("CREATE TABLE t (a INT)", False),
    ],
)  # fmt: skip
def test_a_table_is_defined_until_the_last_statement_that_does_so(text: str, defines: bool) -> None:
    assert defined_until(*logged(text, "COMMIT"), is_read, "t") == (3 if defines else 0)
    assert defined_until(*logged("TRUNCATE t", "COMMIT", text), is_read, "t") == (5 if defines else 3)
