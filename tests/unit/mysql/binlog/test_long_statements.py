"""Statements of megabytes take work by their words, not by their bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pyspark_mysql_cdc_wm.binlog.query_events import readings
from pyspark_mysql_cdc_wm.binlog.sql_scanner import Dialect, tokens
from pyspark_mysql_cdc_wm.binlog.statement_effects import effect_of

GBK, SJIS, GB18030, SWE7 = 28, 13, 248, 10
LETTERS = "数据库".encode("gbk")
NO_LETTERS = bytes(each for each in range(1, 256) if each not in b"'\\")
TIMES = 20_000


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Yield what counts the calls, of Python and of C, that are made meanwhile."""
    calls = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    ("collation", "text"),
    [
        (GBK, LETTERS), (GBK, b"abc " + LETTERS), (GBK, NO_LETTERS), (SJIS, "データ".encode("cp932")),
        (SJIS, b"\xb1\xb2"), (GB18030, b"\x81\x30\x81\x30"), (SWE7, b"a\xb2\xb3"),
    ],
)  # fmt: skip
def test_letters_of_any_character_set_are_not_taken_one_by_one(collation: int, text: bytes) -> None:
    readings(text * 2, collation)
    with counted() as calls:
        ((long, _), *_) = readings(text * TIMES, collation)
    assert calls() < 100
    assert len(long) >= TIMES


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (a INT, CHECK (a IN ({}7)))",
        "ALTER TABLE t ADD CHECK (a IN ( {}7))",
        "ALTER TABLE t MODIFY a ENUM ({}'x')",
        "SET STATEMENT max_statement_time=1 FOR CREATE TABLE t (a INT CHECK (a IN ({}7)))",
    ],
)
@pytest.mark.parametrize("item", ["1,23, -4.5,", "'one','two' ,\n"])
def test_a_long_list_of_literals_is_passed_over(statement: str, item: str) -> None:
    # What is done once in a process is done by these.
    short = effect_of(statement.format(item)), effect_of(statement.format(""))
    with counted() as calls:
        effect = effect_of(statement.format(item * TIMES))
    assert calls() < 2_000
    assert short == (effect, effect)


@pytest.mark.parametrize("of", [" ", "\n", "x", "7", "é"])
def test_a_run_of_blanks_letters_or_digits_is_one_step(of: str) -> None:
    with counted() as calls:
        found = list(tokens(f"CREATE TABLE t (a INT, {of * TIMES} INT)"))
    assert calls() < 500
    assert len(found) < 12


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("(1, 'it''s', 2, 'x', 3)", Dialect()),
        (r"(1, 'it\'s, (', 2, ')', 3)", Dialect()),
        (r"(1, 'C:\', 2, ')', 3)", Dialect(backslash_escapes=False)),
        ("(1, 2 /* ' */, 3, -- '\n 4)", Dialect()),
        ("(1, 'a' 'b', 3)", Dialect()),
    ],
)
def test_what_stands_in_a_list_ends_where_it_would_elsewhere(text: str, dialect: Dialect) -> None:
    """With a name before it nothing of a list is passed over."""
    shown = [each.text for each in tokens(f"{text} after", dialect)]
    whole = [each.text for each in tokens(f"{text.replace('(', '(n, ', 1)} after", dialect)]
    assert shown[-2:] == whole[-2:] == [")", "after"]
    assert {*shown} <= {*whole}


def test_a_list_outside_of_brackets_keeps_its_parts() -> None:
    assert len(list(tokens("ORDER BY 1, 2, 3, 4"))) == 9
