"""Columns of tables where the binlog is read, compared with those of the stream."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache

from pyspark_mysql_cdc_wm.binlog.ddl_statements import (
    Arrival,
    ColumnChange,
    Concerns,
    Definitions,
    Drop,
    arrivals,
    drops,
    look_at_statements,
)
from pyspark_mysql_cdc_wm.binlog.statement_effects import Unlogged
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock
from pyspark_mysql_cdc_wm.lookup.stream_layout import without_event_time
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.reading.delivered_changes import Part, is_read
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice, Layout
from pyspark_mysql_cdc_wm.records.table_definition import TableMap, shown_names
from pyspark_mysql_cdc_wm.snapshot.table_waits import SWAP_SECONDS
from watermark_source.errors import SchemaError, UnsupportedFormatError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """The tables whose columns were found to fit the stream when the query began."""

    tables: frozenset[TableName]
    choice: ColumnChoice
    layout: Layout
    ignores_new_columns: bool

    def check(self, table: TableMap) -> None:
        """Check that a table which came later, and has no snapshot, has the stream's columns.

        Raises:
            SchemaError: it has others.
        """
        name = TableName(table.database, table.table)
        all_names = shown_names(table)
        event_time = self.layout.event_time
        if event_time is not None and event_time.among(all_names) is None:
            raise without_event_time(event_time, name, None)
        names = set(filter(self.choice.has, all_names))
        if self.layout.choice is None and name not in self.tables and names != set(self.layout.names):
            raise SchemaError(
                f"the table {name}, which came after the query began, has the columns {', '.join(sorted(names))}, and "
                f"the stream {', '.join(self.layout.names)}. Set rowFormat to json, which takes any, choose columns "
                "they share by the option columns, or leave the table out of the option tables"
            )

    def compare_logged(self, table: TableMap, has_now: Callable[[], Set[str]], altered_by: str | None) -> None:
        """Compare the columns that a table had in the binlog with the stream's; see ``compare``.

        Raises:
            SchemaError: as ``compare``.
        """
        by = "" if altered_by is None else f" by {altered_by}"
        name = TableName(table.database, table.table)
        self.compare(name, shown_names(table), has_now, "where the binlog is read", by)

    def compare_altered(self, name: TableName, change: ColumnChange) -> None:
        """Compare the columns that an ALTER added, dropped or renamed with the stream's: no row of that is logged.

        Raises:
            SchemaError: after it another column has the name of one of the stream's, and such changes are not ignored.
        """
        by_name = self.layout.choice is not None
        stream = {each.lower() for each in self.layout.names}
        columns = change.columns
        renamed = {
            before.lower(): after.lower() for before, after in columns.renamed if before.lower() != after.lower()
        }
        added = {each.lower() for each in columns.added}
        gone = {each.lower() for each in columns.dropped} | renamed.keys()
        arrived = {after for after in added.union(renamed.values()) if by_name or after in stream}
        other = arrived & gone
        if not by_name:
            other |= {after for before, after in renamed.items() if before in stream and after in arrived}
        if not other:
            if not by_name and arrived:
                _warn_once(
                    f"{change.where}: it gave {name} columns with names of the stream's, of which no row was logged: "
                    f"{', '.join(sorted(arrived))}. Rows that were delivered before it keep what they had under these "
                    "names, and the server may have a default there"
                )
            return
        what = (
            f"{change.where}: it gave the name of one column of {name} to another, of which no row was logged: "
            f"{', '.join(sorted(other))}. What was delivered has the values that were under that name before"
        )
        if by_name or self.ignores_new_columns:
            _warn_once(what)
            return
        raise SchemaError(
            f"{what}. Begin a new query, or set schemaChangeBehavior to ignore: rows from here on then come by the "
            "names that columns have in them"
        )

    def compare(
        self, name: TableName, columns: Iterable[str], has_now: Callable[[], Set[str]], where: str, by: str = ""
    ) -> None:
        """Compare the columns that a table has somewhere with the stream's: it was altered if they differ.

        ``has_now`` asks the server which columns the table has. What is in one that it has no more nobody can have; a
        warning tells of it, once a process.

        Raises:
            SchemaError: the table has got columns that the stream has not, and they are not to be ignored.
        """
        if self.layout.choice is not None:
            return
        here, stream = set(filter(self.choice.has, columns)), self.layout.names
        if more := here.difference(stream):
            shown = f"{name} was altered{by}: {where} it "
            if not self.ignores_new_columns and (new := more & has_now()):
                raise SchemaError(
                    f"{shown}has columns that the stream has not: {', '.join(sorted(new))}. Load the stream again "
                    "and start the query with its checkpoint: it goes on here, with the columns that the table has "
                    "now. Or set schemaChangeBehavior to ignore, to go on without them, or rowFormat to json in a new "
                    "query, which takes any"
                )
            _warn_once(
                f"{shown}has columns that the stream has not: {', '.join(sorted(more))}. What is in them does not come"
            )
        if less := [each for each in stream if each not in here]:
            _warn_once(f"{name} was altered: {where} it lacks columns of the stream, which are null: {', '.join(less)}")


@lru_cache(maxsize=1_000)
def _warn_once(text: str) -> None:
    _log.warning("%s", text)


# Statements in a block of the binlog: which tables that are read they altered, and warnings of what no row tells.


def altered_in(
    block: PlacedBlock, tables: Selection, part: Part, unlogged: Unlogged, known: Known
) -> Mapping[tuple[str, str], str]:
    """Return by which statements tables that are read were altered in a block.

    Raises as ``look_at_statements`` and ``Known.compare_altered`` do.
    """
    found = looked_at(block, lambda database, table: is_read(tables, part, TableName(database, table)), unlogged)
    compare_altered(known, found)
    for database, table in sorted(found.dropped):
        _log.warning(
            "binlog %s: the table %s.%s was dropped; of the rows that were delivered of it no deletion comes",
            block.file, database, table,
        )  # fmt: skip
    for database in sorted(found.databases):
        if tables.may_be_in(database) and part.has_any(database):
            _log.warning(
                "binlog %s: the database %s was dropped; of the rows that were delivered of its tables no deletion "
                "comes", block.file, database,
            )  # fmt: skip
    return found.altered


def compare_altered(known: Known, found: Definitions) -> None:
    """Compare what was done to columns with the stream's; raises as ``Known.compare_altered``."""
    for (database, table), change in found.columns:
        known.compare_altered(TableName(database, table), change)


