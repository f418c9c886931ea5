"""The server's fingerprints: without keys that changed, however many these are, and of rows that it has no text of."""

from __future__ import annotations

import re
from functools import reduce
from operator import xor
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType

from pyspark_mysql_cdc_wm.options.tables import TableName
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from pyspark_mysql_cdc_wm.verifying import pieces
from pyspark_mysql_cdc_wm.verifying.pieces import KeyHashes, KeyRanges, Pieces, Rows
from pyspark_mysql_cdc_wm.verifying.row_text import Fingerprint, RowText
from watermark_source.errors import UnsupportedFormatError

TABLE = {key: 2**at for at, key in enumerate("abcdef")}
TEXT = RowText("k", "k")


def select(statement: str) -> list[tuple[Any, ...]]:
    """Answer as a server whose packets have room for two keys."""
    keys = {bytes.fromhex(each).decode() for each in re.findall(r"x'(\w+)'", statement)}
    assert len(keys) <= 2
    found = {key: sha for key, sha in TABLE.items() if not keys or (key in keys) != ("NOT IN" in statement)}
    if "GROUP BY" not in statement:
        return list(found.items())
    return [("0", len(found), reduce(xor, found.values()), len(found))] if found else []


@pytest.mark.parametrize("cut", [KeyRanges((), ()), KeyHashes(TEXT, ("k",), 0)], ids=["r", "h"])
def test_more_keys_are_left_out_than_one_statement_has_room_for(cut: Pieces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_KEYS_A_STATEMENT", 2)
    rows = Rows(TableName("shop", "t"), TEXT, TEXT, select)
    for without in ("", "a", "ab", "abcde", "bcdex"):
        left = {key: sha for key, sha in TABLE.items() if key not in without}
        keys = dict.fromkeys(range(2), without)
        assert cut.on_server(rows, keys.__getitem__) == {0: Fingerprint(len(left), sum(left.values()))}
        assert rows.by_key("", without) == left
    assert cut.on_server(rows, lambda _: "abcdef") == {}


def test_rows_without_a_text_are_refused_although_copies_of_one_have_their_fingerprint() -> None:
    kinds = ((Column(ColumnType.LONG, name="n"), IntegerType()), (Column(ColumnType.JSON, name="doc"), StringType()))
    text = RowText.of(kinds, "table shop.t")
    assert RowText.of(kinds[:1], "table shop.t").counted == "*"
    found, sent = iter([3, 2]), []

    def answer(statement: str) -> list[tuple[Any, ...]]:
        sent.append(statement)
        return [(0, 3, 7, next(found))]

    rows, cut = Rows(TableName("shop", "t"), TEXT, text, answer), KeyRanges((), ())
    assert cut.on_server(rows, lambda _: ()) == {0: Fingerprint(3, 7)}
    with pytest.raises(UnsupportedFormatError, match="max_allowed_packet"):
        cut.on_server(rows, lambda _: ())
    assert f", COUNT({text.server}) FROM" in sent[0]
