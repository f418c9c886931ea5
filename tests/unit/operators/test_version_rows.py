"""Rows in state: cells come back as they went in, whatever Python can hold."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
import pytest

from watermark_source.errors import UsageError
from watermark_source.operators import join_processor
from watermark_source.operators.join_processor import Deletions, JoinLayout, Version, merged, to_columns, to_rows

FAR = 2**60
"""Microseconds: no date of Python's."""
MOMENT, TEXT = pa.timestamp("us", tz="UTC"), pa.string()
PART = {"at": FAR, "text": b"\xff"}
CASES = {
    "moments": (MOMENT, pa.int64(), [FAR, -FAR, None]),
    "dates": (pa.date32(), pa.int32(), [2**30, None]),
    "texts that are none": (TEXT, pa.binary(), [b"\xffa", b"", None]),
    "structs": (
        pa.struct([("at", MOMENT), ("text", TEXT)]), pa.struct([("at", pa.int64()), ("text", pa.binary())]),
        [PART, None, {"at": None, "text": None}],
    ),
    "arrays": (pa.list_(MOMENT), pa.list_(pa.int64()), [[FAR, None], [], None]),
    "maps": (pa.map_(TEXT, MOMENT), pa.map_(pa.binary(), pa.int64()), [[(b"\xfe", FAR), (b"k", None)], [], None]),
    "arrays of structs": (
        pa.list_(pa.struct([("text", TEXT)])), pa.list_(pa.struct([("text", pa.binary())])), [[{"text": b"\xff"}]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_cells_come_back_as_they_went_in(case: str) -> None:
    kind, plain, values = CASES[case]
    column = pa.array(values, plain).cast(kind, safe=False)
    rows = to_rows([pa.chunked_array([column])], len(column))
    (found,) = to_columns([*rows, None], [kind])
    assert found.type == kind
    assert found.slice(0, len(column)).equals(column)
    assert not found[-1].is_valid


@pytest.mark.parametrize(("times", "gone"), [([None, 5], [False, True]), ([None, 5], [None, False])])
def test_versions_of_the_first_moment_and_deletes_with_a_time_are_accepted(
    times: list[int | None], gone: list[bool]
) -> None:
    LAYOUT.check_deletes(changes(times, gone))


def test_a_delete_at_no_time_ends_the_query_with_the_line_to_write() -> None:
    """It would come before all versions of its key, and end none."""
    with pytest.raises(UsageError, match=r"temporal_join\[event time\]: .* \(1 in one batch\)") as refused:
        replace(LAYOUT, deletions=Deletions(undated="Write it")).check_deletes(changes([None, 5], [True, True]))
    assert str(refused.value).endswith("would end no version. Write it")


@pytest.mark.parametrize(
    ("before", "new", "is_refused"),
    [
        ([(10, "a")], [(10, None)], True),
        # REPLACE: the deleted row counts from 10 to 20.
        ([(10, "a")], [(10, None), (20, "b")], True),
        ([], [(10, "a"), (10, None)], True),
        ([(10, "a")], [(10, None), (10, "b")], False),
        ([(10, "a")], [(11, None)], False),
        ([(10, "a")], [(10, "b")], False),
        ([], [(10, None)], False),
    ],
)
def test_a_delete_at_the_time_of_the_deleted_row_is_refused_where_the_source_dates_it_so(
    before: list[tuple[int, str | None]], new: list[tuple[int, str | None]], is_refused: bool
) -> None:
    """The row would be taken back from its beginning, for clicks of the time at which it was there."""
    known, added = ([Version(*each) for each in of] for of in (before, new))
    declared = replace(LAYOUT, sequence=2, deletions=Deletions(dated_by="_commit_timestamp"))
    with (
        pytest.raises(UsageError, match=r"as if it had never been there.*greatest\(_commit_timestamp, ")
        if is_refused
        else nullcontext()
    ):
        declared.check_taken_back(known, added, merged(known, added), 0)
    LAYOUT.check_taken_back(known, added, merged(known, added), 10**9)


def test_a_delete_at_the_time_of_the_deleted_row_is_refused_in_whatever_order_a_batch_has_them() -> None:
    """Without columns that order changes, deletions of one time come first, and the row would stay."""
    new = [Version(10, None), Version(10, "a")]
    declared = replace(LAYOUT, deletions=Deletions(dated_by="timestamp"))
    assert merged([], new) == [Version(10, "a")]
    with pytest.raises(UsageError, match="as if it had never been there"):
        declared.check_taken_back([], new, merged([], new), 0)


@pytest.mark.parametrize(
    ("before", "new", "watermark", "is_refused", "is_named"),
    [
        ([(10, "a")], [(10, None)], 11, True, False),
        ([(10, "a")], [(10, None)], 10, False, True),
        # A transaction that inserts and deletes a row, or a row that is never deleted.
        ([], [(10, "a"), (10, None)], 11, False, True),
        ([], [(10, None), (10, "a")], 11, False, True),
        ([(10, "a")], [(11, None)], 20, False, False),
    ],
)
def test_a_delete_at_the_time_of_the_deleted_row_is_refused_or_named_where_no_source_says_what_its_time_is(
    before: list[tuple[int, str | None]],
    new: list[tuple[int, str | None]],
    watermark: int,
    is_refused: bool,
    is_named: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By a column or a member of the user's: the row would have no version, or never end, without a word."""
    join_processor._warn_of_one_time.cache_clear()
    known, added = ([Version(*each) for each in of] for of in (before, new))
    layout = replace(LAYOUT, deletions=Deletions(of_changes=False, condition="op IN ('d')"))
    with pytest.raises(UsageError, match=r"IF\(op IN \('d'\), greatest\(") if is_refused else nullcontext():
        layout.check_taken_back(known, added, merged(known, added), watermark)
        LAYOUT.check_taken_back(known, added, merged(known, added), watermark)
    named = [each for r in caplog.records if "no column orders" not in (each := r.getMessage())]
    assert ["IF(op IN ('d'), greatest(" in each for each in named] == [True] * is_named


@pytest.mark.parametrize(
    ("before", "new", "sequence", "is_named"),
    [
        ([], [(10, None), (10, "a")], 0, True),
        ([], [(10, None), (10, "a")], 1, False),
        # Batches are an order, too.
        ([(10, "a")], [(10, None)], 0, False),
        ([], [(10, None), (11, "a")], 0, False),
    ],
)
def test_a_row_and_a_deletion_of_one_time_are_named_where_nothing_orders_them(
    before: list[tuple[int, str | None]],
    new: list[tuple[int, str | None]],
    sequence: int,
    *,
    is_named: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    join_processor._warn_of_no_order.cache_clear()
    known, added = ([Version(*each) for each in of] for of in (before, new))
    replace(LAYOUT, sequence=sequence).check_taken_back(known, added, merged(known, added), 0)
    assert ['sequence="offset"' in r.getMessage() for r in caplog.records] == [True] * is_named


NONE = pa.schema([])
LAYOUT = JoinLayout(processing_time=False, inner=False, sequence=0, probe=NONE, changes=NONE, build=NONE, described="")


def changes(times: list[int | None], gone: list[bool]) -> pa.Table:
    return pa.table({"key": [b"k"] * len(times), "time": pa.array(times, pa.int64()), "gone": gone})
