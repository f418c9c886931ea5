"""The effects of the parts of an ALTER TABLE: unlogged changes of rows, and changes of columns' names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark_mysql_cdc_wm.binlog.sql_scanner import (
    NAME,
    SIGN,
    TEXT,
    WORD,
    LoggedTable,
    Token,
    UnfollowedError,
    Walk,
)

_PARTS_OF_ALTER = frozenset(
    (
        "ADD", "ALTER", "ALGORITHM", "ANALYZE", "CHANGE", "CHECK", "COALESCE", "CONVERT", "DISABLE", "DISCARD", "DROP",
        "ENABLE", "EXCHANGE", "FORCE", "IMPORT", "LOCK", "MODIFY", "OPTIMIZE", "ORDER", "PARTITION", "REBUILD",
        "REMOVE", "RENAME", "REORGANIZE", "REPAIR", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "TRUNCATE", "UPGRADE",
        "WITH", "WITHOUT",
    )
)  # fmt: skip
_TABLE_OPTIONS = frozenset(
    (
        "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHAR", "CHARACTER", "CHARSET", "CHECKSUM", "COLLATE",
        "COMMENT",
        "COMPRESSION", "CONNECTION", "DATA", "DEFAULT", "DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE", "ENGINE_ATTRIBUTE",
        "INDEX", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM", "PASSWORD",
        "ROW_FORMAT", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "SEQUENCE", "START", "STATS_AUTO_RECALC",
        "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STORAGE", "TABLESPACE", "TABLE_CHECKSUM", "TRANSACTIONAL", "TYPE",
        "UNION",
    )
)  # fmt: skip
_ENGINES_WITH_ROWS = frozenset(
    (
        "ARCHIVE", "ARIA", "CSV", "COLUMNSTORE", "HEAP", "INNODB", "MARIA", "MEMORY", "MYISAM", "MYROCKS", "NDB",
        "NDBCLUSTER", "ROCKSDB", "S3", "TOKUDB", "XTRADB",
    )
)  # fmt: skip
"""Engines that keep all rows of a table that is altered to use them."""
_PARTITIONS_CHANGED = ("TRUNCATE", "DROP", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT", "REPAIR")
_REDECLARE = ("CHANGE", "MODIFY")
_KEYS = ("PRIMARY", "FOREIGN", "INDEX", "KEY", "CHECK", "CONSTRAINT", "PARTITION")
_NO_COLUMN_ADDED = (*_KEYS, "FULLTEXT", "SPATIAL", "UNIQUE")
"""Keywords behind ADD that add something other than a column."""
_NO_COLUMN_EITHER = (("PERIOD", "FOR"), ("SYSTEM", "VERSIONING"), ("VECTOR", "INDEX"), ("VECTOR", "KEY"))
"""Pairs of words behind ADD that do the same, whose first word can also be a column's name."""
_DROPS_NO_ROW = ("COMMENT", "ALTER", "AUTO_INCREMENT", "ADD", "FORCE", "ALGORITHM", "LOCK")
"""First words of parts of an ALTER IGNORE that drop no rows, unless they contain a word of ``_ROWS_MUST_FIT``."""
_ROWS_MUST_FIT = frozenset(("UNIQUE", "PRIMARY", "KEY", "CHECK", "CONSTRAINT", "FOREIGN", "PARTITION"))


class AlteredColumns(NamedTuple):
    """The changes of columns' names by an ALTER."""

    renamed: tuple[tuple[str, str], ...] = ()
    """Pairs of the names before and after."""
    dropped: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    generated: frozenset[str] = frozenset()
    """Columns that are declared again with an expression, by their names before and after."""
    converts: bool = False
    """Whether columns may have other types, character sets or places, to which values are converted without rows."""
    rekeys: bool = False
    """Whether the table has another primary key, or none."""


NO_COLUMNS: Final = AlteredColumns()


class AlterParts(NamedTuple):
    """The combined effects of the parts of an ALTER TABLE."""

    is_whole: bool
    """Whether the table or a partition is emptied, renamed or exchanged, which logs no rows."""
    others: frozenset[LoggedTable]
    """Other tables that the parts name."""
    columns: AlteredColumns


def parts_of_alter(walk: Walk, *, ignores: bool) -> AlterParts:
    """Return the effects of the parts; with ``ignores`` rows that do not fit are dropped (MariaDB's ALTER IGNORE).

    Raises:
        UnfollowedError: a part is not known, or does not end.
    """
    parts = [part for part in walk.parts() if part]
    _check_parts(parts)
    others: set[LoggedTable] = set()
    is_whole = False
    for part in parts:
        is_whole = _changes_all(part, others) or is_whole
    if ignores and not all(map(_drops_no_row, parts)):
        is_whole = True
    renamed = tuple(each for part in parts if (each := _renamed_column(part)) is not None)
    dropped = frozenset(name for part in parts if (name := _dropped_column(part)) is not None)
    added = frozenset(name for part in parts if (name := _added_column(part)) is not None)
    rekeys = any(map(_rekeys, parts))
    generated = frozenset(name for part in parts for name in _generated_columns(part))
    converts = any(map(_converts, parts))
    columns = AlteredColumns(renamed, dropped, added, generated, converts=converts, rekeys=rekeys)
    return AlterParts(is_whole or bool(others), frozenset(others), columns)


