"""Values of single types, from bytes that are written down here."""

from __future__ import annotations

import contextlib
import datetime
import json
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mysql_cdc_wm.binlog.character_sets import check_charset, has_second_codes
from pyspark_mysql_cdc_wm.records.arrow_types import decimal_width, temporal_width
from pyspark_mysql_cdc_wm.records.json_texts import json_texts
from pyspark_mysql_cdc_wm.records.numbers import decimals, geometries, vectors
from pyspark_mysql_cdc_wm.records.table_definition import Column, ColumnType
from pyspark_mysql_cdc_wm.records.temporal import temporals
from pyspark_mysql_cdc_wm.records.text_columns import enums, label_column, sets, texts
from tests.unit.mysql.records.located_values import values
from watermark_source.errors import CorruptDataError, UnsupportedFormatError


def _moment(micros: int) -> datetime.datetime:
    return datetime.datetime(2024, 5, 7, 12, 30, 15, micros)  # noqa: DTZ001 - a clock's reading


@pytest.mark.parametrize(
    ("precision", "scale", "stored", "expected"),
    [
        (14, 4, "810DFB38D204D2", "1234567890.1234"),
        (14, 4, "7EF204C72DFB2D", "-1234567890.1234"),
        (2, 2, "81", "0.01"),
        (10, 0, "8000000000", "0"),
    ],
)
def test_decimals(precision: int, scale: int, stored: str, expected: str) -> None:
    content = bytes.fromhex(stored)
    assert decimal_width(precision, scale) == len(content)
    assert decimals(values(content, None), precision, scale).to_pylist() == [Decimal(expected), None]


def stored_decimal(number: str, precision: int, scale: int) -> bytes:
    """Return a DECIMAL as MySQL stores it: nine digits in four bytes, fewer in fewer, the sign in the first bit."""
    whole, _, fraction = number.removeprefix("-").partition(".")
    whole, fraction = whole.zfill(precision - scale), fraction.ljust(scale, "0")
    first = len(whole) % 9
    groups = [whole[:first], *(whole[at : at + 9] for at in range(first, len(whole), 9))]
    groups += [fraction[at : at + 9] for at in range(0, scale, 9)]
    size = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    content = bytearray(b"".join(int(group).to_bytes(size[len(group)], "big") for group in groups if group))
    content[0] ^= 0x80
    return bytes(byte ^ 0xFF for byte in content) if number.startswith("-") else bytes(content)


@pytest.mark.parametrize("digits", range(1, 20))
def test_decimals_of_any_length(digits: int) -> None:
    whole, fraction = "123456789" * 3, "987654321" * 3
    for scale in (0, digits, 1):
        number = f"{whole[: digits - scale] or '0'}.{fraction[:scale]}".removesuffix(".")
        stored = stored_decimal(number if digits > scale else number[1:], digits, scale)
        assert decimal_width(digits, scale) == len(stored)
        assert decimals(values(stored), digits, scale).to_pylist() == [Decimal(number)]


def test_decimals_that_are_too_long_for_arrow_are_texts() -> None:
    numbers = [
        *["-" + "9" * 35 + "." + "9" * 30] * 20,
        "12345678901234567890123456789012345.123456789012345678901234567890",
        "-0.000000000000000000000000000001",
        "7.000000000000000000000000000000",
        "0.000000000000000000000000000000",
    ]
    stored = [stored_decimal(number, 65, 30) for number in numbers]
    assert {len(each) for each in stored} == {decimal_width(65, 30)}
    found = decimals(values(*stored, None), 65, 30)
    found.validate(full=True)
    assert found.to_pylist() == [*numbers, None]


def test_a_decimal_with_too_many_digits_in_a_group_is_damaged() -> None:
    with pytest.raises(CorruptDataError, match="DECIMAL"):
        decimals(values(bytes.fromhex("FFFFFFFFFFFFFF")), 14, 4)


@pytest.mark.parametrize(
    ("digits", "stored", "expected"),
    [
        (6, "99B34EC78F01E240", _moment(123456)),
        (2, "99B34EC78F0C", _moment(120000)),
        (0, "8000000000", None),
        (0, "99A5000000", None),
    ],
)
def test_datetimes(digits: int, stored: str, expected: datetime.datetime | None) -> None:
    column = Column(ColumnType.DATETIME2, precision=digits)
    content = bytes.fromhex(stored)
    assert temporal_width(column) == len(content)
    assert temporals(values(content), column).to_pylist() == [expected]


