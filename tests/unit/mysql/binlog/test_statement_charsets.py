"""Statements of sessions with any character set."""

from __future__ import annotations

import pytest

from pyspark_mysql_cdc_wm.binlog.statement_charsets import CODECS, statement_text
from pyspark_mysql_cdc_wm.records.character_sets import single_byte
from tests.unit.mysql.recordings import charsets

_WITHOUT_CODEC = {"armscii8", "ascii", "binary", "dec8", "geostd8", "keybcs2", "swe7"}
_NO_SESSION_HAS = {"ucs2", "utf16", "utf16le", "utf32"}
_BEFORE = bytes([0, *bytes(4), 1, *bytes(8), 6, 3, *b"std"])
_SAMPLES = {
    "big5": "表格",
    "cp932": "注文",
    "sjis": "ソート",
    "euckr": "주문",
    "gb2312": "联通",
    "gbk": "侣",
    "gb18030": "侣",
    "ujis": "注文",
    "eucjpms": "注文",
}


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_each_collation_of_a_session_has_the_codec_of_its_character_set(flavour: str) -> None:
    for number, charset in charsets(flavour).items():
        codec = CODECS.get(number)
        if charset in _WITHOUT_CODEC | _NO_SESSION_HAS or charset.startswith("utf8"):
            assert codec is None
        elif number < 256:
            assert codec is not None, charset
            if charset in single_byte():
                shown = single_byte()[charset]
                differs = [c for i, c in enumerate(shown) if c.isalpha() and bytes([i]).decode(codec, "replace") != c]
                assert set(differs) <= {"ʽ", "ʼ", "ⁿ"}, charset
            else:
                assert _SAMPLES[charset].encode(codec).decode(codec) == _SAMPLES[charset]
        else:
            assert charsets(flavour)[number - 1024] == charset


@pytest.mark.parametrize(
    ("number", "codec"),
    [(8, "cp1252"), (1032, "cp1252"), (28, "gbk"), (13, "shift_jis"), (33, "utf-8"), (2304, "utf-8")],
)
@pytest.mark.parametrize("before", [_BEFORE, _BEFORE + bytes([3, 2, 0, 1, 0])])
def test_a_statement_is_of_the_character_set_of_its_session(number: int, codec: str, before: bytes) -> None:
    name = {"gbk": "侣", "shift_jis": "ソート"}.get(codec, "größe")
    variables = before + b"\4" + 3 * number.to_bytes(2, "little") + b"\x0c\1d"
    text = f"TRUNCATE TABLE {name}"
    assert statement_text(text.encode(codec), variables) == text
    # The server writes some anew.
    assert statement_text(f"CREATE TABLE `{name}`".encode(), variables) == f"CREATE TABLE `{name}`"
    assert statement_text(f"CREATE TABLE `{name}`".encode(codec), variables) == f"CREATE TABLE `{name}`"


@pytest.mark.parametrize("variables", [b"", b"\4", b"\6", b"\6\xff", b"\x7f\4\x08\0", b"\0\0\0"])
def test_where_no_character_set_is_told_it_is_utf_8(variables: bytes) -> None:
    assert statement_text("DROP TABLE größe".encode(), variables) == "DROP TABLE größe"
    assert statement_text(b"DROP TABLE gr\xf6", variables) == "DROP TABLE gr\ufffd"
