"""One partition's bytes of a fetch response to Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_aligned_kafka.records.columns import TIMESTAMP, binary_column, constant_column, headers_array
from pyspark_aligned_kafka.records.compression import Arena
from pyspark_aligned_kafka.records.event_time_choice import EventTimeChoice, InJson, places_of
from pyspark_aligned_kafka.records.event_times import EventTimes, Records, WatermarkMarks
from pyspark_aligned_kafka.records.payload import Decoded, PayloadChoice
from pyspark_aligned_kafka.records.payload_decoder import PayloadDecoder
from pyspark_aligned_kafka.records.record_batches import (
    ATTRIBUTES,
    BASE,
    CODEC_MASK,
    COUNT,
    LOG_APPEND_TIME,
    START,
    STOP,
    Bytes,
    Longs,
    visible_frames,
)
from pyspark_aligned_kafka.records.record_fields import Located, RowLocator, exhausted, new_cursor
from watermark_source.arrow_columns import allocated, bitmap
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.machine_code.iso_8601 import NO_MOMENT
from watermark_source.planning.split import Split, SplitRange

_ARENA_FILL = 4 * 1024 * 1024


class RecordDecoder:
    """Decodes record batches to columns. Scratch memory is kept from call to call: it serves one read at a time."""

    __slots__ = ("_arena", "_check_crcs", "_columns", "_decoders", "_locator", "_marks", "_times")

    def __init__(
        self,
        columns: Sequence[str],
        *,
        batch_rows: int = 10_000,
        batch_bytes: int = 16 << 20,
        decompressed_limit: int,
        check_crcs: bool = True,
        event_time: EventTimeChoice | None = None,
        marks: EventTimeChoice | None = None,
        payloads: Sequence[PayloadChoice] = (),
    ) -> None:
        """Begin to read for ``columns``.

        ``event_time`` is where it is if not the record's timestamp, ``marks`` where records carry watermarks,
        ``payloads`` how keys and values are decoded to columns behind the others.
        """
        self._times = None if event_time is None else EventTimes(event_time)
        self._marks = None if marks is None else WatermarkMarks(marks)
        looked_at = {*columns, *(field for each in (event_time, marks) if each is not None for field in each.fields)}
        if event_time is None:
            looked_at.add("timestamp")
        looked_at.update(each.field for each in payloads)
        looked_at.update("headers" for each in payloads if each.framed)
        self._locator = RowLocator(looked_at, capacity=batch_rows, byte_limit=batch_bytes)
        self._columns = tuple(columns)
        self._decoders = {each.field: PayloadDecoder(_located(each, event_time)) for each in payloads}
        self._check_crcs = check_crcs
        self._arena = Arena(decompressed_limit)

    def decode(
        self, wanted: SplitRange, data: Bytes, start: int, batches: int, aborted: Longs | None
    ) -> Iterator[ReadBatch]:
        """Yield the rows of a range in the surveyed ``batches`` that begin at ``data[start]``.

        The batches yielded hold no reference to ``data``, but it must stay as it is until the iterator ends.

        Raises:
            CorruptDataError: bytes that fail their own checks.
            UnsupportedFormatError: a codec that does not exist, or a timestamp too large for microseconds in 64 bits
                where it is needed.
            EventTimeError: a record without an event time where the user chose.
            PayloadError: a value that does not fit the user's schema, where that ends the query.
        """
        frames = visible_frames(wanted, data, start, batches, aborted, check_crcs=self._check_crcs)
        for run in _runs(frames):
            if run[0, ATTRIBUTES] & CODEC_MASK:
                for unpacked in self._unpack(wanted.split, data, run):
                    yield from self._rows(wanted, self._arena.memory, unpacked)
            else:
                yield from self._rows(wanted, data, run)

    def _unpack(self, split: Split, data: Bytes, run: Longs) -> Iterator[Longs]:
        """Decompress a few megabytes of batches at a time and point their rows at the result."""
        self._arena.clear()
        done = 0
        for i in range(run.shape[0]):
            start, stop = int(run[i, START]), int(run[i, STOP])
            codec = int(run[i, ATTRIBUTES]) & CODEC_MASK
            run[i, START], run[i, STOP] = self._arena.add(split, int(run[i, BASE]), codec, data[start:stop])
            if self._arena.used >= _ARENA_FILL or i == run.shape[0] - 1:
                yield run[done : i + 1]
                self._arena.clear()
                done = i + 1

    def _rows(self, wanted: SplitRange, data: Bytes, frames: Longs) -> Iterator[ReadBatch]:
        log_append = int(frames[0, ATTRIBUTES] & LOG_APPEND_TIME != 0)
        left = int(frames[:, COUNT].sum())
        cursor = new_cursor()
        while not exhausted(cursor, frames):
            capacity = min(left, self._locator.capacity)
            offsets, offsets_view = allocated(capacity, np.int64)
            micros, micros_view = allocated(capacity, np.int64)
            located = self._locator.locate(wanted, data, frames, cursor, (offsets_view, micros_view))
            left -= located.rows
            if located.rows:
                known = bitmap(micros_view[: located.rows] != NO_MOMENT) if located.timeless else None
                timestamp = pa.Array.from_buffers(TIMESTAMP, located.rows, [known, micros], located.timeless)
                positions = pa.Array.from_buffers(pa.int64(), located.rows, [None, offsets])
                kind = constant_column(log_append, located.rows)
                made = {"offset": positions, "timestamp": timestamp, "timestampType": kind}
                event_time, undated, marks = timestamp, 0, None
                column, decoded = partial(_column, located, made), cache(partial(self._decoded, located))
                records = Records(located, timestamp, column, decoded)
                if self._times is not None:
                    event_time, undated = self._times.of(records)
                if self._marks is not None:
                    marks = self._marks.of(records)
                payloads = [found for field in self._decoders if (found := decoded(field)) is not None]
                columns = (*map(column, self._columns), *(each.column for each in payloads))
                malformed = sum(each.malformed for each in payloads)
                yield ReadBatch(
                    wanted.split, located.rows, columns, event_time,
                    undated=undated, malformed=malformed, positions=positions, marks=marks,
                )  # fmt: skip

    def _decoded(self, located: Located, field: str) -> Decoded | None:
        """Return the decoded keys or values, ``None`` if they are not to be decoded; raises ``PayloadError``."""
        decoder = self._decoders.get(field)
        return None if decoder is None else decoder.decode(located)


_MAKERS: Final[Mapping[str, Callable[[Located], pa.Array]]] = {
    "key": lambda located: binary_column(located.data, located.places("key"), located.key_bytes, located.key_nulls),
    "value": lambda located: binary_column(
        located.data, located.places("value"), located.value_bytes, located.value_nulls
    ),
    "topic": lambda located: constant_column(located.split.log, located.rows),
    "partition": lambda located: constant_column(located.split.number, located.rows),
    "headers": headers_array,
}


def _column(located: Located, made: dict[str, pa.Array], name: str) -> pa.Array:
    """Return a column by its name, of those ``made`` or added to them; raises ``CorruptDataError`` for bad headers."""
    if name not in made:
        made[name] = _MAKERS[name](located)
    return made[name]


def _located(payload: PayloadChoice, event_time: EventTimeChoice | None) -> PayloadChoice:
    """Return how keys or values are decoded, together with the member of theirs that is event time."""
    # Of several places the first is read in each record.
    first = None if event_time is None else places_of(event_time.place)[0]
    return (
        replace(payload, located=first.path) if isinstance(first, InJson) and first.field == payload.field else payload
    )


def _runs(frames: Longs) -> Iterator[Longs]:
    """Cut the frames where compressed and plain batches, or the timestamps' meaning, change."""
    if not frames.shape[0]:
        return
    kind = (frames[:, ATTRIBUTES] & LOG_APPEND_TIME) | (frames[:, ATTRIBUTES] & CODEC_MASK != 0)
    cuts = (np.flatnonzero(np.diff(kind)) + 1).tolist()
    for start, stop in zip([0, *cuts], [*cuts, frames.shape[0]], strict=True):
        yield frames[start:stop]
