"""Which character sets of the server are read, and how.

Sets of one byte a character go through tables that a server was asked for (single_byte.json): Python's codecs of
similar names differ in single characters. A byte without a character becomes what the server shows for it, a question
mark. Those of several bytes are in multi_byte.py.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from pyspark_mysql_cdc_wm.records.multi_byte import FORMS
from watermark_source.errors import UnsupportedFormatError

AS_THEY_LIE = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
"""Their bytes are UTF-8."""
WIDE = {"ucs2": (2, True, False), "utf16": (2, True, True), "utf16le": (2, False, True), "utf32": (4, True, False)}
"""Bytes of a unit, whether the high byte is first, and whether two units can make a character."""


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
    found: dict[str, str] = json.loads(resources.files(__package__).joinpath("single_byte.json").read_text("utf-8"))
    return found
