"""Statements that create, alter, drop, rename or empty tables, and statements that were logged in place of rows.

Statements in place of rows, and statements that cannot be followed, are refused, so that no change is missed in
silence. The rows of a dropped table or database are not in the binlog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from pyspark_mysql_cdc_wm.binlog.alter_table import NO_COLUMNS, AlteredColumns
from pyspark_mysql_cdc_wm.binlog.query_events import Statement, statements
from pyspark_mysql_cdc_wm.binlog.sql_scanner import LoggedTable
from pyspark_mysql_cdc_wm.binlog.statement_effects import (
    CLOUD_PREFIX,
    REFUSED,
    LoggedStatements,
    StatementEffect,
    Unlogged,
)
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from watermark_source.errors import UnsupportedFormatError, shortened

Table = tuple[str, str]
"""Database and name."""
Concerns = Callable[[str, str], bool]
"""Returns whether the query reads a table, given its database and name."""

_CLOUD_DATABASE = "mysql"
"""The database of a cloud service's heartbeat tables, in which no trigger can be created."""
UNLOGGED_REMEDY = "Begin a new query, or add tables to ignoredChanges, to continue with the rows that were delivered"
_REMEDY = (
    "Some session has another binlog_format than ROW: revoke the privilege to set it (SYSTEM_VARIABLES_ADMIN, "
    "SESSION_VARIABLES_ADMIN, BINLOG ADMIN)"
)


class ColumnChange(NamedTuple):
    """An ALTER that adds, drops, renames or redefines columns."""

    where: str
    columns: AlteredColumns


class Definitions(NamedTuple):
    """The effects of statements on the tables that are read."""

    dropped: set[Table]
    altered: dict[Table, str]
    """By table, the last statement that altered it, with its position."""
    whole: dict[Table, str]
    """By table, the last statement that changed it as a whole without logging rows, with its position."""
    databases: set[str]
    """The databases that were dropped, whether or not their tables are read."""
    columns: list[tuple[Table, ColumnChange]]
    """Tables whose columns were added, dropped, renamed or redefined."""
    ignored: list[str]
    """Statements in place of rows that ``ignoredChanges`` skips, with their positions."""


def check_statements(
    memory: Bytes, events: Longs, file: str, concerns: Concerns, unlogged: Unlogged = REFUSED
) -> Definitions:
    """Refuse statements that changed rows or a whole table without logging rows; return the other definitions.

    A name without a database is in the session's. Statements that ``unlogged`` ignores are returned instead of refused.

    Raises:
        UnsupportedFormatError: there is a statement to refuse.
        CorruptDataError: a statement does not fit its event.
    """
    definitions = Definitions(set(), {}, {}, set(), [], [])
    for statement in statements(memory, events):
        where = f"binlog {file} position {statement.position}: {shortened(statement.text)}"
        effect = statement.effect
        problem = (
            _unfollowed(statement, where) if effect is None else _in_place_of_rows(statement, effect, where, concerns)
        )
        if problem is not None:
            if not problem.ignored_with(unlogged.statements):
                raise UnsupportedFormatError(problem.text)
            definitions.ignored.append(where)
        elif effect is not None:
            definitions.databases.update(effect.databases)
            definitions.dropped.update(_read(effect.dropped, statement, concerns))
            for table in _read(effect.altered, statement, concerns):
                definitions.altered[table] = where
                if effect.columns != NO_COLUMNS:
                    definitions.columns.append((table, ColumnChange(where, effect.columns)))
            for table in sorted(_read(effect.whole, statement, concerns)):
                if not unlogged.ignores_whole:
                    raise UnsupportedFormatError(
                        f"{where}: it changed {'.'.join(table)} as a whole, and logged no row. {UNLOGGED_REMEDY}"
                    )
                definitions.whole[table] = where
    return definitions


def named_tables(tables: Collection[LoggedTable], of: Statement) -> set[Table]:
    """Return tables with their databases; a name without one is in the session's."""
    return {(of.database if table.database is None else table.database, table.table) for table in tables}


def _read(tables: Collection[LoggedTable], of: Statement, concerns: Concerns) -> list[Table]:
    return [table for table in named_tables(tables, of) if concerns(*table)] if tables else []


