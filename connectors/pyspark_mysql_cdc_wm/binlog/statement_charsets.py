"""The character set that a session sent a statement in, told by the variables that are logged with it.

Each variable has a byte that says which it is, and a value of a fixed size or one with its size before it; those up to
the session's collations come in a fixed order.
"""

from __future__ import annotations

from collections.abc import Mapping

_COLLATIONS, _CATALOG = 4, 6
_SIZES = {0: 4, 1: 8, 3: 4}
"""Of variables that come before."""
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
"""By collation; all others are taken to be of UTF-8."""
_SERVERS_OWN = (b"CREATE TABLE `", b"LOAD ")
"""How statements begin that the server writes anew, whose names are in UTF-8 then."""


def statement_text(text: bytes, variables: bytes) -> str:
    """Return the text of a statement; what is none in its character set becomes U+FFFD."""
    if text.isascii():
        return text.decode("ascii")
    if text.startswith(_SERVERS_OWN):
        try:
            return text.decode()
        except UnicodeDecodeError:
            pass
    return text.decode(_codec(variables), errors="replace")


def _codec(variables: bytes) -> str:
    at = 0
    while at + 1 < len(variables) and (kind := variables[at]) != _COLLATIONS:
        if kind != _CATALOG and kind not in _SIZES:
            return "utf-8"
        at += 2 + variables[at + 1] if kind == _CATALOG else 1 + _SIZES[kind]
    number = int.from_bytes(variables[at + 1 : at + 3], "little")
    return CODECS.get(number - _NO_PAD if _NO_PAD <= number < 2 * _NO_PAD else number, "utf-8")
