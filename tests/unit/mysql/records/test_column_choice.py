"""Which columns are wanted: their names count in any case."""

from __future__ import annotations

from pyspark_mysql_cdc_wm.records.column_choice import ColumnChoice
from pyspark_mysql_cdc_wm.records.event_time_column import EventTimeColumn


def test_all_are_wanted_but_those_that_are_left_out() -> None:
    assert [ColumnChoice(without=("Note",)).has(name) for name in ("id", "note", "NOTE")] == [True, False, False]
    assert [ColumnChoice(only=("Id",)).has(name) for name in ("id", "ID", "note")] == [True, True, False]
    assert not ColumnChoice(only=("id",), without=("id",)).has("id")


def test_a_column_about_changes_is_there_unless_it_is_left_out() -> None:
    choice = ColumnChoice(only=("id",), without=("_Table",))
    assert [choice.tells(name) for name in ("_table", "_database")] == [False, True]


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
