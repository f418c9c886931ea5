"""The statements in a block of binlog events, and the effect of each by the settings of its session.

A QUERY event's body: thread 4, seconds 4, size of the database's name 1, error 2, size of variables 2, the variables,
the name and a zero byte, the statement. An EXECUTE_LOAD_QUERY event, of a LOAD DATA, has 13 bytes more before the
variables: which of the logged files it loads, and where in the statement the file is named.

Each variable is a byte for its name, and a value of a fixed size or with its size before it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pyspark_mysql_cdc_wm.binlog.character_sets import (
    FORMS,
    NO_CHARACTER,
    charsets_of_collations,
    point_of,
    single_byte,
    tables_of,
)
from pyspark_mysql_cdc_wm.binlog.event_headers import (
    BEGINNINGS,
    FLAGS,
    HEADER_SIZE,
    POSITION,
    START,
    STOP,
    TYPE,
    EventType,
)
from pyspark_mysql_cdc_wm.binlog.sql_scanner import BACKSLASH_LETTER, PLAIN, UNKNOWN, Dialect, UnfollowedError
from pyspark_mysql_cdc_wm.binlog.statement_effects import StatementEffect, effect_of, has_own_settings
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, Scan
from watermark_source.errors import CorruptDataError

# The character set of a session decides which bytes are one character, and so where words and quotes end. A byte of
# ASCII may be the second byte of a character: a backslash there escapes nothing.

UTF_8: Final = "utf8mb4"
_NO_PAD = 1024
"""Offset of the numbers of MariaDB's NO PAD collations; other collations beyond it are of UTF-8."""
_ASCII_ALONE = ("armscii8", "dec8", "geostd8", "keybcs2", "swe7")
"""Character sets of which only ASCII, and the byte that separates words, is known in the way that a server scans it."""
_BLANK: Mapping[str, int] = {
    **dict.fromkeys(
        ("armscii8", "dec8", "geostd8", "greek", "latin1", "latin5", "cp1250", "hebrew", "latin2", "latin7"), 0xA0
    ),
    **dict.fromkeys(("cp852", "cp866", "keybcs2"), 0xFF),
}
"""The byte beyond ASCII that separates words, by character set."""
_CONTROLS: Mapping[str, bytes] = {
    "cp1250": bytes.fromhex("808183889098"),
    "cp850": b"\xff",
    "hebrew": b"\xfd\xfe",
    "hp8": bytes((*range(0x80, 0xA1), 0xB1, 0xB2, *range(0xF2, 0xF6), 0xFF)),
    "latin7": bytes.fromhex("8183888a8c90989a9c9fa1a5"),
    "macroman": b"\x80\xcb\xe5",
}
"""Bytes beyond ASCII that the server treats as control characters (its ``ctype`` tables; tested on MySQL 9.7)."""
_DELETE_IS_NONE = frozenset(("cp1251", "cp1257", "macce", "cp852", "cp866", "keybcs2", "latin2", "macroman"))
"""Character sets in which 0x7F is not a control character."""


class Charset(NamedTuple):
    """The properties of a session's character set that the scanner needs."""

    name: str
    """The server's."""
    spaces: str
    controls: str
    trails: bool


@lru_cache
def charset_of(collation: int) -> Charset:
    """Return the character set of a collation, by its number."""
    number = collation - _NO_PAD if _NO_PAD <= collation < 2 * _NO_PAD else collation
    name = charsets_of_collations().get(number, UTF_8)
    blank = bytes((_BLANK[name],)) if name in _BLANK else b""
    controls = PLAIN.controls + _decoded(_CONTROLS.get(name, b""), name)
    if name in _DELETE_IS_NONE:
        controls = controls.replace("\x7f", "")
    trails = name in FORMS and min(part.start for part in FORMS[name].seconds) < 0x80
    return Charset(name, PLAIN.spaces + _decoded(blank, name), controls.replace(UNKNOWN, ""), trails)


