"""JSON values as a struct column: what is read, what is null and why, and that no bytes do anything else."""

from __future__ import annotations

import random
import re
import tracemalloc
from decimal import Decimal
from typing import Any

import pytest

from pyspark_aligned_kafka.records.payload import PayloadChoice
from pyspark_aligned_kafka.records.payload_columns import JsonReader
from pyspark_aligned_kafka.records.payload_exact import ExactReader, java_double
from pyspark_aligned_kafka.records.payload_formats import payload_reader
from pyspark_aligned_kafka.records.payload_schema import parse_schema
from pyspark_aligned_kafka.records.payload_times import day_of_text, moment_of_text
from tests.payload_documents import EVERY_TYPE, Documents, block_by, decoded, random_schema, read_by, values_of
from watermark_source.errors import PayloadError


def row(document: bytes | None, schema: str = EVERY_TYPE, **choice: Any) -> dict[str, Any] | None:
    """Return the members of one document that are not null."""
    (found,) = values_of(decoded(schema, [document], **choice))
    return None if found is None else {name: value for name, value in found.items() if value is not None}


# As Spark's from_json reads them: recorded from it.
READ: list[tuple[bytes | None, dict[str, Any] | None]] = [
    (None, None),
    (b"", None),
    (b" \n\t", None),
    (b"{}", {}),
    (b'{"i":1} trailing', {"i": 1}),
    (b'{"i":1,"i":2}', {"i": 2}),
    (b'{"i":1,"i":null}', {}),
    (b'{"st":{"x":1},"st":{"y":"a"}}', {"st": {"x": None, "y": b"a"}}),
    (b"{'i':1,'s':'a\"b'}", {"i": 1, "s": b'a"b'}),
    (b'{"I":1}', {}),
    (b'{"\\u0069":1}', {"i": 1}),
    (b'{"i":-0,"t":-128}', {"i": 0, "t": -128}),
    (b'{"t":200}', {"t": -56}),
    (b'{"d":NaN}', {"d": "nan"}),
    (b'{"d":"-INF"}', {"d": "-inf"}),
    (b'{"d":-0}', {"d": "0.0"}),
    (b'{"d":-0.0}', {"d": "-0.0"}),
    (b'{"d":12345678901234567890123}', {"d": "1.2345678901234568e+22"}),
    (b'{"f":16777217,"d":0.30000000000000004}', {"f": "16777216.0", "d": "0.30000000000000004"}),
    (b'{"dec":1.005}', {"dec": Decimal("1.01")}),
    (b'{"dec":-1.005}', {"dec": Decimal("-1.01")}),
    (b'{"dec":"1,000.25"}', {"dec": Decimal("1000.25")}),
    (b'{"dec":1e-500}', {"dec": Decimal("0.00")}),
    (b'{"s":1.10}', {"s": b"1.1"}),
    (b'{"s":1e3}', {"s": b"1000.0"}),
    (b'{"s":-0}', {"s": b"0"}),
    (b'{"s":NaN}', {"s": b'"NaN"'}),
    (b'{"s":{"a" : 1.10 , "b":[1, 2,"x\\u0041\\/\\n"],"c":null}}', {"s": b'{"a":1.1,"b":[1,2,"xA/\\n"],"c":null}'}),
    (b'{"s":{"a":"\\ud83d\\ude00 \\u0001"}}', {"s": b'{"a":"\\uD83D\\uDE00 \\u0001"}'}),
    (b'{"s":"\\u00e9\\ud83d\\ude00"}', {"s": "é\U0001f600".encode()}),
    (b'{"s":"\\ud83d"}', {"s": b"?"}),
    (b'{"s":"\xff\xfe"}', {"s": "\ufffd\ufffd".encode()}),
    (b'{"s":"\xed\xa0\x80"}', {"s": "\ufffd".encode()}),
    (b'{"bin":"QUJD QUI="}', {"bin": b"ABCAB"}),
    (b'{"ar":[1,null,3],"m":{"a":1,"a":2},"ast":[null,{}]}',
     {"ar": [1, None, 3], "m": [(b"a", 1), (b"a", 2)], "ast": [None, {"x": None}]}),
    (b'{"ts":"2026-11-27T12:00:00.123456789+01:00"}', {"ts": 1795777200123456}),
    (b'{"ts":"2026-11-27 12:00:00"}', {"ts": 1795780800000000}),
    (b'{"ts":1764244800}', {"ts": 1764244800000000}),
    (b'{"d":-0}', {"d": "0.0"}),
    (b'{"d":-0e5}', {"d": "-0.0"}),
    (b'{"d":-0.00e9}', {"d": "-0.0"}),
    (b'{"d":-0e-5}', {"d": "-0.0"}),
    (b'{"da":"2026-11-27"}', {"da": 20784}),
    (b'{"da":"0001-01-01"}', {"da": -719162}),
    (b'{"da":"5881580-07-11"}', {"da": 2**31 - 1}),
    (b'{"da":"-5877641-06-23"}', {"da": -(2**31)}),
    (b'{"da":"9999999"}', {"da": 9999999}),
    (b'{"l":-9223372036854775808}', {"l": -(2**63)}),
    (b'{"z":' + b"[" * 999 + b"]" * 999 + b',"i":1}', {"i": 1}),
]  # fmt: skip
# Bad: what Spark keeps, and the document.
BAD: list[tuple[bytes, dict[str, Any]]] = [
    (b"null", {}),
    (b'[{"i":1}]', {}),
    (b"\xef\xbb\xbf{}", {}),
    (b'{"i":1,"i":"x"}', {"i": 1}),
    (b'{"i":"x","l":2}', {"l": 2}),
    (b'{"i":2147483648,"l":2}', {"l": 2}),
    (b'{"l":9223372036854775808,"i":2}', {"i": 2}),
    (b'{"l":-9999999999999999999,"i":2}', {"i": 2}),
    (b'{"l":18446744073709551617,"i":2}', {"i": 2}),
    (b'{"da":"5881580-07-12","l":2}', {"l": 2}),
    (b'{"da":"-5877641-06-22","l":2}', {"l": 2}),
    (b'{"i":1.0,"l":2}', {"l": 2}),
    (b'{"i":"","l":2}', {"l": 2}),
    (b'{"b":"true","l":2}', {"l": 2}),
    (b'{"d":"1.5","l":2}', {"l": 2}),
    (b'{"dec":1e10,"l":2}', {"l": 2}),
    (b'{"ts":"2026-02-29","da":"now","l":2}', {"l": 2}),
    (b'{"st":{"x":"a","y":"k"},"l":2}', {"l": 2, "st": {"x": None, "y": b"k"}}),
    (b'{"ar":[1,"x",3],"l":2}', {"l": 2}),
    (b'{"m":{"a":"x","b":2},"l":2}', {"l": 2}),
    (b'{"ast":[{"x":1},{"x":"a"}],"l":2}', {"l": 2, "ast": [{"x": 1}, {"x": None}]}),
    (b'{"bin":"QU*D","l":2}', {"l": 2}),
    # Spark's parser reads beyond the end of these two, and keeps nothing.
    (b'{"bin":"QA=","l":2}', {"l": 2}),
    (b'{"bin":"QUJDQ","l":2}', {"l": 2}),
    (b"{'bin':'Q','l':2}", {"l": 2}),
    (b'{"bin":"QUI","l":2}', {"l": 2}),
    (b'{"bin":"Q=","l":2}', {"l": 2}),
    (b'{"bin":"QQ=A","l":2}', {"l": 2}),
    (b'{"i":01}', {}),
    (b'{"i":1,"s":"\x01"}', {}),
    (b'{"i":1,"s":"\\q"}', {}),
    (b'{"i":1,}', {}),
    (b'{"i":1', {}),
    (b"{i:1}", {}),
    (b'{"z":' + b"[" * 1_000 + b"]" * 1_000 + b',"i":1}', {}),
    (b'{"i":1,"z":' + b"1" * 1_001 + b"}", {}),
]  # fmt: skip


