"""Columns: the types of Spark's own Kafka source, and memory of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_aligned_kafka.options.kafka_option_table import KAFKA_COLUMNS
from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.source import kafka_columns
from tests.unit.kafka.batches import Rec, batch
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.split import Split, SplitRange

SPLIT = Split("orders", 3)
WITH_HEADERS = [Rec(0, b"a", b"k", headers=[(b"h", None)]), Rec(1, None, None), Rec(2, b"c", None)]
WITHOUT_HEADERS = [Rec(i, b"value %d" % i) for i in range(50)]


def decode(recs: list[Rec], columns: tuple[str, ...], memory: np.ndarray | None = None) -> list[ReadBatch]:
    data = np.frombuffer(bytearray(batch(0, recs)), np.uint8) if memory is None else memory
    decoder = RecordDecoder(columns, batch_rows=20, batch_bytes=1 << 20, decompressed_limit=1 << 20)
    return list(decoder.decode(SplitRange(SPLIT, 0, 1000), data, 0, 1, None))


@pytest.mark.parametrize("recs", [WITH_HEADERS, WITHOUT_HEADERS])
def test_types_are_exactly_those_spark_expects(recs: list[Rec]) -> None:
    schema = to_arrow_schema(kafka_columns(KAFKA_COLUMNS), timezone="UTC")
    for made in decode(recs, tuple(KAFKA_COLUMNS)):
        assert [column.type for column in made.columns] == schema.types
        pa.RecordBatch.from_arrays(list(made.columns), schema=schema).validate(full=True)


def test_columns_come_in_the_order_asked_for() -> None:
    made = decode(WITH_HEADERS, ("partition", "value", "topic", "timestampType"))[0]
    assert [column.to_pylist() for column in made.columns] == [[3] * 3, [b"a", None, b"c"], ["orders"] * 3, [0] * 3]


def test_a_batch_tells_where_its_rows_are_and_that_none_is_undated_be_no_column_asked_for() -> None:
    made = decode(WITH_HEADERS, ())[0]
    assert made.positions is not None
    assert (made.positions.to_pylist(), made.undated) == ([0, 1, 2], 0)


def test_event_time_is_the_timestamp_column_without_a_copy() -> None:
    made = decode(WITHOUT_HEADERS, ("timestamp",))[0]
    assert made.event_time.buffers()[1].address == made.columns[0].buffers()[1].address


def test_constant_columns_share_their_memory() -> None:
    first, second, third = decode(WITHOUT_HEADERS, ("topic", "partition", "timestampType"))
    for i in range(3):
        assert first.columns[i].buffers()[-1].address == second.columns[i].buffers()[-1].address
    assert [len(made.columns[0]) for made in (first, second, third)] == [20, 20, 10]


def test_no_validity_bitmap_without_nulls() -> None:
    made = decode(WITHOUT_HEADERS, ("key", "value"))[0]
    assert made.columns[0].null_count == 20
    assert made.columns[1].buffers()[0] is None


def test_batches_do_not_change_when_the_received_bytes_are_overwritten() -> None:
    memory = np.frombuffer(bytearray(batch(0, WITH_HEADERS)), np.uint8)
    made = decode([], tuple(KAFKA_COLUMNS), memory)[0]
    before = [column.to_pylist() for column in made.columns]
    memory[:] = 0xAA
    assert [column.to_pylist() for column in made.columns] == before
