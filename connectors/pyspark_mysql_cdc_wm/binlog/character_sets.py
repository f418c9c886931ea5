"""Which character sets of the server are read, and what each of their characters is.

Sets of one byte a character are tables that a server answered with (single_byte.json). Those of several bytes are
Python's codecs, except for what a server shows otherwise (multi_byte.json): sets of similar names differ in
single characters. Bytes without a character become what the server shows for them, a question mark.

A text of some character sets has several codes: the server shows their bytes as one text, and makes the first code of
that text. Second codes (second_codes.json), and bytes without a character, are no text that keys are distinguished by.
The numbers of collations (collations.json) are the same on every server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from watermark_source.errors import UnsupportedFormatError

AS_THEY_LIE = frozenset({"utf8mb4", "utf8mb3", "utf8"})
"""Their bytes are UTF-8."""
WIDE = {"ucs2": (2, True, False), "utf16": (2, True, True), "utf16le": (2, False, True), "utf32": (4, True, False)}
"""Bytes of a unit, whether the high byte is first, and whether two units can make a character."""
SINGLE, PAIR, TRIPLE, PAIR_OR_FOUR = range(4)
"""How long the characters are that a byte begins: what it is by itself, and two; three; two, or four with a digit."""
NO_CHARACTER = -1
"""In a table: bytes that no text has."""
_UNKNOWN = ord("?")
_ASCII = bytes(range(128)).decode() + 128 * "?"
"""MariaDB stores any byte as ascii."""
_SHORT_FOURS = 39_420
"""So many characters of four bytes are in a table; the rest of them lie as in Unicode."""
FIRST_BEYOND = 189_000
"""The order of the first character of four bytes that is beyond U+FFFF, in GB 18030."""


class _Form(NamedTuple):
    codec: str
    """Python's."""
    leads: tuple[range, ...]
    """Bytes that a character of two begins with."""
    seconds: tuple[range, ...]
    """Bytes that it ends with."""
    kana: bool = False
    """Whether 0x8E begins one of two bytes, the second of which is 0xA1 to 0xDF, and 0x8F one of three."""
    fours: bool = False
    """Whether there are those of four bytes."""


def _to(first: int, last: int) -> range:
    return range(first, last + 1)


_HIGH = _to(0xA1, 0xFE)
_SHIFTED = (_to(0x81, 0x9F), _to(0xE0, 0xFC)), (_to(0x40, 0x7E), _to(0x80, 0xFC))
FORMS = {
    "big5": _Form("big5", (_to(0xA1, 0xF9),), (_to(0x40, 0x7E), _HIGH)),
    "cp932": _Form("cp932", *_SHIFTED),
    "eucjpms": _Form("euc_jp", (_HIGH,), (_HIGH,), kana=True),
    "euckr": _Form("cp949", (_to(0x81, 0xFE),), (_to(0x41, 0x5A), _to(0x61, 0x7A), _to(0x81, 0xFE))),
    "gb18030": _Form("gb18030", (_to(0x81, 0xFE),), (_to(0x40, 0x7E), _to(0x80, 0xFE)), fours=True),
    "gb2312": _Form("gb2312", (_to(0xA1, 0xF7),), (_HIGH,)),
    "gbk": _Form("gbk", (_to(0x81, 0xFE),), (_to(0x40, 0x7E), _to(0x80, 0xFE))),
    "sjis": _Form("shift_jis", *_SHIFTED),
    "ujis": _Form("euc_jp", (_HIGH,), (_HIGH,), kana=True),
}
"""By the server's name."""

Points = npt.NDArray[np.int32]


class Tables(NamedTuple):
    """Code points by bytes, the highest byte first; ``NO_CHARACTER`` where the bytes are none."""

    kinds: npt.NDArray[np.uint8]
    """By the first byte."""
    singles: Points
    pairs: Points
    triples: Points
    """By the two bytes after the first."""
    fours: Points
    """By their order."""


def check_charset(charset: str, where: str) -> None:
    """Refuse a character set that cannot be read.

    Raises:
        UnsupportedFormatError: it cannot.
    """
    readable = {*AS_THEY_LIE, *WIDE, *FORMS, *single_byte()}
    if charset not in readable:
        raise UnsupportedFormatError(
            f"{where}: text in the character set {charset}, which is not read; leave the column out, or convert it to "
            f"one of {', '.join(sorted(readable))}"
        )


@cache
def single_byte() -> dict[str, str]:
    """Return the 256 characters of each character set of one byte a character."""
    return {**_data("single_byte"), "ascii": _ASCII}


@cache
def charsets_of_collations() -> dict[int, str]:
    """Return character sets by the numbers of their collations; all that are not in it are of UTF-8."""
    return {number: charset for charset, numbers in _data("collations").items() for number in numbers}


@cache
def _data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(resources.files(__package__).joinpath(f"{name}.json").read_text("utf-8"))
    return found


def has_second_codes(charset: str) -> bool:
    """Return whether values of a character set may have one text though their bytes differ."""
    if charset in FORMS or charset in _data("second_codes"):
        return True
    return _UNKNOWN in map(ord, single_byte().get(charset, "").replace("?", "", 1))


