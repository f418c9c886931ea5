"""Arrow columns out of raw memory: buffers of Arrow's pool, validity, and bytes gathered from where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.wire import PADDING, Bytes, Ints
from watermark_source.arrow_columns import allocated, bitmap
from watermark_source.machine_code.native import Word, address_of, compiled, copy_bytes


class Values(NamedTuple):
    """One column of located values: ``sizes[i]`` bytes at ``data[starts[i]]``; null where the start is negative."""

    data: Bytes
    starts: Ints
    sizes: Ints

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.starts)


def array_of(
    kind: pa.DataType, present: npt.NDArray[np.bool_], *buffers: Any, children: Sequence[pa.Array] = ()
) -> pa.Array:
    """Return a column by the buffers behind its validity, null where nothing is ``present``."""
    nulls = len(present) - int(np.count_nonzero(present))
    valid = bitmap(present) if nulls else None
    return pa.Array.from_buffers(kind, len(present), [valid, *buffers], nulls, children=list(children))


def fixed(kind: pa.DataType, content: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> pa.Array:
    """Return a column of values that all have one width."""
    return array_of(kind, present, pa.py_buffer(content))


@compiled("void(uint8[::1], int32[::1], int32[::1], int64, int64, int32[::1], uint8[::1])")
def _gather(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, starts: Word, sizes: Word, skip: Word, least: Word, offsets: Word, target: Word
) -> None:
    """Copy values one after another, without their first ``skip`` bytes, each filled up with zeros to ``least``."""
    data, values = address_of(array), address_of(target)
    end = np.int64(0)
    offsets[0] = 0
    for row in range(starts.shape[0]):
        if starts[row] >= 0:
            size = np.int64(sizes[row]) - skip
            if size > 0:
                copy_bytes(values + end, data + starts[row] + skip, size)
                end += size
            for _ in range(least - size):
                target[end] = 0
                end += 1
        offsets[row + 1] = end


def gathered(values: Values, *, skip: int = 0, least: int = 0) -> tuple[pa.Buffer, pa.Buffer]:
    """Return offsets and bytes of the values, each without its first ``skip`` bytes and at least ``least`` long."""
    lengths = np.maximum(values.sizes.astype(np.int64) - skip, least)
    offsets, offsets_view = allocated(values.rows + 1, np.int32)
    content, content_view = allocated(int(lengths.sum()) + PADDING, np.uint8)
    _gather(values.data, values.starts, values.sizes, skip, least, offsets_view, content_view)
    return offsets, content


def binary(kind: pa.DataType, values: Values, *, skip: int = 0, least: int = 0) -> pa.Array:
    """Return a column of strings or bytes as they lie."""
    return array_of(kind, values.starts >= 0, *gathered(values, skip=skip, least=least))


def view(buffer: pa.Buffer | None, kind: type[np.generic]) -> npt.NDArray[Any]:
    """Return memory of Arrow's as compiled functions take it."""
    if buffer is None:
        return np.zeros(1, kind)
    found = np.frombuffer(buffer, kind)
    return found if found.flags.writeable else found.copy()


def bytes_of(values: pa.Array) -> tuple[Bytes, Ints]:
    """Return the bytes of a column of texts or bytes, and where in them each begins and the last ends."""
    _, offsets, content = values.buffers()
    ends = view(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return view(content, np.uint8), np.ascontiguousarray(ends)
