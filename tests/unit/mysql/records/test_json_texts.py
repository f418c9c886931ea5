"""JSON in MySQL's binary form: documents written down here to the text that the server shows, and what cannot be."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from typing import Any

import pytest

from pyspark_mysql_cdc_wm.records.json_texts import json_texts
from pyspark_mysql_cdc_wm.records.table_definition import ColumnType
from tests.unit.mysql.records.located_values import values
from tests.unit.mysql.records.test_values import stored_decimal
from watermark_source.errors import CorruptDataError

_INTEGERS = {5: (2, True), 6: (2, False), 7: (4, True), 8: (4, False), 9: (8, True), 10: (8, False)}


class Opaque(bytes):
    """A value that is written as it is: its type, its size and its bytes."""


def opaque(kind: int, content: bytes) -> Opaque:
    return Opaque(bytes([kind]) + varlen(len(content)) + content)


def varlen(size: int) -> bytes:
    groups = [size & 0x7F]
    while size := size >> 7:
        groups[-1] |= 0x80
        groups.append(size & 0x7F)
    return bytes(groups)


def encoded(value: Any, large: bool = False) -> tuple[int, bytes]:
    """A value's type and its bytes; containers have numbers of two bytes, or of four."""
    if isinstance(value, Opaque):
        return 15, bytes(value)
    if value is None or isinstance(value, bool):
        return 4, bytes([(None, True, False).index(value)])
    if isinstance(value, int):
        for kind, (size, signed) in _INTEGERS.items():
            low, high = (-(1 << 8 * size - 1), 1 << 8 * size - 1) if signed else (0, 1 << 8 * size)
            if low <= value < high:
                return kind, value.to_bytes(size, "little", signed=signed)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, varlen(len(value.encode())) + value.encode()
    return (0 if isinstance(value, dict) else 2) + large, _container(value, large)


def _container(value: dict[str, Any] | list[Any], large: bool) -> bytes:
    width = 4 if large else 2
    names = [name.encode() for name in value] if isinstance(value, dict) else []
    members = [encoded(each, large) for each in (value.values() if isinstance(value, dict) else value)]
    begin = 2 * width + len(names) * (width + 2) + len(members) * (1 + width)
    head, heap = b"", b"".join(names)
    at = begin
    for name in names:
        head += at.to_bytes(width, "little") + len(name).to_bytes(2, "little")
        at += len(name)
    for kind, content in members:
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            head += bytes([kind]) + content.ljust(width, b"\0")
        else:
            head += bytes([kind]) + (begin + len(heap)).to_bytes(width, "little")
            heap += content
    return len(members).to_bytes(width, "little") + (begin + len(heap)).to_bytes(width, "little") + head + heap


def stored(value: Any, large: bool = False) -> bytes:
    kind, content = encoded(value, large)
    return bytes([kind]) + content


DOCUMENTS: tuple[Any, ...] = (
    [], {}, [None, True, False], {"a": None}, {"": "", "é": [{"b": [[]]}, {}]}, [[], [[1], 2]],
    [-(2**15), 2**15 - 1, 2**16 - 1, -(2**31), 2**31 - 1, 2**32 - 1, -(2**63), 2**63 - 1, 2**64 - 1, 0, -1, 10],
    {"long": "é" * 64, "longer": "x" * 16_384, "n": "é😀", "w": ["a", "b", {"c": 5}]},
    ['"\\\b\f\n\r\t/', "\x00\x1f\x7f\x01"], ["x" * 127, "x" * 128], 70_000, -70_000, "text", None, True, 2**40,
)  # fmt: skip


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_documents_are_as_the_server_shows_them(large: bool) -> None:
    # Several of a column, behind each other and between nulls.
    found = json_texts(values(None, *(stored(each, large) for each in DOCUMENTS), None))
    found.validate(full=True)
    shown = [json.dumps(each, ensure_ascii=False) for each in DOCUMENTS]
    assert found.to_pylist() == [None, *shown, None]


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-2.5, "-2.5"), (0.1, "0.1"), (100.0, "100.0"),
        (1e14, "100000000000000.0"), (1e15, "1e15"), (123456789012345.6, "123456789012345.6"), (123.456, "123.456"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"), (-1.5e300, "-1.5e300"), (2.25e-200, "2.25e-200"), (1e20, "1e20"), (1.5e101, "1.5e101"),
        (1.7976931348623157e308, "1.7976931348623157e308"), (5e-324, "5e-324"), (0.012, "0.012"), (1e100, "1e100"),
        (-1.2345678901234568e-300, "-1.2345678901234568e-300"), (10.5, "10.5"), (7e-10, "0.0000000007"),
    ],
)  # fmt: skip
def test_floating_point_numbers_are_as_the_server_shows_them(number: float, shown: str) -> None:
    found = json_texts(values(stored([number, "a", 0.5]), None, stored(number), stored({"a": -3.25, "b": number})))
    found.validate(full=True)
    assert found.to_pylist() == [f'[{shown}, "a", 0.5]', None, shown, f'{{"a": -3.25, "b": {shown}}}']


def test_many_floating_point_numbers_have_room() -> None:
    numbers = [-1.2345678901234568e-300] * 40
    shown = ", ".join(["-1.2345678901234568e-300"] * 40)
    assert json_texts(values(stored(numbers), stored(numbers))).to_pylist() == [f"[{shown}]"] * 2


def _packed(whole: int, micros: int, sign: int = 1) -> bytes:
    return (sign * (whole << 24 | micros)).to_bytes(8, "little", signed=True)


_LONG = "9" * 35 + "." + "8" * 30
_DAY, _CLOCK = (2024 * 13 + 5) << 22 | 7 << 17, 12 << 12 | 30 << 6 | 15