@pytest.mark.parametrize(("document", "members"), READ, ids=lambda each: repr(each)[:40])
def test_a_document_is_read_as_spark_reads_it(document: bytes | None, members: dict[str, Any] | None) -> None:
    assert row(document) == members


@pytest.mark.parametrize(("document", "members"), BAD, ids=lambda each: repr(each)[:40])
def test_a_bad_document_keeps_what_fits_and_its_text(document: bytes, members: dict[str, Any]) -> None:
    assert row(document) == {**members, "_corrupt_record": document}


def test_a_bad_document_spoils_no_other() -> None:
    good = [b'{"i":%d}' % number for number in range(1_000)]
    documents = [b"{" if number % 100 == 7 else each for number, each in enumerate(good)]
    found = [each["i"] for each in values_of(decoded("i INT", documents))]
    assert found == [None if number % 100 == 7 else number for number in range(1_000)]


@pytest.mark.parametrize(("document", "_"), BAD, ids=lambda each: repr(each)[:40])
def test_failfast_names_the_first_bad_document(document: bytes, _: object) -> None:
    with pytest.raises(PayloadError, match=r"orders.* 1: the value does not fit valueSchema: "):
        decoded(EVERY_TYPE, [b"{}", document, document], fail_fast=True)


def test_a_record_is_shown_only_where_the_user_lets_it() -> None:
    choice = PayloadChoice(parse_schema("card INT"), fail_fast=True, shows_records=False)
    with pytest.raises(PayloadError) as raised:
        read_by(JsonReader(choice), [b'{"card":"4000-1234"}'])
    assert "4000" not in str(raised.value)
    assert "card: it does not fit INT" in str(raised.value)


