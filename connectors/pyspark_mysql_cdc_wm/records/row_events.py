"""Row events of one table: where each value lies, as arrays, one compiled pass.

A body, little-endian: table id 6, flags 2, in version 2 the size of extra data (2, itself included) and the data,
column count (length-encoded), a bitmap of the columns present (an update: one for the row before, one for the row
after), then rows: a bitmap of nulls over the present columns and the values of the others. An update has two row
images for a row. Bitmaps begin at the lowest bit. A partial update's image after begins with options
(length-encoded); with the first of them, by a bitmap of the JSON columns that are logged as differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyspark_mysql_cdc_wm.binlog.event_headers import HEADER_SIZE, POSITION, START, STOP, TYPE, EventType
from pyspark_mysql_cdc_wm.binlog.wire import (
    Bytes,
    Fault,
    Ints,
    Longs,
    absent_error,
    fault_error,
    lenenc_at,
    uint16_at,
    uint_at,
)
from watermark_source.errors import UnsupportedFormatError
from watermark_source.machine_code.native import Word, address_of, byte_at, compiled, inlined

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""What a row image is, as ``RowKind`` of the table's changelog."""

# A cursor: which event, and where in it (0: at its beginning).
_EVENT, _AT = range(2)

_PARTIAL = int(EventType.PARTIAL_UPDATE_ROWS)
_PARTIAL_DOCUMENTS = 1
_UPDATES = (int(EventType.UPDATE_ROWS), int(EventType.UPDATE_ROWS_V1))
_DELETES = (int(EventType.DELETE_ROWS), int(EventType.DELETE_ROWS_V1))
_FIRST_V2 = int(EventType.WRITE_ROWS)

# Places are kept in 32 bits.
_LARGEST = 2**31 - 1

_NULL = -1
_ABSENT = -2


@inlined
def _head(data: Word, start: Word, stop: Word, second_version: Word) -> tuple[Word, Word]:
    """Column count, and the position after it; -1 if the head does not fit."""
    at = start + 8
    if second_version:
        if stop - at < 2:
            return np.int64(0), np.int64(-1)
        size = uint16_at(data, at)
        if size < 2 or size > stop - at:
            return np.int64(0), np.int64(-1)
        at += size
    if at > stop:
        return np.int64(0), np.int64(-1)
    count, at = lenenc_at(data, at, stop)
    return count, at


@inlined
def _image(  # noqa: PLR0912, PLR0917 - one pass over the columns is the point of it
    data: Word,
    at: Word,
    stop: Word,
    present: Word,
    complete: Word,
    partial: Word,
    widths: Word,
    documents: Word,
    slots: Word,
    row: Word,
    starts: Word,
    sizes: Word,
    diffs: Word,
) -> Word:
    """Locate the values of one row image; the position after it, or a fault as a negative number.

    ``partial`` is the offset of the bitmap of ``documents`` logged as differences, 0 for none.
    """
    count = widths.shape[0]
    here = count
    if not complete:
        here = 0
        for c in range(count):
            here += (byte_at(data, present + (c >> 3)) >> (c & 7)) & 1
    nulls = at
    at += (here + 7) >> 3
    if at > stop:
        return np.int64(-Fault.VALUE)
    bit = np.int64(0)
    document = np.int64(0)
    for c in range(count):
        slot = slots[c]
        if documents[c]:
            if slot >= 0:
                diffs[slot, row] = partial and (byte_at(data, partial + (document >> 3)) >> (document & 7)) & 1
            document += 1
        if not complete and not (byte_at(data, present + (c >> 3)) >> (c & 7)) & 1:
            if slot >= 0:
                starts[slot, row] = _ABSENT
            continue
        if (byte_at(data, nulls + (bit >> 3)) >> (bit & 7)) & 1:
            bit += 1
            if slot >= 0:
                starts[slot, row] = _NULL
                sizes[slot, row] = 0
            continue
        bit += 1
        width = widths[c]
        size = width
        if width < 0:
            if stop - at < -width:
                return np.int64(-Fault.VALUE)
            size = uint_at(data, at, -width)
            at -= width
        if size > stop - at:
            return np.int64(-Fault.VALUE)
        if slot >= 0:
            starts[slot, row] = at
            sizes[slot, row] = size
        at += size
    return at


@inlined
def _all_present(data: Word, at: Word, count: Word) -> Word:
    for i in range(count >> 3):
        if byte_at(data, at + i) != 0xFF:
            return False
    rest = count & 7
    if rest == 0:
        return True
    mask = (1 << rest) - 1
    return byte_at(data, at + (count >> 3)) & mask == mask


