"""Where tables are dropped in the binlog since a snapshot's place, and which only made room for a copy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from pyspark_mysql_cdc_wm.binlog.ddl_statements import Arrival, Drop, arrivals, drops
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.snapshot.table_waits import SWAP_SECONDS
from watermark_source.errors import UnsupportedFormatError


@dataclass(frozen=True, slots=True)
class TableDrops:
    """Of the tables that a stream reads."""

    tables: Selection
    ignores_unlogged: bool

    def cut(
        self, blocks: Iterable[PlacedBlock], tables: Collection[TableName], gone: set[TableName]
    ) -> Iterator[tuple[PlacedBlock, Set[TableName]]]:
        """Yield blocks, which end where tables are dropped, and which.

        With ``ignores_unlogged`` one that was dropped for a copy to take its place is as it was: no row of it comes in
        between. Then they end where a dropped one is made anew, and those that were not are in ``gone`` at last.
        """
        key = self.tables.key
        for block in blocks:
            begin = 0
            found: list[Drop | Arrival] = list(drops(block.memory, block.events))
            if self.ignores_unlogged and (found or gone):
                found = sorted((*found, *arrivals(block.memory, block.events)), key=lambda each: each.events)
            for drop in found:
                named = {key(TableName(*each)) for each in drop.tables}
                if isinstance(drop, Arrival):
                    came = {table for table in gone if key(table) in named}
                    gone -= came
                    if came and drop.is_new:
                        yield block.between(begin, drop.events), came
                        begin = drop.events
                    continue
                dropped = {
                    table
                    for table in tables
                    if key(table) in named
                    or any(key(TableName(each, table.table)) == key(table) for each in drop.databases)
                }
                if self.ignores_unlogged:
                    gone |= dropped
                elif dropped:
                    yield block.between(begin, drop.events), dropped
                    begin = drop.events
            if begin < len(block.events):
                yield block.between(begin, len(block.events)), frozenset()

    def refuse_taken_away(self, missing: Set[TableName], whole: Mapping[tuple[str, str], str]) -> None:
        """Refuse tables that are not there, and were not dropped: their rows are, by another name."""
        key = self.tables.key
        for (database, name), where in sorted(whole.items()):
            if key(TableName(database, name)) in map(key, missing):
                raise UnsupportedFormatError(
                    f"{where}: it took {database}.{name} away while its snapshot was read, and no copy of it came in "
                    f"its place within {SWAP_SECONDS:g} s. Rename the table, or the copy, to {database}.{name}; the "
                    "query goes on from its checkpoint then"
                )
