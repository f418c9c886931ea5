"""Statements in the binlog that change rows and log none: found, and refused, so that nothing is missed in silence.

But for those that drop a table: what it held is gone, and nobody can tell of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.events import HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from watermark_source.errors import UnsupportedFormatError, shortened

# A QUERY event's body: thread 4, seconds 4, size of the database's name 1, error 2, size of variables 2, the variables,
# the name and a zero byte, the statement.
_NAME_SIZE, _VARIABLES_SIZE, _FIXED = 8, 11, 13
_BEGIN_SIZE = len("BEGIN")
_QUERY = int(EventType.QUERY)
_COMMENT = re.compile(r"\s*(/\*.*?\*/\s*)*", re.DOTALL)
_ROWS = re.compile(r"(INSERT|UPDATE|DELETE|REPLACE|LOAD|CALL|WITH)\b", re.IGNORECASE)
_WHOLE = re.compile(
    r"TRUNCATE\b|RENAME\s+TABLE\b"
    r"|ALTER\s+TABLE\b.*\b((TRUNCATE|DROP|EXCHANGE|DISCARD|IMPORT)\s+(PARTITION|TABLESPACE)|RENAME\s+(TO|AS|`))",
    re.IGNORECASE | re.DOTALL,
)
_DROP = re.compile(r"DROP\s+TABLE\b", re.IGNORECASE)
_ALTER = re.compile(r"ALTER\s+TABLE\b", re.IGNORECASE)
_NAMES = re.compile(r"`((?:[^`]|``)+)`|([\w$]+)")

Concerns = Callable[[str, str], bool]
"""Whether a table, of a database, is one that is read."""


class Statement(NamedTuple):
    """A statement as it was logged."""

    database: str
    """The session's."""
    text: str
    position: int


def statements(memory: Bytes, events: Longs) -> Iterator[Statement]:
    """Yield the statements of a block of events, but for the BEGIN that most transactions have."""
    queries = events[events[:, TYPE] == _QUERY]
    if not len(queries):
        return
    bodies = queries[:, START] + HEADER_SIZE
    variables = memory[bodies + _VARIABLES_SIZE] | memory[bodies + _VARIABLES_SIZE + 1].astype(np.int64) << 8
    names = bodies + _FIXED + variables
    texts = names + memory[bodies + _NAME_SIZE] + 1
    for i in np.flatnonzero(queries[:, STOP] - texts != _BEGIN_SIZE).tolist():
        yield Statement(
            memory[names[i] : texts[i] - 1].tobytes().decode(errors="replace"),
            memory[texts[i] : queries[i, STOP]].tobytes().decode(errors="replace"),
            int(queries[i, POSITION]),
        )


class Definitions(NamedTuple):
    """What statements did to the tables that are read."""

    dropped: set[tuple[str, str]]
    altered: dict[tuple[str, str], str]
    """The last statement that altered each, and its place."""


def look_at_statements(memory: Bytes, events: Longs, file: str, concerns: Concerns) -> Definitions:
    """Refuse statements that changed rows of a table, or all of it, without logging rows; tell of other definitions.

    A table is taken to be meant where its name is in the statement, and its database is there or is the session's.

    Raises:
        UnsupportedFormatError: there is one.
    """
    dropped: set[tuple[str, str]] = set()
    altered: dict[tuple[str, str], str] = {}
    for found in statements(memory, events):
        comment = _COMMENT.match(found.text)
        text = found.text[comment.end() if comment else 0 :]
        logged, whole, drop, alters = (each.match(text) for each in (_ROWS, _WHOLE, _DROP, _ALTER))
        if not (logged or whole or drop or alters):
            continue
        names = {quoted.replace("``", "`") or plain for quoted, plain in _NAMES.findall(text)}
        for database, table in _meant(names, found.database, concerns):
            if drop:
                dropped.add((database, table))
                continue
            where = f"binlog {file} position {found.position}: {shortened(text)}"
            if alters and not whole:
                altered[database, table] = where
                continue
            if logged:
                raise UnsupportedFormatError(
                    f"{where}: a statement was logged, not the rows of {database}.{table} it changed. Some session has "
                    "another binlog_format than ROW; begin a new query, and take the right to set it away"
                )
            raise UnsupportedFormatError(
                f"{where}: it changed {database}.{table} as a whole, and no row of that was logged. Begin a new query"
            )
    return Definitions(dropped, altered)


def _meant(names: Set[str], session: str, concerns: Concerns) -> list[tuple[str, str]]:
    """Return the tables that are read among all that a statement with these names in it may mean."""
    return sorted((d, t) for d in {*names, session} for t in names if concerns(d, t))
