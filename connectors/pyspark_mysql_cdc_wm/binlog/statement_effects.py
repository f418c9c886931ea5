"""The effects of a statement on tables: which it defines, renames, empties or drops, and which rows it changes.

A server that logs rows logs only two kinds of statements: those that begin and end transactions, and definitions. Any
other statement was logged in place of rows (``RowsStatement``). A definition that cannot be followed to its end raises
``UnfollowedError``, since its effect is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from pyspark_mysql_cdc_wm.binlog.alter_table import NO_COLUMNS, AlteredColumns, parts_of_alter
from pyspark_mysql_cdc_wm.binlog.sql_scanner import (
    END,
    NAME,
    PLAIN,
    SIGN,
    WORD,
    Dialect,
    LoggedTable,
    Token,
    UnfollowedError,
    Walk,
    tokens,
)


class Undoing(NamedTuple):
    """A savepoint, or a rollback of a transaction or to a savepoint."""

    is_savepoint: bool
    """Whether the statement sets a savepoint; otherwise it rolls back."""
    name: str
    """The savepoint's name with ASCII letters in lower case; empty for the whole transaction."""


@dataclass(frozen=True, slots=True)
class RowsStatement:
    """A statement that was logged in place of the rows that it changed."""

    changes: frozenset[LoggedTable] | None = None
    """The tables whose rows it changes itself, not by triggers; ``None`` if it does not name them."""
    calls_nothing: bool = False
    """Whether it reads no other table and calls no function; set only for tables with the name of a cloud service's."""


@dataclass(frozen=True, slots=True)
class StatementEffect:
    """The effects of a statement."""

    rows: RowsStatement | None = None
    whole: frozenset[LoggedTable] = frozenset()
    """Tables that are emptied, renamed or exchanged, completely or by partitions, which logs no rows."""
    altered: frozenset[LoggedTable] = frozenset()
    dropped: frozenset[LoggedTable] = frozenset()
    """Dropped tables, without temporary tables."""
    made: frozenset[LoggedTable] = frozenset()
    """Created tables, without temporary tables."""
    databases: frozenset[str] = frozenset()
    """Dropped databases."""
    columns: AlteredColumns = NO_COLUMNS
    """Changed columns of the altered table."""
    keeps_columns: bool = False
    """Whether the tables in ``whole`` have the same columns afterwards."""
    undoing: Undoing | None = None

    @property
    def defines(self) -> frozenset[LoggedTable]:
        """Tables whose definition or name the statement changes."""
        return self.whole | self.altered | self.dropped

    @property
    def redefines(self) -> frozenset[LoggedTable]:
        """Tables that may have other columns afterwards, or be another table of the name."""
        whole = frozenset[LoggedTable]() if self.keeps_columns else self.whole
        return whole | self.dropped | (self.altered if self.columns != NO_COLUMNS else frozenset())


NOTHING: Final = StatementEffect()


class LoggedStatements(Enum):
    """What the option ignoredChanges has of statements that were logged in place of rows, or cannot be followed."""

    IGNORED = "statements"
    OTHERS_IGNORED = "otherStatements"
    """Ignore a statement if it names the tables that it changes, and none of these is read."""
    REFUSED = ""

    @classmethod
    def of(cls, ignored: Collection[str]) -> LoggedStatements:
        """Return which statements a user ignores."""
        return next((each for each in cls if each.value in ignored), cls.REFUSED)


class Unlogged(NamedTuple):
    """What to do at changes of which no row was logged."""

    ignores_whole: bool = False
    """Whether to ignore statements that change every row of a table (ignoredChanges with tables)."""
    statements: LoggedStatements = LoggedStatements.REFUSED
    wants_past: bool = False
    """Whether earlier rows are wanted: each ALTER and DROP is refused, and what is ignored otherwise."""


REFUSED: Final = Unlogged()

