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
BACKSLASH_LETTER: Final = "\udc5c"
"""A letter of two bytes that the server reads as a backslash, and that escapes nothing. No decoded text has it."""
"""The replacement for a byte outside its character set of the session's character set."""

_DIGITS = frozenset("0123456789")
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$") | _DIGITS
_VERSION_DIGITS = 5
_NUL = "\0"
_NOT_IN_WORDS = "".join(chr(n) for n in range(128) if chr(n) not in _LETTERS)
_FOR_A_LATER_VERSION = re.compile(r"/\*M? [0-9]{5}")
_LITERALS = re.compile(r"(?:(?:[-+]?[0-9]+(?:\.[0-9]+)?|'[^'\\]*')[ \t\r\n]*,[ \t\r\n]*){1,1000}")
"""Numbers and texts of a list, with the commas behind them. Not without end: each takes memory while it is matched."""


@lru_cache
def _run_of(characters: str, *, others: bool = False) -> re.Pattern[str]:
    """Return what matches as many of some characters as there are, or of all others."""
    return re.compile(f"[{'^' if others else ''}{re.escape(characters)}]*")


def tokens(text: str, dialect: Dialect = PLAIN) -> Iterator[Token]:
    """Yield the tokens of a statement; raises ``UnfollowedError`` where the server would have refused it.

    The content of a comment ``/*! */`` counts: a server that skips one for a later version replaces the ``!`` by a
    space in the log.

    Of a list of numbers and texts in brackets only a few tokens are yielded, the last among them: a list of megabytes,
    of an IN or an ENUM, means no more than a short one.
    """
    at, executed, size = 0, False, len(text)
    in_list = False
    while True:
        at, executed = _skip_comments(text, at, executed, dialect)
        if at >= size:
            break
        joined, at = _token(text, at, dialect)
        yield from joined
        last = joined[-1]
        in_list = last == _OPENS or (in_list and (last.kind in (TEXT, NUMBER) or last == _COMMA))
        while in_list and last.kind == SIGN and (more := _LITERALS.match(text, at)) is not None:
            at = more.end()
    if executed:
        raise UnfollowedError("an executed comment has no end")


def _skip_comments(text: str, at: int, executed: bool, dialect: Dialect) -> tuple[int, bool]:
    """Return the offset of the next token, and whether it is in an executed comment."""
    spaces, size = dialect.spaces, len(text)
    while at < size:
        char = text[at]
        if char in spaces:
            at = _end(_run_of(spaces), text, at)
        elif char == "#" or (char == "-" and text.startswith("--", at) and _is_remark(text, at + 2, dialect)):
            at = _end_of_line(text, at)
        elif char == "/" and text.startswith("/*", at):
            marked = _marked(text, at, dialect)
            executed = executed or marked > 0
            at = _behind_version(text, at + marked, dialect) if marked else _end_of_remark(text, at)
        elif executed and text.startswith("*/", at):
            executed, at = False, at + 2
        else:
            break
    return at, executed


def _token(text: str, at: int, dialect: Dialect) -> tuple[Sequence[Token], int]:
    """Return the token at an offset with names that dots join to it, and the offset behind."""
    char, spaces = text[at], dialect.spaces
    if char in _LETTERS or char > "\x7f":
        token, at = _word(text, at, dialect)
        if token.kind != NAME:
            return (token,), at
        more, at = _qualified(text, at, spaces)
        return (token, *more), at
    if char == "`" or (char == '"' and dialect.ansi_quotes):
        token, at = _quoted_name(text, at)
        return (token,), at
    if char in ("'", '"'):
        return _text(text, at, dialect)
    if char == ".":
        return _dotted(text, at, spaces)
    if char == _NUL:
        raise UnfollowedError("it has a zero byte outside of quotes")
    # An @ precedes a variable, or the host of a user, which has dots.
    stop = _end_of_host(text, at + 1, spaces) if char == "@" else at + 1
    host = (Token(NAME, text[at + 1 : stop]),) if stop > at + 1 else ()
    return (Token(SIGN, char), *host), stop


def _dotted(text: str, at: int, spaces: str) -> tuple[Sequence[Token], int]:
    """Return the tokens that a dot begins: a number, names that follow without a space, or the dot alone."""
    if text[at + 1 : at + 2] in _DIGITS:
        stop = _end_of_real(text, at + 1)
        return (Token(NUMBER, text[at:stop]),), stop
    names, stop = _qualified(text, at, spaces)
    return (names, stop) if names else ((Token(SIGN, "."),), at + 1)


def _in_word(char: str, spaces: str) -> bool:
    return char in _LETTERS or (char > "\x7f" and char not in spaces)


def _end_of_word(text: str, at: int, spaces: str) -> int:
    return _end(_run_of(_NOT_IN_WORDS + spaces, others=True), text, at)


def _end(run: re.Pattern[str], text: str, at: int) -> int:
    """Return where a run that begins at a place ends."""
    found = run.match(text, at)
    return at if found is None else found.end()


def _end_of_host(text: str, at: int, spaces: str) -> int:
    """Return where the name of a variable, or of a user's host, ends; it may have dots."""
    while at < len(text) and (text[at] == "." or _in_word(text[at], spaces)):
        at += 1
    return at


def _qualified(text: str, at: int, spaces: str) -> tuple[list[Token], int]:
    """Return the dots and names that follow a name without a space and are no keywords, and where they end."""
    tokens_after = []
    while text.startswith(".", at) and at + 1 < len(text) and _in_word(text[at + 1], spaces):
        stop = _end_of_word(text, at + 1, spaces)
        tokens_after += [Token(SIGN, "."), Token(NAME, text[at + 1 : stop])]
        at = stop
    return tokens_after, at


