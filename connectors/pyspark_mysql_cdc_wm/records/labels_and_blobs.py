"""Columns of ENUM and SET: from numbers to the labels that the table map lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_mysql_cdc_wm.binlog.wire import Longs, padded
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, binary, fixed, gathered, validity
from pyspark_mysql_cdc_wm.records.arrow_types import GEOMETRY_TYPE, SET_TYPE, VECTOR_TYPE
from pyspark_mysql_cdc_wm.records.numbers import words
from pyspark_mysql_cdc_wm.records.table_definition import BINARY_COLLATION, Column
from pyspark_mysql_cdc_wm.records.text_columns import texts
from watermark_source.arrow_columns import allocated
from watermark_source.errors import CorruptDataError
from watermark_source.machine_code.native import Word, compiled

_INTERNAL = "utf8mb4"


def labels_of(column: Column, charsets: Mapping[int, str]) -> tuple[str, ...] | None:
    """Return the labels of a column of ENUM or SET as its values show them, ``None`` for another one."""
    if column.labels is None:
        return None
    return tuple(label_column(column.labels, label_charset(column, charsets)).to_pylist())


def label_charset(column: Column, charsets: Mapping[int, str]) -> str:
    """Return the character set of a column's labels, by the number of its collation."""
    # Labels of the character set binary are bytes that are shown as they are.
    if column.collation is None or column.collation == BINARY_COLLATION:
        return _INTERNAL
    return charsets[column.collation]


def label_column(labels: Sequence[bytes], charset: str) -> pa.Array:
    """Return the labels, which are in ``charset``, as text."""
    sizes = np.array([len(label) for label in labels], np.int32)
    starts = (np.cumsum(sizes) - sizes).astype(np.int32)
    return texts(Values(padded(b"".join(labels)), starts, sizes), charset)


def enums(values: Values, width: int, labels: pa.Array) -> pa.Array:
    """Return a column of labels; ``labels[0]`` is the empty text that stands for a value that was none.

    Raises:
        CorruptDataError: a number without a label.
    """
    found = words(values, width)
    if found.size and int(found.max()) >= len(labels):
        raise CorruptDataError(f"an ENUM of {len(labels) - 1} labels has the number {int(found.max())}")
    return labels.take(fixed(pa.int64(), found, values.starts >= 0))


@compiled("int64(int64[::1], int64, int32[::1])")
def _count(masks: Word, labels: Word, offsets: Word) -> Word:
    """Running counts of the bits set; -1 if one of them has no label."""
    total = 0
    offsets[0] = 0
    for row in range(masks.shape[0]):
        mask = np.uint64(masks[row])
        if labels < 64 and mask >> np.uint64(labels) != 0:
            return np.int64(-1)
        while mask:
            mask &= mask - np.uint64(1)
            total += 1
        offsets[row + 1] = total
    return np.int64(total)


@compiled("void(int64[::1], int32[::1])")
def _members(masks: Word, members: Word) -> None:
    at = 0
    for row in range(masks.shape[0]):
        mask = np.uint64(masks[row])
        bit = 0
        while mask:
            if mask & np.uint64(1):
                members[at] = bit
                at += 1
            mask >>= np.uint64(1)
            bit += 1


def sets(values: Values, width: int, labels: pa.Array) -> pa.Array:
    """Return a column of lists of labels, in the order in which the table lists them.

    Raises:
        CorruptDataError: a bit without a label.
    """
    return labelled_sets(words(values, width), values.starts >= 0, labels)


def labelled_sets(masks: Longs, present: npt.NDArray[np.bool_], labels: pa.Array) -> pa.Array:
    """Return the lists of labels whose bits are set, null where nothing is ``present``; raises as ``sets``."""
    offsets, offsets_view = allocated(len(masks) + 1, np.int32)
    total = _count(masks, len(labels), offsets_view)
    if total < 0:
        raise CorruptDataError(f"a SET of {len(labels)} labels has a bit above them")
    members = np.empty(total, np.int32)
    _members(masks, members)
    valid, nulls = validity(present)
    items = labels.take(fixed(pa.int32(), members, np.ones(total, np.bool_)))
    return pa.Array.from_buffers(SET_TYPE, len(masks), [valid, offsets], nulls, children=[items])


# Columns of geometries and vectors.


_SRID_SIZE = 4
_FLOAT_SIZE = 4


def geometries(values: Values) -> pa.Array:
    """Return a column of the reference system's number and the shape as well-known binary.

    Raises:
        CorruptDataError: a value without a number.
    """
    present = values.starts >= 0
    if (values.sizes[present] < _SRID_SIZE).any():
        raise CorruptDataError("a geometry of less than four bytes")
    srid = fixed(pa.int32(), words(values, _SRID_SIZE).astype(np.int32), np.ones(values.rows, np.bool_))
    wkb = binary(pa.binary(), values, skip=_SRID_SIZE)
    valid, nulls = validity(present)
    return pa.Array.from_buffers(GEOMETRY_TYPE, values.rows, [valid], nulls, children=[srid, wkb])


def vectors(values: Values) -> pa.Array:
    """Return a column of lists of floating point numbers of four bytes.

    Raises:
        CorruptDataError: a part of a number.
    """
    if (values.sizes % _FLOAT_SIZE).any():
        raise CorruptDataError("a vector with a part of a number")
    offsets, content = gathered(values)
    counts = np.frombuffer(offsets, np.int32)[: values.rows + 1] // _FLOAT_SIZE
    items = pa.Array.from_buffers(pa.float32(), int(counts[-1]), [None, content])
    valid, nulls = validity(values.starts >= 0)
    return pa.Array.from_buffers(VECTOR_TYPE, values.rows, [valid, pa.py_buffer(counts)], nulls, children=[items])
