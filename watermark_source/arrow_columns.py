"""Arrow columns of Python values and NumPy arrays, and back.

It builds them from buffers: pyarrow's own ``array``, ``scalar``, ``repeat`` and ``to_numpy`` import pandas if it is
installed, which takes 0.3 s in every worker process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def bitmap(bits: npt.NDArray[Any]) -> pa.Buffer:
    """Return an Arrow bitmap, of validity or of booleans, whose bits are set where the array is not zero."""
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def booleans(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Return a column of booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bitmap(values)], 0)


def allocated(count: int, kind: type[np.generic]) -> tuple[pa.Buffer, npt.NDArray[Any]]:
    """Return memory of Arrow's pool, which keeps pages warm between batches, and a view to write it through."""
    buffer = pa.allocate_buffer(max(count, 1) * np.dtype(kind).itemsize)
    return buffer, np.frombuffer(buffer, kind)


def integers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return a view of a column of 64-bit integers or timestamps. Values at nulls are arbitrary."""
    if not len(column):
        return np.empty(0, dtype=np.int64)
    return np.frombuffer(column.buffers()[1], dtype=np.int64, count=len(column), offset=8 * column.offset)


def is_valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return true for each value of a column that is not null."""
    validity = column.buffers()[0]
    if validity is None:
        return np.ones(len(column), dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), count=column.offset + len(column), bitorder="little")
    return bits[column.offset :].view(np.bool_)


def column(values: Sequence[str | bytes | int | bool | None], kind: pa.DataType) -> pa.Array:
    """Return a nullable column of strings, bytes, booleans, integers or timestamps, which are given as integers."""
    present = np.array([value is not None for value in values], dtype=np.bool_)
    nulls = len(values) - int(np.count_nonzero(present))
    validity = bitmap(present) if nulls else None
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        texts = [
            value if isinstance(value, bytes) else ("" if value is None else str(value)).encode() for value in values
        ]
        offsets = np.zeros(len(texts) + 1, dtype=np.int32)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        data = [pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    elif pa.types.is_boolean(kind):
        data = [bitmap(np.array(values, dtype=np.bool_))]
    else:
        data = [pa.py_buffer(np.array([value or 0 for value in values], dtype=f"i{kind.bit_width // 8}"))]
    return pa.Array.from_buffers(kind, len(values), [validity, *data], nulls)


def repeated(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """Return a column with ``count`` times the same value."""
    if isinstance(value, bool):
        return booleans(np.full(count, value))
    if isinstance(value, str):
        text = value.encode()
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
        data = [pa.py_buffer(offsets), pa.py_buffer(text * count)]
    else:
        data = [pa.py_buffer(np.full(count, value, dtype=f"i{kind.bit_width // 8}"))]
    return pa.Array.from_buffers(kind, count, [None, *data], 0)
