"""A scanner of SQL statements: their words, names, texts and signs, as the server that logged them read them.

It follows the rules of MySQL's and MariaDB's lexers (sql_lex.cc, ``lex_one_token``) that decide where a token begins
and ends: comments, executed comments, quotes, escapes, names and numbers. A statement that cannot be followed to its
end raises ``UnfollowedError``, since its effect is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

WORD, NAME, TEXT, NUMBER, SIGN = range(5)
"""Kinds of tokens. A WORD may be a keyword; a NAME is none: it was quoted, or stands after a dot or before one."""


class UnfollowedError(ValueError):
    """A statement cannot be followed; the text gives the reason."""


class Token(NamedTuple):
    """A part of a statement."""

    kind: int
    text: str
    """The token as it was written; a name or a text without its quotes."""


class LoggedTable(NamedTuple):
    """A table as a statement names it."""

    database: str | None
    """``None`` for the session's database."""
    table: str


END: Final = Token(SIGN, "")
_OPENS, _COMMA = Token(SIGN, "("), Token(SIGN, ",")


class Dialect(NamedTuple):
    """The rules by which a server read a statement."""

    ansi_quotes: bool = False
    """Whether double quotes enclose names (``sql_mode`` ANSI_QUOTES)."""
    backslash_escapes: bool = True
    """Whether a backslash escapes in texts (no NO_BACKSLASH_ESCAPES)."""
    mariadb: bool = False
    spaces: str = " \t\n\v\f\r"
    """Characters that separate words in the session's character set."""
    controls: str = "".join(map(chr, (*range(1, 32), 127)))
    """Characters that begin a comment after ``--``, in addition to ``spaces``."""
    trails: bool = False
    """Whether a byte of ASCII can be the second byte of a character (big5, gbk, sjis ...)."""


PLAIN: Final = Dialect()
UNKNOWN: Final = "\ufffd"
"""The replacement for a byte outside of the session's character set."""
BACKSLASH_LETTER: Final = "\udc5c"
"""A letter of two bytes that the server reads as a backslash, and that escapes nothing. No decoded text has it."""

_WORD_CHARACTERS = "A-Za-z0-9_$"
_NOT_IN_WORDS = "".join(chr(n) for n in range(128) if not re.match(f"[{_WORD_CHARACTERS}]", chr(n)))
_NUL = "\0"
_FOR_A_LATER_VERSION = re.compile(r"/\*M? [0-9]{5}")
_LITERALS = re.compile(r"(?:(?:[-+]?[0-9]+(?:\.[0-9]+)?|'[^'\\]*')[ \t\r\n]*,[ \t\r\n]*){1,1000}")
"""Numbers and texts of a list, with the commas behind them. Not without end: each takes memory while it is matched."""
_EXPONENT = "[eE][-+]?[0-9]+"


class _Rules(NamedTuple):
    """What a dialect's tokens and the space between them match."""

    spaces: re.Pattern[str]
    remark: re.Pattern[str]
    """The beginning of a comment up to the end of the line."""
    executed: re.Pattern[str]
    """The beginning of an executed comment, with the version."""
    token: re.Pattern[str]
    """A token with names that dots join to it, by the names of its groups."""


@lru_cache
def _rules(dialect: Dialect) -> _Rules:
    """Return the rules of a dialect. What may be long is matched possessively: no way back is kept in memory."""
    spaces, controls = re.escape(dialect.spaces), re.escape(dialect.controls)
    # MySQL reads the sixth digit of a version only before a space.
    version = "[0-9]{5,6}" if dialect.mariadb else rf"[0-9]{{5}}(?:[0-9](?=[{spaces}]|\Z))?"
    in_word = f"[^{re.escape(_NOT_IN_WORDS)}{spaces}]"
    number = (
        rf"0x[0-9a-fA-F]++(?!{in_word})|0b[01]++(?!{in_word})"
        rf"|(?!0[xb])[0-9]++(?:{_EXPONENT}|(?!{in_word})(?:\.[0-9]*(?:{_EXPONENT})?)?)"
        rf"|\.[0-9]++(?:{_EXPONENT})?"
    )
    # A backslash escapes one byte: before a letter of several, the server continues within it.
    escape = "" if not dialect.backslash_escapes else r"|\\[\0-\x7f]" if dialect.trails else r"|\\."
    plain = r"\\" if dialect.backslash_escapes else ""
    in_quotes = {quote: f"{quote}(?:[^{quote}{plain}]++|{quote}{quote}{escape})*+{quote}" for quote in "'\""}
    names = ["`(?:[^`]++|``)*+`"] + ['"(?:[^"]++|"")*+"'] * dialect.ansi_quotes
    texts = [in_quotes["'"]] + [in_quotes['"']] * (not dialect.ansi_quotes)
    token = (
        rf"(?P<number>{number})|(?P<quoted>{'|'.join(names)})|(?P<text>{'|'.join(texts)})"
        # An @ precedes a variable, or the host of a user, which has dots.
        rf"|(?P<word>{in_word}++)(?P<joined>(?:\.{in_word}++)*+)|(?P<dotted>(?:\.{in_word}++)++)"
        rf"|(?P<sign>@)(?P<host>(?:\.|{in_word})*+)|(?P<other>[^'\"`\0])"
    )
    return _Rules(
        re.compile(f"[{spaces}]++"),
        re.compile(rf"#|--(?=[{spaces}{controls}]|\Z)"),
        re.compile(rf"/\*{'M?' if dialect.mariadb else ''}!(?:{version})?"),
        re.compile(token, re.DOTALL),
    )


