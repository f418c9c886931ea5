"""The option startingOffsets: where a new query begins."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

from pyspark_mysql_cdc_wm.binlog.log_position import FIRST_OFFSET, GtidSet, file_number
from watermark_source.errors import UnsupportedFormatError


class StartMode(Enum):
    """The values that are a single word."""

    INITIAL = "initial"
    """A snapshot of the tables, then the binlog."""
    SNAPSHOT = "snapshot"
    """A snapshot of the tables alone."""
    EARLIEST = "earliest"
    """All of the binlog that the server still has."""
    LATEST = "latest"
    """The binlog from now on."""

    @property
    def reads_tables(self) -> bool:
        """Whether the query begins with a snapshot."""
        return self in (StartMode.INITIAL, StartMode.SNAPSHOT)


@dataclass(frozen=True, slots=True)
class StartAt:
    """A position in the binlog that must be between two transactions."""

    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class StartAfter:
    """All of the binlog except the transactions of a GTID set."""

    left_out: GtidSet


@dataclass(frozen=True, slots=True)
class StartAtTime:
    """The first transaction that was committed at a time or later; the end of the binlog if there is none."""

    millis: int
    """Milliseconds since 1970."""


_WORDS = frozenset(mode.value for mode in StartMode)
Start = StartMode | StartAt | StartAfter | StartAtTime


def parse_start(text: str) -> Start:
    """Parse a value of ``StartMode``, ``{"file":"binlog.000003","position":157}`` or ``{"gtid":"5c9a…:1-100"}``.

    Raises ``ValueError``.
    """
    stripped = text.strip()
    if not stripped.startswith("{"):
        if stripped.lower() not in _WORDS:
            raise ValueError
        return StartMode(stripped.lower())
    try:
        given = json.loads(stripped)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if given.keys() == {"gtid"}:
        if not isinstance(given["gtid"], str):
            raise ValueError("gtid must be a text")
        return StartAfter(GtidSet.parse(given["gtid"]))
    if given.keys() != {"file", "position"}:
        raise ValueError("its keys must be file and position, or gtid")
    file, offset = given["file"], given["position"]
    if not isinstance(file, str):
        raise ValueError("file must be a text")  # noqa: TRY004 - as every parser of options
    if type(offset) is not int or not FIRST_OFFSET <= offset < 2**32:
        raise ValueError(f"position must be a whole number from {FIRST_OFFSET} to {2**32 - 1}")
    try:
        file_number(file)
    except UnsupportedFormatError as error:
        raise ValueError(str(error)) from None
    return StartAt(file, offset)
