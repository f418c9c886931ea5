"""Where the value of one header lies in located records, one compiled pass."""

from __future__ import annotations

import numpy as np

from pyspark_aligned_kafka.errors.corrupt_batches import Fault, fault_error
from pyspark_aligned_kafka.records.headers import header_field
from pyspark_aligned_kafka.records.record_batches import Bytes, Longs, varint_at
from pyspark_aligned_kafka.records.record_fields import HEADERS_AT, RECORD_END, Located
from watermark_source.machine_code.native import Word, address_of, compiled
from watermark_source.machine_code.same_bytes import same_bytes
from watermark_source.planning.split import Split


@compiled("int64(uint8[::1], int64[:, ::1], int64, uint8[::1], int64, int64[::1], int64[::1])")
def _find(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, fields: Word, rows: Word, name: Word, name_size: Word, starts: Word, sizes: Word
) -> Word:
    """Return -1, or the row whose headers do not fit their record."""
    data, wanted = address_of(array), address_of(name)
    for row in range(rows):
        at, stop = fields[HEADERS_AT, row], fields[RECORD_END, row]
        starts[row], sizes[row] = at, -1
        count, at = varint_at(data, at, stop)
        if at < 0 or count < 0:
            return row
        for _ in range(count):
            size, at = header_field(data, at, stop, 0)
            if at < 0:
                return row
            is_it = size == name_size and same_bytes(data, at, wanted, np.int64(0), size)
            size, at = header_field(data, at + size, stop, -1)
            if at < 0:
                return row
            if is_it:
                starts[row], sizes[row] = at, size
            at += max(size, 0)
        if at != stop:
            return row
    return np.int64(-1)


class HeaderScan:
    """Finds one header by its name."""

    __slots__ = ("_name", "_size")

    def __init__(self, name: str) -> None:
        encoded = name.encode()
        self._name, self._size = np.frombuffer(bytearray(encoded or b"\0"), np.uint8), len(encoded)

    def find(self, split: Split, data: Bytes, located: Located, offsets: Longs) -> tuple[Longs, Longs]:
        """Return where the value of each record's last header of the name begins, and its size, -1 if there is none.

        Raises:
            CorruptDataError: headers that do not fit their record.
        """
        rows = located.rows
        starts, sizes = np.empty(rows, np.int64), np.empty(rows, np.int64)
        wrong = _find(data, located.fields, rows, self._name, self._size, starts, sizes)
        if wrong >= 0:
            raise fault_error(Fault.HEADERS, split, int(offsets[wrong]))
        return starts, sizes
