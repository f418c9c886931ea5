"""Statements that make, alter, drop, rename or empty tables, and those that were logged in place of rows.

The latter are refused, so that nothing is missed in silence, and so is what cannot be followed. Of what a dropped table
or database held nobody can tell.
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
    Effect,
    LoggedStatements,
    Unlogged,
)
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from watermark_source.errors import UnsupportedFormatError, shortened

Table = tuple[str, str]
"""Database and name."""
Concerns = Callable[[str, str], bool]
"""Whether a table, of a database, is one that is read."""

_CLOUD_DATABASE = "mysql"
"""No trigger can be made in it."""
_MENDS = (
    "Some session has another binlog_format than ROW: revoke the privilege to set it (SYSTEM_VARIABLES_ADMIN, "
    "SESSION_VARIABLES_ADMIN, BINLOG ADMIN)"
)


class ColumnChange(NamedTuple):
    """An ALTER that adds or drops columns, or gives them other names."""

    where: str
    columns: AlteredColumns


class Definitions(NamedTuple):
    """What statements did to the tables that are read."""

    dropped: set[Table]
    altered: dict[Table, str]
    """The last statement that altered each, and its place."""
    whole: dict[Table, str]
    """The last statement that changed each as a whole, without a row of it logged, and its place."""
    databases: set[str]
    """Those that were dropped, whatever is read of them."""
    columns: list[tuple[Table, ColumnChange]]
    """Tables that got or lost columns, or whose columns got other names."""
    passed_over: list[str]
    """Statements in place of rows, with their places, that ended nothing."""


def look_at_statements(
    memory: Bytes, events: Longs, file: str, concerns: Concerns, unlogged: Unlogged = REFUSED
) -> Definitions:
    """Refuse statements that changed rows without logging them, or all of a table; return the other definitions.

    A table is taken to be meant where a statement of its kind names tables; its database stands before it, or is the
    session's. What ``unlogged`` ignores is returned, and not refused.

    Raises:
        UnsupportedFormatError: there is one.
        CorruptDataError: a statement that does not fit its event.
    """
    found = Definitions(set(), {}, {}, set(), [], [])
    for each in statements(memory, events):
        where = f"binlog {file} position {each.position}: {shortened(each.text)}"
        effect = each.effect
        problem = _unfollowed(each, where) if effect is None else _in_place_of_rows(each, effect, where, concerns)
        if problem is not None:
            if not problem.passed_with(unlogged.statements):
                raise UnsupportedFormatError(problem.text)
            found.passed_over.append(where)
        elif effect is not None:
            _add(found, each, effect, where, concerns, ignores_whole=unlogged.ignores_whole)
    return found


def _add(
    found: Definitions, of: Statement, effect: Effect, where: str, concerns: Concerns, *, ignores_whole: bool
) -> None:
    found.databases.update(effect.databases)
    found.dropped.update(_read(effect.dropped, of, concerns))
    for table in _read(effect.altered, of, concerns):
        found.altered[table] = where
        if effect.columns != NO_COLUMNS:
            found.columns.append((table, ColumnChange(where, effect.columns)))
    for table in sorted(_read(effect.whole, of, concerns)):
        if not ignores_whole:
            raise UnsupportedFormatError(
                f"{where}: it changed {'.'.join(table)} as a whole, and no row of that was logged. Begin a new "
                "query, or set unloggedChangeBehavior to ignore, to go on with the rows that were delivered"
            )
        found.whole[table] = where


def _named(tables: Collection[LoggedTable], of: Statement) -> set[Table]:
    """Return tables with their databases, which is the session's where a statement names none."""
    return {(of.database if each.database is None else each.database, each.table) for each in tables}


def _read(tables: Collection[LoggedTable], of: Statement, concerns: Concerns) -> list[Table]:
    return [each for each in _named(tables, of) if concerns(*each)] if tables else []


class _Problem(NamedTuple):
    """Why a statement is refused."""

    text: str
    concerns_others: bool
    """Whether it says which tables it changes, and none of them is read."""

    def passed_with(self, chosen: LoggedStatements) -> bool:
        return chosen is LoggedStatements.IGNORED or (
            chosen is LoggedStatements.OTHERS_IGNORED and self.concerns_others
        )


