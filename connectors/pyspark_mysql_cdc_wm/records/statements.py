"""Statements in the binlog that change rows and log none: found, and refused, so that nothing is missed in silence.

But for those that drop a table, or a database: what it held is gone, and nobody can tell of it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pyspark_mysql_cdc_wm.binlog.events import HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from watermark_source.errors import CorruptDataError, UnsupportedFormatError, shortened

# A QUERY event's body: thread 4, seconds 4, size of the database's name 1, error 2, size of variables 2, the variables,
# the name and a zero byte, the statement.
_NAME_SIZE, _VARIABLES_SIZE, _FIXED = 8, 11, 13
_BEGIN_SIZE = len("BEGIN")
_QUERY = int(EventType.QUERY)
_XA = b"XA "
_SHORT = "near here is a statement that does not fit its event; the binlog is damaged. Check it with mysqlbinlog"
_ROWS = re.compile(r"(INSERT|UPDATE|DELETE|REPLACE|LOAD|CALL|WITH)\b", re.IGNORECASE)
_ALTER_TABLE = r"ALTER\s+(?:(?:ONLINE|OFFLINE|IGNORE)\s+)*TABLE\b\s*(?:IF\s+EXISTS\b\s*)?"
_RENAME_TABLE = r"RENAME\s+TABLES?\b\s*(?:IF\s+EXISTS\b\s*)?"
_NEW_TABLE = r"(?<![\w`\"])RENAME(?:\s+(?:TO|AS)\b\s*|\s*=\s*|\s+(?!\s|COLUMN\b|INDEX\b|KEY\b)|(?=[`\"]))"
"""Of an ALTER, what stands before the table's new name."""
_WHOLE = re.compile(
    rf"TRUNCATE\b|{_RENAME_TABLE}|ALTER\s+(?:ONLINE\s+)?IGNORE\b.*\b(?:UNIQUE|PRIMARY)\b"
    rf"|{_ALTER_TABLE}.*(?:\b(?:(?:TRUNCATE|DROP|EXCHANGE|DISCARD|IMPORT)\s+(?:PARTITION|TABLESPACE)"
    rf"|CONVERT\s+(?:PARTITION|TABLE))\b|{_NEW_TABLE})",
    re.IGNORECASE | re.DOTALL,
)
_ALTER = re.compile(_ALTER_TABLE, re.IGNORECASE)
_RENAME = re.compile(_RENAME_TABLE, re.IGNORECASE)
_DROP = re.compile(r"DROP\s+(?:TEMPORARY\s+)?TABLES?\b\s*(?:IF\s+EXISTS\b\s*)?", re.IGNORECASE)
_REPLACE = re.compile(r"CREATE\s+OR\s+REPLACE\s+TABLE\b\s*", re.IGNORECASE)
"""MariaDB's word for dropping a table and making it anew."""
_CREATE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b\s*(?:IF\s+NOT\s+EXISTS\b\s*)?", re.IGNORECASE)
_OWN = re.compile(r"DROP\s+TEMPORARY\b", re.IGNORECASE)
"""What concerns a table that one session alone has."""
_DROP_DATABASE = re.compile(r"DROP\s+(?:DATABASE|SCHEMA)\b\s*(?:IF\s+EXISTS\b\s*)?", re.IGNORECASE)
_TRUNCATE = re.compile(r"TRUNCATE\b\s*(?:TABLE\b\s*)?", re.IGNORECASE)
_OTHER_TABLE = re.compile(rf"{_NEW_TABLE}|\b(?:WITH|TO|CONVERT)\s+TABLE\b\s*", re.IGNORECASE)
"""Of an ALTER, what stands before a name of a table that is not the one it begins with."""
_UNDOES = re.compile(r"(SAVEPOINT|ROLLBACK(?:\s+TO)?)\b\s*(.*)", re.IGNORECASE | re.DOTALL)
_BACKQUOTED = r"`(?:[^`]|``)+`"
_DOUBLE_QUOTED = r'''"(?:[^"\\]|\\(?s:.)|"")*"'''
_SINGLE_QUOTED = r"'(?:[^'\\]|\\(?s:.)|'')*'"
_QUOTED = rf"{_BACKQUOTED}|{_DOUBLE_QUOTED}|{_SINGLE_QUOTED}"
_TEXT = re.compile(
    rf"({_BACKQUOTED}|{_DOUBLE_QUOTED})|\b(?:COMMENT|DEFAULT)\b(?:\s*=)?\s*{_DOUBLE_QUOTED}|{_SINGLE_QUOTED}",
    re.IGNORECASE,
)
"""Names, and texts. What is in double quotes is a text where no name can stand, and may be a name elsewhere."""
_FOR_ITSELF = re.compile(rf"SET\s+STATEMENT\b(?:{_QUOTED}|[^`\"'])*?\bFOR\s+", re.IGNORECASE)
"""What MariaDB's statements may begin with: settings for themselves alone."""
_EXECUTABLE = re.compile(rf"({_QUOTED})|/\*M?!\d*(.*?)\*/", re.DOTALL)
"""What only some servers read, and the others take for a remark."""
_REMARK = re.compile(rf"({_QUOTED})|/\*.*?\*/|--\s[^\n]*|#[^\n]*", re.DOTALL)
_NO_NAME = re.compile(rf"({_QUOTED})|\b(?:TO|RESTRICT|CASCADE|WAIT\s+\d+|NOWAIT)\b", re.IGNORECASE)
_PART = r"""(`(?:[^`]|``)+`|"(?:[^"]|"")+"|[\w$]+)"""
_TABLE = re.compile(rf"{_PART}(?:\s*\.\s*{_PART})?")
_ONE_CHANGED = re.compile(
    r"(?:INSERT|REPLACE)\b\s*(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE|INTO)\b\s*)*"
    rf"|UPDATE\b\s*(?:(?:LOW_PRIORITY|IGNORE)\b\s*)*(?={_TABLE.pattern}\s+SET\b)"
    rf"|DELETE\b\s*(?:(?:LOW_PRIORITY|QUICK|IGNORE)\b\s*)*FROM\b\s*(?={_TABLE.pattern}\s+WHERE\b)",
    re.IGNORECASE,
)
"""What stands before the one table that is changed; others may be read, and named in texts (pt-table-checksum)."""

