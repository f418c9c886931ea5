"""What a key that changed may be in a copy, and how the row of a key that did not differs."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType

from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from pyspark_mysql_cdc_wm.verifying import logged_rows
from pyspark_mysql_cdc_wm.verifying.comparison import Difference, Kind, _against, _among
from pyspark_mysql_cdc_wm.verifying.logged_rows import states_of
from pyspark_mysql_cdc_wm.verifying.row_text import RowText
from watermark_source.errors import UnsupportedFormatError

A, B, C = 1, 2, 3
INSERTED, DELETED = [("insert", A)], [("delete", A)]
UPDATED = [("update_preimage", A), ("update_postimage", B)]


def changes(*rows: tuple[str, int]) -> list[Any]:
    return [{"key": "k", "piece": 7, "sha": sha, "_change_type": kind} for kind, sha in rows]


@pytest.mark.parametrize(
    ("logged", "copy", "found"),
    [
        (UPDATED, [A], None),
        (UPDATED, [B], None),
        (UPDATED, [C], Kind.ALTERED),
        (UPDATED, [], Kind.MISSING),
        (UPDATED, [A, B], Kind.DOUBLED),
        (INSERTED, [], None),
        (INSERTED, [A], None),
        (DELETED, [], None),
        (DELETED, [A], None),
        (DELETED, [B], Kind.ALTERED),
        ([*UPDATED, ("delete", B)], [], None),
        ([*DELETED, ("insert", C)], [C], None),
    ],
)
def test_the_row_of_a_key_that_changed_is_one_of_its_states(
    logged: list[tuple[str, int]], copy: list[int], found: Kind | None
) -> None:
    states = states_of(changes(*logged))["k"]
    assert states.piece == 7
    assert states.before == (None if logged[0][0] == "insert" else A)
    assert _among(copy, states) is found


def test_rows_of_a_piece_differ_in_four_ways() -> None:
    copy = {"same": [A], "twice": [A, A], "other": [B], "more": [C]}
    server: dict[str, int | None] = {"same": A, "twice": A, "other": A, "lost": A}
    assert _against(copy, server) == {
        "lost": Kind.MISSING, "twice": Kind.DOUBLED, "other": Kind.ALTERED, "more": Kind.EXTRA,
    }  # fmt: skip
    with pytest.raises(UnsupportedFormatError, match="max_allowed_packet"):
        _against(copy, {**server, "long": None})


def test_more_rows_that_changed_than_memory_may_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_rows, "_MOST_STATES", 2)
    assert len(states_of(changes(*UPDATED, *UPDATED))) == 1
    with pytest.raises(UnsupportedFormatError, match=r"more than 2 rows, .* Let the query read them"):
        states_of(changes(*UPDATED) + [{**row, "key": "other"} for row in changes(*INSERTED)])


def test_a_key_cannot_break_the_lines_of_a_terminal() -> None:
    found = Difference("all word", Kind.EXTRA, 1, ("a\naccepted: \x1b[2J",))
    assert str(found) == "all word: 1 extra: a?accepted: ?[2J"


def test_a_text_that_may_contain_commas_has_its_length_before_it() -> None:
    number, text = Column(ColumnType.LONG, name="n"), Column(ColumnType.VARCHAR, name="t", collation=45)
    both = RowText.of([(number, IntegerType()), (text, StringType())], "table shop.t")
    assert both.server == (
        "CONCAT(IF(`n` IS NULL, 'N', CAST(`n` + 0 AS CHAR)), ',', "
        "IF(`t` IS NULL, 'N', CONCAT(LENGTH(CONVERT(`t` USING utf8mb4)), ':', CONVERT(`t` USING utf8mb4))))"
    )
    assert RowText.of([(text, StringType())], "table shop.t").spark == "COALESCE(`t`, 'N')"
    # More digits than a decimal of Spark has are a text, of which a copy may have any: the letter of null, for example.
    digits = Column(ColumnType.NEWDECIMAL, name="d", precision=40, scale=2)
    both = RowText.of([(number, IntegerType()), (digits, StringType())], "table shop.t")
    assert both.spark.endswith("COALESCE(CONCAT(octet_length(`d`), ':', `d`), 'N'))")
    with pytest.raises(UnsupportedFormatError, match=r"table shop\.t column v: values of VECTOR cannot be compared"):
        RowText.of([(Column(ColumnType.VECTOR, name="v"), StringType())], "table shop.t")
