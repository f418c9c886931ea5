"""Constant columns: made once while they are in use, and bounded however many topics a worker reads."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyspark_aligned_kafka.records import columns
from pyspark_aligned_kafka.records.columns import constant_column

BATCH_ROWS = 10_000


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    columns._kept.cache_clear()
    yield
    columns._kept.cache_clear()


@pytest.mark.parametrize(
    ("value", "kind"), [("orders", pa.string()), ("é", pa.string()), ("", pa.string()), (7, pa.int32())]
)
@pytest.mark.parametrize("rows", [1, 2, 3, 1_000])
def test_every_row_holds_the_value(value: str | int, kind: pa.DataType, rows: int) -> None:
    made = constant_column(value, rows)
    made.validate(full=True)
    assert made.type == kind
    assert made.to_pylist() == [value] * rows


def test_a_column_is_made_once_for_all_batches_of_about_a_size() -> None:
    first, *others = (constant_column("orders", rows) for rows in (BATCH_ROWS, 9_999, 8_192, BATCH_ROWS))
    assert {made.buffers()[-1].address for made in others} == {first.buffers()[-1].address}


@pytest.mark.parametrize("value", ["orders", "é", "", "t" * 63, 7])
def test_what_was_asked_for_before_shows_in_no_byte_that_is_sent(value: str | int) -> None:
    """IPC pads what is cut from a longer column with what follows there."""
    for rows in (*range(1, 200), 1_023, 1_024, 1_025, 8_192):
        columns._kept.cache_clear()
        first = constant_column(value, rows)
        constant_column(value, BATCH_ROWS)
        later = constant_column(value, rows)
        sent = [pa.record_batch([made], ["c"]).serialize().to_pybytes() for made in (first, later)]
        assert sent[0] == sent[1], rows


def test_many_topics_with_long_names_take_no_more_than_the_limit() -> None:
    limit = 8 * (4 << 20) + (1 << 20)
    tracemalloc.start()
    try:
        for number in range(100):
            constant_column(f"{number:0249d}", BATCH_ROWS)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert limit / 2 < taken <= limit


def test_what_was_not_used_for_longest_makes_room() -> None:
    kept = constant_column("kept", 100)
    for number in range(50):
        constant_column(number, 100)
        assert constant_column("kept", 100).buffers()[-1].address == kept.buffers()[-1].address


@pytest.mark.parametrize(("rows", "kept"), [(64, 128), (65, 256)])
def test_what_is_kept_is_twice_as_long_as_it_must_be_at_most(rows: int, kept: int) -> None:
    first, second = (constant_column(7, rows).buffers()[-1] for _ in range(2))
    assert first.size == 4 * kept
    assert first.address == second.address
