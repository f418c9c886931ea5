"""The scan of JSON finds what the standard library finds, and refuses what that refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_aligned_kafka.records.json_path import JsonPath, parse_path
from pyspark_aligned_kafka.records.json_scan import DEPTH, JsonKind
from tests.unit.kafka.records.json_oracle import BYTE_ORDER_MARK, Nothing, Number, Other, by_the_library, by_the_scan

NAMES = ("a", "b", "é", "a.b", 'q"', "\\", "😀", "", "abcdefgh", "abcdefghi")
AB = JsonPath(("a", "b"))


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (b'{"a":{"b":5}}', Number("5")),
        (b' \t\r\n{ "x" : [1, {"a":{"b":9}}] , "a" : { "b" : "t" } } ', "t"),
        (b'{"a":{"b":1},"a":{"b":2}}', Number("2")),
        (b'{"a":{"b":1},"a":{"c":2}}', Nothing(JsonKind.NOTHING)),
        (b'{"a":{"b":1},"a":3}', Nothing(JsonKind.NOTHING)),
        (b'{"a":{"b":1},"x":{"b":2}}', Number("1")),
        (b'{"a":{"b":1,"b":{}}}', Other()),
        (b'{"\\u0061":{"\\u0062":"\\ud83d\\ude00\\n"}}', "😀\n"),
        (b'{"a":{"b":"\\/"}}', "/"),
        (b'{"a":{"b":"\xf3\xbf\xbf\xbf\xf4\x8f\xbf\xbf"}}', "\U000fffff\U0010ffff"),
        (b'{"s":"}{\\"a\\":{\\"b\\":1}","a":{"b":-0.5e+3}}', Number("-0.5e+3")),
        (b'[{"a":{"b":1}}]', Nothing(JsonKind.NOTHING)),
        (b'{"a":[{"b":1}]}', Nothing(JsonKind.NOTHING)),
        (b'{"a":{"b":null}}', Other()),
        (b'{"a":{"b":-Infinity}}', Other()),
        (BYTE_ORDER_MARK + b'{"a":{"b":1}}', Number("1")),
        (None, Nothing(JsonKind.NO_DOCUMENT)),
        *(
            (wrong, Nothing(JsonKind.NO_JSON))
            for wrong in (
                b"", b" ", b"{", b'{"a":{"b":1}', b'{"a":{"b":1}}}', b'{"a":{"b":1}} x', b'{"a":{"b":1},}', b"[1,]",
                b'{"a":{"b":01}}', b'{"a":{"b":1.}}', b'{"a":{"b":.5}}', b'{"a":{"b":1e}}', b'{"a":{"b":+1}}', b"-",
                b'{"a":{"b":"\xf5\x80\x80\x80"}}', b'{"a":{"b":"\\."}}',
                b'{"a":{"b":"\n"}}', b'{"a":{"b":"\\x"}}', b'{"a":{"b":"\\u12"}}', b'{"a":{"b":"\xff"}}',
                b'{"a":{"b":"\\u12G4"}}', b'"\\u12', b'"\xc2', b'"\xe0\xa0', b'"\xf0\x90\x80',
                b"nul", b"{1:2}",
                b'{"a":{"b":"\xc0\xaf"}}', b'{"a":{"b":"\xe0\x80\x80"}}', b'{"a":{"b":"\xf4\x90\x80\x80"}}', b'{"a" 1}',
                b"{,}", b"[,]", b"]", b"}", b'{"a":}', b'"', b'"\\', b"1 2", b"[1 2]", b'{"a":1 "b":2}',
                b"-Infinit", b"fals", b"Infixxxx", b"xxxxnity", b'{"a"x1}', b"[1}", b'{"a":1]',
            )
        ),
    ],
)  # fmt: skip
def test_what_is_at_a_path(document: bytes | None, found: Any) -> None:
    assert by_the_scan([document], AB) == [found] == [by_the_library(document, AB)]


@pytest.mark.parametrize(
    ("document", "text", "found"),
    [
        (b'{"a":[{"t":1},{"t":2}]}', "$.a[0].t", Number("1")),
        (b'{"a":[{"t":1},{"t":2}]}', "$.a[1].t", Number("2")),
        (b'{"a":[{"t":1},{"t":2}]}', "$.a[2].t", Nothing(JsonKind.NOTHING)),
        (b'{"a":[]}', "$.a[0]", Nothing(JsonKind.NOTHING)),
        (b'{"a":[0,[1,"x"],2]}', "$.a[1][1]", "x"),
        (b'[[7,8],{"0":1,"a":[9]}]', "$[1].a[0]", Number("9")),
        (b'[[[1],[2]],[[3],[4]]]', "$[1][0][0]", Number("3")),
        (b'{"a":{"0":1}}', "$.a[0]", Nothing(JsonKind.NOTHING)),
        (b'{"a":[1]}', "$.a['0']", Nothing(JsonKind.NOTHING)),
        (b'{"a":[1,2],"a":[3]}', "$.a[1]", Nothing(JsonKind.NOTHING)),
        (b'{"a":[1,2],"b":[5,6,7]}', "$.a[1]", Number("2")),
        (b'[1,{"a":[2,3]},4]', "$[2]", Number("4")),
        (b'[1,[2],[]]', "$[2]", Other()),
    ],
)  # fmt: skip
def test_an_element_of_an_array_is_counted_from_0(document: bytes, text: str, found: Any) -> None:
    path = parse_path(text)
    assert by_the_scan([document], path) == [found] == [by_the_library(document, path)]


@pytest.mark.parametrize("name", [*"\x80\u07ff\u0800\uffff\U00010000\U0010ffff", "a\U00011001é", '/"\\\b\f\n\r\t'])
def test_a_name_is_the_same_however_it_is_written(name: str) -> None:
    units = memoryview(name.encode("utf-16-le")).cast("H")
    in_hex = '"' + "".join(f"\\u{unit:04X}" for unit in units) + '"'
    for own in (json.dumps(name), json.dumps(name, ensure_ascii=False), in_hex):
        document = f"{{{own}:5}}".encode()
        assert by_the_scan([document], JsonPath((name,))) == [Number("5")]
        for other in (f"{name}x", name[:-1], f"x{name}", f"x{name[1:]}", name[:-1] + chr(ord(name[-1]) ^ 1)):
            assert by_the_scan([document], JsonPath((other,))) == [Nothing(JsonKind.NOTHING)]


@pytest.mark.parametrize(
    ("document", "other"),
    [
        # Not one character of two halves, but two of them.
        (rb'{"\ud83d\u0041":5}', "😀"),
        (rb'{"\ud83dude00":5}', "😀"),
        (rb'{"\ud83d\nde00":5}', "😀"),
        (rb'{"\ude00\ud83d":5}', "😀"),
    ],
)
def test_half_a_character_is_no_name_of_another(document: bytes, other: str) -> None:
    path = JsonPath((other,))
    assert by_the_scan([document], path) == [Nothing(JsonKind.NOTHING)] == [by_the_library(document, path)]


@pytest.mark.parametrize("document", [b"5", b' "x" ', b"{}", b"[", b"null"])
def test_without_a_name_the_document_itself_is_meant(document: bytes) -> None:
    assert by_the_scan([document], JsonPath(())) == [by_the_library(document, JsonPath(()))]


def test_documents_may_be_deep_and_not_too_deep() -> None:
    deep = [b"[" * depth + b"]" * depth for depth in (DEPTH - 100, DEPTH, DEPTH + 1)]
    assert by_the_scan(deep, AB) == [Nothing(JsonKind.NOTHING), Nothing(JsonKind.NOTHING), Nothing(JsonKind.NO_JSON)]
    behind = b'{"x":' + b'{"a":' * 500 + b"1" + b"}" * 500 + b',"a":{"b":7}}'
    assert by_the_scan([behind], AB) == [Number("7")]


texts = st.text(max_size=12) | st.sampled_from(NAMES)
numbers = st.sampled_from(["0", "-0", "17", "1e5", "-2.50E-03", "123456789012345678901234567890", "0.1"])
spaces = st.sampled_from(["", "", "", " ", "\n\t", "        "])


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """A string as JSON, escaped or not."""
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def documents(draw: st.DrawFn, depth: int = 3) -> str:
    """JSON in any writing, with names that come twice."""
    before, after = draw(spaces), draw(spaces)
    kind = draw(
        st.sampled_from(["object", "object", "array", "text", "number", "word"] if depth else ["text", "number"])
    )
    if kind == "object":
        members = draw(st.lists(st.tuples(st.sampled_from(NAMES) | texts, documents(depth - 1)), max_size=5))
        parts = [f"{draw(spaces)}{draw(written(name))}{draw(spaces)}:{value}" for name, value in members]
        made = "{" + (",".join(parts) or draw(spaces)) + "}"
    elif kind == "array":
        made = "[" + (",".join(draw(st.lists(documents(depth - 1), max_size=4))) or draw(spaces)) + "]"
    elif kind == "text":
        made = draw(written(draw(texts)))
    else:
        made = draw(numbers if kind == "number" else st.sampled_from(["true", "false", "null", "NaN", "-Infinity"]))
    return before + made + after


steps: st.SearchStrategy[str | int] = st.sampled_from(NAMES) | st.integers(0, 3)
paths = st.lists(steps, max_size=3).map(lambda found: JsonPath(tuple(found)))


@given(st.lists(documents().map(lambda text: text.encode("utf-8", "surrogatepass")), max_size=6), paths)
def test_every_document_is_read_as_by_the_standard_library(made: list[bytes], path: JsonPath) -> None:
    assert by_the_scan(made, path) == [by_the_library(each, path) for each in made]


@given(documents(), st.data(), paths)
def test_documents_with_broken_bytes_are_refused_as_by_the_standard_library(
    text: str, data: st.DataObject, path: JsonPath
) -> None:
    broken = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(broken)))
        end = data.draw(st.integers(at, min(len(broken), at + 3)))
        new = st.binary(max_size=2) | st.sampled_from([b"", b'"', b"\\", b"{", b"}", b",", b":", b"1", b"\\u00"])
        broken[at:end] = data.draw(new)
    assert by_the_scan([bytes(broken)], path) == [by_the_library(bytes(broken), path)]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("$", ()), ("$.a", ("a",)), ("$.order.created_at", ("order", "created_at")), ("$['a.b']", ("a.b",)),
        ('$["it\'s"].x', ("it's", "x")), ("$['it\\'s \"x\"']", ("it's \"x\"",)), ("$.é", ("é",)),
        ("$.events[0].time", ("events", 0, "time")), ("$[12][3]", (12, 3)), ("$['0'][\"1\"]", ("0", "1")),
    ],
)  # fmt: skip
def test_paths_name_members_and_elements(text: str, steps: tuple[str | int, ...]) -> None:
    path = parse_path(text)
    assert path == JsonPath(steps)
    assert parse_path(str(path)) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        ".a",
        "$a",
        "$.",
        "$..a",
        "$[-1]",
        "$[01]",
        "$[1:2]",
        "$[1234567890]",
        "$.a[*]",
        "$.a ",
        "$['a'",
        "$.*[",
        "$.a.'b'",
    ],
)
def test_what_names_neither_member_nor_element_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must begin with"):
        parse_path(text)