@pytest.mark.parametrize("year", [1, 4, 100, 400, 1582, 1600, 1900, 1969, 1970, 2000, 2023, 2024, 2100, 9999])
def test_every_day_of_a_year_is_that_of_the_calendar(year: int) -> None:
    days = [datetime.date(year, 1, 1) + datetime.timedelta(i) for i in range(365)]
    stored = [(day.day | day.month << 5 | day.year << 9).to_bytes(3, "little") for day in days]
    assert temporals(values(*stored), Column(ColumnType.DATE)).to_pylist() == days


@pytest.mark.parametrize(
    "day", [(2023, 2, 29), (1900, 2, 29), (2024, 4, 31), (2024, 13, 1), (2024, 0, 1), (2024, 1, 0)]
)
def test_days_that_are_none_are_null(day: tuple[int, int, int]) -> None:
    stored = (day[2] | day[1] << 5 | day[0] << 9).to_bytes(3, "little")
    assert temporals(values(stored), Column(ColumnType.DATE)).to_pylist() == [None]


_DATE, _DATETIME = Column(ColumnType.DATE), Column(ColumnType.DATETIME2, precision=3)


@pytest.mark.parametrize(
    ("column", "stored", "shown"),
    [
        (_DATE, "00b40f", "2010-00-00"),
        (_DATE, "5fd00f", "2024-02-31"),
        (_DATE, "200000", "0000-01-00"),
        (_DATETIME, "8000000000 0032", "0000-00-00 00:00:00.50"),
        (_DATETIME, "800000a000 0000", "0000-00-00 10:00:00"),
        (_DATETIME, "9984800000 0000", "2010-00-00 00:00:00"),
        (Column(ColumnType.DATETIME), (20240230111213).to_bytes(8, "little").hex(), "2024-02-30 11:12:13"),
    ],
)
def test_a_date_of_a_key_that_is_none_is_refused_unless_it_is_zero(column: Column, stored: str, shown: str) -> None:
    content = bytes.fromhex(stored)
    assert temporals(values(content, None), column).to_pylist() == [None, None]
    zero = bytes(len(content)) if column is not _DATETIME else bytes.fromhex("80000000000000")
    assert temporals(values(zero, None), column, of_key=True).to_pylist() == [None, None]
    with pytest.raises(UnsupportedFormatError, match=f"a key of {shown}, which is not a calendar date: such keys"):
        temporals(values(zero, content), column, of_key=True)


def test_times_before_mysql_5_6_are_digits() -> None:
    moment = values((20240507123015).to_bytes(8, "little"), bytes(8))
    assert temporals(moment, Column(ColumnType.DATETIME)).to_pylist() == [
        _moment(0), None,
    ]  # fmt: skip
    clock = values((-8385959).to_bytes(3, "little", signed=True), (10203).to_bytes(3, "little"))
    assert temporals(clock, Column(ColumnType.TIME)).to_pylist() == [
        -datetime.timedelta(hours=838, minutes=59, seconds=59), datetime.timedelta(hours=1, minutes=2, seconds=3),
    ]  # fmt: skip
    stamp = values((1715085015).to_bytes(4, "little"), bytes(4))
    assert temporals(stamp, Column(ColumnType.TIMESTAMP)).to_pylist() == [
        datetime.datetime(2024, 5, 7, 12, 30, 15, tzinfo=datetime.UTC), None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("charset", "codec"),
    [
        ("ucs2", "utf-16-be"),
        ("utf16", "utf-16-be"),
        ("utf16le", "utf-16-le"),
        ("utf32", "utf-32-be"),
        ("koi8r", "koi8_r"),
        ("cp932", "cp932"),
        ("eucjpms", "euc_jp"),
        ("gb18030", "gb18030"),
        ("gbk", "gbk"),
    ],
)
def test_texts_become_utf8(charset: str, codec: str) -> None:
    words = ["Привет", "", "a"] + (["😀é漢"] if charset.startswith(("utf", "gb1")) else [])
    found = texts(values(*(word.encode(codec) for word in words), None), charset)
    found.validate(full=True)
    assert found.to_pylist() == [*words, None]


