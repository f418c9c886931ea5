"""Sets of keys agree with Python's, whatever the columns are."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mysql_cdc_wm.records.key_set import KeySet

_NUMBERS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
_TEXTS = st.text("ab\0é", max_size=9)
_KEYS: dict[str, tuple[tuple[pa.DataType, ...], st.SearchStrategy[Any]]] = {
    "number": ((pa.int64(),), st.tuples(_NUMBERS)),
    "small number": ((pa.int8(),), st.tuples(st.integers(-128, 127))),
    "text": ((pa.string(),), st.tuples(_TEXTS)),
    "texts": ((pa.string(), pa.binary()), st.tuples(_TEXTS, st.binary(max_size=3))),
    "number and text": ((pa.int64(), pa.string()), st.tuples(_NUMBERS, _TEXTS)),
    "days that may be none": (
        (pa.date32(), pa.string(), pa.bool_()),
        st.tuples(st.none() | st.dates(date(2024, 1, 1), date(2024, 1, 9)), st.none() | _TEXTS, st.booleans()),
    ),
    "members of a set": ((pa.list_(pa.string()),), st.tuples(st.lists(st.sampled_from("abc"), unique=True).map(tuple))),
}


def _columns(types: tuple[pa.DataType, ...], keys: list[tuple[Any, ...]]) -> list[pa.Array]:
    # A slice: what lies before it must not matter.
    parts = [pa.array([key[i] for key in [*keys[:1], *keys]], kind) for i, kind in enumerate(types)]
    return [part[1:] if keys else part for part in parts]


@pytest.mark.parametrize("kind", _KEYS)
def test_it_holds_what_was_added_and_nothing_else(kind: str) -> None:
    types, keys = _KEYS[kind]

    @given(st.lists(st.lists(keys, max_size=30), max_size=4), st.lists(keys, max_size=30))
    def check(batches: list[list[tuple[Any, ...]]], asked: list[tuple[Any, ...]]) -> None:
        ours, theirs = KeySet(), set[tuple[Any, ...]]()
        for batch in batches:
            new = []
            for key in batch:
                new.append(key not in theirs)
                theirs.add(key)
            assert ours.add(_columns(types, batch)).tolist() == new
        assert len(ours) == len(theirs)
        assert ours.has(_columns(types, asked)).tolist() == [key in theirs for key in asked]

    check()


def test_it_grows() -> None:
    ours = KeySet()
    for first in range(0, 50_000, 7_000):
        assert ours.add([pa.array(range(first, first + 7_000))]).all()
    assert len(ours) == 56_000
    assert ours.has([pa.array(range(-10, 56_010))]).tolist() == [False] * 10 + [True] * 56_000 + [False] * 10
