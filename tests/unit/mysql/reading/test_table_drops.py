"""Where blocks are cut, since a statement drops a table of a snapshot, or creates it again."""

from __future__ import annotations

from pyspark_mysql_cdc_wm.binlog.event_headers import POSITION
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock
from pyspark_mysql_cdc_wm.options.tables import TableName, parse_tables
from pyspark_mysql_cdc_wm.reading.schema_changes import TableDrops
from tests.unit.mysql.made_events import logged

A, B, E, F = TableName("shop", "a"), TableName("x", "b"), TableName("e", "t"), TableName("shop", "f")


def cuts(gone: set[TableName], *texts: str, ignores_unlogged: bool = False) -> list[tuple[int, set[TableName]]]:
    """The number of events of each part, and the tables whose rows end with it."""
    memory, events = logged(*texts)
    block = PlacedBlock(memory, events, "log.000001", events[:, POSITION])
    drops = TableDrops(parse_tables("shop.*,x.*,e.*"), ignores_unlogged)
    return [(len(part.events), set(cut)) for part, cut in drops.cut([block], {A, B, E, F}, gone)]


def test_a_block_is_cut_behind_each_drop_of_tables_and_of_databases() -> None:
    texts = ["DROP TABLE a, x.b", "CREATE TABLE c LIKE d", "DROP DATABASE e", "RENAME TABLE f TO g", "FLUSH LOGS"]
    gone: set[TableName] = set()
    # Two events are before the first statement.
    assert cuts(gone, *texts) == [(3, {A, B}), (2, {E}), (2, set())]
    assert gone == set()


def test_a_table_that_a_copy_replaces_is_unchanged_and_one_that_is_created_again_is_another() -> None:
    texts = ["DROP TABLE a, x.b", "CREATE TABLE a LIKE d", "RENAME TABLE g TO x.b", "DROP DATABASE e"]
    gone: set[TableName] = set()
    assert cuts(gone, *texts, ignores_unlogged=True) == [(4, {A}), (2, set())]
    assert gone == {E}
