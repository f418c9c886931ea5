"""Which tables a query reads."""

from __future__ import annotations

from typing import NamedTuple

_PATTERN = frozenset("*?[]()+|\\^$%")


class TableName(NamedTuple):
    """A table of the server."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def quoted(self) -> str:
        """As a statement names it."""
        return f"{quoted(self.database)}.{quoted(self.table)}"


def quoted(name: str) -> str:
    """Return a name as statements have it."""
    return "`" + name.replace("`", "``") + "`"


def parse_tables(text: str) -> tuple[TableName, ...]:
    """Parse a comma list of ``database.table``; raises ``ValueError``."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise ValueError("names no table")
    found = []
    for name in names:
        if _PATTERN & set(name):
            raise ValueError(f"{name}: patterns are not built yet; name each table")
        database, dot, table = name.partition(".")
        if not (database and dot and table) or "." in table:
            raise ValueError(f"{name} is not database.table")
        found.append(TableName(database, table))
    if len(set(found)) != len(found):
        raise ValueError("one is there twice")
    return tuple(found)