CLOUD_PREFIX: Final = "rds_"
"""Prefix of the heartbeat tables of a cloud service, which are always written by logged statements."""
_MODIFIERS = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "INTO")
_NOT_OF_TABLES = frozenset(
    (
        "ALGORITHM", "AGGREGATE", "CATALOG", "COMPRESSION_DICTIONARY", "DEFINER", "EVENT", "FULLTEXT", "FUNCTION",
        "INDEX", "INSTANCE", "JSON", "LIBRARY", "LOGFILE", "MATERIALIZED", "OFFLINE", "ONLINE", "PACKAGE", "PROCEDURE",
        "RESOURCE", "ROLE", "SEQUENCE", "SERVER", "SPATIAL", "SQL", "TABLESPACE", "TRIGGER", "UNDO", "UNIQUE", "USER",
        "VECTOR", "VIEW",
    )
)  # fmt: skip
"""Keywords behind CREATE, ALTER or DROP for other objects than tables."""


def effect_of(text: str, dialect: Dialect = PLAIN, *, by_server: bool = False) -> StatementEffect:
    """Return the effects of a statement; a statement of comments alone has none.

    With ``by_server`` no session sent it: a DELETE then empties a MEMORY table that was empty after a restart.

    Raises:
        UnfollowedError: the statement cannot be followed.
    """
    walk = Walk(tokens(text, dialect))
    if walk.now is END or walk.now == (SIGN, ";"):
        walk.expect_end()
        return NOTHING
    if by_server and walk.word("DELETE"):
        return _emptied(walk)
    return _statement(walk)


def has_own_settings(text: str, dialect: Dialect) -> bool:
    """Return whether a statement begins with settings for itself alone (MariaDB's SET STATEMENT)."""
    try:
        walk = Walk(tokens(text, dialect))
        return bool(walk.word("SET") and walk.word("STATEMENT"))
    except UnfollowedError:
        return False


def _emptied(walk: Walk) -> StatementEffect:
    if not walk.word("FROM"):
        raise walk.unexpected("FROM")
    table = walk.table()
    walk.expect_end()
    return StatementEffect(whole=frozenset((table,)))


def _statement(walk: Walk) -> StatementEffect:
    known = _STATEMENTS.get(walk.now.text.upper()) if walk.now.kind == WORD else None
    if known is None:
        return StatementEffect(RowsStatement())
    walk.step()
    return known(walk)


def _nothing(walk: Walk) -> StatementEffect:
    """Return no effects, for statements that change no rows of a table."""
    return NOTHING


def _begin(walk: Walk) -> StatementEffect:
    walk.word("WORK")
    walk.expect_end()
    return NOTHING


def _start(walk: Walk) -> StatementEffect:
    return NOTHING if walk.word("TRANSACTION") else StatementEffect(RowsStatement())


def _savepoint(walk: Walk) -> StatementEffect:
    return StatementEffect(undoing=Undoing(True, _savepoint_name(walk)))


def _rollback(walk: Walk) -> StatementEffect:
    walk.word("WORK")
    if not walk.word("TO"):
        return StatementEffect(undoing=Undoing(False, ""))
    walk.word("SAVEPOINT")
    return StatementEffect(undoing=Undoing(False, _savepoint_name(walk)))


def _savepoint_name(walk: Walk) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in walk.name())


def _truncate(walk: Walk) -> StatementEffect:
    walk.word("TABLE")
    table = walk.table()
    walk.skip_wait()
    # MariaDB accepts Oracle's DROP STORAGE and REUSE STORAGE.
    if walk.word("DROP", "REUSE") and not walk.word("STORAGE"):
        raise walk.unexpected("STORAGE")
    walk.expect_end()
    return StatementEffect(whole=frozenset((table,)), keeps_columns=True)


def _rename(walk: Walk) -> StatementEffect:
    if walk.word("USER"):
        return NOTHING
    if not walk.word("TABLE", "TABLES"):
        raise walk.unexpected("TABLE or USER")
    walk.skip_if_exists()
    found = set()
    while True:
        found.add(walk.table())
        walk.skip_wait()
        if not walk.word("TO"):
            raise walk.unexpected("TO")
        found.add(walk.table())
        if not walk.sign(","):
            break
    walk.expect_end()
    return StatementEffect(whole=frozenset(found))


