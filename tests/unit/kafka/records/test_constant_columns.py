"""Constant columns: made once while they are in use, and bounded however many topics a worker reads."""

from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pytest

from pyspark_aligned_kafka.records.columns import ConstantColumns

BATCH_ROWS = 10_000


@pytest.mark.parametrize(
    ("value", "kind"), [("orders", pa.string()), ("é", pa.string()), ("", pa.string()), (7, pa.int32())]
)
@pytest.mark.parametrize("rows", [1, 2, 3, 1_000])
def test_every_row_holds_the_value(value: str | int, kind: pa.DataType, rows: int) -> None:
    made = ConstantColumns().column(value, rows)
    made.validate(full=True)
    assert made.type == kind
    assert made.to_pylist() == [value] * rows


def test_a_column_is_made_once_for_all_batches_of_a_size_or_less() -> None:
    columns = ConstantColumns()
    first, *others = (columns.column("orders", rows) for rows in (BATCH_ROWS, 1, 9_999, BATCH_ROWS))
    assert {made.buffers()[-1].address for made in others} == {first.buffers()[-1].address}


@pytest.mark.parametrize("value", ["orders", "é", "", "t" * 63, 7])
def test_what_was_asked_for_before_shows_in_no_byte_that_is_sent(value: str | int) -> None:
    """IPC pads what is cut from a longer column with what follows there."""
    long = ConstantColumns()
    long.column(value, BATCH_ROWS)
    for rows in (*range(1, 200), 1_023, 1_024, 1_025, 8_192):
        first, later = (columns.column(value, rows) for columns in (ConstantColumns(), long))
        sent = [pa.record_batch([made], ["c"]).serialize().to_pybytes() for made in (first, later)]
        assert sent[0] == sent[1], rows


def test_many_topics_with_long_names_take_no_more_than_the_limit() -> None:
    columns, limit = ConstantColumns(), 16 << 20
    tracemalloc.start()
    try:
        for number in range(300):
            columns.column(f"{number:0249d}", BATCH_ROWS)
            columns.column(number, BATCH_ROWS)
            assert columns.kept_bytes <= limit
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert limit / 2 < taken <= limit


def test_many_topics_with_few_rows_are_bounded_too() -> None:
    columns = ConstantColumns(most_bytes=100_000)
    for number in range(1_000):
        columns.column(f"t{number}", 1)
    assert columns.kept_bytes <= 100_000


def test_the_column_used_last_stays_however_large_it_is() -> None:
    columns, alone = ConstantColumns(most_bytes=1), ConstantColumns()
    first = columns.column("orders", BATCH_ROWS)
    assert columns.column("orders", 5).buffers()[-1].address == first.buffers()[-1].address
    # And no other one.
    for each in (columns, alone):
        each.column("users", 5)
    assert columns.kept_bytes == alone.kept_bytes


def test_what_was_not_used_for_longest_makes_room() -> None:
    columns = ConstantColumns(most_bytes=10_000)
    kept = columns.column("kept", 100)
    for number in range(50):
        columns.column(number, 100)
        assert columns.column("kept", 100).buffers()[-1].address == kept.buffers()[-1].address


def test_growing_batches_are_counted_once() -> None:
    columns, once = ConstantColumns(), ConstantColumns()
    for rows in (1, 10, 100, 1_000, BATCH_ROWS):
        made = columns.column(7, rows)
    assert len(made) == len(once.column(7, BATCH_ROWS)) == BATCH_ROWS
    assert columns.kept_bytes == once.kept_bytes < 2 * 4 * BATCH_ROWS


@pytest.mark.parametrize(("rows", "kept"), [(64, 128), (65, 256)])
def test_what_is_kept_is_twice_as_long_as_it_must_be_at_most(rows: int, kept: int) -> None:
    columns = ConstantColumns()
    first, second = (columns.column(7, rows).buffers()[-1] for _ in range(2))
    assert first.size == 4 * kept
    assert first.address == second.address
