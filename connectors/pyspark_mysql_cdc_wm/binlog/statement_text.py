"""What a statement says by its text: of which kind it is, and which tables or databases it means."""

from __future__ import annotations

import re
from typing import NamedTuple

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
_DROP = re.compile(r"DROP\s+TABLES?\b\s*(?:IF\s+EXISTS\b\s*)?", re.IGNORECASE)
"""With TEMPORARY it is a table that one session alone has."""
_REPLACE = re.compile(r"CREATE\s+OR\s+REPLACE\s+TABLE\b\s*", re.IGNORECASE)
"""MariaDB's word for dropping a table and making it anew."""
_CREATE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b\s*(?:IF\s+NOT\s+EXISTS\b\s*)?", re.IGNORECASE)
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
    rf"|DELETE\b\s*(?:(?:LOW_PRIORITY|QUICK|IGNORE)\b\s*)*FROM\b\s*(?={_TABLE.pattern}\s+WHERE\b)"
    rf"|LOAD\b(?:{_QUOTED}|[^`\"'])*?\bINTO\s+TABLE\b\s*",
    re.IGNORECASE,
)
"""What stands before the one table that is changed; others may be read, and named in texts (pt-table-checksum)."""

Table = tuple[str, str]
"""Database and name."""


def logs_itself(text: str) -> bool:
    """Return whether a statement is of a kind that is logged where the rows are not that it changes."""
    return _ROWS.match(text) is not None


def alters_table(text: str) -> bool:
    """Return whether a statement alters a table, which may change all of it (``changes_whole``)."""
    return _ALTER.match(text) is not None


def changes_whole(text: str) -> bool:
    """Return whether a statement empties, renames or swaps all of a table or a part of it: it logs no row of that."""
    return _WHOLE.match(_without_texts(text)) is not None


class Undoing(NamedTuple):
    """What is undone in a transaction, or can be."""

    is_savepoint: bool
    """Whether a savepoint is set; otherwise what was done since one is undone."""
    name: str
    """The savepoint's; empty for all of the transaction."""


def undoing(text: str) -> Undoing | None:
    """Return what a statement undoes, or lets be undone; ``None`` for every other one."""
    found = _UNDOES.fullmatch(text)
    return None if found is None else Undoing(found[1].upper() == "SAVEPOINT", found[2].casefold())


def database_dropped(text: str) -> set[str]:
    """Return the database that a statement drops, if it drops one."""
    begun = _DROP_DATABASE.match(text)
    named = begun and _TABLE.match(text, begun.end())
    return {_bare(named[1])} if named else set()


def tables_dropped(text: str, session: str) -> set[Table]:
    """Return the tables that a statement drops, each with its database: not those that one session alone has."""
    return tables_named(text, session) if _DROP.match(text) or _REPLACE.match(text) else set()


def table_made(text: str, session: str) -> set[Table]:
    """Return the table that a statement makes, with its database, if it makes one."""
    made = _CREATE.match(text)
    return _tables(text[made.end() :], session, most=1) if made else set()


def tables_named(text: str, session: str) -> set[Table]:
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


def _tables(text: str, session: str, *, most: int | None = None) -> set[Table]:
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
