"""Schema changes in the binlog: columns of tables compared with those of the stream, altered and dropped tables."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_mysql_cdc_wm.binlog.ddl_statements import (
    UNLOGGED_REMEDY,
    ColumnChange,
    Concerns,
    Definitions,
    Redefinition,
    Table,
    check_statements,
    effects,
    named_tables,
    redefinitions,
)
from pyspark_mysql_cdc_wm.binlog.statement_effects import LoggedStatements, Unlogged
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, dumped
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from pyspark_mysql_cdc_wm.lookup.rights import Rights
from pyspark_mysql_cdc_wm.lookup.stream_layout import without_event_time
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.reading.delivered_tables import DeliveredTables, warn_once
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice, Layout
from pyspark_mysql_cdc_wm.records.table_definition import ALL_METADATA, TableMap, shown_names
from pyspark_mysql_cdc_wm.snapshot.chunk_bounds import SWAP_SECONDS
from watermark_source.errors import RefusedError, SchemaError, UnsupportedFormatError

_log = logging.getLogger(__name__)

_WITHOUT_PAST = (
    "the table was altered, emptied, dropped or created again since the last committed batch, or statements were "
    "logged in place of rows, and the binlog has no rows of that: let the query read on, and certify then"
)


@dataclass(frozen=True, slots=True)
class Known:
    """The tables that were there when the query began, whose columns matched the stream."""

    tables: frozenset[TableName]
    choice: ColumnChoice
    layout: Layout
    ignores_new_columns: bool

    def check(self, table: TableMap) -> None:
        """Check that a table that was created later, and has no snapshot, has the stream's columns.

        Raises:
            SchemaError: it has other columns.
        """
        name = TableName(table.database, table.table)
        all_names = shown_names(table)
        event_time = self.layout.event_time
        if event_time is not None and event_time.among(all_names) is None:
            raise without_event_time(event_time, name, None)
        names = set(filter(self.choice.has, all_names))
        differs = _without_case(names).keys() != _without_case(self.layout.names).keys()
        if self.layout.choice is None and name not in self.tables and differs:
            raise SchemaError(
                f"the table {name}, which was created after the query began, has the columns "
                f"{', '.join(sorted(names))}, and the stream {', '.join(self.layout.names)}. Set rowFormat to json, "
                "which accepts any, choose columns that they share by the option columns, or leave the table out of "
                "the option tables"
            )

    def check_readable(self, name: TableName, lacking: Collection[str | None], rights: Rights) -> None:
        """Check that the user may still SELECT the stream's columns, of which a table seems to lack some.

        Raises:
            RefusedError: it may not, or a column was dropped from a table of which it may SELECT others alone.
        """
        folded = {str(name).lower() for name in lacking}
        lost = [name for name in self.layout.names if name.lower() in folded and self.layout.choice is None]
        # Of a table that does not exist now no column is described.
        if lost and rights.columns(name) and rights.are_in_part(name):
            raise RefusedError(
                f"{rights.refusal(name)}; the query then resumes where it ended. The stream has the columns "
                f"{', '.join(lost)}, which were granted when it was loaded. Or load it again: it then lacks them"
            )

    def compare_altered(self, name: TableName, change: ColumnChange, *, ignores_unlogged: bool) -> None:
        """Compare the columns that an ALTER added, dropped, renamed or redefined with the stream's; it logs no rows.

        Raises:
            SchemaError: it gave the name of a column of the stream to another column, and such changes are not ignored.
            UnsupportedFormatError: it gave a column that is read an expression, and such changes are not ignored.
        """
        self._compare_values(name, change, ignores_unlogged=ignores_unlogged)
        by_name = self.layout.choice is not None
        stream = {name.lower() for name in self.layout.names}
        columns = change.columns
        renamed = {
            before.lower(): after.lower() for before, after in columns.renamed if before.lower() != after.lower()
        }
        added = {name.lower() for name in columns.added}
        removed = {name.lower() for name in columns.dropped} | renamed.keys()
        new = {
            after for after in added.union(renamed.values()) if (self.choice.has(after) if by_name else after in stream)
        }
        reused = new & removed
        if not by_name:
            reused |= {after for before, after in renamed.items() if before in stream and after in new}
        if not reused:
            if new:
                kind, rows = (
                    ("columns", "do not have these in _row")
                    if by_name
                    else ("columns with names of the stream's", "keep their values under these names")
                )
                warn_once(
                    f"{change.where}: it gave {name} {kind}, and logged no row: {', '.join(sorted(new))}. Rows that "
                    f"were delivered before it {rows}, and the server may have a default there"
                )
            return
        what = (
            f"{change.where}: it gave the name of one column of {name} to another, and logged no row: "
            f"{', '.join(sorted(reused))}. Rows that were delivered have the values of the previous column"
        )
        if by_name or self.ignores_new_columns:
            warn_once(what)
            return
        raise SchemaError(
            f"{what}. Begin a new query, or add columns to ignoredChanges: rows from here on are then delivered "
            "by their columns' new names"
        )

    def _compare_values(self, name: TableName, change: ColumnChange, *, ignores_unlogged: bool) -> None:
        """Refuse or warn of changes to the values of existing rows; raises as ``compare_altered``."""
        if change.columns.rekeys:
            warn_once(
                f"{change.where}: it changed the primary key of {name}, and logged no row: changes from here on are "
                "rows of the new key, and a copy that is merged by the previous one keeps or loses rows. Merge by the "
                "new key, if the table has one, and read the table again by the option rereadTables or begin a new "
                "query"
            )
        if generated := sorted(filter(self.choice.reads, change.columns.generated)):
            what = (
                f"{change.where}: it gave {name} an expression for {', '.join(generated)}, which changes the values of "
                "every row, and logged no row"
            )
            if not ignores_unlogged:
                raise UnsupportedFormatError(f"{what}. {UNLOGGED_REMEDY}")
            warn_once(f"{what}; ignoredChanges has tables, so rows that were delivered keep their values")
        elif change.columns.converts:
            warn_once(
                f"{change.where}: it declared columns of {name} anew, and logged no row: values that the new types or "
                "character sets do not hold are rounded, cut, padded or replaced on the server, and rows that were "
                "delivered before it keep the previous ones"
            )

    def compare(
        self, name: TableName, columns: Iterable[str], has_now: Callable[[], Set[str]], where: str, by: str = ""
    ) -> None:
        """Compare the columns that a table has at a position with the stream's; it was altered if they differ.

        ``has_now`` returns the columns that the table has on the server now. A column that the table no longer has can
        not be added to the stream, so it is only logged, once in a process.

        Raises:
            SchemaError: the table has new columns that the stream lacks, and ignoredChanges has no columns; or it has
                lost the event time column.
        """
        columns = tuple(columns)
        event_time = self.layout.event_time
        if event_time is not None and event_time.among(columns) is None:
            # Of a table that does not exist now no column is described.
            if (held := has_now()) and event_time.among(held) is None:
                raise without_event_time(event_time, name, None)
            warn_once(f"{name} was altered: {where} it lacks {event_time.name}: its rows are dated by their commit")
        if self.layout.choice is not None:
            return
        of_table, stream = _without_case(filter(self.choice.has, columns)), _without_case(self.layout.names)
        if more := [of_table[column] for column in of_table.keys() - stream]:
            altered = f"{name} was altered{by}: {where} it "
            now = {} if self.ignores_new_columns else _without_case(filter(self.choice.has, has_now()))
            # One of these columns may have another name by now.
            if new := sorted(now[column] for column in now.keys() - stream):
                raise SchemaError(
                    f"{altered}has columns that the stream lacks: {', '.join(sorted(more))}. Load the stream again and "
                    "start the query with its checkpoint: it resumes here, with the columns that the table has now, "
                    f"also {', '.join(new)}. Or add columns to ignoredChanges, to continue without them, or rowFormat "
                    "to json in a new query, which accepts any"
                )
            warn_once(
                f"{altered}has columns that the stream lacks: {', '.join(sorted(more))}. Their values are not delivered"
            )
        if less := [column for folded, column in stream.items() if folded not in of_table]:
            warn_once(f"{name} was altered: {where} it lacks columns of the stream, which are null: {', '.join(less)}")


def _without_case(names: Iterable[str]) -> Mapping[str, str]:
    """Return names of columns by what is one name to the server."""
    return {name.lower(): name for name in names}


# Statements in a block of the binlog.


def altered_in(
    block: PlacedBlock, delivers: DeliveredTables, unlogged: Unlogged, known: Known
) -> Mapping[tuple[str, str], str]:
    """Return the statements that altered tables that are read in a block, by table.

    Raises as ``check_statements`` and ``Known.compare_altered`` do.
    """
    definitions = checked_statements(block, delivers, unlogged)
    databases = sorted(filter(delivers.may_be_in, definitions.databases))
    if unlogged.wants_past and (databases or definitions.dropped or definitions.altered or definitions.whole):
        raise UnsupportedFormatError(_WITHOUT_PAST)
    compare_altered(known, definitions, unlogged)
    for database, table in sorted(definitions.dropped):
        _log.warning(
            "binlog %s: the table %s.%s was dropped; no deletions follow for its delivered rows",
            block.file, database, table,
        )  # fmt: skip
    for database in databases:
        _log.warning(
            "binlog %s: the database %s was dropped; no deletions follow for rows that its tables delivered",
            block.file, database,
        )  # fmt: skip
    return definitions.altered


def compare_altered(known: Known, definitions: Definitions, unlogged: Unlogged) -> None:
    """Compare all altered columns with the stream's; raises as ``Known.compare_altered``."""
    for (database, table), change in definitions.columns:
        known.compare_altered(TableName(database, table), change, ignores_unlogged=unlogged.ignores_whole)


