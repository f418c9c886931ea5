"""The character set that a session sent a statement in, and how the server divided it into letters.

What decides where words and quotes end are bytes, and which bytes are one letter the character set says. A byte of
ASCII may be the second one of a letter: a backslash there escapes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from pyspark_mysql_cdc_wm.binlog.sql_scanner import PLAIN, UNKNOWN

UTF_8: Final = "utf-8"
_NO_PAD = 1024
"""What the number of a collation is more by where blanks at the end count (MariaDB); others beyond it are of UTF-8."""
_COLLATIONS_OF: Mapping[str, tuple[int, ...]] = {
    "big5": (1, 84),
    "cp1250": (26, 34, 44, 66, 99),
    "cp1251": (14, 23, 50, 51, 52),
    "cp1252": (5, 8, 15, 31, 47, 48, 49, 94),
    "cp1256": (57, 67),
    "cp1257": (29, 58, 59),
    "cp850": (4, 80),
    "cp852": (40, 81),
    "cp866": (36, 68),
    "cp874": (18, 89),
    "cp932": (13, 88, 95, 96),
    "cp949": (19, 85),
    "euc_jp": (12, 91, 97, 98),
    "gb18030": (24, 28, 86, 87, 248, 249, 250),
    "hp_roman8": (6, 72),
    "iso8859_2": (2, 9, 21, 27, 77),
    "iso8859_7": (25, 70),
    "iso8859_8": (16, 71),
    "iso8859_9": (30, 78),
    "iso8859_13": (20, 41, 42, 79),
    "koi8_r": (7, 74),
    "koi8_u": (22, 75),
    "mac_latin2": (38, 43),
    "mac_roman": (39, 53),
}
"""By codec of Python, those of the character sets whose letters it has: names are letters."""
CODECS: Mapping[int, str] = {number: codec for codec, numbers in _COLLATIONS_OF.items() for number in numbers}
"""By collation; all others are taken to be of UTF-8, but for those of ``_WITHOUT_CODEC``."""
_WITHOUT_CODEC: Mapping[int, str] = {
    **dict.fromkeys((32, 64), "armscii8"), **dict.fromkeys((3, 69), "dec8"), **dict.fromkeys((92, 93), "geostd8"),
    **dict.fromkeys((37, 73), "keybcs2"), **dict.fromkeys((10, 82), "swe7"),
}  # fmt: skip
"""Character sets whose letters beyond ASCII are not known here."""
_Ranges = tuple[tuple[int, int], ...]
_GBK_TRAIL: _Ranges = ((0x40, 0x7E), (0x80, 0xFE))
_PAIRS: Mapping[str, tuple[_Ranges, _Ranges]] = {
    "big5": (((0xA1, 0xF9),), ((0x40, 0x7E), (0xA1, 0xFE))),
    "cp932": (((0x81, 0x9F), (0xE0, 0xFC)), ((0x40, 0x7E), (0x80, 0xFC))),
    "cp949": (((0x81, 0xFE),), ((0x41, 0x5A), (0x61, 0x7A), (0x81, 0xFE))),
    "gb18030": (((0x81, 0xFE),), _GBK_TRAIL),
}
"""First and second bytes of letters, where the second one may be of ASCII (``my_ismbchar``)."""
_OF_FOUR_BYTES = (248, 249, 250)
"""Collations of gb18030: the second and fourth byte of a letter can be digits."""
_NO_PAIRS_OF_ASCII = (24, 86)
"""Those of gb2312, all of whose bytes are beyond ASCII."""
_BLANK: Mapping[str, int] = {
    **dict.fromkeys(
        ("armscii8", "dec8", "geostd8", "iso8859_7", "cp1252", "iso8859_9", "cp1250", "iso8859_8", "iso8859_2",
         "iso8859_13"),
        0xA0,
    ),
    **dict.fromkeys(("cp852", "cp866", "keybcs2"), 0xFF),
}  # fmt: skip
"""The byte beyond ASCII that divides words."""
_CONTROLS: Mapping[str, bytes] = {
    "cp1250": bytes.fromhex("808183889098"),
    "cp850": b"\xff",
    "iso8859_8": b"\xfd\xfe",
    "hp_roman8": bytes((*range(0x80, 0xA1), 0xB1, 0xB2, *range(0xF2, 0xF6), 0xFF)),
    "iso8859_13": bytes.fromhex("8183888a8c90989a9c9fa1a5"),
    "mac_roman": b"\x80\xcb\xe5",
}
"""Bytes beyond ASCII that are control characters to the server (its ``ctype`` tables; tried on MySQL 9.7)."""
_DELETE_IS_NONE = frozenset(
    ("cp1251", "cp1257", "mac_latin2", "cp852", "cp866", "keybcs2", "iso8859_2", "mac_roman")
)  # fmt: skip
"""Character sets in which 0x7F is no control character."""


class Charset(NamedTuple):
    """What the scanner needs to know of a session's character set."""

    codec: str
    spaces: str
    controls: str
    trails: bool