def readings(text: bytes, collation: int) -> tuple[tuple[str, Charset], ...]:
    """Return the text of a statement with its character set; bytes that are no character become U+FFFD.

    Servers rewrite some statements, with names in UTF-8 whatever the session's character set is. A statement that can
    be in either character set is returned in both.
    """
    own = charset_of(collation)
    found = ((_decoded(text, own.name), own),)
    if own.name != UTF_8 and not text.isascii():
        try:
            return (*found, (text.decode(), charset_of(0)))
        except UnicodeDecodeError:
            pass
    return found


def _decoded(text: bytes, charset: str) -> str:
    if charset in FORMS and not text.isascii():
        letters = _letters_of(charset)
        return "".join(map(letters.__getitem__, letters.division.findall(text)))
    if charset in FORMS or charset == UTF_8:
        return text.decode(errors="replace")
    return codecs.charmap_decode(text, "replace", _letters_by_byte(charset))[0]


@lru_cache
def _letters_by_byte(charset: str) -> str:
    beyond = (128 * UNKNOWN if charset in _ASCII_ALONE else single_byte()[charset][128:]).replace("?", UNKNOWN)
    if charset in _ASCII_ALONE and charset in _BLANK:
        blank = _BLANK[charset] - 128
        beyond = f"{beyond[:blank]} {beyond[blank + 1 :]}"
    return bytes(range(128)).decode() + beyond


class _Letters(dict[bytes, str]):
    """The letters of a character set whose letters are of one to four bytes, by their bytes, each looked up once."""

    def __init__(self, charset: str) -> None:
        super().__init__()
        self._tables = tables_of(charset)
        form = FORMS[charset]
        leads, seconds = (
            b"".join(b"\\x%02x-\\x%02x" % (part.start, part.stop - 1) for part in parts)
            for parts in (form.leads, form.seconds)
        )
        kana = b"\x8e[\xa1-\xdf]|\x8f[\xa1-\xfe][\xa1-\xfe]|" if form.kana else b""
        fours = b"|[0-9][\x81-\xfe][0-9]" if form.fours else b""
        self.division = re.compile(kana + b"[%s](?:[%s]%s)|." % (leads, seconds, fours), re.DOTALL)
        """Matches one letter after the other, as the server divides a text."""

    def __missing__(self, code: bytes) -> str:
        point = point_of(self._tables, code)
        is_known = point not in (NO_CHARACTER, ord("?")) or code == b"?"
        # Two bytes that the server reads as a backslash escape nothing.
        letter = UNKNOWN if not is_known else BACKSLASH_LETTER if code != b"\\" and point == ord("\\") else chr(point)
        self[code] = letter
        return letter


_letters_of = lru_cache(_Letters)


_NAME_SIZE, _VARIABLES_SIZE, _FIXED, _OF_LOAD = 8, 11, 13, 13
_BEGIN = b"BEGIN"
_LOAD = int(EventType.EXECUTE_LOAD_QUERY)
_STATEMENTS = (int(EventType.QUERY), _LOAD)
_SHORT = "near here is a statement that does not fit its event; the binlog is damaged. Check it with mysqlbinlog"
_SUPPRESS_USE = 0x8
"""Flag of events whose statement does not use the session's database."""

_SQL_MODE, _CATALOG, _CHARSET, _TIME_ZONE, _CATALOG_NZ, _INVOKER, _DATABASES, _COLLATIONS, _ALTER_PHASE = (
    1, 2, 4, 5, 6, 11, 12, 131, 130,
)  # fmt: skip
_SIZES = {
    0: 4, 3: 4, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 14: 8, 15: 8, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1, 128: 3, 129: 8,
}  # fmt: skip
_TOO_MANY_DATABASES = 254
_ANSI_QUOTES, _NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
_START_ALTER, _COMMIT_ALTER, _ROLLBACK_ALTER = 2, 4, 8
_LONGEST_KEPT = 1_000
_READ_DIFFERENTLY = (b"/*m!", b"$", b"statement", b"generated by server")
"""Parts of statements that MySQL and MariaDB may read differently."""
_GENERATED = "/* generated by server */"