def checked_statements(block: PlacedBlock, concerns: Concerns, unlogged: Unlogged) -> Definitions:
    """Return the effects of a block's statements on tables, and log a warning of those that are ignored.

    Raises as ``check_statements`` does.
    """
    definitions = check_statements(block.memory, block.events, block.file, concerns, unlogged)
    for (database, table), where in sorted(definitions.whole.items()):
        _log.warning(
            "%s: it changed %s.%s as a whole, and logged no row; ignoredChanges has tables, so the rows of the "
            "table that were delivered stay as they are", where, database, table,
        )  # fmt: skip
    _note_ignored(definitions, unlogged)
    return definitions


def check_unpacked(concerns: Concerns, unlogged: Unlogged, memory: Bytes, events: Longs, file: str) -> None:
    """Refuse statements in place of rows among events of compressed transactions; raises as ``check_statements``."""
    _note_ignored(check_statements(memory, events, file, concerns, unlogged), unlogged)


def _note_ignored(definitions: Definitions, unlogged: Unlogged) -> None:
    ignored = definitions.ignored
    # Others than the table's are ignored by otherStatements: its rows are whole.
    if ignored and unlogged.wants_past and unlogged.statements is LoggedStatements.IGNORED:
        raise UnsupportedFormatError(_WITHOUT_PAST)
    if ignored:
        more = f", and {len(ignored) - 1} more" if len(ignored) > 1 else ""
        warn_once(
            f"{ignored[0]}{more}: logged in place of rows, or not followed; ignoredChanges has "
            f"{unlogged.statements.value}: their changes are not delivered"
        )