@lru_cache
def charset_of(collation: int) -> Charset:
    """Return the character set of a collation, by its number."""
    number = collation - _NO_PAD if _NO_PAD <= collation < 2 * _NO_PAD else collation
    name = _WITHOUT_CODEC.get(number) or CODECS.get(number, UTF_8)

    def letters(code: bytes) -> str:
        return " " * (code[0] == _BLANK.get(name)) if name in _WITHOUT_CODEC.values() else code.decode(name, "replace")

    blank = _BLANK.get(name)
    spaces = PLAIN.spaces + ("" if blank is None else letters(bytes((blank,))))
    controls = PLAIN.controls + "".join(letters(bytes((each,))) for each in _CONTROLS.get(name, b""))
    if name in _DELETE_IS_NONE:
        controls = controls.replace("\x7f", "")
    return Charset(name, spaces, controls.replace(UNKNOWN, ""), name in _PAIRS and number not in _NO_PAIRS_OF_ASCII)


def readings(text: bytes, collation: int) -> tuple[tuple[str, Charset], ...]:
    """Return the letters of a statement, and the character set that they are of; what is none becomes U+FFFD.

    Servers write some statements anew, with names in UTF-8 whatever the session has: what can be both is given as both.
    """
    own = charset_of(collation)
    if text.isascii() and not own.trails:
        return ((text.decode("ascii"), own),)
    found = ((_decoded(text, own, collation), own),)
    if own.codec != UTF_8 and not text.isascii():
        try:
            return (*found, (text.decode(), charset_of(0)))
        except UnicodeDecodeError:
            pass
    return found


def _decoded(text: bytes, charset: Charset, collation: int) -> str:
    if charset.codec in _WITHOUT_CODEC.values():
        blank = _BLANK.get(charset.codec)
        return "".join(" " if each == blank else chr(each) if each < 0x80 else UNKNOWN for each in text)
    if not charset.trails or text.isascii():
        return text.decode(charset.codec, errors="replace")
    first, second = _PAIRS[charset.codec]
    four = collation in _OF_FOUR_BYTES
    letters, at = [], 0
    while at < len(text):
        width = 1
        if at + 1 < len(text) and _within(text[at], first):
            if _within(text[at + 1], second):
                width = 2
            elif four and 0x30 <= text[at + 1] <= 0x39 and _of_four(text[at : at + 4]):
                width = 4
        letter = text[at : at + width].decode(charset.codec, errors="replace")
        letters.append(letter if len(letter) == 1 else UNKNOWN)
        at += width
    return "".join(letters)


def _within(byte: int, ranges: _Ranges) -> bool:
    return any(low <= byte <= high for low, high in ranges)


def _of_four(letter: bytes) -> bool:
    return len(letter) == 4 and 0x81 <= letter[2] <= 0xFE and 0x30 <= letter[3] <= 0x39