def test_free_bytes_of_latin1_are_control_characters() -> None:
    assert texts(values(b"\x80\x81\x8d\x8f\x90\x9d\xff"), "latin1").to_pylist() == ["€\x81\x8d\x8f\x90\x9dÿ"]


@pytest.mark.parametrize(
    ("charset", "text", "encoded"),
    [
        ("ujis", "Ａ漢ｶ丂", b"\xa3\xc1\xb4\xc1\x8e\xb6\x8f\xb0\xa1"),
        ("eucjpms", "①丂", b"\xad\xa1\x8f\xb0\xa1"),
        ("cp932", "①~ｶ", b"\x87\x40~\xb6"),
        ("euckr", "한글", b"\xc7\xd1\xb1\xdb"),
        ("big5", "漢字", b"\xba\x7e\xa6\x72"),
        ("gb2312", "汉字", b"\xba\xba\xd7\xd6"),
        ("gb18030", "汉\x80\U0001f600\U0010ffff", b"\xba\xba\x81\x30\x81\x30\x94\x39\xfc\x36\xe3\x32\x9a\x35"),
        # Beyond all characters.
        ("gb18030", "a?", b"a\xe3\x32\x9a\x36"),
    ],
)
def test_characters_of_several_bytes(charset: str, text: str, encoded: bytes) -> None:
    found = texts(values(encoded, None, b""), charset)
    found.validate(full=True)
    assert found.to_pylist() == [text, None, ""]


@pytest.mark.parametrize(("charset", "half"), [("utf16", "d83d"), ("utf16", "d83d0061"), ("utf16le", "3dd83dd8")])
def test_half_a_character_is_damaged(charset: str, half: str) -> None:
    with pytest.raises(CorruptDataError, match=f"{charset} with half a character"):
        texts(values(bytes.fromhex(half)), charset)


@pytest.mark.parametrize(
    ("charset", "half"),
    [
        ("ucs2", "0061d800"), ("ucs2", "d83dde00"), ("utf16", "dc00"), ("utf16le", "00dc"), ("utf32", "0000d800"),
        ("utf32", "00110000"), ("utf8mb4", "61eda080"), ("utf8mb3", "edb080"),
    ],
)  # fmt: skip
def test_half_a_surrogate_pair_is_refused(charset: str, half: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"text with half a surrogate pair .* excludeColumns"):
        texts(values(b"", None, bytes.fromhex(half)), charset)


def test_bytes_of_ascii_that_are_no_character_are_shown_as_the_server_shows_them() -> None:
    assert texts(values(b"a\xff\xc3\xa9z"), "ascii").to_pylist() == ["a???z"]


@pytest.mark.parametrize(
    ("charset", "first", "second", "text"),
    [
        ("cp932", b"\x81\xe0", b"\x87\x90", "≒"), ("cp932", b"\x81\xca", b"a\xee\xf9", "￢"),
        ("eucjpms", b"\xa2\xe2", b"\xad\xf0", "≒"), ("ujis", b"~", b"\x8f\xa2\xb7", "~"),
        ("sjis", b"\x81\x5f", b"\\", "\\"), ("armscii8", b"(", b"\xa5", "("), ("ascii", b"?", b"\xff", "?"),
        # It has no character.
        ("gb2312", b"?", b"\xaa\xa1", "?"), ("greek", b"?", b"\xff", "?"),
    ],
)  # fmt: skip
def test_a_text_of_several_codes_is_a_key_by_its_first_alone(
    charset: str, first: bytes, second: bytes, text: str
) -> None:
    assert has_second_codes(charset)
    assert texts(values(first, None), charset, of_key=True).to_pylist() == [text, None]
    assert texts(values(second), charset).to_pylist()[0].endswith(text)
    with pytest.raises(UnsupportedFormatError, match=f"a key of the character set {charset} .* does not distinguish"):
        texts(values(first, second), charset, of_key=True)


def test_most_character_sets_have_one_code_a_text() -> None:
    alone = {"latin1", "latin2", "koi8r", "utf8mb4", "ucs2", "utf32"}
    assert not set(filter(has_second_codes, alone))
    assert texts(values(b"\xe9"), "latin1", of_key=True).to_pylist() == ["é"]


