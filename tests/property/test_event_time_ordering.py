"""Rows that wait for the watermark: whatever comes when, each leaves once, in order, or is late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watermark_source.operators.waiting_rows import Buffer, Place, RowLayout, Sizes, SortedRun, Waiting, watermark_past

LAYOUT = RowLayout(
    pa.schema([("value", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("text", pa.string())]), time=1
)
Row = tuple[int, "int | None"]
"""Value, event time."""


@dataclass
class Kept:
    """A map state of pieces in memory, and how many were read."""

    pieces: dict[int, bytes] = field(default_factory=dict)
    reads: int = 0

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: N802 - Spark's name
        self.reads += 1
        return (self.pieces[key[0]],)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:  # noqa: N802 - Spark's name
        assert key[0] not in self.pieces
        (self.pieces[key[0]],) = value

    def removeKey(self, key: tuple[Any, ...]) -> None:  # noqa: N802 - Spark's name
        del self.pieces[key[0]]


def batch(rows: list[Row]) -> pa.RecordBatch:
    values, times = [value for value, _ in rows], [time for _, time in rows]
    columns = [pa.array(values), pa.array(times, pa.int64()).cast(LAYOUT.columns[1].type)]
    return pa.RecordBatch.from_arrays([*columns, pa.array([f"row {v}" for v in values])], schema=LAYOUT.columns)


def values(rows: pa.RecordBatch) -> list[int]:
    found: list[int] = rows.column(0).to_pylist()
    assert rows.schema == LAYOUT.columns
    assert rows.column(2).to_pylist() == [f"row {value}" for value in found]
    return found


times = st.integers(-5, 40)
steps = st.lists(
    st.tuples(st.lists(st.one_of(times, st.none()), max_size=12), st.one_of(st.none(), st.integers(0, 8))), max_size=25
)
"""Of each batch: event times of its rows, and by how much the watermark advances behind it."""
small_sizes = st.builds(Sizes, piece=st.sampled_from([1, 400, 20_000]), most_small=st.integers(1, 4), wave=st.just(500))


@given(steps, st.one_of(st.just(Sizes()), small_sizes))
def test_every_row_leaves_once_in_order_or_is_late(
    given_steps: list[tuple[list[int | None], int | None]], sizes: Sizes
) -> None:
    store: Any = Kept()
    waiting, watermark = Waiting(), None
    expected: list[tuple[int, int]] = []
    number = 0
    for new, goes_on in given_steps:
        # Each batch begins with what the state holds, as after a restart.
        buffer = Buffer(LAYOUT, store, Waiting.decode(waiting.encode()), sizes)
        rows = [(number + n, time) for n, time in enumerate(new)]
        number += len(rows)
        late = buffer.add(batch(rows), watermark)
        is_late = [time is None or (watermark is not None and time <= watermark) for _, time in rows]
        assert values(late) == [value for (value, _), behind in zip(rows, is_late, strict=True) if behind]
        on_time = [row for row, behind in zip(rows, is_late, strict=True) if not behind]
        expected += [(time, value) for value, time in on_time if time is not None]
        buffer.merge_small()
        assert sum(p.size < sizes.piece // 2 for p in buffer.waiting.pieces) <= max(sizes.most_small, 1)
        if goes_on is not None:
            watermark = (0 if watermark is None else watermark) + goes_on
            left = [value for part in buffer.release(watermark) for value in values(part)]
            # The values count the rows in the order in which they came.
            assert left == [value for time, value in sorted(expected) if time <= watermark]
            expected = [(time, value) for time, value in expected if time > watermark]
        waiting = buffer.waiting
        assert waiting.alarm == min((watermark_past(time) for time, _ in expected), default=None)
        assert store.pieces.keys() == {piece.number for piece in waiting.pieces}
    buffer = Buffer(LAYOUT, store, waiting, sizes)
    assert [value for part in buffer.release(1_000) for value in values(part)] == [v for _, v in sorted(expected)]
    assert store.pieces == {}


places = st.builds(Place, times, st.integers(0, 2**40))
pieces = st.builds(SortedRun, st.integers(0, 2**40), places, st.integers(0, 2**40))


@given(st.builds(Waiting, st.lists(pieces).map(tuple), st.integers(0, 2**62), st.integers(0, 2**62)))
def test_an_index_is_what_it_was_made_bytes_of(waiting: Waiting) -> None:
    assert Waiting.decode(waiting.encode()) == waiting


@given(st.integers(-(10**6), 10**6))
def test_the_alarm_is_the_first_watermark_that_lets_a_row_go(first: int) -> None:
    waiting = Waiting((SortedRun(0, Place(first, 7), 1),))
    alarm = waiting.alarm
    assert alarm is not None
    assert list(waiting.waves(alarm * 1_000, Sizes()))
    assert alarm == 1 or not list(waiting.waves((alarm - 1) * 1_000, Sizes()))
    assert Waiting().alarm is None


def test_a_watermark_reads_only_the_pieces_it_has_reached() -> None:
    store: Any = Kept()
    buffer = Buffer(LAYOUT, store, sizes=Sizes(piece=10_000))
    buffer.add(batch([(n, n) for n in range(20_000)]), None)
    count = len(store.pieces)
    assert count > 50
    assert sum(part.num_rows for part in buffer.release(99)) == 100
    assert store.reads == 1
    # What stays of the piece is a piece again.
    assert len(store.pieces) == count


@pytest.mark.parametrize(
    ("comes", "rows_of_a_time"),
    [
        ([range(0, 20_000, 2), range(1, 20_000, 2)], 1),
        # As a snapshot does.
        ([range(10_000), range(10_000, 20_000)], 20_000),
    ],
)
def test_many_due_pieces_are_let_go_a_few_at_a_time(comes: list[range], rows_of_a_time: int) -> None:
    store: Any = Kept()
    buffer = Buffer(LAYOUT, store, sizes=Sizes(piece=10_000, wave=30_000))
    for numbers in comes:
        buffer.add(batch([(n, n // rows_of_a_time) for n in numbers]), None)
    parts = list(buffer.release(30_000))
    assert [value for part in parts for value in values(part)] == list(range(20_000))
    assert max(part.nbytes for part in parts) < 60_000


def test_many_small_batches_become_few_pieces() -> None:
    store: Any = Kept()
    buffer = Buffer(LAYOUT, store)
    for first in range(0, 300, 3):
        buffer.add(batch([(n, n % 7) for n in range(first, first + 3)]), None)
        buffer.merge_small()
    assert len(store.pieces) <= buffer.sizes.most_small
    assert [value for part in buffer.release(10) for value in values(part)] == sorted(range(300), key=lambda n: n % 7)


def test_rows_larger_than_a_piece_are_pieces_of_their_own() -> None:
    store: Any = Kept()
    buffer = Buffer(LAYOUT, store, sizes=Sizes(piece=10))
    buffer.add(batch([(n, -n) for n in range(5)]), None)
    assert len(store.pieces) == 5
    assert [value for part in buffer.release(0) for value in values(part)] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_due_reads_and_writes_nothing(count: int) -> None:
    store: Any = Kept()
    buffer = Buffer(LAYOUT, store)
    buffer.add(batch([(n, 10 + n) for n in range(count)]), None)
    before = buffer.waiting
    assert list(buffer.release(9)) == []
    assert (buffer.waiting, store.reads) == (before, 0)