def test_the_mode_of_keys_has_the_name_of_its_option() -> None:
    choice = PayloadChoice(parse_schema("card INT"), field="key", fail_fast=True)
    with pytest.raises(PayloadError, match=r"the key does not fit keySchema: .* valueMode is FAILFAST"):
        read_by(JsonReader(choice), [b"{"])


RIDE = b'{"id":7,"trip":{"driver":3,"fare":2.5,"at":{"lat":1}}}'


@pytest.mark.parametrize(
    ("schema", "documents", "reported"),
    [
        (
            "driver INT, fare DOUBLE", [RIDE, None],
            r"have no driver, fare, which valueSchema .* are id, trip\. Write trip STRUCT<driver INT, fare DOUBLE>$",
        ),
        ("id INT, Lat INT", [RIDE], "have no Lat, .* Write trip STRUCT<at STRUCT<lat INT>>"),
        ("ID INT, n STRUCT<x: INT>", [RIDE], r"have no ID, n\.x, .* Write id INT$"),
        ("order STRUCT<a: INT>", [RIDE], r"have no order\.a, .*; their members are id, trip$"),
        # What is left out, or null, in all documents is there in others.
        ("id INT, note STRING", [RIDE], None),
        ("id INT, fare DOUBLE", [RIDE, b'{"fare":null}'], None),
        ("id INT, fare DOUBLE, trip STRUCT<fare: DOUBLE>", [RIDE], None),
        ("driver INT", [b"[]", b"{", None], None),
        ("driver INT", [b"{}"], None),
        ("id INT, fare INT, trip MAP<STRING, STRING>", [RIDE], None),
    ],
)  # fmt: skip
def test_members_that_a_schema_has_at_another_place_than_the_documents_are_reported_once(
    schema: str, documents: list[bytes | None], reported: str | None
) -> None:
    texts: list[tuple[str, str]] = []
    choice = PayloadChoice(parse_schema(schema), warn=lambda *each: texts.append(each))
    reader = JsonReader(choice)
    for block in ([None], documents, documents):
        read_by(reader, block)
    found = [text for text, about in texts if about == "misplaced"]
    assert len(found) == (reported is not None)
    assert reported is None or re.search(reported, found[0])


def test_the_names_of_members_are_shown_only_where_the_user_lets_it() -> None:
    texts: list[str] = []
    choice = PayloadChoice(parse_schema("fare INT"), shows_records=False, warn=lambda text, _: texts.append(text))
    read_by(JsonReader(choice), [RIDE])
    assert "have no fare, which valueSchema names: null in every row; recordsInErrors=true shows" in texts[0]
    assert "trip" not in texts[0]