class Session(NamedTuple):
    """Settings of the session that sent a statement which decide how the statement is read."""

    sql_mode: int = 0
    collation: int = 0
    """Number of the client character set's collation; 0 if it is not logged."""
    alter_phase: int = 0
    """Phase of an ALTER that MariaDB logs twice, at its beginning and its end (``binlog_alter_two_phase``)."""


class Reading(NamedTuple):
    """A statement and its effect."""

    text: str
    effect: StatementEffect | None
    problem: str = ""
    """Why the statement could not be followed, if it has no effect."""


class Statement(NamedTuple):
    """A statement of the binlog. One with two possible effects is yielded twice."""

    database: str
    """The session's database."""
    text: str
    effect: StatementEffect | None
    """``None`` if the statement could not be followed."""
    problem: str
    """Why it could not be followed."""
    position: int
    number: int
    """Index of its event in the block."""


def statements(memory: Bytes, events: Longs) -> Iterator[Statement]:
    """Yield the statements of a block of events, except the BEGIN of transactions.

    The first phase of an ALTER in two phases, and one that was rolled back, have no effect and are left out.

    Raises:
        CorruptDataError: a statement does not fit its event.
    """
    queries, variables, names, texts = text_places(memory, events)
    mariadb = _is_mariadb(events) if len(queries) else None
    for i in np.flatnonzero(~_begins(memory, events[queries, STOP], texts)).tolist():
        event = events[queries[i]]
        session = session_of(memory[variables[i] : names[i]].tobytes())
        if session.alter_phase & (_START_ALTER | _ROLLBACK_ALTER):
            continue
        text = memory[texts[i] : event[STOP]].tobytes()
        read = _kept if len(text) <= _LONGEST_KEPT else _read
        suppressed = bool(event[FLAGS] & _SUPPRESS_USE)
        database = memory[names[i] : texts[i] - 1].tobytes().decode(errors="replace")
        for reading in read(text, session.sql_mode, session.collation, mariadb, suppressed):
            yield Statement(database, *reading, int(event[POSITION]), int(queries[i]))


def _begins(memory: Bytes, stops: Longs, texts: Longs) -> npt.NDArray[np.bool_]:
    """Return which statements are BEGIN."""
    is_begin: npt.NDArray[np.bool_] = stops - texts == len(_BEGIN)
    starts = texts[is_begin]
    same = np.ones(len(starts), np.bool_)
    for i, letter in enumerate(_BEGIN):
        same &= memory[starts + i] == letter
    is_begin[is_begin] = same
    return is_begin


def _is_mariadb(events: Longs) -> bool | None:
    """Return whether MariaDB logged a block, ``None`` if no transaction begins in it."""
    if (events[:, TYPE] == EventType.MARIADB_GTID).any():
        return True
    return False if np.isin(events[:, TYPE], BEGINNINGS).any() else None


def _read(
    text: bytes, sql_mode: int, collation: int, mariadb: bool | None, suppressed: bool
) -> tuple[Reading, ...]:  # fmt: skip
    """Return the possible readings of a statement: one, unless its server, SQL mode or character set is not certain."""
    followed: dict[StatementEffect, Reading] = {}
    problems = []
    for letters, dialect in _possible(text, sql_mode, collation, mariadb):
        reading = _reading(letters, dialect, suppressed)
        if reading.effect is None:
            problems.append(reading)
        else:
            followed.setdefault(reading.effect, reading)
    return tuple(followed.values()) or tuple(problems[:1])


def _reading(letters: str, dialect: Dialect, suppressed: bool) -> Reading:
    shown = letters.replace(BACKSLASH_LETTER, "\\")
    try:
        return Reading(shown, effect_of(letters, dialect, by_server=suppressed))
    except UnfollowedError as problem:
        return Reading(shown, None, str(problem).replace(BACKSLASH_LETTER, "\\"))


_kept = lru_cache(maxsize=1_000)(_read)


