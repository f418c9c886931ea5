"""What an ALTER does to the columns of a stream, of which no row is logged."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from pyspark_mysql_cdc_wm.binlog.ddl_statements import ColumnChange
from pyspark_mysql_cdc_wm.binlog.statement_effects import effect_of
from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.reading.delivered_tables import warn_once
from pyspark_mysql_cdc_wm.reading.schema_changes import Known
from pyspark_mysql_cdc_wm.records.layout import WHOLE_ROWS, ColumnChoice, Layout
from watermark_source.errors import SchemaError, UnsupportedFormatError

T = TableName("shop", "t")
ALL_COLUMNS = ColumnChoice()
OF_COLUMNS = Layout(("id", "a", "b"), (pa.int32(),) * 3)
WHOLE = Layout(("_row",), (pa.string(),), ALL_COLUMNS)


def compare(
    text: str,
    layout: Layout = OF_COLUMNS,
    choice: ColumnChoice = ALL_COLUMNS,
    *,
    ignores: bool = False,
    ignores_unlogged: bool = False,
) -> None:
    known = Known(frozenset({T}), choice, layout, ignores_new_columns=ignores)
    change = ColumnChange(f"binlog f position 9: {text}", effect_of(f"ALTER TABLE t {text}").columns)
    known.compare_altered(T, change, ignores_unlogged=ignores_unlogged)


@pytest.mark.parametrize("now", ["newcol", "renamed"])
def test_a_new_column_ends_the_query_also_if_the_server_spells_or_names_it_anew(now: str) -> None:
    known, held = Known(frozenset({T}), ALL_COLUMNS, OF_COLUMNS, False), frozenset({"id", "a", "b"})
    with pytest.raises(SchemaError, match=rf"lacks: NewCol\. Load the stream again .* also {now}\. Or add"):
        known.compare(T, [*held, "NewCol"], lambda: held | {now}, "where the binlog is read")


def test_a_column_that_is_gone_or_not_wanted_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    known = Known(frozenset({T}), ColumnChoice(without=("Secret",)), OF_COLUMNS, False)
    known.compare(T, ["id", "a", "b", "gone", "secret"], lambda: frozenset({"ID", "a", "b", "secret"}), "here")
    assert "here it has columns that the stream lacks: gone. Their values are not delivered" in caplog.text


SWAPS = [
    "RENAME COLUMN a TO b, RENAME COLUMN b TO a",
    "DROP COLUMN b, RENAME COLUMN a TO b",
    "DROP COLUMN b, ADD COLUMN b INT DEFAULT 0",
    "DROP b, ADD (b INT)",
    "CHANGE b old INT, ADD b BIGINT",
]


@pytest.mark.parametrize("text", SWAPS)
def test_another_column_under_a_name_of_the_stream_ends_the_query(text: str) -> None:
    with pytest.raises(SchemaError, match=r"it gave the name of one column of shop.t .*columns to ignoredChanges"):
        compare(text)


@pytest.mark.parametrize("text", SWAPS)
def test_where_such_changes_are_ignored_or_rows_are_json_it_is_warned_of(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    compare(text, ignores=True)
    compare(f"{text}, FORCE", Layout(*WHOLE_ROWS, ColumnChoice()))
    shown = [each.levelno for each in caplog.records if "it gave the name of one column of shop.t" in each.message]
    assert shown == [logging.WARNING] * 2


@pytest.mark.parametrize("text", ["RENAME COLUMN c TO b", "CHANGE c b INT", "ADD COLUMN b INT DEFAULT 7"])
def test_a_column_that_comes_to_a_name_of_the_stream_is_warned_of(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """The stream may have been loaded again since; it may also be the end of a change in several statements."""
    compare(text)
    warning = caplog.messages[-1]
    assert f"position 9: {text}: it gave shop.t columns with names of the stream's" in warning


@pytest.mark.parametrize("text", ["RENAME COLUMN a TO c", "ADD COLUMN c INT DEFAULT 7"])
def test_a_column_that_comes_to_rows_in_json_is_warned_of(text: str, caplog: pytest.LogCaptureFixture) -> None:
    compare(text, WHOLE)
    assert f"position 9: {text}: it gave shop.t columns, and logged no row: c. Rows" in caplog.messages[-1]
    compare(f"{text}, FORCE", WHOLE, ColumnChoice(without=("c",)))
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("layout", [OF_COLUMNS, WHOLE])
@pytest.mark.parametrize(
    "text",
    [
        "DROP PRIMARY KEY, ADD PRIMARY KEY (a)",
        "ADD CONSTRAINT k PRIMARY KEY (id, a)",
        "DROP KEY `Primary`",
        "ADD COLUMN n INT AUTO_INCREMENT KEY",
        "ADD (m INT UNIQUE KEY, n INT KEY)",
        "MODIFY id BIGINT NOT NULL KEY",
    ],
)
def test_another_primary_key_is_warned_of_once(text: str, layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    for _ in range(2):
        compare(text, layout)
    changed = f"binlog f position 9: {text}: it changed the primary key of shop.t, and logged no row"
    assert [message.startswith(changed) for message in caplog.messages].count(True) == 1


@pytest.mark.parametrize(
    "text",
    [
        "ADD c INT", "DROP b", "RENAME COLUMN c TO d", "ADD INDEX (b)",
        "ADD KEY k (b), ADD FOREIGN KEY (b) REFERENCES p (b)", "ADD c INT UNIQUE KEY, ADD `key` INT",
        "ADD c INT PARTITION BY LINEAR KEY (id) PARTITIONS 3",
    ],
)  # fmt: skip
def test_of_other_changes_rows_show_what_they_did(text: str, caplog: pytest.LogCaptureFixture) -> None:
    compare(text)
    assert not caplog.messages


@pytest.mark.parametrize("text", ["MODIFY a INT AS (id * 3)", "CHANGE a d INT AS (1)", "CHANGE d a INT AS (1)"])
def test_an_expression_for_a_column_of_the_stream_ends_the_query(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"it gave shop.t an expression for .*tables to ignored"):
        compare(text)
    compare(text, ignores_unlogged=True)
    compare(text, choice=ColumnChoice(without=("a", "d")))
    assert "changes the values of every row, and logged no row; ignoredChanges has tables" in caplog.messages[0]


@pytest.mark.parametrize("text", ["CHANGE a a TINYINT", "MODIFY c DATETIME", "CONVERT TO CHARACTER SET latin1"])
def test_values_that_may_be_converted_are_warned_of_once(text: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        compare(f"{text}, COMMENT 'once'")
    (warning,) = caplog.messages
    assert f"position 9: {text}, COMMENT 'once': it declared columns of shop.t anew, and logged no row" in warning
