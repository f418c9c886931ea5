"""Statements in the binlog that change rows and log none: found, and refused, so that nothing is missed in silence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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
    r"TRUNCATE\b|DROP\s+(TABLE|DATABASE|SCHEMA)\b|RENAME\s+TABLE\b"
    r"|ALTER\s+TABLE\b.*\b((TRUNCATE|DROP|EXCHANGE|DISCARD|IMPORT)\s+(PARTITION|TABLESPACE)|RENAME\s+(TO|AS|`))",
    re.IGNORECASE | re.DOTALL,
)


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


def refuse_statements(memory: Bytes, events: Longs, file: str, tables: Iterable[tuple[str, str]]) -> None:
    """Refuse statements that changed rows of a table, or all of it, without logging rows.

    A table is taken to be meant where its name is in the statement, and its database is there or is the session's.

    Raises:
        UnsupportedFormatError: there is one.
    """
    for found in statements(memory, events):
        comment = _COMMENT.match(found.text)
        text = found.text[comment.end() if comment else 0 :]
        logged, whole = _ROWS.match(text), _WHOLE.match(text)
        if not logged and not whole:
            continue
        for database, table in tables:
            if not _concerns(found, text, database, table):
                continue
            where = f"binlog {file} position {found.position}: {shortened(text)}"
            if logged:
                raise UnsupportedFormatError(
                    f"{where}: a statement was logged, not the rows of {database}.{table} it changed. Some session has "
                    "another binlog_format than ROW; begin a new query, and take the right to set it away"
                )
            raise UnsupportedFormatError(
                f"{where}: it changed {database}.{table} as a whole, and no row of that was logged. Begin a new query"
            )


def _concerns(found: Statement, text: str, database: str, table: str) -> bool:
    drops_all = re.match(r"DROP\s+(DATABASE|SCHEMA)\b", text, re.IGNORECASE) is not None
    named = _named(text, database)
    return named if drops_all else _named(text, table) and (found.database == database or named)


def _named(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text, re.IGNORECASE) is not None
