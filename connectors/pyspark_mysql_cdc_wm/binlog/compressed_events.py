"""Decompression of events that MariaDB compresses one by one (``log_bin_compress``).

A compressed row event (types 166 to 171) has compressed rows behind plain fields about columns; a compressed QUERY
(165) has a compressed statement. Compressed data is a byte of 0x80 plus the width of the size, the uncompressed size
(big-endian), then zlib data (log_event.cc, ``binlog_buf_uncompress``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from pyspark_mysql_cdc_wm.binlog.byte_reader import Scan
from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs, padded
from watermark_source.errors import CorruptDataError, UnsupportedFormatError

_FIRST = 165
_STAND_FOR = (
    EventType.QUERY,
    EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_V1,
    EventType.WRITE_ROWS,
    EventType.UPDATE_ROWS,
    EventType.DELETE_ROWS,
)
"""The uncompressed types, by the number of the compressed type minus ``_FIRST``."""
_UPDATES = (EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS)
_FIRST_V2 = EventType.WRITE_ROWS
# Of QUERY: thread 4, seconds 4, then the size of the database's name, error 2, size of the variables 2.
_NAME_SIZE, _VARIABLES_SIZE, _QUERY_HEAD = 8, 11, 13
_TABLE_AND_FLAGS = 8
_SIZED, _ALGORITHM, _WIDTH = 0x80, 0x70, 0x07
_PIECE_BYTES = 4 * 1024 * 1024


def uncompressed(
    memory: Bytes, events: Longs, file: str, *, piece_bytes: int = _PIECE_BYTES, largest_event: int = 1 << 30
) -> Iterator[tuple[Bytes, Longs]]:
    """Yield memory and events with compressed events decompressed, about ``piece_bytes`` at once.

    A block without compressed events is yielded unchanged.

    Raises:
        CorruptDataError: an event cannot be decompressed.
        UnsupportedFormatError: the compression is not known, or an event is too large.
    """
    kinds = events[:, TYPE]
    if not ((kinds >= _FIRST) & (kinds < _FIRST + len(_STAND_FOR))).any():
        yield memory, events
        return
    made, parts, size, first = events.copy(), [], 0, 0
    for i, kind in enumerate(kinds.tolist()):
        content = memory[events[i, START] : events[i, STOP]].tobytes()
        if _FIRST <= kind < _FIRST + len(_STAND_FOR):
            stands_for = _STAND_FOR[kind - _FIRST]
            content = _event(content, stands_for, largest_event, f"binlog {file} position {events[i, POSITION]}")
            made[i, TYPE] = stands_for
        made[i, START], made[i, STOP] = size, size + len(content)
        parts.append(content)
        size += len(content)
        if size >= piece_bytes:
            yield padded(b"".join(parts)), made[first : i + 1]
            parts, size, first = [], 0, i + 1
    if parts:
        yield padded(b"".join(parts)), np.ascontiguousarray(made[first:])


def _event(content: bytes, stands_for: EventType, largest: int, where: str) -> bytes:
    try:
        begin = _query_head(content) if stands_for is EventType.QUERY else _rows_head(content, stands_for)
        form = content[begin]
        width = form & _WIDTH
        if not form & _SIZED or not 1 <= width <= 4:
            raise ValueError(f"its size has the form {form}")
        size = int.from_bytes(content[begin + 1 : begin + 1 + width], "big")
    except (IndexError, ValueError) as problem:
        raise CorruptDataError(f"{where}: a compressed event that cannot be read: {problem}") from problem
    if form & _ALGORITHM:
        raise UnsupportedFormatError(
            f"{where}: an event of compression {(form & _ALGORITHM) >> 4}; accepted is 0, zlib"
        )
    if size > largest:
        raise UnsupportedFormatError(f"{where}: an event of {size} bytes; the limit is {largest}")
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(content[begin + 1 + width :], size + 1)
    except zlib.error as problem:
        raise CorruptDataError(f"{where}: an event that cannot be decompressed ({problem})") from problem
    if len(unpacked) != size or not unpacker.eof:
        raise CorruptDataError(f"{where}: a compressed event whose size differs from its header")
    return content[:4] + bytes((stands_for,)) + content[5:begin] + unpacked


def _query_head(content: bytes) -> int:
    variables = int.from_bytes(content[HEADER_SIZE + _VARIABLES_SIZE : HEADER_SIZE + _QUERY_HEAD], "little")
    return HEADER_SIZE + _QUERY_HEAD + variables + content[HEADER_SIZE + _NAME_SIZE] + 1


def _rows_head(content: bytes, stands_for: EventType) -> int:
    scan = Scan(content)
    scan.skip(HEADER_SIZE + _TABLE_AND_FLAGS)
    if stands_for >= _FIRST_V2:
        extra = scan.uint(2)
        if extra < 2:
            raise ValueError(f"extra data of {extra} bytes")
        scan.skip(extra - 2)
    bitmap = (scan.lenenc() + 7) // 8
    scan.skip(2 * bitmap if stands_for in _UPDATES else bitmap)
    return scan.at
