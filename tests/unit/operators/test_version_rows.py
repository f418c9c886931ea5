"""Rows in state: cells come back as they went in, whatever Python can hold."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watermark_source.operators.join_processor import to_columns, to_rows

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