def test_the_compiled_walk_reads_what_the_exact_reader_reads() -> None:
    """Each document alone, once as it is and once so that only the exact reader takes it."""
    chance = random.Random(7)
    for _ in range(30):
        schema = random_schema(chance)
        made = Documents(schema, chance)
        documents = [each for each in (made.one() for _ in range(100)) if each is not None and each[:1] == b"{"]
        # An object that begins with a name in single quotes is left to the exact reader.
        odd = [re.sub(rb"^\{", b"{'':0,", each) if each.strip() != b"{}" else b"{'':0}" for each in documents]
        plain, exact = values_of(decoded(schema, documents)), values_of(decoded(schema, odd))
        for each, one, other in zip(documents, plain, exact, strict=True):
            if b'""' in each or re.match(rb"\{\s*\}", each):
                continue
            other["_corrupt_record"] = None if other["_corrupt_record"] is None else each
            assert one == other, each


@pytest.mark.parametrize("seed", range(20))
def test_hostile_bytes_give_nulls_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    parts = [
        b"{", b"}", b"[", b"]", b'"', b"'", b":", b",", b"\\", b"\\u12", b"1e999999999", b"-", b"\xff", b"\xed\xa0",
        b"true", b"nul", b" ", b'"s"', b'"dec"', b'"ts"', b'"ast"', b'"m"', b'"bin"', b"9" * 400, b"\x00", b"[" * 2_000,
        b'{"a":' * 600,
    ]  # fmt: skip
    documents = [b"{" + b"".join(chance.choices(parts, k=chance.randrange(12))) for _ in range(300)]
    column = decoded(EVERY_TYPE, documents)
    column.validate(full=False)
    assert len(column) == 300


def test_a_huge_exponent_costs_no_time() -> None:
    """Java computes all digits of such a decimal."""
    for document in (b'{"dec":"1e2147483647"}', b'{"dec":1e2147483647}', b'{"dec":"9.9e1000000000"}'):
        assert row(document) == {"_corrupt_record": document}
    for document in (b'{"dec":"0e2147483647"}', b'{"dec":"1e-2147483647"}'):
        assert row(document) == {"dec": Decimal("0.00")}
    assert row(b'{"dec":1e400000000,"l":1}') == {"l": 1, "_corrupt_record": b'{"dec":1e400000000,"l":1}'}
    assert row(b'{"dec":1e-400000000,"l":1}') == {"l": 1, "dec": Decimal("0.00")}


