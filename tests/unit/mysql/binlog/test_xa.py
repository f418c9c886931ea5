"""XA transactions: their names, and the statements that end them."""

from __future__ import annotations

import struct

import pytest

from pyspark_mysql_cdc_wm.binlog.xa import XaEnd, prepared_name, xa_ends
from tests.unit.mysql.made_events import logged


def test_what_was_prepared_is_ended_by_its_name() -> None:
    texts = ["XA START X'61',X'62',1", "XA COMMIT X'4A',X'',1", "xa", "XX COMMIT a", "XA ROLLBACK X'61',X'62',7"]
    found = list(xa_ends(*logged(*texts, "XA COMMIT X'61',X'',1 ONE PHASE")))
    assert found[:2] == [XaEnd("x'4a',x'',1", True, 3), XaEnd("x'61',x'62',7", False, 6)]
    # What was never prepared ends nothing that was.
    assert [each.transaction for each in found[2:]] == ["x'61',x'',1 one phase"]


@pytest.mark.parametrize(
    ("logged_as", "prepared_as"), [(2**31, 2**31), (2**32 - 1, 2**32 - 1), (2**32, 0), (2**63 - 1, 2**32 - 1)]
)
def test_a_large_format_is_the_number_of_which_the_prepared_transaction_has_four_bytes(
    logged_as: int, prepared_as: int
) -> None:
    (end,) = xa_ends(*logged(f"XA COMMIT X'61',X'62',{logged_as}"))
    assert end.transaction == prepared_name(b"\0" + struct.pack("<III", prepared_as, 1, 1) + b"ab")


def test_a_name_that_is_no_ascii_is_read_all_the_same() -> None:
    assert [each.number for each in xa_ends(*logged("XA COMMIT 'é'"))] == [2]


@pytest.mark.parametrize(
    ("first", "second", "kind", "name"),
    [(b"J", b"", 1, "x'4a',x'',1"), (b"a", b"bc", 7, "x'61',x'6263',7"), (b"", b"", 2**32 - 1, "x'',x'',4294967295")],
)
def test_a_prepared_transaction_is_named_as_the_statement_that_ends_it_names_it(
    first: bytes, second: bytes, kind: int, name: str
) -> None:
    body = b"\1" + struct.pack("<III", kind, len(first), len(second)) + first + second
    assert prepared_name(body + b"rest") == name