def looked_at(block: PlacedBlock, concerns: Concerns, unlogged: Unlogged) -> Definitions:
    """Return what statements in a block did to tables, and warn of what is ignored.

    Raises as ``look_at_statements`` does.
    """
    found = look_at_statements(block.memory, block.events, block.file, concerns, unlogged)
    for (database, table), where in sorted(found.whole.items()):
        _log.warning(
            "%s: it changed %s.%s as a whole, and no row of that was logged; unloggedChangeBehavior is ignore, so what "
            "was delivered of the table stays as it is", where, database, table,
        )  # fmt: skip
    _warn_of_passed_over(found, unlogged)
    return found


def look_at_packed(concerns: Concerns, unlogged: Unlogged, memory: Bytes, events: Longs, file: str) -> None:
    """Refuse statements in place of rows among events that were unpacked; raises as ``look_at_statements``."""
    _warn_of_passed_over(look_at_statements(memory, events, file, concerns, unlogged), unlogged)


def _warn_of_passed_over(found: Definitions, unlogged: Unlogged) -> None:
    if found.passed_over:
        more = f", and {len(found.passed_over) - 1} more" if len(found.passed_over) > 1 else ""
        _warn_of_statements(f"{found.passed_over[0]}{more}", unlogged.statements.value)


@lru_cache(maxsize=1_000)
def _warn_of_statements(statements: str, behavior: str) -> None:
    _log.warning(
        "%s: logged in place of rows, or not followed; loggedStatementBehavior is %s, so what was changed there does "
        "not come", statements, behavior,
    )  # fmt: skip


# Where tables are dropped in the binlog since a snapshot's place, and which only made room for a copy.


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