def test_whole_numbers_of_64_bits_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids and nanoseconds have nineteen digits, and the exact reader takes twenty times as long."""
    monkeypatch.delattr(ExactReader, "read")
    numbers = [2**63 - 1, 1 - 2**63, 10**18, 1_764_244_800_123_456_789]
    found = values_of(decoded("l BIGINT", [b'{"l":%d}' % number for number in numbers]))
    assert found == [{"l": number} for number in numbers]


def test_the_memory_for_base64_is_a_few_times_that_of_its_text() -> None:
    document = b"{'bin':'" + b"QUJD" * 250_000 + b"'}"
    tracemalloc.start()
    try:
        (found,) = values_of(decoded("bin BINARY", [document]))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == {"bin": b"ABC" * 250_000}
    assert most < 20 * len(document)


def test_a_long_text_is_read_whatever_is_beside_it() -> None:
    text = b"x" * 20_000_001
    for document in (b'{"s":"%s"}' % text, b"{'s':'%s'}" % text):
        assert values_of(decoded("s STRING", [document])) == [{"s": text}]


def test_long_lists_have_room() -> None:
    long = b"[" + b",".join(b"%d" % number for number in range(50_000)) + b"]"
    (found,) = values_of(
        decoded("ar ARRAY<INT>, m MAP<STRING, ARRAY<INT>>", [b'{"m":{"k":%s},"ar":%s}' % (long, long)])
    )
    assert found == {"ar": list(range(50_000)), "m": [(b"k", list(range(50_000)))]}


def test_a_document_behind_the_id_of_a_schema_is_read_without_it() -> None:
    choice = PayloadChoice(parse_schema("i INT, _corrupt_record STRING"), framed=True)
    head = b"\x00\x00\x00\x01\x02"
    found = block_by(
        payload_reader(choice), [head + b'{"i":1}', None, b'{"i":1}', head + b"{'i':2}", head[:4], head, head + b"{"]
    )
    bad = [{"i": None, "_corrupt_record": text} for text in (b'{"i":1}', head[:4], b"{")]
    good = [{"i": number, "_corrupt_record": None} for number in (1, 2)]
    assert values_of(found.column) == [good[0], None, bad[0], good[1], bad[1], None, bad[2]]
    assert found.malformed == 3


def test_a_document_whose_id_is_in_a_header_is_read_as_it_is() -> None:
    reader = payload_reader(PayloadChoice(parse_schema("i INT, _corrupt_record STRING"), framed=True))
    document, head = b'{"i":1}', b"\x00\x00\x00\x01\x02"
    headers = [b"\x01" + bytes(16), head, None, b"\x01", b"\x02" * 17, head]
    found = block_by(reader, [document, document, head + document, document, document, None], headers)
    good, bad = {"i": 1, "_corrupt_record": None}, {"i": None, "_corrupt_record": document}
    assert values_of(found.column) == [good, good, good, bad, bad, None]


def test_documents_that_do_not_fit_are_counted_and_tombstones_are_not() -> None:
    reader = JsonReader(PayloadChoice(parse_schema("s STRING, l BIGINT")))
    fitting = [b'{"s":"a","l":1}', None, b"", b"{'l':2}", b'{"s":1}', b"{}"]
    assert block_by(reader, fitting).malformed == 0
    assert block_by(reader, [b'{"l":"1"}', *fitting, b"no JSON", b"[]", b'{"l":1e30}', b'{"s":']).malformed == 5


def test_a_reader_reads_one_block_after_another() -> None:
    reader = JsonReader(PayloadChoice(parse_schema("s STRING, n STRUCT<d: DOUBLE>")))
    first = [b'{"s":"a","n":{"d":1.5}}', None, b'{"s":"b"}']
    assert [values_of(read_by(reader, documents)) for documents in (first, [], first[::-1])] == [
        [{"s": b"a", "n": {"d": "1.5"}}, None, {"s": b"b", "n": None}],
        [],
        [{"s": b"b", "n": None}, None, {"s": b"a", "n": {"d": "1.5"}}],
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (1e7, "1.0E7"), (9999999.0, "9999999.0"), (0.001, "0.001"), (0.00012, "1.2E-4"),
     (5e-324, "4.9E-324"), (1e23, "1.0E23"), (-2.5, "-2.5"), (123456789012.5, "1.234567890125E11"),
     (2e-323, "2.0E-323")],
)  # fmt: skip
def test_a_double_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize(
    ("text", "micros"),
    [("2026-07-01T12:00:00", 1782900000000000), ("2026-03-29T02:30:00", 1774747800000000),
     ("2026-10-25T02:30:00", 1792888200000000), ("1800-01-01", -5364665608000000), ("12:00", None),
     ("T12:00", None), ("2026-11-27T12:00:00GMT", 1795780800000000), ("300000-01-01", None),
     ("2400-08-23T20:29:49 Pacific/Apia", 13589796589000000), ("2400-08-30T19:02:52 Europe/Moscow", 13590432172000000),
     ("2401-03-28T20:46:00 America/New_York", 13608607560000000), ("2026-11-27T12:00:00 ROC", None)],
)  # fmt: skip
def test_a_time_without_a_zone_is_in_that_of_the_option(text: str, micros: int | None) -> None:
    assert moment_of_text(text, "Europe/Berlin") == micros


def test_days_before_the_gregorian_calendar_are_rebased_as_spark_does() -> None:
    assert [day_of_text(each) for each in ("123", "-123", "99999999")] == [123, -123, 99999999]
    assert day_of_text("2147483648") is None
