"""Statements in a block of events of the binlog, each with the database of its session.

A QUERY event's body: thread 4, seconds 4, size of the database's name 1, error 2, size of variables 2, the variables,
the name and a zero byte, the statement. An EXECUTE_LOAD_QUERY event, of a LOAD DATA, has 13 bytes more before the
variables: which of the logged files it loads, and where in the statement the file is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.statement_charsets import statement_text
from pyspark_mysql_cdc_wm.binlog.statement_text import without_remarks
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from watermark_source.errors import CorruptDataError

_NAME_SIZE, _VARIABLES_SIZE, _FIXED, _OF_LOAD = 8, 11, 13, 13
_BEGIN_SIZE = len("BEGIN")
_LOAD = int(EventType.EXECUTE_LOAD_QUERY)
_STATEMENTS = (int(EventType.QUERY), _LOAD)
_SHORT = "near here is a statement that does not fit its event; the binlog is damaged. Check it with mysqlbinlog"


class Statement(NamedTuple):
    """A statement as it was logged."""

    database: str
    """The session's."""
    text: str
    """Without remarks; what is meant for some servers only counts."""
    position: int
    number: int
    """Of its event in the block."""


def statements(memory: Bytes, events: Longs) -> Iterator[Statement]:
    """Yield the statements of a block of events, but for the BEGIN that most transactions have.

    Raises:
        CorruptDataError: one that does not fit its event.
    """
    queries, variables, names, texts = text_places(memory, events)
    for i in np.flatnonzero(events[queries, STOP] - texts != _BEGIN_SIZE).tolist():
        event = events[queries[i]]
        text = statement_text(memory[texts[i] : event[STOP]].tobytes(), memory[variables[i] : names[i]].tobytes())
        yield Statement(
            memory[names[i] : texts[i] - 1].tobytes().decode(errors="replace"),
            without_remarks(text),
            int(event[POSITION]),
            int(queries[i]),
        )


def text_places(memory: Bytes, events: Longs) -> tuple[Longs, Longs, Longs, Longs]:
    """Return which events are statements, and where each one's variables, its database's name and its text begin.

    Raises:
        CorruptDataError: one that does not fit its event.
    """
    numbers = np.flatnonzero(np.isin(events[:, TYPE], _STATEMENTS))
    queries = events[numbers]
    if not len(queries):
        return numbers, numbers, numbers, numbers
    bodies = queries[:, START] + HEADER_SIZE
    fixed = np.where(queries[:, TYPE] == _LOAD, _FIXED + _OF_LOAD, _FIXED)
    if (bodies + fixed > queries[:, STOP]).any():
        raise CorruptDataError(f"binlog position {queries[0, POSITION]}: {_SHORT}")
    variables = bodies + fixed
    sizes = memory[bodies + _VARIABLES_SIZE] | memory[bodies + _VARIABLES_SIZE + 1].astype(np.int64) << 8
    names = variables + sizes
    texts = names + memory[bodies + _NAME_SIZE].astype(np.int64) + 1
    if (texts > queries[:, STOP]).any():
        raise CorruptDataError(f"binlog position {queries[0, POSITION]}: {_SHORT}")
    return numbers, variables, names, texts