class _Problem(NamedTuple):
    """Why a statement is refused."""

    text: str
    concerns_others: bool
    """Whether it names the tables that it changes, and none of them is read."""

    def ignored_with(self, chosen: LoggedStatements) -> bool:
        return chosen is LoggedStatements.IGNORED or (
            chosen is LoggedStatements.OTHERS_IGNORED and self.concerns_others
        )


def _unfollowed(of: Statement, where: str) -> _Problem:
    return _Problem(
        f"{where}: the effect of this statement is not certain, for it cannot be followed: {of.problem}. If you know "
        "that it changed none of the tables that are read, add statements to ignoredChanges to continue behind it",
        concerns_others=False,
    )


def _in_place_of_rows(of: Statement, effect: StatementEffect, where: str, concerns: Concerns) -> _Problem | None:
    """Return why a statement in place of rows is refused; ``None`` if it changed no rows of tables that are read."""
    rows = effect.rows
    if rows is None:
        return None
    changed = None if rows.changes is None else named_tables(rows.changes, of)
    if changed is not None and rows.calls_nothing and all(map(_is_clouds, changed)):
        return None
    if of_read := sorted(table for table in changed or () if concerns(*table)):
        return _Problem(
            f"{where}: a statement was logged, not the rows of {'.'.join(of_read[0])} it changed. {_REMEDY}; begin a "
            "new query. Or add statements to ignoredChanges, to continue without these rows",
            concerns_others=False,
        )
    if changed is None:
        why, others = "it does not name their tables", ""
    else:
        why = "triggers and functions may have changed others than it names"
        others = ", or otherStatements if no trigger, function or view that it uses writes to tables you read"
    return _Problem(
        f"{where}: a statement was logged, not the rows it changed, and {why}. {_REMEDY}. Begin a new query; or, if it "
        f"changed none of the tables that are read, add statements to ignoredChanges{others}",
        concerns_others=changed is not None,
    )


def _is_clouds(table: Table) -> bool:
    return table[0].lower() == _CLOUD_DATABASE and table[1].lower().startswith(CLOUD_PREFIX)


def effects(memory: Bytes, events: Longs) -> Iterator[tuple[Statement, StatementEffect]]:
    """Yield the statements that can be followed; ``check_statements`` refuses the others.

    Raises:
        CorruptDataError: a statement does not fit its event.
    """
    for statement in statements(memory, events):
        if statement.effect is not None:
            yield statement, statement.effect


class Redefinition(NamedTuple):
    """A statement after which tables may have other columns."""

    where: str
    tables: frozenset[Table]
    databases: frozenset[str]
    """Databases of which it may concern all tables."""
    unfollowed: bool
    """Whether it may concern any table, for its effect is not known."""
    events: int
    """Number of events of the block up to the statement, its own included."""

    def concerns(self, table: Table, key: Callable[[str, str], Table]) -> bool:
        """Return whether it may have changed the columns of a table; names that have one ``key`` are one name."""
        own = key(*table)
        databases = {key(database, "")[0] for database in self.databases}
        return self.unfollowed or own[0] in databases or own in {key(*each) for each in self.tables}


def redefinitions(memory: Bytes, events: Longs, file: str) -> Iterator[Redefinition]:
    """Yield the statements of a block after which tables may have other columns; raises as ``effects``."""
    for statement in statements(memory, events):
        where = f"binlog {file} position {statement.position}: {shortened(statement.text)}"
        effect = statement.effect
        if effect is None:
            yield Redefinition(where, frozenset(), frozenset(), True, statement.number + 1)
        elif effect.redefines or effect.databases:
            tables = frozenset(named_tables(effect.redefines, statement))
            yield Redefinition(where, tables, effect.databases, False, statement.number + 1)


def defined_until(memory: Bytes, events: Longs, concerns: Concerns, table: str) -> int:
    """Return the number of events up to the last statement that defined, emptied or dropped a table, 0 without one.

    Such a statement waits until transactions that changed the table are committed, and blocks others until it is
    logged. ``table`` is the table's name without its database; ``concerns`` must accept only that table.
    """
    count = 0
    for statement, effect in effects(memory, events):
        named = named_tables(effect.defines, statement) | {(database, table) for database in effect.databases}
        if any(concerns(*name) for name in named):
            count = statement.number + 1
    return count
