"""Record batches, magic 2 (KIP-98): their headers, and which batches a reader may see.

A batch on the wire, big-endian: base offset 8, length of the rest 4, leader epoch 4, magic 1, CRC-32C 4 (of all that
follows), attributes 2, last offset delta 4, base timestamp 8, max timestamp 8, producer id 8, producer epoch 2, base
sequence 4, record count 4, records.

Everything here reads untrusted bytes in compiled code without bounds checks of its own: each read is checked first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyspark_aligned_kafka.errors import place
from watermark_source.errors import CorruptDataError, SourceError, UnsupportedFormatError
from watermark_source.machine_code.native import (
    HAS_CRC32C,
    Word,
    address_of,
    byte_at,
    byte_tables,
    compiled,
    copy_bytes,
    crc32c_u64,
    inlined,
    word_at,
)
from watermark_source.machine_code.worded import Worded
from watermark_source.planning.split import Split, SplitRange

# CRC-32C (Castagnoli, RFC 3720 B.4) of a stretch of bytes, callable from compiled code.
#
# With SSE 4.2 three streams are folded at once and joined by tables of what trailing zeros do to a CRC, because one
# stream waits for the instruction's latency; elsewhere eight tables take eight bytes a step. (Both after Mark Adler's
# crc32c.c.)


_POLYNOMIAL = 0x82F63B78
_LONG, _SHORT = 2048, 256
_TABLE = byte_tables(_POLYNOMIAL, 8)


def _zeros_tables(size: int) -> npt.NDArray[np.uint32]:
    """Row k: what ``size`` (a power of two) zero bytes make of a CRC whose byte k has that value."""
    values = np.arange(256, dtype=np.uint32)
    rows = np.stack([values << np.uint32(8 * k) for k in range(4)])
    rows = (rows >> 8) ^ _TABLE[0][rows & 0xFF]
    for _ in range(size.bit_length() - 1):
        rows = rows[0][rows & 0xFF] ^ rows[1][rows >> 8 & 0xFF] ^ rows[2][rows >> 16 & 0xFF] ^ rows[3][rows >> 24]
    return np.asarray(rows, np.uint32)


_LONG_ZEROS = _zeros_tables(_LONG)
_SHORT_ZEROS = _zeros_tables(_SHORT)


@inlined
def _shift(zeros: Word, crc: Word) -> Word:
    return np.uint64(
        zeros[0, crc & 0xFF] ^ zeros[1, (crc >> 8) & 0xFF] ^ zeros[2, (crc >> 16) & 0xFF] ^ zeros[3, (crc >> 24) & 0xFF]
    )


@inlined
def _three_streams(  # noqa: PLR0917 - a loop's variables
    crc: Word, data: Word, start: Word, stop: Word, size: Word, zeros: Word
) -> tuple[Word, Word]:
    at = start
    while stop - at >= 3 * size:
        second = np.uint64(0)
        third = np.uint64(0)
        until = at + size
        while at < until:
            crc = crc32c_u64(crc, word_at(data, at))
            second = crc32c_u64(second, word_at(data, at + size))
            third = crc32c_u64(third, word_at(data, at + 2 * size))
            at += 8
        crc = _shift(zeros, crc) ^ second
        crc = _shift(zeros, crc) ^ third
        at += 2 * size
    return crc, at


@inlined
def _by_instruction(data: Word, start: Word, stop: Word) -> tuple[Word, Word]:
    crc, at = _three_streams(np.uint64(0xFFFFFFFF), data, start, stop, _LONG, _LONG_ZEROS)
    crc, at = _three_streams(crc, data, at, stop, _SHORT, _SHORT_ZEROS)
    while stop - at >= 8:
        crc = crc32c_u64(crc, word_at(data, at))
        at += 8
    return crc, at


@inlined
def by_tables(data: Word, start: Word, stop: Word) -> tuple[Word, Word]:
    """CRC so far (inverted) and position, of whole eights of bytes, on any processor."""
    crc = np.uint64(0xFFFFFFFF)
    at = start
    while stop - at >= 8:
        word = word_at(data, at) ^ crc
        folded = np.uint32(0)
        for k in range(8):
            folded ^= _TABLE[7 - k, (word >> np.uint64(8 * k)) & np.uint64(0xFF)]
        crc = np.uint64(folded)
        at += 8
    return crc, at


@inlined
def finish(crc: Word, data: Word, at: Word, stop: Word) -> Word:
    """Take the last bytes, one by one, and return the sum as an ``int64``."""
    while at < stop:
        crc = np.uint64(_TABLE[0, (crc ^ np.uint64(byte_at(data, at))) & np.uint64(0xFF)]) ^ (crc >> np.uint64(8))
        at += 1
    return np.int64(crc ^ np.uint64(0xFFFFFFFF))


@inlined
def checksum(data: Word, start: Word, stop: Word) -> Word:
    """CRC-32C of the bytes ``start`` to ``stop`` behind the address ``data``, as an ``int64``."""
    if HAS_CRC32C:
        crc, at = _by_instruction(data, start, stop)
    else:
        crc, at = by_tables(data, start, stop)
    return finish(crc, data, at, stop)


# Faults of record batches, and their errors.


class Fault(Worded):
    """What is wrong with bytes; ``NONE`` if nothing is."""

    NONE = 0
    OLD_MAGIC = 1
    MAGIC = 2, "a batch of an unknown format (magic byte)"
    LENGTH = 3, "an impossible batch length"
    ORDER = 4, "batches whose offsets do not ascend"
    CRC = 5, "a checksum (CRC-32C) that does not fit the batch"
    COUNT = 6, "an impossible record count"
    MARKER = 7, "a transaction marker that cannot be read"
    VARINT = 8, "a number that does not end"
    RECORD_LENGTH = 9, "a record longer than its batch"
    OFFSET = 10, "record offsets that do not ascend within their batch"
    FIELD = 11, "a key or value longer than its record"
    TIMESTAMP = 12, "a timestamp that does not fit 64 bits of microseconds"
    REMAINDER = 13, "bytes after the last record"
    HEADERS = 14, "headers that do not fit their record"


def fault_error(fault: Fault, split: Split, offset: int) -> SourceError:
    """Return the error for a fault found at (or in the batch beginning at) ``offset``."""
    where = place(split, offset)
    if fault is Fault.OLD_MAGIC:
        return UnsupportedFormatError(
            f"{where}: records in format 0 or 1 (before Kafka 0.11); only format 2 is read. "
            "Copy the topic with a current producer"
        )
    if fault is Fault.TIMESTAMP:
        return UnsupportedFormatError(
            f"{where}: {fault.text}, as Spark keeps it; was it written in micro- or nanoseconds? "
            "Kafka's timestamps are milliseconds. Where event time is in the payload (eventTimeColumn), leave "
            "timestamp out of the option columns; otherwise begin after it, with startingOffsets and a new checkpoint"
        )
    return CorruptDataError(
        f"{where}: {fault.text}; the data on the broker or on its way is damaged. "
        "Check the broker's disk and log (kafka-dump-log)"
    )


Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

HEADER_SIZE = 61
_BEFORE_LENGTH_ENDS = 12
_MAGIC = 16
_CRC_TO_RECORDS = 44
_CHECKED_TO_RECORDS = 40

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20

SMALLEST_RECORD = 7
"""Bytes of a record with all lengths, deltas and counts in one byte and neither key nor value."""

_NOT_BEGUN, _RUNNING, _ENDED = range(3)

# Columns of a table of frames, one row a batch.
START, STOP, BASE, LAST, ATTRIBUTES, COUNT, BASE_TIME, MAX_TIME, PRODUCER = range(9)
FRAME_FIELDS = 9
_FRAME_BYTES = 8 * FRAME_FIELDS


class Survey(NamedTuple):
    """What the headers of the complete batches in a stretch of bytes say; no checksum has been looked at."""

    batches: int
    next_offset: int | None
    """The offset after the last complete batch; ``None`` without one."""
    later: int | None = None
    """The epoch of the batch at which the walk ended because it is a later one."""


@inlined
def int16_at(data: Word, at: Word) -> Word:
    """Big-endian, at the address ``data + at``; like its siblings without a bounds check."""
    return np.int64(np.int16(byte_at(data, at) << 8 | byte_at(data, at + 1)))


@inlined
def int32_at(data: Word, at: Word) -> Word:
    """See ``int16_at``."""
    high = byte_at(data, at) << 24 | byte_at(data, at + 1) << 16
    return np.int64(np.int32(high | byte_at(data, at + 2) << 8 | byte_at(data, at + 3)))


@inlined
def int64_at(data: Word, at: Word) -> Word:
    """See ``int16_at``."""
    return int32_at(data, at) << 32 | (int32_at(data, at + 4) & 0xFFFFFFFF)


@inlined
def varint_at(data: Word, at: Word, stop: Word) -> tuple[Word, Word]:
    """Zigzag varint of up to 64 bits: its value and the position after it; position -1 if it does not end in time."""
    if stop - at >= 3:
        # Nearly all are of one to three bytes: no loop, no 64-bit shifts by a variable.
        first = byte_at(data, at)
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), at + 1
        second = byte_at(data, at + 1)
        if second < 0x80:
            pair = (first & 0x7F) | (second << 7)
            return (pair >> 1) ^ -(pair & 1), at + 2
        third = byte_at(data, at + 2)
        if third < 0x80:
            triple = (first & 0x7F) | ((second & 0x7F) << 7) | (third << 14)
            return (triple >> 1) ^ -(triple & 1), at + 3
    bits = np.uint64(0)
    shift = 0
    while at < stop and shift < 64:
        byte = byte_at(data, at)
        at += 1
        if shift == 63 and byte > 1:
            break
        bits |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            return np.int64(bits >> np.uint64(1)) ^ -np.int64(bits & np.uint64(1)), at
        shift += 7
    return np.int64(0), np.int64(-1)


@compiled("Tuple((int64, int64, int64, int64))(uint8[::1], int64, int64, int64, int64)")
def _survey(  # noqa: PLR0911 - each of the faults ends the walk
    array: Word, start: Word, stop: Word, newest: Word, end: Word
) -> tuple[Word, Word, Word, Word]:
    """Walk the batch headers: ``(fault, batches, offset after the last one or at the fault, later epoch or -1)``."""
    at = start
    batches = 0
    expected = np.int64(-1)
    data = address_of(array)
    while stop - at >= HEADER_SIZE:
        base = int64_at(data, at)
        size = _BEFORE_LENGTH_ENDS + int32_at(data, at + 8)
        magic = byte_at(data, at + _MAGIC)
        if magic < 2:
            return np.int64(Fault.OLD_MAGIC), batches, base, np.int64(-1)
        if magic > 2:
            return np.int64(Fault.MAGIC), batches, base, np.int64(-1)
        if size < HEADER_SIZE:
            return np.int64(Fault.LENGTH), batches, base, np.int64(-1)
        if size > stop - at:
            break
        delta = int32_at(data, at + 23)
        if base < 0 or delta < 0 or base > np.int64(0x7FFFFFFFFFFFFFFE) - delta or base < expected:
            return np.int64(Fault.ORDER), batches, base, np.int64(-1)
        epoch = int32_at(data, at + 12)
        if epoch > newest and base < end:
            return np.int64(Fault.NONE), batches, expected, epoch
        expected = base + delta + 1
        batches += 1
        at += size
    if batches == 0 and stop - at > _MAGIC and byte_at(data, at + _MAGIC) < 2:
        # Old messages can be shorter than a header of today.
        return np.int64(Fault.OLD_MAGIC), batches, int64_at(data, at), np.int64(-1)
    return np.int64(Fault.NONE), batches, expected, np.int64(-1)


@compiled("void(uint8[::1], int64, int64[:, ::1])")
def _tabulate(array: Word, start: Word, frames: Word) -> None:
    """Fill one row a batch; the stretch has been surveyed and holds that many."""
    data = address_of(array)
    at = start
    for i in range(frames.shape[0]):
        size = _BEFORE_LENGTH_ENDS + int32_at(data, at + 8)
        base = int64_at(data, at)
        frames[i, START] = at + HEADER_SIZE
        frames[i, STOP] = at + size
        frames[i, BASE] = base
        frames[i, LAST] = base + int32_at(data, at + 23)
        frames[i, ATTRIBUTES] = int16_at(data, at + 21)
        frames[i, COUNT] = int32_at(data, at + 57)
        frames[i, BASE_TIME] = int64_at(data, at + 27)
        frames[i, MAX_TIME] = int64_at(data, at + 35)
        frames[i, PRODUCER] = int64_at(data, at + 43)
        at += size


@inlined
def _is_abort(data: Word, start: Word, stop: Word) -> tuple[Word, Word]:
    """Read a control record's key (version 2, type 2): ``(readable, abort)``."""
    at = start
    _, at = varint_at(data, at, stop)
    if at < 0 or at >= stop:
        return False, False
    at += 1
    for _ in range(2):
        _, at = varint_at(data, at, stop)
        if at < 0:
            return False, False
    size, at = varint_at(data, at, stop)
    if at < 0 or size < 4 or size > stop - at:
        return False, False
    return True, int16_at(data, at + 2) == 0


