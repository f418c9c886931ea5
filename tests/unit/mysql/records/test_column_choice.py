"""Which columns are wanted: their names count in any case."""

from __future__ import annotations

import pyarrow as pa

from pyspark_mysql_cdc_wm.records.layout import CHANGE_COLUMNS, WHOLE_ROWS, ColumnChoice, EventTimeColumn, Layout


def test_all_are_wanted_but_those_that_are_left_out() -> None:
    assert [ColumnChoice(without=("Note",)).has(name) for name in ("id", "note", "NOTE")] == [True, False, False]
    assert [ColumnChoice(only=("Id",)).has(name) for name in ("id", "ID", "note")] == [True, True, False]
    assert not ColumnChoice(only=("id",), without=("id",)).has("id")


def test_a_column_about_changes_is_there_unless_it_is_left_out() -> None:
    choice = ColumnChoice(only=("id",), without=("_Table",))
    assert [choice.has_change_column(name) for name in ("_table", "_database")] == [False, True]


def test_the_column_of_event_time_is_read_though_it_is_not_wanted() -> None:
    choice = ColumnChoice(only=("id",), event_time=EventTimeColumn("at"))
    assert [choice.reads(name) for name in ("id", "at", "note")] == [True, True, False]
    assert not ColumnChoice(only=("id",)).reads("at")


def test_a_snapshot_is_cut_by_the_column_of_its_table_or_of_all_that_have_it() -> None:
    choice = ColumnChoice(chunked_by=(("Shop.Orders", "NUMBER"), (None, "code")))
    assert choice.chunk_column("shop.orders", ["id", "Number", "code"]) == "Number"
    assert choice.chunk_column("shop.orders", ["id", "code"]) is None
    assert choice.chunk_column("shop.users", ["id", "Code"]) == "Code"
    assert choice.chunk_column("shop.users", ["id"]) is None
    assert ColumnChoice().chunk_column("shop.users", ["id"]) is None


def test_what_is_delivered_of_a_table_is_the_streams_columns_or_all_that_are_wanted_in_one() -> None:
    columns = Layout(("id", "note"), (pa.int64(), pa.string()))
    assert columns.delivered(["note", "at", "id"]) == ("id", "note")
    assert columns.about == tuple(CHANGE_COLUMNS)
    whole = Layout(*WHOLE_ROWS, ColumnChoice(without=("note",)), about=("_table",))
    assert (whole.names, whole.types, whole.about, whole.event_time) == (("_row",), (pa.string(),), ("_table",), None)
    assert whole.delivered(["note", "at", "id"]) == ("at", "id")


def test_what_rows_are_compared_by_and_their_event_time_are_read_too() -> None:
    at = EventTimeColumn("At")
    names = (name for name in ("key", "at", "id", "note"))
    assert Layout(("id",), (pa.int64(),), event_time=at).needed(names, ["key", "id"]) == ("id", "at", "key")
    assert Layout(("id",), (pa.int64(),), event_time=at).needed(["id", "key"], ["key"]) == ("id", "key")
    assert Layout(("id",), (pa.int64(),)).needed(["id", "at", "key"], ["key"]) == ("id", "key")
    whole = Layout(*WHOLE_ROWS, ColumnChoice(only=("id",)), at)
    assert whole.needed(["key", "at", "id"], ["key"]) == ("id", "at", "key")
