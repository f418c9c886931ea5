"""Random statements for a real server: definitions with remarks, quotes and names as odd as it takes them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from services.mysql_program import Flavour

NAMES = (
    "v", "तालिका", "a€°·", "t\u200d\u0301", "rename", "truncate", "c--d", "e/*f", "g#h", "it's", 'q"q', "b`b", "2020_v",
    "$v",    "x y", "v;", "back\\slash", "Table", "v,w", "ä",
)  # fmt: skip
"""Of the table that statements are about."""
BARE = frozenset(("v", "तालिका", "a€°·", "t\u200d\u0301", "2020_v", "$v", "ä"))
"""Names that need no quotes; the server writes the others into names of files with an escape for each sign."""
"""Those that need no quotes."""
OTHER, TARGET = "w", "u"
"""Another table with rows, and a name that no table has."""
_BLANKS = (
    " ", " ", " ", "\n", "\t ", "\v", "\f", "\r\n", "/**/", "/* x */", "/*it's*/", '/*"*/', "/*`*/", " -- x\n", " --\n",
    "--\t'\n", "--\x01 x\n", "--\x1f\n", "#\n", "# it's\n", "/*/ */", "/*!*/", "/*!50000*/ ", "/*!50100 /* x */ */",
    "/*!999999 , */ ", "/*!999999 x /* y */ z */ ", "/* TRUNCATE TABLE w */", "/*!99999 DROP */ ", "/***/",
    "/*M!999999 x */ ",
)  # fmt: skip
_EXECUTED = (
    "/*!{}*/",
    "/*! {} */",
    "/*!50000 {} */",
    "/*!050000 {} */",
    "/*!80000 {}*/",
    "/*M!100100 {} */",
    "/*!50599{} */",
)
_TEXTS = (
    "''", "'x'", "'it''s'", "'rename to u'", "'-- x'", "'/*'", "'*/'", "'`'", "'\"'", "N'x'", "_utf8mb4'x'", "'C:\\\\'",
    "'C:\\'", "'\\''", "'\\', RENAME TO u, COMMENT '", "', RENAME TO u, COMMENT '", '"x"', '"it\'s"', '"\\""', '"a\\"',
    "x'41'", "'a' 'b'", "'\n'", "'#'", "'誠'", "'ソ'",
)  # fmt: skip
_NASTY = "'\"`\\/*-#!; \n\x01(),.@$09eMx=\x7f_"


@dataclass(frozen=True, slots=True)
class Session:
    """How the statements of a while are sent."""

    charset: str
    codec: str
    sql_mode: str
    binlog_format: str

    @property
    def ansi_quotes(self) -> bool:
        return "ANSI_QUOTES" in self.sql_mode


_CHARSETS = (
    ("utf8mb4", "utf-8"), ("utf8mb4", "utf-8"), ("latin1", "cp1252"), ("gbk", "gbk"), ("sjis", "cp932"),
    ("cp1250", "cp1250"), ("cp866", "cp866"),
)  # fmt: skip


def session(chance: random.Random) -> Session:
    """Return the settings of a session."""
    modes = [mode for mode in ("ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "IGNORE_SPACE") if chance.random() < 0.4]
    return Session(
        *chance.choice(_CHARSETS), ",".join(modes), chance.choice(("ROW", "ROW", "ROW", "STATEMENT"))
    )  # fmt: skip


class Made(NamedTuple):
    """A statement as it is sent."""

    text: str
    content: bytes


class Statements:
    """Makes statements about a table for a session."""

    def __init__(self, chance: random.Random, settings: Session, flavour: Flavour, name: str, database: str) -> None:
        self._chance = chance
        self._session = settings
        self._mariadb = flavour is Flavour.MARIADB
        self._name = name
        self._database = database

    def next(self) -> Made:
        """Return the next, which the session's character set can hold."""
        while True:
            text = self._spaced(self._chance.choice(_KINDS)(self))
            # An engine that does not exist is refused here, and passed over by MySQL without NO_ENGINE_SUBSTITUTION.
            if self._chance.random() < 0.35 and "engine" not in text.lower():
                text = self._mutated(text)
            try:
                return Made(text, text.encode(self._session.codec))
            except UnicodeEncodeError:
                continue

    def _pick(self, *choices: str) -> str:
        return self._chance.choice(choices)

    def _quoted(self, name: str) -> str:
        if name in BARE | {OTHER, TARGET} and self._chance.random() < 0.5:
            return name
        if self._session.ansi_quotes and self._chance.random() < 0.5:
            return '"' + name.replace('"', '""') + '"'
        return "`" + name.replace("`", "``") + "`"

    def _table(self, name: str) -> list[str]:
        if self._chance.random() < 0.25:
            return [self._quoted(self._database), self._pick("", " "), ".", self._pick("", " "), self._quoted(name)]
        return [self._quoted(name)]

    def _text(self) -> str:
        return self._chance.choice(_TEXTS)

    def _truncate(self) -> list[str]:
        return ["TRUNCATE", *self._pick("TABLE", "TABLE", "").split(), *self._table(self._name)]

    def _rename(self) -> list[str]:
        return ["RENAME", "TABLE", *self._table(self._name), "TO", *self._table(TARGET)]

    def _drop(self) -> list[str]:
        exists = ["IF", "EXISTS"] if self._chance.random() < 0.3 else []
        more = [",", *self._table(OTHER)] if self._chance.random() < 0.2 else []
        return ["DROP", "TABLE", *exists, *self._table(self._name), *more, *self._pick("", "", "CASCADE").split()]

    def _part(self) -> list[str]:
        to = self._pick("TO", "AS", "=", "")
        # MariaDB leaves the old table behind where an ALTER copies and renames one whose name is no file's.
        renames = not self._mariadb or (self._name.isascii() and self._name.isidentifier())
        return self._chance.choice(
            [
                ["COMMENT", self._text()],
                ["COMMENT", "=", self._text()],
                ["RENAME", *to.split(), *self._table(TARGET)] if renames else ["FORCE"],
                ["ALTER", "b", "SET", "DEFAULT", self._text()],
                ["RENAME", "COLUMN", "b", "TO", self._quoted("rename")],
                ["ADD", "COLUMN", self._quoted("x"), "VARCHAR(9)", "DEFAULT", self._text(), "COMMENT", self._text()],
                ["ADD", "COLUMN", self._quoted("tablespace"), "INT"],
                ["MODIFY", "b", "ENUM", "(", self._text(), ",", "'one'", ")"],
                ["DROP", "COLUMN", "c"],
                ["TRUNCATE", "PARTITION", "p0"],
                ["DROP", "PARTITION", "p0"],
                ["ENGINE", *self._pick("=", "").split(), self._pick("InnoDB", "'InnoDB'")],
                ["ORDER", "BY", "a", ",", "b"],
            ]
        )

    def _alter(self) -> list[str]:
        found = ["ALTER", "TABLE", *self._table(self._name), *self._part()]
        while self._chance.random() < 0.4:
            found += [",", *self._part()]
        return found

    def _rows(self) -> list[str]:
        table = self._table(self._name)
        return self._chance.choice(
            [
                ["UPDATE", *table, "SET", "b", "=", self._text()],
                ["DELETE", "FROM", *table, *self._pick("", "WHERE a < 3").split(" ")],
                ["INSERT", *self._pick("INTO", "").split(), *table, "(", "a", ")", "VALUES", "(", "50", ")"],
                ["REPLACE", "INTO", *table, "(", "a", ",", "b", ")", "SELECT", "51", ",", self._text()],
                ["SELECT", "writes", "(", ")"],
                ["DO", "writes()"],
                ["SET", "@x", "=", "writes()"],
                ["INSERT", "INTO", OTHER, "(", "a", ")", "VALUES", "(", "writes()", ")"],
                ["CREATE", "TABLE", TARGET, *self._pick("AS", "").split(), "SELECT", "*", "FROM", *table],
            ]
        )

    def _nothing(self) -> list[str]:
        text = self._text()
        return self._chance.choice(
            [
                ["SET", "@x", "=", text],
                ["ANALYZE", "TABLE", *self._table(self._name)],
                ["FLUSH", "TABLES"],
                ["CREATE", "OR", "REPLACE", "VIEW", "vi", "AS", "SELECT", text, "AS", "x"],
                ["SELECT", text, "FROM", *self._table(self._name)],
                ["DROP", "TABLE", "IF", "EXISTS", self._quoted("none")],
            ]
        )

    def _for_itself(self) -> list[str]:
        if not self._mariadb:
            return self._alter()
        mode = self._pick("''", "'ANSI_QUOTES'", "'NO_BACKSLASH_ESCAPES'")
        rest = self._chance.choice([self._alter, self._truncate, self._rows])()
        return ["SET", "STATEMENT", self._pick("sql_mode", "sql_mode", "max_statement_time"), "=", mode, "FOR", *rest]

    def _spaced(self, parts: list[str]) -> str:
        chance, found = self._chance, []
        for part in parts:
            if part.isalpha() and part.isascii() and chance.random() < 0.08:
                part = chance.choice(_EXECUTED).format(part)
            if part.isupper() and chance.random() < 0.3:
                part = part.lower()
            found.append(part)
            if part in ("", " "):
                continue
            glued = chance.random() < 0.15 and (part[-1:] in "`\"',=()" or part == ".")
            if not glued:
                found.append(chance.choice(_BLANKS) if chance.random() < 0.5 else " ")
        text = "".join(found)
        if chance.random() < 0.15:
            text = chance.choice(("/*!50000 {} */", "/*! {} */", "/*!50599 {} */", "/*M!100100 {} */")).format(text)
        return (
            chance.choice(_BLANKS) + text if chance.random() < 0.5 else text + chance.choice(("", "; ", "; -- x", " #"))
        )

    def _mutated(self, text: str) -> str:
        chance = self._chance
        for _ in range(chance.choice((1, 1, 2, 3))):
            at = chance.randrange(len(text) + 1)
            size = chance.choice((0, 0, 1, 1, 2))
            text = text[:at] + chance.choice(("", chance.choice(_NASTY), chance.choice(_BLANKS))) + text[at + size :]
        return text


_KINDS = (
    Statements._truncate, Statements._truncate, Statements._rename, Statements._drop, Statements._alter,
    Statements._alter, Statements._alter, Statements._alter, Statements._rows, Statements._rows, Statements._nothing,
    Statements._for_itself,
)  # fmt: skip