def _drop(walk: Walk) -> StatementEffect:
    if walk.word("INDEX"):
        walk.skip_if_exists()
        if walk.step().text.upper() != "PRIMARY" or not walk.word("ON"):
            return NOTHING
        return StatementEffect(altered=frozenset((walk.table(),)), columns=AlteredColumns(rekeys=True))
    if walk.is_word("TEMPORARY") or walk.is_word(*_NOT_OF_TABLES):
        return NOTHING
    if walk.word("DATABASE", "SCHEMA"):
        walk.skip_if_exists()
        name = walk.name()
        walk.expect_end()
        return StatementEffect(databases=frozenset((name,)))
    if not walk.word("TABLE", "TABLES"):
        raise walk.unexpected("a kind of object that DROP can drop")
    walk.skip_if_exists()
    found = walk.tables()
    walk.skip_wait()
    walk.word("RESTRICT", "CASCADE")
    walk.expect_end()
    return StatementEffect(dropped=found)


def _create(walk: Walk) -> StatementEffect:
    replaces = bool(walk.word("OR"))
    if replaces and not walk.word("REPLACE"):
        raise walk.unexpected("REPLACE")
    own = bool(walk.word("TEMPORARY"))
    if walk.word("DATABASE", "SCHEMA"):
        # MariaDB's CREATE OR REPLACE DATABASE drops all tables of a previous one, and logs no other statement.
        walk.skip_if_exists()
        return StatementEffect(databases=frozenset((walk.name(),))) if replaces else NOTHING
    if not walk.word("TABLE"):
        if walk.is_word(*_NOT_OF_TABLES):
            return NOTHING
        raise walk.unexpected("a kind of object that CREATE can create")
    walk.skip_if_exists()
    table = walk.table()
    made = frozenset((table,))
    if _selects(walk.rest()):
        return StatementEffect(RowsStatement(made), made=frozenset() if own else made)
    if own:
        return NOTHING
    return StatementEffect(made=made, dropped=made if replaces else frozenset())


def _selects(rest: Sequence[Token]) -> bool:
    """Return whether a table definition has a SELECT, TABLE or VALUES; no name can be one of these words."""
    depth = 0
    for token, after in zip(rest, (*rest[1:], END), strict=False):
        if token.kind == SIGN:
            depth += (token.text == "(") - (token.text == ")")
            if token.text == ";" and not depth and after is not END:
                raise UnfollowedError("it continues behind its end")
        elif token.kind == WORD:
            word = token.text.upper()
            if word in ("SELECT", "TABLE"):
                return True
            if word == "VALUES" and not (after.kind == WORD and after.text.upper() in ("LESS", "IN")):
                return True
    if depth:
        raise UnfollowedError("a bracket has no end")
    return False


def _alter(walk: Walk) -> StatementEffect:
    ignores = False
    while found := walk.word("ONLINE", "OFFLINE", "IGNORE"):
        ignores = ignores or found == "IGNORE"
    if not walk.word("TABLE"):
        if walk.is_word("DATABASE", "SCHEMA", *_NOT_OF_TABLES):
            return NOTHING
        raise walk.unexpected("a kind of object that ALTER can alter")
    walk.skip_if_exists()
    table = walk.table()
    walk.skip_wait()
    found_parts = parts_of_alter(walk, ignores=ignores)
    if found_parts.is_whole:
        return StatementEffect(whole=frozenset((table, *found_parts.others)))
    return StatementEffect(altered=frozenset((table,)), columns=found_parts.columns)


def _analyze(walk: Walk) -> StatementEffect:
    """Return the effects of ANALYZE; MariaDB's ANALYZE of a statement executes it."""
    walk.word("NO_WRITE_TO_BINLOG", "LOCAL")
    return NOTHING if walk.is_word("TABLE", "TABLES") else StatementEffect(RowsStatement())