def tokens(text: str, dialect: Dialect = PLAIN) -> Iterator[Token]:
    """Yield the tokens of a statement; raises ``UnfollowedError`` where the server would have refused it.

    The content of a comment ``/*! */`` counts: a server that skips one for a later version replaces the ``!`` by a
    space in the log.

    Of a list of numbers and texts in brackets only a few tokens are yielded, the last among them: a list of megabytes,
    of an IN or an ENUM, means no more than a short one.
    """
    at, executed, in_list, rules = 0, False, False, _rules(dialect)
    while True:
        at, executed = _skip_comments(text, at, executed, rules)
        if at >= len(text):
            break
        found = rules.token.match(text, at)
        if found is None:
            raise _unfollowed(text[at], dialect)
        joined, at = _tokens_of(found, dialect), found.end()
        yield from joined
        last = joined[-1]
        in_list = last == _OPENS or (in_list and (last.kind in (TEXT, NUMBER) or last == _COMMA))
        while in_list and last.kind == SIGN and (more := _LITERALS.match(text, at)) is not None:
            at = more.end()
    if executed:
        raise UnfollowedError("an executed comment has no end")


def _skip_comments(text: str, at: int, executed: bool, rules: _Rules) -> tuple[int, bool]:
    """Return the offset of the next token, and whether it is in an executed comment."""
    while at < len(text):
        if found := rules.spaces.match(text, at):
            at = found.end()
        elif rules.remark.match(text, at):
            at = _end_of_line(text, at)
        elif text.startswith("--", at) and text[at + 2] in (_NUL, UNKNOWN):
            raise UnfollowedError("it has -- before a byte that may begin a comment")
        elif found := rules.executed.match(text, at):
            executed, at = True, found.end()
        elif text.startswith("/*", at):
            at = _end_of_remark(text, at)
        elif executed and text.startswith("*/", at):
            executed, at = False, at + 2
        else:
            break
    return at, executed


def _tokens_of(found: re.Match[str], dialect: Dialect) -> Sequence[Token]:
    """Return the token that was found, with names that dots join to it."""
    if (word := found["word"]) is not None:
        if word[0] == "$" and "$" in word[1:] and not dialect.mariadb:
            raise UnfollowedError(f"{word} may begin a text in dollar quotes")
        is_name = found["joined"] or word[0].isdecimal() or not word.isascii()
        return (Token(NAME if is_name else WORD, word), *_joined(found["joined"]))
    if found["dotted"]:
        return _joined(found["dotted"])
    if found["sign"]:
        return (Token(SIGN, "@"), *([Token(NAME, found["host"])] if found["host"] else ()))
    if found["quoted"]:
        return (Token(NAME, _unquoted(found["quoted"])),)
    if found["text"]:
        return (Token(TEXT, found["text"][1:-1]),)
    return (Token(NUMBER, found["number"]) if found["number"] else Token(SIGN, found["other"]),)


def _joined(names: str) -> list[Token]:
    return [token for name in names.split(".")[1:] for token in (Token(SIGN, "."), Token(NAME, name))]


def _unquoted(quoted: str) -> str:
    if _NUL in quoted or UNKNOWN in quoted:
        # The server may treat the quote as part of an incomplete character.
        raise UnfollowedError("a quoted name has a byte outside its character set")
    return quoted[1:-1].replace(2 * quoted[0], quoted[0])


def _unfollowed(begin: str, dialect: Dialect) -> UnfollowedError:
    """Return the error for what begins with a character and is no token."""
    if begin == _NUL:
        return UnfollowedError("it has a zero byte outside of quotes")
    if begin == "`" or (begin == '"' and dialect.ansi_quotes):
        return UnfollowedError("a quoted name has no end")
    also = ", or a backslash precedes a character of several bytes" if dialect.trails else ""
    return UnfollowedError(f"a quoted text has no end{also}")


def _end_of_line(text: str, at: int) -> int:
    stop = text.find("\n", at)
    stop = len(text) if stop < 0 else stop
    if _NUL in text[at:stop]:
        raise UnfollowedError("a comment has a zero byte")
    return stop