@dataclass(frozen=True, slots=True)
class TableDrops:
    """The drops of tables in the binlog after a snapshot's position, and those that only make room for a copy."""

    tables: Selection
    ignores_unlogged: bool

    def cut(
        self, blocks: Iterable[PlacedBlock], tables: Collection[TableName], gone: set[TableName]
    ) -> Iterator[tuple[PlacedBlock, Set[TableName]]]:
        """Yield blocks that are cut behind each drop of tables, with the dropped tables.

        With ``ignores_unlogged``, a table that is dropped so that a copy can replace it counts as unchanged. Blocks are
        then cut where a dropped table is created again, and in the end ``gone`` has the tables that were not.
        """
        key = self.tables.key
        for block in blocks:
            begin = 0
            for statement, effect in effects(block.memory, block.events):
                if not (effect.dropped or effect.databases or effect.made or effect.whole):
                    continue
                named = {key(TableName(*table)) for table in named_tables(effect.dropped, statement)}
                cut = {
                    table
                    for table in tables
                    if key(table) in named
                    or any(key(TableName(database, table.table)) == key(table) for database in effect.databases)
                }
                if self.ignores_unlogged:
                    gone |= cut
                    # Created tables have no rows of previous ones of their names; renamed ones have those of another.
                    named = {key(TableName(*table)) for table in named_tables(effect.made or effect.whole, statement)}
                    arrived = {table for table in gone if key(table) in named}
                    gone -= arrived
                    cut = arrived if effect.made else set()
                if cut:
                    yield block.between(begin, statement.number + 1), cut
                    begin = statement.number + 1
            if begin < len(block.events):
                yield block.between(begin, len(block.events)), frozenset()

    def refuse_renamed(self, missing: Set[TableName], whole: Mapping[tuple[str, str], str]) -> None:
        """Refuse missing tables that were not dropped, since their rows exist under another name.

        Raises:
            UnsupportedFormatError: there is one.
        """
        key = self.tables.key
        for (database, name), where in sorted(whole.items()):
            if key(TableName(database, name)) in map(key, missing):
                raise UnsupportedFormatError(
                    f"{where}: it renamed {database}.{name} while its snapshot was read, and no copy replaced it "
                    f"within {SWAP_SECONDS:g} s. Rename the table, or the copy, to {database}.{name}; then the query "
                    "resumes from its checkpoint"
                )


