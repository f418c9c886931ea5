"""Small Arrow columns, equal to what pyarrow itself would make."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watermark_source.arrow_columns import column, integers, is_valid, repeated

_INT64 = st.integers(-(2**63), 2**63 - 1)


@given(
    st.one_of(
        st.tuples(st.just(pa.string()), st.lists(st.none() | st.text())),
        st.tuples(st.just(pa.binary()), st.lists(st.none() | st.binary())),
        st.tuples(st.just(pa.bool_()), st.lists(st.none() | st.booleans())),
        st.tuples(st.just(pa.int32()), st.lists(st.none() | st.integers(-(2**31), 2**31 - 1))),
        st.tuples(st.just(pa.timestamp("us", tz="UTC")), st.lists(st.none() | _INT64)),
    )
)
def test_a_column_is_the_one_pyarrow_makes(case: tuple[pa.DataType, list[Any]]) -> None:
    kind, values = case
    made = column(values, kind)
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))


@given(st.lists(st.none() | _INT64), st.integers(0, 9), st.sampled_from([pa.int64(), pa.timestamp("us", tz="UTC")]))
def test_a_column_or_a_slice_of_it_as_arrays(values: list[int | None], first: int, kind: pa.DataType) -> None:
    part = pa.array(values, kind)[first:]
    assert is_valid(part).tolist() == [value is not None for value in values[first:]]
    assert integers(part)[is_valid(part)].tolist() == [value for value in values[first:] if value is not None]


@pytest.mark.parametrize("count", [0, 1, 70])
@pytest.mark.parametrize(
    ("value", "kind"),
    [("tópic", pa.string()), ("", pa.string()), (-7, pa.int32()), (2**60, pa.timestamp("us")), (True, pa.bool_())],
)
def test_a_repeated_value(value: str | int, kind: pa.DataType, count: int) -> None:
    made = repeated(value, kind, count)
    made.validate(full=True)
    assert made.equals(pa.array([value] * count, kind))


_PACK = """
import sys
from pyspark.sql.types import StructField, StructType, TimestampType
from watermark_source.arrow_columns import repeated
from watermark_source.spark.column_names import MARKER
from watermark_source.spark.markers import Marker, marker_batch, no_markers
from watermark_source.spark.stream_schema import MARKER_TYPE
schema = StructType([StructField("event_time", TimestampType()), StructField(MARKER, MARKER_TYPE)])
marker_batch((Marker("watermark", None, None, 5, None, False, None),), schema)
no_markers(3, schema)
from pyspark_aligned_kafka.records.columns import constant_column
constant_column("topic", 5)
print([name for name in ("pandas",) if name in sys.modules])
"""


def test_a_worker_needs_no_pandas() -> None:
    printed = subprocess.run([sys.executable, "-c", _PACK], check=True, capture_output=True, text=True, timeout=120)
    assert printed.stdout.strip() == "[]"