def first_codes_alone(column: str, charset: str) -> str:
    """Return the expression for a column of text that is NULL where it has second codes."""
    back = f"CONVERT(CONVERT({column} USING utf8mb4) USING {charset})"
    return f"IF(CAST({back} AS BINARY) = CAST({column} AS BINARY), {column}, NULL)"


def text_of_several(charset: str) -> UnsupportedFormatError:
    """Return the error for a key that has the text of another; ``first_codes_alone`` finds such keys."""
    return UnsupportedFormatError(
        f"a key of the character set {charset} has bytes outside it, or a second code of one, so that its "
        "text in a stream is that of other keys too, and does not distinguish rows. On the server, where "
        f"{first_codes_alone('k', charset)} IS NULL, k being the column, give such rows another key and begin a new "
        "query, or leave the table out of the option tables"
    )


@cache
def tables_of(charset: str) -> Tables:
    """Return the tables of a character set that is one of ``FORMS``, or of one byte a character."""
    if charset not in FORMS:
        points, none = np.array([*map(ord, single_byte()[charset])], np.int32), np.empty(0, np.int32)
        return Tables(np.full(256, SINGLE, np.uint8), points, none, none, none)
    made, differs = codec_tables(charset), _data("multi_byte").get(charset, {})
    for code, point in differs.items():
        put(made, bytes.fromhex(code), NO_CHARACTER if point is None else ord(point))
    return made


@cache
def tables_of_keys(charset: str) -> Tables:
    """Return the tables of a character set that ``has_second_codes``, without these."""
    kinds, *points_of = tables_of(charset)
    made = Tables(kinds, *(points.copy() for points in points_of))
    for table in made[1:]:
        table[table == _UNKNOWN] = NO_CHARACTER
    made.singles[_UNKNOWN] = _UNKNOWN
    for code in _data("second_codes").get(charset, ()):
        put(made, bytes.fromhex(code), NO_CHARACTER)
    return made


def codec_tables(charset: str) -> Tables:
    """Return what the codec makes of one of ``FORMS``."""
    form = FORMS[charset]
    singles, pairs, triples, fours = (
        np.full(size, NO_CHARACTER, np.int32) for size in (256, 65_536, 65_536, _SHORT_FOURS)
    )
    made = Tables(np.full(256, SINGLE, np.uint8), singles, pairs, triples, fours)
    for first in (byte for part in form.leads for byte in part):
        made.kinds[first] = PAIR_OR_FOUR if form.fours else PAIR
    if form.kana:
        made.kinds[0x8E], made.kinds[0x8F] = PAIR, TRIPLE
    for code in codes(charset):
        put(made, code, _point(code, form.codec))
    return made


def codes(charset: str) -> Iterable[bytes]:
    """Yield the bytes of every character of a table of one of ``FORMS``, whether or not there is one."""
    form = FORMS[charset]
    leads = {byte for part in form.leads for byte in part} | ({0x8E, 0x8F} if form.kana else set())
    yield from (bytes((byte,)) for byte in range(256) if byte not in leads)
    seconds = [byte for part in form.seconds for byte in part]
    yield from (bytes((first, second)) for part in form.leads for first in part for second in seconds)
    if form.kana:
        yield from (bytes((0x8E, second)) for second in _to(0xA1, 0xDF))
        yield from (bytes((0x8F, second, third)) for second in _HIGH for third in _HIGH)
    if form.fours:
        yield from map(four_bytes, range(_SHORT_FOURS))


def four_bytes(order: int) -> bytes:
    """Return a character of four bytes by its order."""
    third, fourth = divmod(order % 1260, 10)
    first, second = divmod(order // 1260, 10)
    return bytes((0x81 + first, 0x30 + second, 0x81 + third, 0x30 + fourth))


def put(tables: Tables, code: bytes, point: int) -> None:
    """Write the code point of a character."""
    table, at = _place(tables, code)
    table[at] = point


def point_of(tables: Tables, code: bytes) -> int:
    """Return the code point of a character, or ``NO_CHARACTER``."""
    table, at = _place(tables, code)
    if at < len(table):
        return int(table[at])
    return point if 0x10000 <= (point := at - FIRST_BEYOND + 0x10000) <= 0x10FFFF else _UNKNOWN


def _place(tables: Tables, code: bytes) -> tuple[Points, int]:
    if len(code) == 1:
        return tables.singles, code[0]
    if len(code) == 2:
        return tables.pairs, code[0] << 8 | code[1]
    if len(code) == 3:
        return tables.triples, code[1] << 8 | code[2]
    first, second, third, fourth = code
    return tables.fours, ((first - 0x81) * 10 + second - 0x30) * 1260 + (third - 0x81) * 10 + fourth - 0x30


def _point(code: bytes, codec: str) -> int:
    try:
        shown = code.decode(codec)
    except UnicodeDecodeError:
        # A single byte that begins no character is in no text; several are an unknown character.
        return NO_CHARACTER if len(code) == 1 else _UNKNOWN
    return ord(shown) if len(shown) == 1 else _UNKNOWN