def _word(text: str, at: int, dialect: Dialect) -> tuple[Token, int]:
    """Return the word, name or number that begins at an offset, and where it ends."""
    if text[at] in _DIGITS and (stop := _end_of_number(text, at, dialect.spaces)):
        return Token(NUMBER, text[at:stop]), stop
    stop = _end_of_word(text, at, dialect.spaces)
    word = text[at:stop]
    if word[0] == "$" and "$" in word[1:] and not dialect.mariadb:
        raise UnfollowedError(f"{word} may begin a text in dollar quotes")
    before_dot = text.startswith(".", stop) and stop + 1 < len(text) and _in_word(text[stop + 1], dialect.spaces)
    is_name = before_dot or word[0] in _DIGITS or not word.isascii()
    return Token(NAME if is_name else WORD, word), stop


def _end_of_number(text: str, at: int, spaces: str) -> int:
    """Return where a number ends, 0 if it is a name that begins with digits."""
    size = len(text)
    for prefix, digits in (("0x", _HEX_DIGITS), ("0b", frozenset("01"))):
        if text.startswith(prefix, at):
            stop = at + 2
            while stop < size and text[stop] in digits:
                stop += 1
            return stop if stop > at + 2 and (stop == size or not _in_word(text[stop], spaces)) else 0
    stop = _end_of_digits(text, at)
    if stop == size or not _in_word(text[stop], spaces):
        return _end_of_real(text, stop + 1) if text.startswith(".", stop) else stop
    return _end_of_exponent(text, stop)


def _end_of_digits(text: str, at: int) -> int:
    return _end(_run_of("0123456789"), text, at)


def _end_of_exponent(text: str, at: int) -> int:
    """Return where the exponent at an offset ends, 0 if there is none."""
    if text[at : at + 1] not in ("e", "E"):
        return 0
    digits = at + 2 if text[at + 1 : at + 2] in ("+", "-") else at + 1
    stop = _end_of_digits(text, digits)
    return stop if stop > digits else 0


def _end_of_real(text: str, at: int) -> int:
    """Return where a number ends, given the offset behind its point."""
    stop = _end_of_digits(text, at)
    return _end_of_exponent(text, stop) or stop


def _quoted_name(text: str, at: int) -> tuple[Token, int]:
    quote, stop = text[at], at + 1
    while True:
        stop = text.find(quote, stop)
        if stop < 0:
            raise UnfollowedError("a quoted name has no end")
        if not text.startswith(quote, stop + 1):
            break
        stop += 2
    name = text[at + 1 : stop]
    if _NUL in name or UNKNOWN in name:
        # The server may treat the quote as part of an incomplete character.
        raise UnfollowedError("a quoted name has a byte outside its character set")
    return Token(NAME, name.replace(2 * quote, quote)), stop + 1


def _text(text: str, at: int, dialect: Dialect) -> tuple[Sequence[Token], int]:
    stop = _end_of_text(text, at, dialect)
    return (Token(TEXT, text[at + 1 : stop - 1]),), stop


def _end_of_text(text: str, at: int, dialect: Dialect) -> int:
    quote, at = text[at], at + 1
    while True:
        stop = text.find(quote, at)
        if stop < 0:
            raise UnfollowedError("a quoted text has no end")
        if dialect.backslash_escapes:
            at = _behind_escapes(text, at, stop, dialect)
        if at > stop:
            continue
        if not text.startswith(quote, stop + 1):
            return stop + 1
        at = stop + 2


def _behind_escapes(text: str, at: int, stop: int, dialect: Dialect) -> int:
    """Return the offset behind the last escaped character before a quote; beyond the quote if that is escaped."""
    while at < stop and (escape := text.find("\\", at, stop)) >= 0:
        if dialect.trails and text[escape + 1 : escape + 2] > "\x7f":
            # The server treats the first byte as escaped, and continues within the character.
            raise UnfollowedError("a backslash precedes a character of several bytes")
        at = escape + 2
    return at


def _is_remark(text: str, at: int, dialect: Dialect) -> bool:
    """Return whether ``--`` before an offset begins a comment: a space, a control character or the end must follow."""
    after = text[at : at + 1]
    if after in (_NUL, UNKNOWN):
        raise UnfollowedError("it has -- before a byte that may begin a comment")
    return not after or after in dialect.spaces or after in dialect.controls


def _end_of_line(text: str, at: int) -> int:
    stop = text.find("\n", at)
    stop = len(text) if stop < 0 else stop
    if _NUL in text[at:stop]:
        raise UnfollowedError("a comment has a zero byte")
    return stop


def _marked(text: str, at: int, dialect: Dialect) -> int:
    """Return the number of characters that mark a comment as executed, 0 for a plain comment."""
    if text.startswith("!", at + 2):
        return 3
    return 4 if dialect.mariadb and text.startswith("M!", at + 2) else 0


def _behind_version(text: str, at: int, dialect: Dialect) -> int:
    """Return the offset behind a version of five or six digits; MySQL reads a sixth digit only before a space."""
    digits = min(_end_of_digits(text, at) - at, _VERSION_DIGITS + 1)
    if digits > _VERSION_DIGITS and not dialect.mariadb and text[at + digits : at + digits + 1] not in dialect.spaces:
        digits = _VERSION_DIGITS
    return at + digits if digits >= _VERSION_DIGITS else at


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
        remaining = []
        while self.now is not END:
            remaining.append(self.step())
        return remaining

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
    return len(words) == len(part) and words in (["ADD"], ["ADD", "COLUMN"], ["ADD", "COLUMN", "IF", "NOT", "EXISTS"])
