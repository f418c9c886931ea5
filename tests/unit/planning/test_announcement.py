"""The records by which writers announce watermarks: what is written is read, and nothing else is accepted."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watermark_source.errors import CorruptDataError
from watermark_source.planning.announcement import Announcement, Removal, Statement, decoded, encoded
from watermark_source.planning.watermark import LAST_MOMENT, MAX, MIN, Millis

_NAMES = st.text(min_size=1, max_size=255).filter(lambda text: text.isprintable())
_POSITIONS = st.integers(0, 2**63 - 2)
_ANNOUNCEMENTS = st.builds(
    Announcement,
    writer=_NAMES,
    query=_NAMES,
    batch=_POSITIONS,
    watermark=st.none() | st.just(MAX) | st.integers(MIN + 1, LAST_MOMENT).map(Millis),
    idle=st.booleans(),
    topic=_NAMES,
    ends=st.dictionaries(st.integers(0, 10_000).map(str), _POSITIONS, max_size=5),
)
_GOOD = {"v": 1, "writer": "a", "query": "q", "batch": 1, "wm": 5, "idle": False, "topic": "t", "ends": {"0": 3}}


@given(_ANNOUNCEMENTS | st.builds(Removal, _NAMES))
def test_what_is_written_is_read(statement: Statement) -> None:
    assert decoded(encoded(statement)) == statement


def test_the_bytes_are_those_of_the_documented_format() -> None:
    announced = Announcement(
        writer="sessions", query="5b1d", batch=17, watermark=Millis(1_700_000_000_000), topic="Yk2", ends={"0": 5210}
    )
    assert encoded(announced) == (
        b'{"v":1,"writer":"sessions","query":"5b1d","batch":17,"wm":1700000000000,"idle":false,"topic":"Yk2",'
        b'"ends":{"0":5210}}'
    )
    assert encoded(Removal("sessions")) == b'{"v":1,"writer":"sessions","drop":true}'


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"v": 2}, "2"),
        ({"v": True}, "True"),
        ({"more": 1}, "more"),
        ({"writer": ""}, "writer"),
        ({"writer": "x" * 256}, "writer"),
        ({"writer": "x\x1b[2J"}, "writer"),
        ({"query": "\ud800"}, "query"),
        ({"batch": 1.5}, "1.5"),
        ({"batch": -1}, "batch"),
        ({"wm": "END"}, "END"),
        ({"wm": MIN}, "wm"),
        ({"wm": MAX}, "wm"),
        ({"wm": LAST_MOMENT + 1}, "up to 253402300799999 in the year 9999"),
        ({"wm": 1_700_000_000_000_000}, "as microseconds it is 2023-11-14 22:13:20.000"),
        ({"wm": 1_700_000_000_000_000_000}, "as nanoseconds it is 2023-11-14 22:13:20.000"),
        ({"wm": 9 * 10**18}, "seen 9000000000000000000"),
        ({"idle": 0}, "idle"),
        ({"ends": [3]}, "ends"),
        ({"ends": {"0": -2}}, "end of 0"),
        ({"drop": True}, "keys"),
    ],
)
def test_a_record_of_another_form_is_refused_and_shown(change: dict[str, object], seen: str) -> None:
    with pytest.raises(CorruptDataError, match="not an announcement") as refused:
        decoded(json.dumps({**_GOOD, **change}).encode())
    assert seen in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [None, b"", b"null", b"[]", b"\xff", b'{"v":1,"writer":"a","drop":false}', b'{"v":NaN}',
     b'{"v":1,"v":1,"writer":"a","drop":true}', b"[" * 100_000, json.dumps(_GOOD).encode()[:-1]],
)  # fmt: skip
def test_hostile_bytes_are_refused_as_declared(value: bytes | None) -> None:
    with pytest.raises(CorruptDataError, match="not an announcement"):
        decoded(value)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_as_declared(value: bytes) -> None:
    with contextlib.suppress(CorruptDataError):
        assert encoded(decoded(value))
