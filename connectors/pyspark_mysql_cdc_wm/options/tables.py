"""Which tables a query reads: names, names with asterisks, and regular expressions.

An entry of the list is a regular expression if it has one of ``\\ ^ ? + [ ] ( ) { } |``. It must then match the whole
of ``database.table``, whose dot it writes as ``\\.``, as in Debezium and Flink CDC. In all others an asterisk stands
for any characters of a database's name or of a table's, and a part in backquotes for itself.
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
_BETWEEN = "\0"
"""Between database and table where no part of a name can be taken for it."""


class TableName(NamedTuple):
    """A table of the server."""

    database: str
    table: str

    def __str__(self) -> str:
        return ".".join(quoted(part) if {".", "`"} & set(part) else part for part in self)

    @classmethod
    def of(cls, text: str) -> TableName:
        """Return the table whose text this is; raises ``ValueError``."""
        parts = _TWO_PARTS.fullmatch(text)
        if parts is None:
            raise ValueError(f"{text} is not database.table; the dot in a regular expression for both is written \\.")
        return cls(*(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts.groups()))

    @property
    def quoted(self) -> str:
        """As a statement names it."""
        return f"{quoted(self.database)}.{quoted(self.table)}"


def quoted(name: str) -> str:
    """Return a name as statements have it."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the list."""

    text: str
    expression: str
    separator: str
    """Between database and table in what the expression must match."""
    database: str | None = None
    """The only database it can be in; ``None`` if it may be in several."""
    name: TableName | None = None
    """The only table it can be; ``None`` if it may be several."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The tables a query reads, those included that there are not yet; never those of the system."""

    entries: tuple[Entry, ...]
    ignores_case: bool = False
    """As the server does with names of tables (``lower_case_table_names``)."""
    _names: frozenset[TableName] = field(init=False, repr=False, compare=False)
    """The keys of the entries that can be one table alone."""
    _patterns: tuple[tuple[re.Pattern[str], str], ...] = field(init=False, repr=False, compare=False)
    """Those of the others, each with what is between database and table; ``re`` itself keeps only some hundred."""

    def __post_init__(self) -> None:
        flags = re.DOTALL | (re.IGNORECASE if self.ignores_case else 0)
        patterns = [(re.compile(each.expression, flags), each.separator) for each in self.entries if each.name is None]
        names = frozenset(self.key(each.name) for each in self.entries if each.name is not None)
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_patterns", tuple(patterns))

    def matches(self, name: TableName) -> bool:
        """Return whether a table is read."""
        if name.database.lower() in SYSTEM_DATABASES:
            return False
        return self.key(name) in self._names or any(
            pattern.fullmatch(separator.join(name)) for pattern, separator in self._patterns
        )

    def may_be_in(self, database: str) -> bool:
        """Return whether one of the tables can be in a database."""
        own = self.key(TableName(database, "")).database
        fixed = (entry.database for entry in self.entries)
        return any(name is None or self.key(TableName(name, "")).database == own for name in fixed)

    def key(self, name: TableName) -> TableName:
        """Return a name that is equal for all spellings of a table."""
        return TableName(name.database.lower(), name.table.lower()) if self.ignores_case else name

    @property
    def databases(self) -> Sequence[str] | None:
        """The only databases they can be in; ``None`` if they may be in any."""
        found = {entry.database for entry in self.entries}
        return None if None in found or self.ignores_case else sorted(name for name in found if name is not None)

    def __str__(self) -> str:
        return ", ".join(entry.text for entry in self.entries)


def parse_tables(text: str) -> Selection:
    """Parse a comma list of entries; a comma in brackets or backquotes divides nothing. Raises ``ValueError``."""
    texts = [part.strip() for part in _divided(text) if part.strip()]
    if not texts:
        raise ValueError("names no table")
    if len(set(texts)) != len(texts):
        raise ValueError("one is there twice")
    return Selection(tuple(map(_entry, texts)))


def _divided(text: str) -> Iterator[str]:
    depth, quotes, begin, skipped = 0, False, 0, False
    for at, char in enumerate(text):
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
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _entry(text: str) -> Entry:
    if "`" not in text and _EXPRESSION & set(text):
        try:
            re.compile(text)
        except re.error as problem:
            raise ValueError(f"{text} is no regular expression: {problem}") from None
        return Entry(text, text, ".")
    if "%" in text and "`" not in text:
        raise ValueError(f"{text}: % stands for nothing here, write *")
    name = TableName.of(text)
    if name.database.lower() in SYSTEM_DATABASES:
        raise ValueError(f"{text}: tables of the system are not read")
    parts = _TWO_PARTS.fullmatch(text)
    patterns = ["*" in part and not part.startswith("`") for part in (parts.groups() if parts else ())]
    expression = _BETWEEN.join(
        f"[^{_BETWEEN}]*".join(map(re.escape, part.split("*"))) if wild else re.escape(part)
        for part, wild in zip(name, patterns, strict=True)
    )
    return Entry(text, expression, _BETWEEN, None if patterns[0] else name.database, None if any(patterns) else name)
