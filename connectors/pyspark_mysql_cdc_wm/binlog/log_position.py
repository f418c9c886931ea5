"""A position in a server's binlog as one number: the file's number in the high bits, the offset in the low bits."""

from __future__ import annotations

import re
from typing import NamedTuple

from watermark_source.errors import UnsupportedFormatError
from watermark_source.planning.split import Split

BINLOG = Split("binlog", 0)
"""The split of a server's binlog, whose positions are the numbers of ``LogPosition``."""
FIRST_OFFSET = 4
"""Offset of the first event of every file."""
_OFFSET_BITS = 40
_LARGEST_FILE = 2**23 - 1
_FILE = re.compile(r"(.*)\.([0-9]+)", re.DOTALL)


class LogPosition(NamedTuple):
    """A position between two events."""

    file: int
    """Number of the file."""
    offset: int = FIRST_OFFSET

    @property
    def number(self) -> int:
        """The position as one number."""
        return position_number(self.file, self.offset)

    @classmethod
    def of(cls, number: int) -> LogPosition:
        """Return the position of a number."""
        return cls(number >> _OFFSET_BITS, number & ((1 << _OFFSET_BITS) - 1))

    def shown(self, base: str) -> str:
        """Return the position for messages; ``base`` is the base name of the server's files."""
        return f"{file_name(base, self.file)} position {self.offset}"

    def __str__(self) -> str:
        return f"file {self.file} position {self.offset}"


def position_number(file: int, offset: int) -> int:
    """Return the number of a position.

    Raises:
        UnsupportedFormatError: the file's number is beyond 8 million, or the offset beyond a tebibyte.
    """
    if not 0 <= file <= _LARGEST_FILE or not 0 <= offset < 1 << _OFFSET_BITS:
        raise UnsupportedFormatError(
            f"binlog file {file} position {offset}: files are read up to number {_LARGEST_FILE}, and positions below "
            f"{1 << _OFFSET_BITS}. On the server: RESET BINARY LOGS AND GTIDS starts with file 1 again"
        )
    return file << _OFFSET_BITS | offset


def file_number(name: str) -> int:
    """Return the number at the end of a file's name.

    Raises:
        UnsupportedFormatError: the name does not end in a number.
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
        raise UnsupportedFormatError(f"{name!r} is not the name of a binlog file, which ends in a dot and a number")
    return found[1], found[2]