@compiled("Tuple((int64, int64))(uint8[::1], int64[:, ::1], int64, int64, int64[::1], int64[::1], uint8[::1], boolean)")
def _select(  # noqa: PLR0912, PLR0917 - one pass over the batches, arrays in, arrays out
    array: Word,
    frames: Word,
    first: Word,
    end: Word,
    producers: Word,
    begins: Word,
    state: Word,
    check: Word,
) -> tuple[Word, Word]:
    """Check the batches that hold offsets of ``[first, end)`` and move those with visible rows to the front.

    ``producers`` and ``begins`` are the aborted transactions as the broker lists them, by first offset. ``state`` has a
    byte for each. Returns ``(fault, rows kept)``, or the row at fault.
    """
    data, table = address_of(array), address_of(frames)
    kept = begun = 0
    for i in range(frames.shape[0]):
        if frames[i, LAST] < first:
            continue
        if frames[i, BASE] >= end:
            break
        start, stop, attributes, count = frames[i, START], frames[i, STOP], frames[i, ATTRIBUTES], frames[i, COUNT]
        stored = int32_at(data, start - _CRC_TO_RECORDS) & 0xFFFFFFFF
        if check and checksum(data, start - _CHECKED_TO_RECORDS, stop) != stored:
            return np.int64(Fault.CRC), i
        if count < 0 or count > frames[i, LAST] - frames[i, BASE] + 1:
            return np.int64(Fault.COUNT), i
        while begun < begins.shape[0] and begins[begun] <= frames[i, LAST]:
            state[begun] = _RUNNING
            begun += 1
        running: Word = np.int64(-1)
        if attributes & _TRANSACTIONAL:
            for k in range(begun):
                if state[k] == _RUNNING and producers[k] == frames[i, PRODUCER]:
                    running = k
                    break
        if attributes & _CONTROL:
            if count > 0:
                readable, abort = _is_abort(data, start, stop)
                if not readable or attributes & CODEC_MASK:
                    return np.int64(Fault.MARKER), i
                if abort and running >= 0:
                    state[running] = _ENDED
        elif count > 0 and running < 0:
            if kept < i:
                copy_bytes(table + kept * _FRAME_BYTES, table + i * _FRAME_BYTES, _FRAME_BYTES)
            kept += 1
    return np.int64(Fault.NONE), kept