Concerns = Callable[[str, str], bool]
"""Whether a table, of a database, is one that is read."""


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
    queries, names, texts = _queries(memory, events)
    for i in np.flatnonzero(events[queries, STOP] - texts != _BEGIN_SIZE).tolist():
        event = events[queries[i]]
        text = memory[texts[i] : event[STOP]].tobytes().decode(errors="replace")
        yield Statement(
            memory[names[i] : texts[i] - 1].tobytes().decode(errors="replace"),
            without_remarks(text),
            int(event[POSITION]),
            int(queries[i]),
        )


class XaEnd(NamedTuple):
    """A statement that ends a transaction which was prepared before."""

    transaction: str
    """Its name, as ``prepared_name`` has it."""
    commits: bool
    number: int
    """Of its event in the block."""


def xa_ends(memory: Bytes, events: Longs) -> Iterator[XaEnd]:
    """Yield the statements of a block of events that commit or roll back what was prepared.

    Servers write them themselves, always in one form; see ``statements`` for what is raised.
    """
    queries, _, texts = _queries(memory, events)
    heads = memory[texts[:, None] + np.arange(len(_XA))] == np.frombuffer(_XA, np.uint8)
    for i in np.flatnonzero(heads.all(axis=1)).tolist():
        text = memory[texts[i] : events[queries[i], STOP]].tobytes().decode("ascii", errors="replace")
        _, what, name = text.split(" ", 2)
        if what in ("COMMIT", "ROLLBACK"):
            yield XaEnd(name.casefold(), what == "COMMIT", int(queries[i]))