def _end_of_remark(text: str, at: int) -> int:
    """Return where a comment ends.

    A server logs the ``/*`` and ``*/`` within a comment for a later version as ``(*`` and ``*)``: one that was ``/*/``
    is logged as ``(*/``, in which the outer comment does not end.
    """
    stop = text.find("*/", at + 2)
    if stop < 0:
        raise UnfollowedError("a comment has no end")
    if text.startswith("(", stop - 1) and _FOR_A_LATER_VERSION.match(text, at):
        raise UnfollowedError("a comment for a later version contains /*/, and is logged without its end")
    return stop + 2


class Walk:
    """A cursor over the tokens of a statement."""

    __slots__ = ("_rest", "now")

    def __init__(self, rest: Iterator[Token]) -> None:
        self._rest = rest
        self.now = next(rest, END)

    def step(self) -> Token:
        """Return the current token, and advance to the next."""
        current, self.now = self.now, next(self._rest, END)
        return current

    def word(self, *wanted: str) -> str:
        """Advance over the current token if it is one of the keywords, and return it; else return an empty text."""
        if self.now.kind == WORD and (upper := self.now.text.upper()) in wanted:
            self.step()
            return upper
        return ""

    def is_word(self, *wanted: str) -> bool:
        """Return whether the current token is one of the keywords."""
        return self.now.kind == WORD and self.now.text.upper() in wanted

    def sign(self, wanted: str) -> bool:
        """Advance over the current token if it is a sign, and return whether it is."""
        if self.now.kind == SIGN and self.now.text == wanted:
            self.step()
            return True
        return False

    def skip_if_exists(self) -> None:
        """Advance over IF EXISTS or IF NOT EXISTS, if there is one."""
        if self.word("IF"):
            self.word("NOT")
            if not self.word("EXISTS"):
                raise self.unexpected("EXISTS")

    def name(self) -> str:
        """Return the current token as a name, and advance."""
        if self.now.kind not in (WORD, NAME) or UNKNOWN in self.now.text:
            raise self.unexpected("a name")
        return self.step().text.replace(BACKSLASH_LETTER, "\\")

    def table(self) -> LoggedTable:
        """Return the table whose name begins at the current token, and advance."""
        if self.sign("."):
            return LoggedTable(None, self.name())
        first = self.name()
        return LoggedTable(first, self.name()) if self.sign(".") else LoggedTable(None, first)

    def tables(self) -> frozenset[LoggedTable]:
        """Return the tables of a list that begins at the current token, and advance."""
        found = {self.table()}
        while self.sign(","):
            found.add(self.table())
        return frozenset(found)

    def skip_words(self, *wanted: str) -> None:
        """Advance over all of these keywords that follow."""
        while self.word(*wanted):
            pass

    def skip_wait(self) -> None:
        """Advance over MariaDB's WAIT or NOWAIT, if there is one."""
        if self.word("WAIT"):
            if self.step().kind != NUMBER:
                raise self.unexpected("a number of seconds")
        else:
            self.word("NOWAIT")

    def expect_end(self) -> None:
        """Check that the statement ends here."""
        self.sign(";")
        if self.now is not END:
            raise self.unexpected("its end")

    def unexpected(self, wanted: str) -> UnfollowedError:
        """Return the error for a token that is not the wanted one."""
        seen = "it ends" if self.now is END else f"there is {self.now.text[:40]}"
        return UnfollowedError(f"{seen} where {wanted} should be")

    def rest(self) -> list[Token]:
        """Return the remaining tokens."""
        return list(iter(self.step, END))

    def parts(self) -> list[list[Token]]:
        """Return the remaining tokens, split at commas, without those in brackets.

        Columns that are added in brackets, ``ADD (b INT, c INT)``, are parts as if each was added by an ADD of its own.
        """
        parts: list[list[Token]] = [[]]
        depth, outer = 0, 0
        while self.now is not END:
            token = self.step()
            if token.kind == SIGN and token.text in "();,":
                if token.text == ";" and not depth:
                    self.expect_end()
                    return parts
                if token.text == "," and depth == outer:
                    parts.append(parts[-1][:1] if outer else [])
                elif token.text == "(" and not depth and _adds_columns(parts[-1]):
                    outer = 1
                depth += (token.text == "(") - (token.text == ")")
                if depth < 0:
                    raise UnfollowedError("it has a bracket too many")
                outer = min(outer, depth)
            elif depth == outer:
                parts[-1].append(token)
        if depth:
            raise UnfollowedError("a bracket has no end")
        return parts


def _adds_columns(part: Sequence[Token]) -> bool:
    """Return whether brackets behind a part of an ALTER enclose columns that it adds."""
    words = [token.text.upper() for token in part if token.kind == WORD]
    behind = words[2:] if words[1:2] == ["COLUMN"] else words[1:]
    return len(words) == len(part) and words[:1] == ["ADD"] and behind in ([], ["IF", "NOT", "EXISTS"])