@pytest.mark.parametrize(
    ("kind", "content", "shown"),
    [
        (ColumnType.NEWDECIMAL, b"\x06\x02" + stored_decimal("-1234.50", 6, 2), "-1234.50"),
        (ColumnType.NEWDECIMAL, b"\x41\x1e" + stored_decimal(_LONG, 65, 30), _LONG),
        (ColumnType.NEWDECIMAL, b"\x01\x00\x87", "7"),
        (ColumnType.NEWDECIMAL, b"\x02\x02\x8c", "0.12"),
        (ColumnType.DATE, _packed(_DAY, 0), '"2024-05-07"'),
        (ColumnType.DATETIME, _packed(_DAY | _CLOCK, 120), '"2024-05-07 12:30:15.000120"'),
        (ColumnType.TIMESTAMP, _packed(_DAY | _CLOCK, 0), '"2024-05-07 12:30:15.000000"'),
        (ColumnType.TIME, _packed(838 << 12 | 59 << 6 | 58, 1), '"838:59:58.000001"'),
        (ColumnType.TIME, _packed(1 << 12 | 2 << 6 | 3, 4, -1), '"-01:02:03.000004"'),
        (ColumnType.TIME, _packed(0, 0), '"00:00:00.000000"'),
        (ColumnType.BLOB, b"", '"base64:type252:"'),
        (ColumnType.BIT, b"\xff\xfe\xfd\xfc", '"base64:type16://79/A=="'),
        (ColumnType.VARCHAR, b"ab", '"base64:type15:YWI="'),
    ],
)  # fmt: skip
def test_values_that_json_has_not_by_itself_are_as_the_server_shows_them(
    kind: ColumnType, content: bytes, shown: str
) -> None:
    found = json_texts(values(stored(opaque(kind, content)), stored([opaque(kind, content), 1])))
    assert found.to_pylist() == [shown, f"[{shown}, 1]"]


@pytest.mark.parametrize("size", [56, 57, 58, 114, 115, 300])
def test_long_bytes_have_lines(size: int) -> None:
    content = bytes(i % 256 for i in range(size))
    lines = "\\n".join(b64encode(content[at : at + 57]).decode() for at in range(0, size, 57))
    found = json_texts(values(stored(opaque(ColumnType.BLOB, content)))).to_pylist()
    assert found == [f'"base64:type252:{lines}"']


_OBJECT, _ARRAY = stored({"a": "text"}), stored(["text"])


@pytest.mark.parametrize(
    "document",
    [
        b"\x10\0\0", b"\x0d\0", b"\x0e\0", b"\x04", b"\x04\x03", b"\x05\0", b"\x07\0\0\0", b"\x0a" + bytes(7),
        b"\x0b" + bytes(7), b"\x0c", b"\x0c\x02a", b"\x0c\x80", b"\x0c" + b"\x80" * 5 + b"\0", b"\x0c\x81", b"\x0f",
        b"\x0f\xfc",
        b"\x0f\xfc\x02a", b"\x0f\xf6\x02\x01\x00", b"\x0f\xf6\x03\x00\x00\x80", b"\x0f\xf6\x03\x52\x00\x80",
        b"\x0f\xf6\x03\x01\x02\x80", b"\x0f\xf6\x03\x03\x00\x80",
        b"\x0f\xf6\x27\x52\x00\x80" + bytes(36), b"\x0f\xf6\x04\x06\x02\x80\x00",
        b"\x0f\x0a\x07" + bytes(7), b"\x0f\x0c\x09" + bytes(9),
        b"\x02\x00\x00\x04", b"\x00\x00\x00\x03", b"\x03\x00\x00\x00\x00\x08\x00\x00", b"\x02\x00\x00\x05\x00",
        # A container that is larger than its value, or than its own size states; what leads out of it.
        b"\x02\x01\x00\x06\x00\x04\x00\x00", b"\x00\x01\x00\x08\x00" + bytes(7),
        b"\x03\x01\0\0\0\x0c\0\0\0\x04" + bytes(4),
        b"\x01\x01\0\0\0\x12\0\0\0" + bytes(11),
        _ARRAY.replace(b"\x0c\x07\x00", b"\x0c\x0c\x00"), _ARRAY.replace(b"\x0c\x07\x00", b"\x0c\xff\xff"),
        _OBJECT.replace(b"\x0b\x00\x01\x00", b"\x0b\x00\xff\x00"),
        _OBJECT.replace(b"\x0b\x00\x01\x00", b"\x11\x00\x01\x00"),
    ],
    ids=bytes.hex,
)  # fmt: skip
def test_documents_that_do_not_fit_their_value_are_damaged(document: bytes) -> None:
    with pytest.raises(CorruptDataError, match="a JSON document that does not fit its value"):
        json_texts(values(document, stored([1] * 20)))


@pytest.mark.parametrize("entries", range(6, 12))
def test_documents_that_repeat_one_text_have_an_end(entries: int) -> None:
    # A document of the server shows each of its bytes once, so its text has room.
    text = b"\x64" + b"x" * 100
    place = (4 + 3 * entries).to_bytes(2, "little")
    size = (4 + 3 * entries + len(text)).to_bytes(2, "little")
    document = b"\x02" + entries.to_bytes(2, "little") + size + (b"\x0c" + place) * entries + text
    try:
        (found,) = json_texts(values(document)).to_pylist()
    except CorruptDataError:
        assert entries >= 8
    else:
        assert entries < 8
        assert found == "[" + ", ".join(['"' + "x" * 100 + '"'] * entries) + "]"


def test_a_decimal_is_read_up_to_its_end() -> None:
    document = stored([opaque(ColumnType.NEWDECIMAL, b"\x02\x01\x81\x05"), False])
    assert json_texts(values(document)).to_pylist() == ["[1.5, false]"]
