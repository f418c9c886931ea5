"""The ids of values' schemas, in a header or before the value: Confluent's wire format, a zero byte and four bytes."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from pyspark_aligned_kafka.records.record_batches import Bytes, Longs
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined

PREFIX = 5
"""Bytes before the value."""
NOT_FRAMED = -1
"""Stands for the id of a null, or of bytes in another format."""
_GUID, _GUID_BYTES = 1, 16
"""The first byte of a header with a GUID, and the bytes behind it."""
_IN_HEADER = -2
"""Stands for the id where there is a GUID."""
_FIRST_GUID = 1 << 32
"""GUIDs have numbers behind all ids."""


@inlined
def framed_id(data: Word, at: Word, stop: Word) -> Word:
    """Return the id before a value, ``NOT_FRAMED`` for other bytes, and if ``stop`` is before ``at``, as of a null."""
    if stop - at < PREFIX or byte_at(data, at) != 0:
        return np.int64(NOT_FRAMED)
    number = np.int64(0)
    for i in range(1, PREFIX):
        number = number << 8 | byte_at(data, at + i)
    return number


@compiled("void(uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1])")
def _read_ids(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, starts: Word, lengths: Word, header_starts: Word, header_sizes: Word, found: Word
) -> None:
    data = address_of(array)
    for row in range(starts.shape[0]):
        number, start, size = np.int64(NOT_FRAMED), starts[row], lengths[row]
        at = rest = start
        if size >= 0 and header_sizes[row] >= 0:
            at = header_starts[row]
            rest = at + header_sizes[row]
            number = framed_id(data, at, rest)
            if number != NOT_FRAMED:
                at += PREFIX
            elif rest - at > _GUID_BYTES and byte_at(data, at) == _GUID:
                number, at = np.int64(_IN_HEADER), at + 1 + _GUID_BYTES
        elif size >= 0:
            number = framed_id(data, start, start + size)
            if number != NOT_FRAMED:
                start, size, at = start + PREFIX, size - PREFIX, at + PREFIX
                rest = start + size
        found[0, row], found[1, row], found[2, row] = number, start, size
        found[3, row], found[4, row] = at, rest


class Ids(NamedTuple):
    """Values and the numbers of their schemas."""

    numbers: Longs
    """``NOT_FRAMED`` for a null, and for a value without an id."""
    starts: Longs
    lengths: Longs
    """Of the values behind the ids."""
    at: Longs
    stop: Longs
    """What is behind each id: the value, or the rest of the header."""

    @property
    def without(self) -> npt.NDArray[np.bool_]:
        """The values that have no id, nulls aside."""
        found: npt.NDArray[np.bool_] = (self.numbers == NOT_FRAMED) & (self.lengths >= 0)
        return found


class IdReader:
    """Finds the ids of values' schemas: in a header where there is one, as Confluent's deserializers, or before the
    value."""

    def __init__(self) -> None:
        self._guids: dict[bytes, int] = {}

    def read(self, data: Bytes, starts: Longs, lengths: Longs, header: tuple[Longs, Longs] | None) -> Ids:
        """Return the values without the ids; ``header`` is where the header of each record is, with its size, below
        zero without one."""
        rows = len(starts)
        at, sizes = (starts, np.full(rows, -1, np.int64)) if header is None else header
        found = np.empty((5, rows), np.int64)
        _read_ids(data, starts, lengths, at, sizes, found)
        numbers = found[0]
        if header is not None and len(places := np.flatnonzero(numbers == _IN_HEADER)):
            ends = found[3][places]
            contents = data[ends[:, None] - np.arange(_GUID_BYTES, 0, -1)].view(f"V{_GUID_BYTES}")[:, 0]
            each, of = np.unique(contents, return_inverse=True)
            known = [self._guids.setdefault(guid.tobytes(), _FIRST_GUID + len(self._guids)) for guid in each]
            numbers[places] = np.array(known, np.int64)[of]
        return Ids(*found)

    def name(self, number: int) -> int | UUID:
        """Return the id or the GUID that has a number."""
        if number < _FIRST_GUID:
            return number
        return UUID(bytes=list(self._guids)[number - _FIRST_GUID])
