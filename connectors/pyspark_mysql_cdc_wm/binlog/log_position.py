"""Positions in binlogs: in one server's files, and as a set of GTIDs, which all servers of a replication share.

A position in files is one number: the file's number in the high bits, the offset in the low bits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import numpy as np

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


# GTID sets in the server's text form, and in the encoded form of a dump request.
#
# Text: ``uuid:1-5:7,uuid:1-3:tag:8``, the numbers of a tag behind it. Encoded, little-endian: sources 8; for each its
# uuid 16, ranges 8, and for each of those first 8 and the one after the last 8. With tags (MySQL 8.3) the count of
# sources is 6 bytes between two bytes 1, and after each uuid comes the tag, its size doubled in one byte before it.


_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_RANGE = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_LARGEST = 2**63 - 2


class Source(NamedTuple):
    """The source of a GTID, which numbers its transactions from 1."""

    uuid: str
    tag: str = ""


Range = tuple[int, int]
"""First and last number, both included."""


@dataclass(frozen=True, slots=True)
class GtidSet:
    """A set of transactions. Equal sets have equal texts."""

    ranges: Mapping[Source, tuple[Range, ...]] = field(default_factory=dict)
    """Sorted ranges that neither touch nor overlap; no source without ranges."""

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Parse the text of a server or a user; raises ``ValueError``."""
        ranges: dict[Source, list[Range]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            uuid, *fields = (field.strip() for field in part.split(":"))
            source = Source(_uuid(uuid))
            if not fields:
                raise ValueError(f"{part!r} has no numbers; it should be like {uuid}:1-100")
            for text_field in fields:
                if _TAG.fullmatch(text_field.lower()):
                    source = Source(source.uuid, text_field.lower())
                else:
                    ranges.setdefault(source, []).append(_range(text_field))
        return cls.of(ranges)

    @classmethod
    def of(cls, ranges: Mapping[Source, Iterable[Range]]) -> GtidSet:
        """Return the set of ranges that may touch or overlap, in any order."""
        return cls({source: _joined(of) for source, of in sorted(ranges.items())})

    def __str__(self) -> str:
        texts: dict[str, str] = {}
        for (uuid, tag), ranges in self.ranges.items():
            numbers = "".join(f":{first}-{last}" if last > first else f":{first}" for first, last in ranges)
            texts[uuid] = texts.get(uuid, uuid) + (f":{tag}" if tag else "") + numbers
        return ",".join(texts.values())

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __or__(self, other: GtidSet) -> GtidSet:
        if not other:
            return self
        both = {*self.ranges, *other.ranges}
        return GtidSet({s: _joined((*self.ranges.get(s, ()), *other.ranges.get(s, ()))) for s in sorted(both)})

    def __sub__(self, other: GtidSet) -> GtidSet:
        left = {s: tuple(_without(ranges, other.ranges.get(s, ()))) for s, ranges in self.ranges.items()}
        return GtidSet({s: ranges for s, ranges in left.items() if ranges})

    def __and__(self, other: GtidSet) -> GtidSet:
        return self - (self - other)

    def encoded(self) -> bytes:
        """Return the set in the form of a dump request."""
        tagged = any(source.tag for source in self.ranges)
        count = len(self.ranges)
        parts = [b"\1" + count.to_bytes(6, "little") + b"\1" if tagged else count.to_bytes(8, "little")]
        for source, ranges in self.ranges.items():
            parts.append(UUID(source.uuid).bytes)
            if tagged:
                parts.append(bytes([2 * len(source.tag)]) + source.tag.encode())
            parts.append(len(ranges).to_bytes(8, "little"))
            parts.append(np.array([(first, last + 1) for first, last in ranges], "<i8").tobytes())
        return b"".join(parts)


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise ValueError(f"{text!r} is not the UUID of a server, as @@server_uuid shows it") from None


def _range(text: str) -> Range:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} are not numbers of transactions, such as 7 or 1-100")
    first, last = int(found[1]), int(found[2] or found[1])
    if not 0 < first <= last <= _LARGEST:
        raise ValueError(f"{text!r} are not numbers of transactions, which grow, and begin at 1")
    return first, last


def _joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def _without(ranges: Iterable[Range], others: tuple[Range, ...]) -> Iterator[Range]:
    at = 0
    for first, last in ranges:
        while at < len(others) and others[at][1] < first:
            at += 1
        begin, number = first, at
        while number < len(others) and others[number][0] <= last:
            if begin < others[number][0]:
                yield begin, others[number][0] - 1
            begin = others[number][1] + 1
            number += 1
        if begin <= last:
            yield begin, last
