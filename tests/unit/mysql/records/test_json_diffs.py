"""Partial updates of JSON: what is recorded, and changes that cannot be."""

import struct

import numpy as np
import pytest

from pyspark_mysql_cdc_wm.binlog.wire import PADDING, padded
from pyspark_mysql_cdc_wm.records.arrow_buffers import Values
from pyspark_mysql_cdc_wm.records.json_diffs import patched_texts
from tests.unit.mysql.recordings import decoded, rows
from watermark_source.errors import CorruptDataError

OBJECT = b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x05\x00a"
"""``{"a": 5}``."""
FIVE = b"\x05\x05\x00"
TWO = b"\x02\x02\x00\x0a\x00\x05\x01\x00\x05\x02\x00"
"""``[1, 2]``."""
REPLACE, INSERT, REMOVE = range(3)


def change(kind: int, path: bytes, value: bytes | None = None) -> bytes:
    return bytes([kind, len(path)]) + path + (b"" if value is None else bytes([len(value)]) + value)


def patched(before: bytes | None, *changes: bytes) -> list[str | None]:
    """The texts of a row image and of the one after it, reported as changes."""
    reported = b"".join(changes)
    data = np.frombuffer(bytearray((before or b"") + reported + bytes(PADDING)), np.uint8)
    size = len(before or b"")
    starts = np.array([-1 if before is None else 0, size], np.int32)
    values = Values(data, starts, np.array([size, len(reported)], np.int32))
    found: list[str | None] = patched_texts(values, np.array([0, 1], np.uint8)).to_pylist()
    return found


def test_the_recorded_update_is_the_document_the_server_had() -> None:
    *_, (_, before), (_, after) = rows(decoded("partial_json", "carts"))
    assert before[1] == f'{{"who": "{"x" * 80}", "items": ["tea", 2.5]}}'
    assert after[1:] == (f'{{"at": "home", "who": "{"x" * 80}", "items": ["tea", 3, {{"a": 1}}]}}', "[]")


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ((change(REPLACE, b"$.a", OBJECT),), '{"a": {"a": 5}}'),
        ((change(REPLACE, b"$", FIVE),), "5"),
        ((change(INSERT, b"$.b", FIVE), change(INSERT, b'$.""', FIVE)), '{"": 5, "a": 5, "b": 5}'),
        ((change(INSERT, b'$."\\u0001"', FIVE), change(INSERT, b'$."A"', FIVE)), '{"\\u0001": 5, "A": 5, "a": 5}'),
        ((change(REMOVE, b"$.a"),), "{}"),
        ((change(REMOVE, b"$.a"), change(INSERT, b"$.c", FIVE), change(REMOVE, b"$.c")), "{}"),
        ((change(INSERT, b"$.b", FIVE), change(REMOVE, b"$.a")), '{"b": 5}'),
        ((change(INSERT, b"$.b", FIVE), change(REMOVE, b"$.b")), '{"a": 5}'),
        ((change(REPLACE, b"$.a[0]", OBJECT),), '{"a": {"a": 5}}'),
        ((change(REPLACE, b"$.a[last]", OBJECT),), '{"a": {"a": 5}}'),
        ((), '{"a": 5}'),
        ((change(REPLACE, b"", FIVE),), "5"),
        ((change(REPLACE, b"$.a", b"\x02\x00\x00\x04\x00"), change(INSERT, b"$.a[0]", FIVE)), '{"a": [5]}'),
        (
            (
                change(REPLACE, b"$", TWO),
                change(INSERT, b"$[0]", FIVE),
                change(INSERT, b"$[9]", FIVE),
                change(REMOVE, b"$[1]"),
                change(REMOVE, b"$[last]"),
            ),
            "[5, 2]",
        ),
        ((change(REPLACE, b"$", TWO), change(REPLACE, b"$[0]", FIVE)), "[5, 2]"),
        ((change(REPLACE, b"$", TWO), change(INSERT, b"$[9999]", FIVE)), "[1, 2, 5]"),
        ((change(REPLACE, b"$", TWO), change(INSERT, b"$[last-9]", FIVE)), "[5, 1, 2]"),
        ((change(REPLACE, b"$.a", b'\x0c\x02"x'), change(INSERT, b"$.b", FIVE)), '{"a": "\\"x", "b": 5}'),
        ((change(INSERT, b'$."\\""', FIVE), change(INSERT, b'$."\\"b"', FIVE)), '{"\\"": 5, "a": 5, "\\"b": 5}'),
    ],
)
def test_changes_are_done_in_their_order(changes: tuple[bytes, ...], after: str) -> None:
    assert patched(OBJECT, *changes) == ['{"a": 5}', after]


