"""Columns of geometries and vectors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_mysql_cdc_wm.records.arrow_buffers import Values, binary, fixed, gathered, validity
from pyspark_mysql_cdc_wm.records.arrow_types import GEOMETRY_TYPE, VECTOR_TYPE
from pyspark_mysql_cdc_wm.records.numbers import words
from watermark_source.errors import CorruptDataError

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
