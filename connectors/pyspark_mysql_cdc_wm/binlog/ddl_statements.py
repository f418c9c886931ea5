"""Statements that make, alter, drop, rename or empty tables, and those that change rows and log none.

The latter are refused, so that nothing is missed in silence. Of what a dropped table or database held nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyspark_mysql_cdc_wm.binlog.query_events import statements
from pyspark_mysql_cdc_wm.binlog.statement_text import (
    Table,
    alters_table,
    changes_whole,
    database_dropped,
    logs_itself,
    table_made,
    tables_dropped,
    tables_named,
)
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from watermark_source.errors import UnsupportedFormatError, shortened

Concerns = Callable[[str, str], bool]
"""Whether a table, of a database, is one that is read."""


class Definitions(NamedTuple):
    """What statements did to the tables that are read."""

    dropped: set[Table]
    altered: dict[Table, str]
    """The last statement that altered each, and its place."""
    whole: dict[Table, str]
    """The last statement that changed each as a whole, without a row of it logged, and its place."""
    databases: set[str]
    """Those that were dropped, whatever is read of them."""


def look_at_statements(
    memory: Bytes, events: Longs, file: str, concerns: Concerns, *, ignores_unlogged: bool = False
) -> Definitions:
    """Refuse statements that changed rows of a table, or all of it, without logging rows; tell of other definitions.

    A table is taken to be meant where a statement of its kind names tables; its database stands before it, or is the
    session's. ``ignores_unlogged``: those that changed all of a table are told of, and not refused.

    Raises:
        UnsupportedFormatError: there is one.
        CorruptDataError: a statement that does not fit its event.
    """
    told = Definitions(set(), {}, {}, set())
    for found in statements(memory, events):
        text = found.text
        told.databases.update(database_dropped(text))
        told.dropped.update(each for each in tables_dropped(text, found.database) if concerns(*each))
        logged, alters, whole = logs_itself(text), alters_table(text), changes_whole(text)
        if not (logged or whole or alters):
            continue
        for database, table in sorted(each for each in tables_named(text, found.database) if concerns(*each)):
            where = f"binlog {file} position {found.position}: {shortened(text)}"
            if alters and not whole:
                told.altered[database, table] = where
                continue
            if logged:
                raise _not_rows(where, database, table)
            if not ignores_unlogged:
                raise UnsupportedFormatError(
                    f"{where}: it changed {database}.{table} as a whole, and no row of that was logged. Begin a new "
                    "query, or set unloggedChangeBehavior to ignore, to go on with the rows that were delivered"
                )
            told.whole[database, table] = where
    return told


def _not_rows(where: str, database: str, table: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"{where}: a statement was logged, not the rows of {database}.{table} it changed. Some session has another "
        "binlog_format than ROW; begin a new query, and revoke the privilege to set it"
    )


class Drop(NamedTuple):
    """A statement that drops tables, with all that they hold."""

    tables: set[Table]
    """Those that it names, each with its database."""
    databases: set[str]
    """Those all of whose tables it drops."""
    events: int
    """How many of a block lead up to it, its own among them."""


def drops(memory: Bytes, events: Longs) -> Iterator[Drop]:
    """Yield the statements of a block of events that drop tables.

    Raises:
        CorruptDataError: a statement that does not fit its event.
    """
    for found in statements(memory, events):
        tables, databases = tables_dropped(found.text, found.database), database_dropped(found.text)
        if tables or databases:
            yield Drop(tables, databases, found.number + 1)


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
    for found in statements(memory, events):
        if made := table_made(found.text, found.database):
            yield Arrival(made, True, found.number + 1)
        elif changes_whole(found.text):
            yield Arrival(tables_named(found.text, found.database), False, found.number + 1)


def defined_until(memory: Bytes, events: Longs, concerns: Concerns, table: str) -> int:
    """Return how many events of a block lead up to the last statement that defined, emptied or dropped a table.

    Such a statement waits until whoever has changed the table has committed, and keeps others away until it is logged.
    0: there is none. ``table`` is the table's name without its database, of which ``concerns`` tells.
    """
    leads = 0
    for found in statements(memory, events):
        named = {(database, table) for database in database_dropped(found.text)}
        named |= tables_dropped(found.text, found.database)
        if alters_table(found.text) or changes_whole(found.text):
            named |= tables_named(found.text, found.database)
        if any(concerns(*each) for each in named):
            leads = found.number + 1
    return leads
