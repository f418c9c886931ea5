"""Any bytes as record batches: rows that are what the bytes say, or a declared error.

An input: a head of eleven bytes that chooses how to read, then record batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numba
import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.options.kafka_option_table import KAFKA_COLUMNS
from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.record_batches import CODEC_MASK, HEADER_SIZE, Bytes, Longs, survey
from services.kafka_record_batch import CODECS, compressed
from tests.soak.fuzz.memory import guarded
from tests.unit.kafka.batches import crc32c
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import SourceError
from watermark_source.planning.split import Split, SplitRange

HEAD = struct.Struct(">BBHBHHh")
_SEALED, _PACKED, _CHECKED, _COMMITTED = 1, 2, 4, 8
_SPLIT = Split("orders", 3)
_DECOMPRESSED_LIMIT = 1 << 14
_ARENA = 1 << 20
"""More than the batches of an input can become, and less than where the decoder begins again."""
_FILLS = (0,) if numba.config.DISABLE_JIT else (0, 0xFF)  # type: ignore[attr-defined]
_CODEC_NAMES = {number: name for name, number in CODECS.items()}


def check(data: bytes) -> str:
    """Decode an input; return what came out of it. Anything but rows and declared errors is raised."""
    head, body = data[: HEAD.size].ljust(HEAD.size, b"\0"), data[HEAD.size :]
    flags, rows, row_bytes, wanted_columns, first, size, abort = HEAD.unpack(head)
    if flags & _SEALED:
        body = _sealed(body, pack=bool(flags & _PACKED))
    columns = [name for n, name in enumerate(KAFKA_COLUMNS) if wanted_columns >> n & 1]
    array = guarded(body)
    base = int.from_bytes(body[:8], "big") & (2**62 - 1)
    wanted = SplitRange(_SPLIT, base + first, base + first + size)
    # The producer is the one of the first batch, if it is as long as that.
    aborted = np.array([[int.from_bytes(body[43:51], "big", signed=True)], [base + abort]], np.int64)
    outcomes = {
        outcome(
            array,
            wanted,
            aborted if flags & _COMMITTED else None,
            decoder(columns, 1 + rows, 1 + row_bytes, check_crcs=bool(flags & _CHECKED), fill=fill),
        )
        for fill in _FILLS
    }
    assert len(outcomes) == 1, f"what was left in memory shows: {outcomes}"
    return outcomes.pop()


def decoder(columns: list[str], rows: int, row_bytes: int, *, check_crcs: bool, fill: int) -> RecordDecoder:
    """Return a decoder whose memory for decompressed batches holds some byte all over."""
    made = RecordDecoder(
        columns,
        batch_rows=rows,
        batch_bytes=row_bytes,
        decompressed_limit=_DECOMPRESSED_LIMIT,
        check_crcs=check_crcs,
    )
    made._arena.memory = np.full(_ARENA, fill, np.uint8)
    return made


def outcome(array: Bytes, wanted: SplitRange, aborted: Longs | None, made: RecordDecoder) -> str:
    """Return the rows of a range, or the error there is instead, as text."""
    reported: list[object] = []
    try:
        found = survey(wanted.split, array, 0, array.size)
        reported.append((found.batches, None if found.next_offset is None else int(found.next_offset)))
        for each in made.decode(wanted, array, 0, found.batches, aborted):
            reported += [each.rows, *checked(each, wanted)]
    except SourceError as error:
        reported.append(f"{type(error).__name__}: {error}")
    assert made._arena.memory.size <= _ARENA, "more memory than allowed"
    return repr(reported)


def checked(found: ReadBatch, wanted: SplitRange) -> Iterator[object]:
    """Yield the columns of a batch; each is valid Arrow, as long as the batch, and within the range."""
    for column in (*found.columns, found.event_time):
        column.validate(full=True)
        assert len(column) == found.rows
        yield (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    assert found.event_time.null_count == 0
    assert found.rows <= wanted.size


def _sealed(body: bytes, *, pack: bool) -> bytes:
    """Return batches that pass for whole: right length and checksum; ``pack`` compresses what declares to be so."""
    out = b""
    while len(body) >= HEADER_SIZE:
        length = 12 + int.from_bytes(body[8:12], "big")
        taken = body[:length] if HEADER_SIZE <= length <= len(body) else body
        body = body[len(taken) :]
        codec = taken[22] & CODEC_MASK
        records = taken[HEADER_SIZE:]
        if pack and codec in _CODEC_NAMES:
            records = compressed(records, _CODEC_NAMES[codec])
        under = taken[21:HEADER_SIZE] + records
        out += taken[:8] + struct.pack(">ii", 9 + len(under), 0) + b"\2" + struct.pack(">I", crc32c(under)) + under
    return out + body