# Names that the binlog does not have: with binlog_row_metadata = MINIMAL they are the table's present ones.


class PresentNames:
    """Finds rows whose columns got present names though a statement may have changed the table since.

    Between a row in the binlog and the moment at which the server described its table, no statement may concern the
    table's columns: their names, types, places, labels or key, or which table has the name.
    """

    def __init__(self, tables: Selection, end: Callable[[], int], *, ignores_unfollowed: bool) -> None:
        """Begin; ``end`` returns the end of the binlog now."""
        self._key: Callable[[str, str], Table] = lambda database, table: tables.key(TableName(database, table))
        self._end = end
        self._ignores_unfollowed = ignores_unfollowed
        self._blocks: Iterator[PlacedBlock] = iter(())
        self._place = 0
        self._named: list[tuple[TableName, int, int]] = []
        """Tables, the position behind their first such row, and the end of the binlog after they were described."""
        self._changes: list[tuple[int, Redefinition]] = []

    def note_described(self, table: TableName) -> None:
        """Note that a table was described for rows of the current block."""
        self._named.append((table, self._place, self._end()))

    def watch(self, blocks: Iterable[PlacedBlock]) -> Iterator[PlacedBlock]:
        """Yield blocks, cut behind statements that may change columns, which are noted."""
        self._blocks = self._cut(blocks)
        return self._blocks

    def _cut(self, blocks: Iterable[PlacedBlock]) -> Iterator[PlacedBlock]:
        for block in blocks:
            begin = 0
            for change in redefinitions(block.memory, block.events, block.file):
                self._changes.append((int(block.places[change.events - 1]), change))
                if change.events > begin:
                    yield self._current(block.between(begin, change.events))
                begin = change.events
            if begin < len(block.events):
                yield self._current(block.between(begin, len(block.events)))

    def _current(self, block: PlacedBlock) -> PlacedBlock:
        self._place = int(block.places[-1])
        return block

    def check(self, changes_between: Callable[[int], Iterable[tuple[int, Redefinition]]] = lambda _: ()) -> None:
        """Refuse rows that may have got other columns' names.

        Watched blocks that are left are searched for statements; ``changes_between`` returns those behind them, up to a
        place.

        Raises:
            UnsupportedFormatError: a statement between the rows and their description concerns the table's columns.
        """
        if not self._named:
            return
        deque(self._blocks, maxlen=0)
        later = changes_between(max(end for _, _, end in self._named))
        for place, change in (*self._changes, *later):
            if change.unfollowed and self._ignores_unfollowed:
                continue
            for table, behind, described in self._named:
                if behind <= place <= described and change.concerns(table, self._key):
                    raise UnsupportedFormatError(
                        f"table {table} was altered after rows that are read, before the server described it: "
                        f"{change.where}. binlog_row_metadata was MINIMAL then, so the binlog does not have the names "
                        "of these rows' columns, and the present ones may be those of others. On the server: "
                        f"{ALL_METADATA}; and begin a new query"
                    )


class _Scanned(NamedTuple):
    start: int
    end: int
    changes: tuple[tuple[int, Redefinition], ...]


_MOST_SCANNED = 100
_scanned: dict[tuple[str, str, str], _Scanned] = {}
"""By ``run``, server and base name of its files, the part of the binlog that this process has searched."""


def changes_between(
    run: str, client: LoginSettings, base: str, start: int, end: int
) -> Iterable[tuple[int, Redefinition]]:
    """Return statements that may change columns between two positions, each with the position behind it.

    What a process has searched for one ``run`` of a query it does not read again: while a query reads older parts of
    the binlog, each task would otherwise read the rest of it. Another run searches for itself, since the binlog may
    have been reset before it, and have other events at the same positions.

    Raises as ``dumped``.
    """
    if start >= end:
        return ()
    before = _scanned.pop((run, client.where, base), None)
    if before is None or not before.start <= start <= before.end <= end:
        before = _Scanned(start, start, ())
    found = [
        (int(block.places[change.events - 1]), change)
        for block in (dumped(client, base, before.end, end, check=False) if before.end < end else ())
        for change in redefinitions(block.memory, block.events, block.file)
    ]
    while len(_scanned) >= _MOST_SCANNED:
        del _scanned[next(iter(_scanned))]
    now = _scanned[run, client.where, base] = _Scanned(before.start, end, (*before.changes, *found))
    return [each for each in now.changes if start < each[0]]