def prepared_name(body: bytes) -> str:
    """Return the name of a transaction by the body of its XA_PREPARE event.

    One byte, the number of the name's format and the sizes of its two parts (4 bytes each), then these.
    """
    kind, first, second = struct.unpack_from("<iII", body, 1)
    whole, begin = body[13 : 13 + first + second], first
    return f"X'{whole[:begin].hex()}',X'{whole[begin:].hex()}',{kind}".casefold()


def _queries(memory: Bytes, events: Longs) -> tuple[Longs, Longs, Longs]:
    """Return which events are statements, where the name of each one's database begins, and its text."""
    numbers = np.flatnonzero(events[:, TYPE] == _QUERY)
    queries = events[numbers]
    if not len(queries):
        return numbers, numbers, numbers
    bodies = queries[:, START] + HEADER_SIZE
    if (bodies + _FIXED > queries[:, STOP]).any():
        raise CorruptDataError(f"binlog position {queries[0, POSITION]}: {_SHORT}")
    variables = memory[bodies + _VARIABLES_SIZE] | memory[bodies + _VARIABLES_SIZE + 1].astype(np.int64) << 8
    names = bodies + _FIXED + variables
    texts = names + memory[bodies + _NAME_SIZE].astype(np.int64) + 1
    if (texts > queries[:, STOP]).any():
        raise CorruptDataError(f"binlog position {queries[0, POSITION]}: {_SHORT}")
    return numbers, names, texts