def _rekeys(part: Sequence[Token]) -> bool:
    if _upper(part, 0) == "DROP" and _upper(part, 1) in ("INDEX", "KEY", "CONSTRAINT"):
        # The key's name is PRIMARY, which must be quoted here.
        return any(token.text.upper() == "PRIMARY" for token in part[2:])
    # In a column's definition KEY alone is PRIMARY KEY.
    words = ("PRIMARY", "KEY") if _upper(part, 0) in _REDECLARE or _added_column(part) is not None else ("PRIMARY",)
    before = ("UNIQUE", "BY", "LINEAR")
    return any(_upper(part, at) in words and _upper(part, at - 1) not in before for at in range(len(part)))


def _converts(part: Sequence[Token]) -> bool:
    # CONVERT PARTITION and CONVERT TABLE move rows between tables.
    return _upper(part, 0) in _REDECLARE or (_upper(part, 0), _upper(part, 1)) == ("CONVERT", "TO")


def _upper(part: Sequence[Token], at: int) -> str:
    """Return the keyword at an index, an empty text if there is none."""
    return part[at].text.upper() if 0 <= at < len(part) and part[at].kind == WORD else ""


def _check_parts(parts: Sequence[Sequence[Token]]) -> None:
    """Refuse a part of an ALTER that is not known, since it might empty the table."""
    listing = False
    for part in parts:
        first = _upper(part, 0)
        if first in _PARTS_OF_ALTER:
            # The names of columns or partitions may follow, divided by commas too.
            listing = first == "ORDER" or (_upper(part, 1) == "PARTITION")
        elif first not in _TABLE_OPTIONS and part[1:2] != [(SIGN, "=")] and not listing:
            raise UnfollowedError(f"{part[0].text[:40]} does not begin a known part of ALTER TABLE")


def _changes_all(part: Sequence[Token], others: set[LoggedTable]) -> bool:
    """Return whether a part of an ALTER changes rows that are not logged, and add the tables that it names."""
    found = False
    for at in range(len(part)):
        word, before = _upper(part, at), _upper(part, at - 1)
        if word == "RENAME" and _upper(part, at + 1) not in ("COLUMN", "INDEX", "KEY"):
            named = Walk(iter(part[at + 1 :]))
            if not named.word("TO", "AS"):
                named.sign("=")
            others.add(named.table())
            found = True
        elif word == "PARTITION" and at == 1 and before in _PARTITIONS_CHANGED:
            found = True
        elif word == "TABLE" and before in ("CONVERT", "WITH", "TO"):
            others.add(Walk(iter(part[at + 1 :])).table())
            found = True
    first = _upper(part, 0)
    if first in ("DISCARD", "IMPORT", "UNION"):
        return True
    return found or (first not in _PARTS_OF_ALTER and _loses_engine(part))


def _loses_engine(part: Sequence[Token]) -> bool:
    """Return whether a table's options change its engine to one that does not keep its rows."""
    for at in range(len(part)):
        if _upper(part, at) in ("ENGINE", "TYPE"):
            walk = Walk(iter(part[at + 1 :]))
            walk.sign("=")
            if walk.now.kind not in (WORD, NAME, TEXT) or walk.now.text.upper() not in _ENGINES_WITH_ROWS:
                return True
    return False


def _drops_no_row(part: Sequence[Token]) -> bool:
    words = {_upper(part, at) for at in range(1, len(part))}
    added = _upper(part, 1)
    if _upper(part, 0) == "ADD" and added in ("INDEX", "KEY", "FULLTEXT", "SPATIAL"):
        return True
    return _upper(part, 0) in _DROPS_NO_ROW and not words & _ROWS_MUST_FIT


def _column(walk: Walk) -> str:
    """Return the column's name behind COLUMN and IF EXISTS, without a table before it, and advance."""
    walk.word("COLUMN")
    walk.skip_if_exists()
    name = walk.name()
    while walk.sign("."):
        name = walk.name()
    return name


def _renamed_column(part: Sequence[Token]) -> tuple[str, str] | None:
    walk = Walk(iter(part))
    if walk.word("CHANGE"):
        return _column(walk), _column(walk)
    if walk.word("RENAME") and walk.is_word("COLUMN"):
        before = _column(walk)
        walk.step()  # TO
        return before, _column(walk)
    return None


def _generated_columns(part: Sequence[Token]) -> tuple[str, ...]:
    """Return the names of a column that is declared again with an expression, which stands in brackets behind AS."""
    behind = [_upper(part, at + 1) for at in range(len(part)) if _upper(part, at) == "AS"]
    walk = Walk(iter(part))
    if not walk.word(*_REDECLARE) or not behind or "ROW" in behind:
        return ()
    return _renamed_column(part) or (_column(walk),)


def _dropped_column(part: Sequence[Token]) -> str | None:
    walk = Walk(iter(part))
    return _column(walk) if walk.word("DROP") and not walk.is_word(*_KEYS) else None


def _added_column(part: Sequence[Token]) -> str | None:
    walk = Walk(iter(part))
    if not walk.word("ADD") or walk.is_word(*_NO_COLUMN_ADDED):
        return None
    return None if (_upper(part, 1), _upper(part, 2)) in _NO_COLUMN_EITHER else _column(walk)