def _possible(text: bytes, sql_mode: int, collation: int, mariadb: bool | None) -> Iterator[tuple[str, Dialect]]:
    """Yield the possible texts of a statement, with the rules by which the server can have read each."""
    servers = (mariadb,) if mariadb is not None else (False, True)
    if mariadb is None and not any(part in text.lower() for part in _READ_DIFFERENTLY):
        servers = (False,)
    mode = bool(sql_mode & _ANSI_QUOTES), not sql_mode & _NO_BACKSLASH_ESCAPES
    for (read, charset), server in product(readings(text, collation), servers):
        letters = _without_copied_remark(read) if server else read
        dialect = Dialect(*mode, server, charset.spaces, charset.controls, charset.trails)
        # The logged sql_mode is the one that SET STATEMENT sets, not the one by which the statement was read.
        own = server and "statement" in letters.lower() and has_own_settings(letters, dialect)
        modes = product((False, True), (True, False)) if own else (mode,)
        for ansi_quotes, escapes in modes:
            yield letters, dialect._replace(ansi_quotes=ansi_quotes, backslash_escapes=escapes)


def _without_copied_remark(letters: str) -> str:
    """Return a statement without the comment that MariaDB copies into a DROP that it rewrites."""
    if not (letters.startswith("DROP ") and letters.endswith(_GENERATED)):
        return letters
    begin = letters.find("/*")
    if any(0 <= letters.find(quote) < begin for quote in '`"'):
        # The comment precedes the names, each of which is in backquotes, with ANSI_QUOTES in double quotes.
        return letters
    end = letters.find("*/", begin + 2) + 2
    return letters[:begin] + letters[end:] if end < len(letters) else letters


def session_of(variables: bytes) -> Session:
    """Return the settings that are logged with a statement, up to the first that is not known."""
    scan, found = Scan(variables), Session()
    with suppress(IndexError, KeyError):
        while scan.left:
            kind = scan.byte()
            if kind == _SQL_MODE:
                found = found._replace(sql_mode=scan.uint(8))
            elif kind == _CHARSET:
                found = found._replace(collation=scan.uint(2))
                scan.skip(4)
            elif kind == _ALTER_PHASE:
                found = found._replace(alter_phase=scan.byte())
                scan.skip(8 if found.alter_phase & (_COMMIT_ALTER | _ROLLBACK_ALTER) else 0)
            else:
                _skip_variable(kind, scan)
    return found


def _skip_variable(kind: int, scan: Scan) -> None:
    if kind in (_TIME_ZONE, _CATALOG_NZ):
        scan.skip(scan.byte())
    elif kind == _CATALOG:
        scan.skip(scan.byte() + 1)
    elif kind == _INVOKER:
        scan.skip(scan.byte())
        scan.skip(scan.byte())
    elif kind == _DATABASES:
        count = scan.byte()
        for _ in range(0 if count == _TOO_MANY_DATABASES else count):
            while scan.byte():
                pass
    elif kind == _COLLATIONS:
        scan.skip(4 * scan.byte())
    else:
        scan.skip(_SIZES[kind])


def text_places(memory: Bytes, events: Longs) -> tuple[Longs, Longs, Longs, Longs]:
    """Return which events are statements, and the offsets of each one's variables, its database's name and its text.

    Raises:
        CorruptDataError: a statement does not fit its event.
    """
    numbers = np.flatnonzero(np.isin(events[:, TYPE], _STATEMENTS))
    queries = events[numbers]
    if not len(queries):
        return numbers, numbers, numbers, numbers
    bodies = queries[:, START] + HEADER_SIZE
    fixed = np.where(queries[:, TYPE] == _LOAD, _FIXED + _OF_LOAD, _FIXED)
    if (bodies + fixed > queries[:, STOP]).any():
        raise CorruptDataError(f"binlog position {queries[0, POSITION]}: {_SHORT}")
    variables = bodies + fixed
    sizes = memory[bodies + _VARIABLES_SIZE] | memory[bodies + _VARIABLES_SIZE + 1].astype(np.int64) << 8
    names = variables + sizes
    texts = names + memory[bodies + _NAME_SIZE].astype(np.int64) + 1
    if (texts > queries[:, STOP]).any():
        raise CorruptDataError(f"binlog position {queries[0, POSITION]}: {_SHORT}")
    return numbers, variables, names, texts