@compiled(
    "Tuple((int64, int64))(uint8[::1], int64[:, ::1], int64[::1], int64[::1], uint8[::1], int64[::1],"
    " int32[:, ::1], int32[:, ::1], uint8[:, ::1], int32[:, ::1])"
)
def _locate(  # noqa: PLR0912, PLR0915, PLR0917 - one pass over the rows is the point of it
    array: Word,
    events: Word,
    cursor: Word,
    widths: Word,
    documents: Word,
    slots: Word,
    starts: Word,
    sizes: Word,
    diffs: Word,
    images: Word,
) -> tuple[Word, Word]:
    """Locate row images from the cursor on until the arrays or the events are used up: ``(fault, images)``."""
    data = address_of(array)
    count = widths.shape[0]
    rows = 0
    capacity = starts.shape[1]
    event, at = cursor[_EVENT], cursor[_AT]
    fault = np.int64(Fault.NONE)
    full = False
    while event < events.shape[0] and not full and fault == 0:
        kind = events[event, TYPE]
        stop = events[event, STOP]
        update = kind == _UPDATES[0] or kind == _UPDATES[1] or kind == _PARTIAL
        delete = kind == _DELETES[0] or kind == _DELETES[1]
        found, present = _head(data, events[event, START] + HEADER_SIZE, stop, kind >= _FIRST_V2)
        if present < 0:
            fault = np.int64(Fault.ROWS_HEADER)
            break
        if found != count:
            fault = np.int64(Fault.WIDTH)
            break
        bitmap = (count + 7) >> 3
        body = present + (2 * bitmap if update else bitmap)
        if body > stop:
            fault = np.int64(Fault.ROWS_HEADER)
            break
        complete = _all_present(data, present, count)
        complete_after = complete
        if update:
            complete_after = _all_present(data, present + bitmap, count)
        # An INSERT of default values with binlog_row_image = MINIMAL: its row has no bytes.
        if body == stop and not complete:
            fault = np.int64(Fault.NO_COLUMN)
            break
        if at == 0:
            at = body
        first_kind = np.int64(INSERT)
        if update:
            first_kind = np.int64(UPDATE_BEFORE)
        elif delete:
            first_kind = np.int64(DELETE)
        while at < stop:
            # Both images of an update come in one batch.
            if rows + 2 > capacity:
                full = True
                break
            here = _image(
                data, at, stop, present, complete, np.int64(0), widths, documents, slots, rows, starts, sizes, diffs
            )
            if here <= at:
                fault = -here if here < 0 else np.int64(Fault.VALUE)
                break
            images[0, rows], images[1, rows] = first_kind, event
            rows += 1
            if update:
                partial = np.int64(0)
                if kind == _PARTIAL:
                    options, here = lenenc_at(data, here, stop)
                    if here < 0 or options & ~_PARTIAL_DOCUMENTS:
                        fault = np.int64(Fault.VALUE if here < 0 else Fault.ROW_OPTIONS)
                        break
                    if options:
                        partial = here
                        here += (documents.sum() + 7) >> 3
                here = _image(
                    data, here, stop, present + bitmap, complete_after, partial, widths, documents, slots, rows, starts,
                    sizes, diffs,
                )  # fmt: skip
                if here < 0:
                    fault = -here
                    break
                images[0, rows], images[1, rows] = UPDATE_AFTER, event
                rows += 1
            at = here
        if not full and fault == 0:
            event += 1
            at = np.int64(0)
    cursor[_EVENT], cursor[_AT] = event, at
    return fault, rows


class Located(NamedTuple):
    """Values of ``rows`` row images in the bytes they were found in; the arrays are reused by the next call."""

    rows: int
    starts: Ints
    """One row a wanted column: where each value begins; negative for null."""
    sizes: Ints
    """One row a wanted column: bytes of each value, 0 for null."""
    diffs: npt.NDArray[np.uint8]
    """One row a wanted column: 1 where a JSON value is logged as differences to the image before."""
    images: npt.NDArray[np.int32]
    """Two rows: what the image is (``INSERT`` …), and which of the events it is from."""


class RowLocator:
    """Locates row images of one table, at most ``capacity`` at once."""

    __slots__ = ("_columns", "_found", "_names")

    def __init__(
        self,
        widths: Longs,
        documents: npt.NDArray[np.bool_],
        slots: Longs,
        *,
        names: Sequence[str],
        capacity: int,
    ) -> None:
        """Take each column's width, whether it is of JSON, and the row of the result it gets, or -1.

        A width is the bytes of each value or, negative, those of the length before each. ``names`` are those of the
        columns that get a row of the result, in its order.
        """
        self._names = tuple(names)
        self._columns = widths, documents.astype(np.uint8), slots
        shape = len(self._names), max(capacity, 2)
        self._found = (
            np.empty(shape, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.uint8),
            np.empty((2, shape[1]), np.int32),
        )

    def located(self, data: Bytes, events: Longs, where: str) -> Iterator[Located]:
        """Yield the row images of ``events``, all row events of the table.

        Raises:
            CorruptDataError: a row that cannot be.
            UnsupportedFormatError: rows that lack columns, or have options that are not known.
        """
        if data.size > _LARGEST:
            raise UnsupportedFormatError(f"{where}: {data.size} bytes of events at once; at most {_LARGEST} are read")
        starts, sizes, diffs, images = self._found
        cursor = np.zeros(2, np.int64)
        while cursor[_EVENT] < len(events):
            fault, rows = _locate(data, events, cursor, *self._columns, *self._found)
            absent = (starts[:, :rows] == _ABSENT).any(axis=1)
            if fault or absent.any():
                at = f"{where} position {events[min(int(cursor[_EVENT]), len(events) - 1), POSITION]}"
                if fault:
                    raise fault_error(Fault(fault), at)
                raise absent_error([name for name, lacks in zip(self._names, absent, strict=True) if lacks], at)
            if rows:
                yield Located(rows, starts[:, :rows], sizes[:, :rows], diffs[:, :rows], images[:, :rows])