@pytest.mark.parametrize(
    ("charset", "half"),
    [
        ("big5", b"\xba"), ("gbk", b"a\x81"), ("gbk", b"\x81\x20"), ("ujis", b"\x8f\xb0"), ("ujis", b"\x8e\x40"),
        ("gb18030", b"\x81\x30\x81"), ("gb18030", b"\x81\x30\xff\x30"), ("gb18030", b"\x81\x30\x81\x3a"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_character_are_damaged(charset: str, half: bytes) -> None:
    with pytest.raises(CorruptDataError, match=f"bytes outside the character set {charset}"):
        texts(values(half, b"next"), charset)


def test_a_charset_that_is_not_read_is_named_with_those_that_are() -> None:
    with pytest.raises(UnsupportedFormatError, match=r"here: text in the character set filename.*gbk.*latin1.*utf8"):
        check_charset("filename", "here")


@pytest.mark.parametrize("size", [1, 3])
def test_shapes_and_vectors_that_end_within_a_number_are_damaged(size: int) -> None:
    with pytest.raises(CorruptDataError, match="a geometry of less than four bytes"):
        geometries(values(bytes(8), bytes(size)))
    with pytest.raises(CorruptDataError, match="a vector with a part of a number"):
        vectors(values(bytes(8), bytes(4 + size)))


def test_labels() -> None:
    names = label_column([b"", b"small", "größe".encode("cp1252")], "latin1")
    assert enums(values(b"\x02", b"\0", None, b"\x01"), 1, names).to_pylist() == ["größe", "", None, "small"]
    with pytest.raises(CorruptDataError, match="ENUM of 2 labels has the number 3"):
        enums(values(b"\x03"), 1, names)
    of_set = label_column([b"a", b"b"], "utf8mb4")
    assert sets(values(b"\x03", b"\0", None, b"\x02"), 1, of_set).to_pylist() == [["a", "b"], [], None, ["b"]]
    with pytest.raises(CorruptDataError, match="SET of 2 labels"):
        sets(values(b"\x04"), 1, of_set)


def test_a_set_of_64_labels() -> None:
    names = label_column([b"%d" % i for i in range(64)], "utf8mb4")
    found = sets(values((2**64 - 1).to_bytes(8, "little"), (2**63).to_bytes(8, "little")), 8, names).to_pylist()
    assert found == [[str(i) for i in range(64)], ["63"]]


def test_json_without_content_is_null_and_nesting_has_an_end() -> None:
    assert json_texts(values(b"", None, b"\x04\x01")).to_pylist() == ["null", None, "true"]
    document = b"\x02\x00\x00\x04\x00"
    for _ in range(99):
        inner = document[1:]
        document = (
            b"\x02" + (1).to_bytes(2, "little") + (7 + len(inner)).to_bytes(2, "little") + b"\x02\x07\x00" + inner
        )
    assert json_texts(values(document)).to_pylist() == ["[" * 100 + "]" * 100]
    for _ in range(2):
        inner = document[1:]
        document = (
            b"\x02" + (1).to_bytes(2, "little") + (7 + len(inner)).to_bytes(2, "little") + b"\x02\x07\x00" + inner
        )
    with pytest.raises(CorruptDataError, match="nested deeper"):
        json_texts(values(document))


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_json_or_damaged(documents: list[bytes]) -> None:
    with contextlib.suppress(CorruptDataError):
        for text in json_texts(values(*documents)).to_pylist():
            assert len(text) <= 1 << 20


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floating_point_numbers_in_json_keep_their_value(number: float) -> None:
    (text,) = json_texts(values(b"\x0b" + struct.pack("<d", number))).to_pylist()
    assert struct.pack("<d", json.loads(text)) == struct.pack("<d", number)


def test_json_that_leads_to_the_same_bytes_again_and_again_ends() -> None:
    # Two entries that both lead to the container's own beginning.
    entries = b"\x02\x00\x00" * 2
    looping = b"\x02" + (2).to_bytes(2, "little") + (4 + len(entries)).to_bytes(2, "little") + entries
    with pytest.raises(CorruptDataError, match="JSON"):
        json_texts(values(looping))