def test_names_lie_in_the_order_of_what_their_escapes_stand_for() -> None:
    ordered = [r"\n", r"\u000b", r"\u000f", r"\u0010", r"\u0019", r"\u001f", " ", "a", r"\u001fx"]
    given = sorted(set(ordered) - {"a"})
    inserts = (change(INSERT, f'$."{name}"'.encode(), FIVE) for name in reversed(given))
    (_, after) = patched(OBJECT, *inserts)
    assert after == "{" + ", ".join(f'"{name}": 5' for name in ordered) + "}"


@pytest.mark.parametrize(
    "reported",
    [
        change(REPLACE, b"$.b", FIVE), change(REMOVE, b"$.b"), change(REMOVE, b"$"), change(REMOVE, b""),
        change(INSERT, b"$.a", FIVE), change(INSERT, b"$[0]", FIVE), change(INSERT, b"$.a.b", FIVE),
        change(REPLACE, b"$.a[1]", FIVE), change(REPLACE, b"$.a[last-1]", FIVE), change(REPLACE, b"$.a[]", FIVE),
        change(REPLACE, b"$.a[lost]", FIVE), change(REPLACE, b'$."a', FIVE), change(REPLACE, b"$.", FIVE),
        change(REPLACE, b"a", FIVE), change(REPLACE, b"$.a[0", FIVE), change(REMOVE, b'$."'),
        change(INSERT, b"ab", FIVE), change(INSERT, b"$.", FIVE),
        change(REPLACE, b"$", TWO) + change(REMOVE, b"$[last-2]"),
        change(REPLACE, b"$", b"\x02\x00\x00\x04\x00") + change(REMOVE, b"$[0]"),
    ],
)  # fmt: skip
def test_a_place_that_is_not_there_is_damage(reported: bytes) -> None:
    with pytest.raises(CorruptDataError, match="at a place that it does not have"):
        patched(OBJECT, reported)


@pytest.mark.parametrize(
    "reported",
    [
        b"\x03\x01$",
        b"\x00",
        b"\x00\x05$",
        change(REPLACE, b"$"),
        change(REPLACE, b"$", FIVE)[:-1],
        b"\x00\xfe\x01",
        b"\x00\xfe" + b"\xff" * 8,
        change(3, b"$", FIVE),
        b"\x02\x04$.a",
        b"\x02",
        b"\x00\x01$\xfe" + b"\xff" * 8,
    ],
)
def test_changes_that_do_not_fit_their_value_are_damage(reported: bytes) -> None:
    with pytest.raises(CorruptDataError, match="does not fit its value"):
        patched(OBJECT, reported)


def test_a_null_is_no_change() -> None:
    starts, sizes = np.array([[0, -1, -1], [len(OBJECT), 0, 0]], np.int32)
    nulls = Values(padded(OBJECT), starts, sizes)
    assert patched_texts(nulls, np.array([0, 1, 1], np.uint8)).to_pylist() == ['{"a": 5}', None, None]
    none = Values(padded(b""), np.array([-1, -1], np.int32), np.zeros(2, np.int32))
    assert patched_texts(none, np.array([0, 1], np.uint8)).to_pylist() == [None, None]


def test_a_change_needs_a_document_to_change() -> None:
    with pytest.raises(CorruptDataError, match="not there"):
        patched(None, change(REPLACE, b"$", FIVE))


def test_values_of_changes_are_checked_as_documents_are() -> None:
    with pytest.raises(CorruptDataError, match="JSON document"):
        patched(OBJECT, change(REPLACE, b"$.a", b"\x0c\x7fx"))
    assert patched(OBJECT, change(REPLACE, b"$.a", b"\x0b" + struct.pack("<d", 2.5)))[1] == '{"a": 2.5}'