def survey(split: Split, data: Bytes, start: int, stop: int, *, newest: int | None = None, before: int = 0) -> Survey:
    """Walk the batch headers in ``data[start:stop]``; an incomplete last batch is normal and left out.

    With ``newest`` the walk ends at a batch of a later epoch that begins before an offset.

    Raises:
        UnsupportedFormatError: a batch of magic 0 or 1.
        CorruptDataError: a header that cannot be.
    """
    fault, batches, offset, later = _survey(data, start, stop, _ANY_EPOCH if newest is None else newest, before)
    if fault:
        raise fault_error(Fault(fault), split, offset)
    return Survey(batches, offset if batches else None, None if later < 0 else later)


def visible_frames(
    wanted: SplitRange, data: Bytes, start: int, batches: int, aborted: Longs | None, *, check_crcs: bool
) -> Longs:
    """Return one row for each batch with rows of the range to deliver, checksums verified.

    ``aborted`` (2, n) has producer ids and first offsets, as a broker lists them for a reader of committed data;
    ``None`` delivers aborted rows as well. Control batches are never delivered.

    Raises:
        CorruptDataError: a batch with a wrong checksum, an impossible record count or an unreadable transaction marker.
    """
    frames = np.empty((batches, FRAME_FIELDS), np.int64)
    _tabulate(data, start, frames)
    if aborted is None:
        aborted = _NONE_ABORTED
    state = np.full(aborted.shape[1], _NOT_BEGUN, np.uint8)
    fault, rows = _select(data, frames, wanted.start, wanted.end, aborted[0], aborted[1], state, check_crcs)
    if fault:
        raise fault_error(Fault(fault), wanted.split, int(frames[rows, BASE]))
    return frames[:rows]


_ANY_EPOCH = 2**31 - 1
_NONE_ABORTED: Longs = np.empty((2, 0), np.int64)