def _unfollowed(of: Statement, where: str) -> _Problem:
    return _Problem(
        f"{where}: what this statement did is not certain, for it cannot be followed: {of.problem}. If you know that "
        "it changed none of the tables that are read, set loggedStatementBehavior to ignore, to go on behind it",
        concerns_others=False,
    )


def _in_place_of_rows(of: Statement, effect: Effect, where: str, concerns: Concerns) -> _Problem | None:
    """Return why a statement is refused that was logged in place of rows; ``None`` if it stands for none of ours."""
    rows = effect.rows
    if rows is None:
        return None
    changed = None if rows.changes is None else _named(rows.changes, of)
    if changed is not None and rows.calls_nothing and all(map(_is_clouds, changed)):
        return None
    if of_read := sorted(each for each in changed or () if concerns(*each)):
        return _Problem(
            f"{where}: a statement was logged, not the rows of {'.'.join(of_read[0])} it changed. {_MENDS}; begin a "
            "new query. Or set loggedStatementBehavior to ignore, to go on without these rows",
            concerns_others=False,
        )
    if changed is None:
        why, others = "it does not say of which tables", ""
    else:
        why = "triggers and functions may have changed others than it names"
        others = ", to ignoreOtherTables if no trigger, function or view that it uses writes to tables you read"
    return _Problem(
        f"{where}: a statement was logged, not the rows it changed, and {why}. {_MENDS}. Begin a new query; or, if it "
        f"changed none of the tables that are read, set loggedStatementBehavior to ignore{others}",
        concerns_others=changed is not None,
    )


def _is_clouds(table: Table) -> bool:
    return table[0].lower() == _CLOUD_DATABASE and table[1].lower().startswith(CLOUD_PREFIX)


class Drop(NamedTuple):
    """A statement that drops tables, with all that they hold."""

    tables: set[Table]
    """Those that it names, each with its database."""
    databases: set[str]
    """Those all of whose tables it drops."""
    events: int
    """How many of a block lead up to it, its own among them."""


def _effects(memory: Bytes, events: Longs) -> Iterator[tuple[Statement, Effect]]:
    """Yield the statements that can be followed; ``look_at_statements`` refuses the others."""
    for each in statements(memory, events):
        if each.effect is not None:
            yield each, each.effect


def drops(memory: Bytes, events: Longs) -> Iterator[Drop]:
    """Yield the statements of a block of events that drop tables.

    Raises:
        CorruptDataError: a statement that does not fit its event.
    """
    for found, effect in _effects(memory, events):
        if effect.dropped or effect.databases:
            yield Drop(_named(effect.dropped, found), set(effect.databases), found.number + 1)


class Arrival(NamedTuple):
    """A statement after which there is a table by a name: it is made, or renamed to it."""

    tables: set[Table]
    """Those that it names, each with its database."""
    is_new: bool
    """Whether it is made: nothing is in it that was in another one by its name."""
    events: int
    """As those of ``Drop``."""


def arrivals(memory: Bytes, events: Longs) -> Iterator[Arrival]:
    """Yield the statements of a block of events that make tables, or give them other names; raises as ``drops``."""
    for found, effect in _effects(memory, events):
        if effect.made:
            yield Arrival(_named(effect.made, found), True, found.number + 1)
        elif effect.whole:
            yield Arrival(_named(effect.whole, found), False, found.number + 1)


def defined_until(memory: Bytes, events: Longs, concerns: Concerns, table: str) -> int:
    """Return how many events of a block lead up to the last statement that defined, emptied or dropped a table.

    Such a statement waits until whoever has changed the table has committed, and keeps others away until it is logged.
    0: there is none. ``table`` is the table's name without its database, of which ``concerns`` tells.
    """
    leads = 0
    for found, effect in _effects(memory, events):
        named = _named(effect.defines, found) | {(database, table) for database in effect.databases}
        if any(concerns(*each) for each in named):
            leads = found.number + 1
    return leads
