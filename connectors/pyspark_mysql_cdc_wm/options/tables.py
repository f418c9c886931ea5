"""The option tables: names, names with asterisks, and regular expressions of the tables that a query reads.

An entry of the list is a regular expression if it has one of ``\\ ^ ? + [ ] ( ) { } |``. It must then match the whole
of ``database.table``, whose dot it writes as ``\\.``, as in Debezium and Flink CDC. In all other entries an asterisk
stands for any characters of a database's or a table's name, and a part in backquotes is literal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SYSTEM_DATABASES = frozenset({"information_schema", "mysql", "performance_schema", "sys"})
_EXPRESSION = frozenset("\\^?+[](){}|")
_PART = r"`(?:[^`]|``)+`|[^`.]+"
_TWO_PARTS = re.compile(rf"({_PART})\.({_PART})")
_LABEL = re.compile(r"[\w-]+")
_READING = re.compile(rf"((?:{_PART})\.(?:{_PART}))(?:\.({_LABEL.pattern}))?")
_BETWEEN = "\0"
"""A separator between database and table that no name contains."""


class TableName(NamedTuple):
    """A table's name with its database."""

    database: str
    table: str

    def __str__(self) -> str:
        return ".".join(quoted(part) if {".", "`"} & set(part) else part for part in self)

    @classmethod
    def of(cls, text: str) -> TableName:
        """Parse ``database.table``; raises ``ValueError``."""
        parts = _TWO_PARTS.fullmatch(text)
        if parts is None:
            raise ValueError(f"{text} is not database.table; the dot in a regular expression for both is written \\.")
        return cls(*(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts.groups()))

    @property
    def quoted(self) -> str:
        """The name in backquotes, for a statement."""
        return f"{quoted(self.database)}.{quoted(self.table)}"


class TableReading(NamedTuple):
    """One reading of a table as a snapshot; its text is the log of the snapshot in an offset."""

    table: TableName
    label: str | None = None
    """The label with which the user has requested it; ``None`` for the first, with which the table joins the stream."""

    def __str__(self) -> str:
        # A name with a dot is in backquotes, so that no table has this text.
        return str(self.table) if self.label is None else f"{self.table}.{self.label}"

    @classmethod
    def of(cls, log: str) -> TableReading:
        """Parse the log of a snapshot, ``database.table`` or ``database.table.label``; raises ``ValueError``."""
        parts = _READING.fullmatch(log)
        return cls(TableName.of(log if parts is None else parts[1]), None if parts is None else parts[2])


def parse_readings(text: str) -> tuple[TableReading, ...]:
    """Parse a comma list of ``database.table:label``; raises ``ValueError``."""
    found = []
    for part in (each.strip() for each in _split_at_commas(text) if each.strip()):
        table, _, label = part.rpartition(":")
        if not table or not _LABEL.fullmatch(label):
            raise ValueError(f"{part} is not database.table:label, with a label of letters, digits, _ and -")
        found.append(TableReading(TableName.of(table), label))
    if not found or len(set(found)) != len(found):
        raise ValueError("names no table, or one reading twice")
    return tuple(found)


def quoted(name: str) -> str:
    """Return an identifier in backquotes."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the list."""

    text: str
    expression: str
    separator: str
    """What separates database and table in the text that the expression must match."""
    database: str | None = None
    """The only database it can match; ``None`` if it can match several."""
    name: TableName | None = None
    """The only table it can match; ``None`` if it can match several."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The tables that a query reads, including tables that are created later; never those of system databases."""

    entries: tuple[Entry, ...]
    ignores_case: bool = False
    """Whether the server ignores case in table names (``lower_case_table_names``)."""
    _names: frozenset[TableName] = field(init=False, repr=False, compare=False)
    """The keys of the entries that match one table alone."""
    _patterns: tuple[tuple[re.Pattern[str], str], ...] = field(init=False, repr=False, compare=False)
    """The compiled expressions and separators of the other entries; the cache of ``re`` is too small for many."""

    def __post_init__(self) -> None:
        flags = re.DOTALL | (re.IGNORECASE if self.ignores_case else 0)
        patterns = [(re.compile(e.expression, flags), e.separator) for e in self.entries if e.name is None]
        names = frozenset(self.key(entry.name) for entry in self.entries if entry.name is not None)
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_patterns", tuple(patterns))

    def matches(self, name: TableName) -> bool:
        """Return whether the query reads a table."""
        if name.database.lower() in SYSTEM_DATABASES:
            return False
        return self.key(name) in self._names or any(
            pattern.fullmatch(separator.join(name)) for pattern, separator in self._patterns
        )

    def may_be_in(self, database: str) -> bool:
        """Return whether a database can have a table that the query reads."""
        own = self.key(TableName(database, "")).database
        fixed = (entry.database for entry in self.entries)
        return any(name is None or self.key(TableName(name, "")).database == own for name in fixed)

    def key(self, name: TableName) -> TableName:
        """Return a name that is equal for all spellings of one table."""
        return TableName(name.database.lower(), name.table.lower()) if self.ignores_case else name

    @property
    def databases(self) -> Sequence[str] | None:
        """The only databases that the tables can be in; ``None`` if any database can have one."""
        names = {entry.database for entry in self.entries}
        return None if None in names or self.ignores_case else sorted(name for name in names if name is not None)

    def __str__(self) -> str:
        return ", ".join(entry.text for entry in self.entries)


def parse_tables(text: str) -> Selection:
    """Parse entries separated by commas outside brackets and backquotes. Raises ``ValueError``."""
    texts = [part.strip() for part in _split_at_commas(text) if part.strip()]
    if not texts:
        raise ValueError("names no table")
    if len(set(texts)) != len(texts):
        raise ValueError("an entry occurs twice")
    return Selection(tuple(map(_entry, texts)))


def _split_at_commas(text: str) -> Iterator[str]:
    depth, quotes, begin, skipped = 0, False, 0, False
    for i, char in enumerate(text):
        if skipped:
            skipped = False
        elif char == "`":
            quotes = not quotes
        elif quotes:
            continue
        elif char == "\\":
            skipped = True
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth <= 0:
            yield text[begin:i]
            begin = i + 1
    yield text[begin:]


def _entry(text: str) -> Entry:
    if "`" not in text and _EXPRESSION & set(text):
        try:
            re.compile(text)
        except re.error as problem:
            raise ValueError(f"{text} is not a regular expression: {problem}") from None
        return Entry(text, text, ".")
    if "%" in text and "`" not in text:
        raise ValueError(f"{text}: % is not a wildcard, write *")
    name = TableName.of(text)
    if name.database.lower() in SYSTEM_DATABASES:
        raise ValueError(f"{text}: tables of system databases are not read")
    parts = _TWO_PARTS.fullmatch(text)
    patterns = ["*" in part and not part.startswith("`") for part in (parts.groups() if parts else ())]
    expression = _BETWEEN.join(
        f"[^{_BETWEEN}]*".join(map(re.escape, part.split("*"))) if wild else re.escape(part)
        for part, wild in zip(name, patterns, strict=True)
    )
    return Entry(text, expression, _BETWEEN, None if patterns[0] else name.database, None if any(patterns) else name)
