"""A place in a server's binlog as one number that grows along it: the file's number above, the offset in it below."""

from __future__ import annotations

import re
from typing import NamedTuple

from watermark_source.errors import UnsupportedFormatError

FIRST_OFFSET = 4
"""Of the first event of every file."""
_OFFSET_BITS = 40
_LARGEST_FILE = 2**23 - 1
_FILE = re.compile(r"(.*)\.([0-9]+)", re.DOTALL)


class LogPosition(NamedTuple):
    """A place between two events."""

    file: int
    """Number of the file."""
    offset: int = FIRST_OFFSET

    @property
    def number(self) -> int:
        """The one number."""
        return position_number(self.file, self.offset)

    @classmethod
    def of(cls, number: int) -> LogPosition:
        """Return the place a number stands for."""
        return cls(number >> _OFFSET_BITS, number & ((1 << _OFFSET_BITS) - 1))

    def shown(self, base: str) -> str:
        """Return the place as users know it; ``base`` is what the names of the server's files begin with."""
        return f"{file_name(base, self.file)} position {self.offset}"

    def __str__(self) -> str:
        return f"file {self.file} position {self.offset}"


def position_number(file: int, offset: int) -> int:
    """Return the number of a place.

    Raises:
        UnsupportedFormatError: a file beyond 8 million, or an offset beyond a tebibyte.
    """
    if not 0 <= file <= _LARGEST_FILE or not 0 <= offset < 1 << _OFFSET_BITS:
        raise UnsupportedFormatError(
            f"binlog file {file} position {offset}: files are read up to number {_LARGEST_FILE}, and positions below "
            f"{1 << _OFFSET_BITS}. RESET BINARY LOGS AND GTIDS begins to number anew"
        )
    return file << _OFFSET_BITS | offset


def file_number(name: str) -> int:
    """Return the number at the end of a file's name.

    Raises:
        UnsupportedFormatError: there is none.
    """
    return int(_parts(name)[1])


def file_base(name: str) -> str:
    """Return a file's name without its number, which all files of a server share; raises as ``file_number``."""
    return _parts(name)[0]


def file_name(base: str, number: int) -> str:
    """Return the name of a file."""
    return f"{base}.{number:06}"


def _parts(name: str) -> tuple[str, str]:
    found = _FILE.fullmatch(name)
    if found is None:
        raise UnsupportedFormatError(f"{name!r} is no name of a binlog file, which ends in a point and a number")
    return found[1], found[2]