class Definitions(NamedTuple):
    """What statements did to the tables that are read."""

    dropped: set[tuple[str, str]]
    altered: dict[tuple[str, str], str]
    """The last statement that altered each, and its place."""
    whole: dict[tuple[str, str], str]
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
    """
    dropped: set[tuple[str, str]] = set()
    altered: dict[tuple[str, str], str] = {}
    whole_tables: dict[tuple[str, str], str] = {}
    databases: set[str] = set()
    for found in statements(memory, events):
        text = found.text
        databases |= database_dropped(text)
        logged, alters, whole = _ROWS.match(text), _ALTER.match(text), _WHOLE.match(_without_texts(text))
        drop = _DROP.match(text) or _REPLACE.match(text)
        if not (logged or whole or drop or alters):
            continue
        for database, table in sorted(each for each in tables_named(text, found.database) if concerns(*each)):
            if drop:
                dropped.add((database, table))
                continue
            where = f"binlog {file} position {found.position}: {shortened(text)}"
            if alters and not whole:
                altered[database, table] = where
                continue
            if logged:
                raise _not_rows(where, database, table)
            if not ignores_unlogged:
                raise UnsupportedFormatError(
                    f"{where}: it changed {database}.{table} as a whole, and no row of that was logged. Begin a new "
                    "query, or set unloggedChangeBehavior to ignore, to go on with the rows that were delivered"
                )
            whole_tables[database, table] = where
    return Definitions(dropped, altered, whole_tables, databases)


class Drop(NamedTuple):
    """A statement that drops tables, with all that they hold."""

    tables: set[tuple[str, str]]
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
        databases = database_dropped(found.text)
        drop = (_DROP.match(found.text) or _REPLACE.match(found.text)) and not _OWN.match(found.text)
        if drop or databases:
            yield Drop(tables_named(found.text, found.database) if drop else set(), databases, found.number + 1)


class Arrival(NamedTuple):
    """A statement after which there is a table by a name: it is made, or renamed to it."""

    tables: set[tuple[str, str]]
    """Those that it names, each with its database."""
    is_new: bool
    """Whether it is made: nothing is in it that was in another one by its name."""
    events: int
    """As those of ``Drop``."""


def arrivals(memory: Bytes, events: Longs) -> Iterator[Arrival]:
    """Yield the statements of a block of events that make tables, or give them other names; raises as ``drops``."""
    for found in statements(memory, events):
        if made := _CREATE.match(found.text):
            tables = _tables(found.text[made.end() :], found.database, most=1)
        elif _WHOLE.match(_without_texts(found.text)):
            tables = tables_named(found.text, found.database)
        else:
            continue
        yield Arrival(tables, made is not None, found.number + 1)


def rollbacks(memory: Bytes, events: Longs, transactions: Longs) -> Iterator[tuple[int, int | None]]:
    """Yield which statements of a block undo what their transaction did, and since which savepoint of the block.

    Servers log both, what was done and its end, where something else that was done cannot be undone. ``None``: since
    before the block, or the transaction's beginning. ``transactions`` has the number of each event's.

    Raises:
        CorruptDataError: a statement that does not fit its event.
    """
    savepoints: dict[tuple[int, str], int] = {}
    for found in statements(memory, events):
        if undoes := _UNDOES.fullmatch(found.text):
            point = int(transactions[found.number]), undoes[2].casefold()
            if undoes[1].upper() == "SAVEPOINT":
                savepoints[point] = found.number
            else:
                yield found.number, savepoints.get(point)


def defined_until(memory: Bytes, events: Longs, concerns: Concerns, table: str) -> int:
    """Return how many events of a block lead up to the last statement that defined, emptied or dropped a table.

    Such a statement waits until whoever has changed the table has committed, and keeps others away until it is logged.
    0: there is none. ``table`` is the table's name without its database, of which ``concerns`` tells.
    """
    leads = 0
    for found in statements(memory, events):
        gone = any(concerns(database, table) for database in database_dropped(found.text))
        kinds = (_WHOLE, _DROP, _REPLACE, _ALTER)
        defines = any(each.match(found.text) for each in kinds) and not _OWN.match(found.text)
        if gone or (defines and any(concerns(*each) for each in tables_named(found.text, found.database))):
            leads = found.number + 1
    return leads


def _not_rows(where: str, database: str, table: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"{where}: a statement was logged, not the rows of {database}.{table} it changed. Some session has another "
        "binlog_format than ROW; begin a new query, and take the right to set it away"
    )


def database_dropped(text: str) -> set[str]:
    """Return the database that a statement drops, if it drops one."""
    begun = _DROP_DATABASE.match(text)
    named = begun and _TABLE.match(text, begun.end())
    return {_bare(named[1])} if named else set()


def tables_named(text: str, session: str) -> set[tuple[str, str]]:
    """Return the tables, each with its database, that a statement names where its kind does so, or else anywhere."""
    if begun := _TRUNCATE.match(text) or _REPLACE.match(text) or _ONE_CHANGED.match(text):
        return _tables(text[begun.end() :], session, most=1)
    if begun := _ALTER.match(text):
        found = _tables(text[begun.end() :], session, most=1)
        for other in _OTHER_TABLE.finditer(_without_texts(text)):
            found |= _tables(text[other.end() :], session, most=1)
        return found
    for listing in (_RENAME, _DROP):
        if begun := listing.match(text):
            return _tables(_without(_NO_NAME, text[begun.end() :]), session)
    return _tables(text, session)


def _tables(text: str, session: str, *, most: int | None = None) -> set[tuple[str, str]]:
    pairs = [tuple(map(_bare, pair)) for pair in _TABLE.findall(text)[:most]]
    return {(one, other) if other else (session, one) for one, other in pairs}


def without_remarks(text: str) -> str:
    """Return a statement as the server reads it, from its first word on."""
    read = _without(_REMARK, _EXECUTABLE.sub(lambda found: found[1] or f" {found[2]} ", text)).strip()
    begun = _FOR_ITSELF.match(read)
    return read[begun.end() :] if begun else read


def _without_texts(statement: str) -> str:
    """Return a statement with blanks for its texts, which say nothing about it; what follows stays at its place."""
    return _TEXT.sub(lambda found: found[1] or " " * len(found[0]), statement)


def _without(what: re.Pattern[str], text: str) -> str:
    """Return a text without that, but for what is quoted."""
    return what.sub(lambda found: found[1] or " ", text)


def _bare(name: str) -> str:
    quote = name[:1]
    return name[1:-1].replace(2 * quote, quote) if quote in ("`", '"') else name