def _repair(walk: Walk) -> StatementEffect:
    """REPAIR of tables, which drops the rows that it cannot save; of InnoDB's it does nothing, but is logged, too."""
    walk.word("NO_WRITE_TO_BINLOG", "LOCAL")
    if walk.word("VIEW"):
        return NOTHING
    if not walk.word("TABLE", "TABLES"):
        raise walk.unexpected("what REPAIR is known to repair")
    found = walk.tables()
    walk.skip_words("QUICK", "EXTENDED", "USE_FRM", "FORCE")
    walk.expect_end()
    return StatementEffect(whole=found, keeps_columns=True)


def _set(walk: Walk) -> StatementEffect:
    if walk.is_word("PASSWORD", "DEFAULT"):
        return NOTHING
    if not walk.word("STATEMENT"):
        return StatementEffect(RowsStatement())
    depth = 0
    while depth or not walk.is_word("FOR"):
        if walk.now is END:
            raise walk.unexpected("FOR")
        token = walk.step()
        if token.kind == SIGN:
            depth += (token.text == "(") - (token.text == ")")
    walk.step()
    # SET STATEMENT cannot contain another SET.
    return StatementEffect(RowsStatement()) if walk.is_word("SET") else _statement(walk)


def _written(walk: Walk, *then: str) -> StatementEffect:
    walk.skip_words(*_MODIFIERS)
    return _changed(walk, *then)


def _delete(walk: Walk) -> StatementEffect:
    walk.skip_words(*_MODIFIERS)
    if not walk.word("FROM"):
        return StatementEffect(RowsStatement())
    return _changed(walk, "WHERE", "ORDER", "LIMIT")


def _load(walk: Walk) -> StatementEffect:
    while walk.now is not END:
        if walk.word("INTO") and walk.word("TABLE"):
            return _changed(walk)
        if walk.now is not END:
            walk.step()
    return StatementEffect(RowsStatement())


def _changed(walk: Walk, *then: str) -> StatementEffect:
    """Return the change of the table that is named next, if one of the words ``then`` follows."""
    try:
        table = walk.table()
        if then and walk.now is not END and not walk.is_word(*then):
            return StatementEffect(RowsStatement())
        calls_nothing = table.table.lower().startswith(CLOUD_PREFIX) and _calls_nothing(walk)
        return StatementEffect(RowsStatement(frozenset((table,)), calls_nothing))
    except UnfollowedError:
        return StatementEffect(RowsStatement())


def _calls_nothing(walk: Walk) -> bool:
    """Return whether the remaining tokens have no SELECT and no function call."""
    before = END
    while walk.now is not END:
        token = walk.step()
        if token.kind == WORD and token.text.upper() in ("SELECT", "TABLE", "WITH"):
            return False
        is_call = (
            token == (SIGN, "(") and before.kind in (WORD, NAME) and before.text.upper() not in ("VALUES", "VALUE")
        )
        if is_call:
            return False
        before = token
    return True


_CHANGE_NOTHING = ("RELEASE", "XA", "GRANT", "REVOKE", "FLUSH", "OPTIMIZE", "CHECK", "INSTALL", "UNINSTALL")
_STATEMENTS: Final[Mapping[str, Callable[[Walk], StatementEffect]]] = {
    **dict.fromkeys(_CHANGE_NOTHING, _nothing),
    **dict.fromkeys(("BEGIN", "COMMIT"), _begin),
    "START": _start,
    "ROLLBACK": _rollback,
    "SAVEPOINT": _savepoint,
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "ANALYZE": _analyze,
    "REPAIR": _repair,
    "SET": _set,
    **dict.fromkeys(("INSERT", "REPLACE"), _written),
    "UPDATE": lambda walk: _written(walk, "SET"),
    "DELETE": _delete,
    "LOAD": _load,
}
"""Readers by the first word of a statement. MySQL 9.7 and MariaDB 11.8 log only those of transactions and definitions
besides rows."""
