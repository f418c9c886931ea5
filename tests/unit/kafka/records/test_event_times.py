"""Event times that are not the records' timestamps: where they are found, and what becomes of records without one."""

from __future__ import annotations

import contextlib
import gzip
import json
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_aligned_kafka.options.kafka_options import parse
from pyspark_aligned_kafka.records import event_times
from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.event_time_choice import (
    ByFunction,
    EventTimeChoice,
    FirstOf,
    Format,
    InHeader,
    InJson,
    InTimestamp,
    Place,
    WithoutTime,
)
from pyspark_aligned_kafka.records.json_path import parse_path
from pyspark_aligned_kafka.records.time_texts import END_MICROS, FIRST_MICROS
from tests.avro_examples import encoded
from tests.unit.kafka.batches import Rec, batch, records_bytes, sized, varint
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import (
    CorruptDataError,
    EventTimeError,
    OptionError,
    PayloadError,
    UnsupportedFormatError,
)
from watermark_source.planning.split import Split, SplitRange

SPLIT = Split("orders", 3)
IN_VALUE = InJson("value", parse_path("$.t"))


def read(recs: list[Rec], place: Place, columns: tuple[str, ...] = ("value",), **how: object) -> ReadBatch:
    data = np.frombuffer(bytearray(batch(0, recs)), np.uint8)
    choice = EventTimeChoice(place, **how)  # type: ignore[arg-type]
    decoder = RecordDecoder(columns, batch_rows=100, batch_bytes=1 << 20, decompressed_limit=1 << 20, event_time=choice)
    (found,) = decoder.decode(SplitRange(SPLIT, 0, 1000), data, 0, 1, None)
    return found


def millis(found: ReadBatch) -> list[int | None]:
    found.event_time.validate(full=True)
    return [None if at is None else at // 1_000 for at in found.event_time.cast(pa.int64()).to_pylist()]


def test_a_member_of_the_value_is_event_time_and_no_column_need_be_delivered() -> None:
    recs = [Rec(0, b'{"t":1700000000123}'), Rec(1, b'{"x":1,"t":"2023-11-14T22:13:21Z"}')]
    found = read(recs, IN_VALUE, columns=())
    assert millis(found) == [1_700_000_000_123, 1_700_000_001_000]
    assert (found.columns, found.undated) == ((), 0)


@pytest.mark.parametrize("millis_of_it", [1_700_000_000_123_456_789, 2**63 - 1, -(2**62)])
def test_a_timestamp_that_is_not_needed_may_be_in_nanoseconds(millis_of_it: int, module: ModuleType) -> None:
    recs = [Rec(0, b'{"t":5}', millis=7), Rec(1, b'{"t":6}', millis=millis_of_it), Rec(2, b"{}", millis=8)]
    assert millis(read(recs[:2], IN_VALUE)) == [5_000, 6_000]
    # A record without an event time follows its own timestamp; the second one has its own.
    assert millis(read(recs, IN_VALUE, without=WithoutTime.TIMESTAMP)) == [5_000, 6_000, 8]
    # A function is given null in its place.
    place = by(module, lambda records: records["timestamp"])
    assert millis(read(recs, place, without=WithoutTime.NULL)) == [7, None, 8]


@pytest.mark.parametrize("columns", [("value",), ("value", "timestamp")])
def test_a_timestamp_that_is_needed_and_does_not_fit_is_named(columns: tuple[str, ...]) -> None:
    recs = [Rec(0, b'{"t":5}'), Rec(1, b"{}", millis=2**63 - 1)]
    with pytest.raises(UnsupportedFormatError, match=r"offset 1: a timestamp that does not fit .* leave timestamp out"):
        read(recs, IN_VALUE, columns=columns, without=WithoutTime.TIMESTAMP)
    with pytest.raises(UnsupportedFormatError, match="offset 1: a timestamp"):
        read(recs, IN_VALUE, columns=("timestamp",), without=WithoutTime.NULL)


def test_of_a_key_and_with_escapes_it_is_the_same() -> None:
    recs = [Rec(0, b"{}", rb'{"t":"2023\u002d11-14T22:13:20"}'), Rec(1, None, b'{"t":5}')]
    assert millis(read(recs, InJson("key", parse_path("$.t")))) == [1_700_000_000_000, 5_000]


def test_a_document_may_be_behind_the_id_of_its_schema_where_nothing_decodes_it() -> None:
    head = b"\x00\x00\x00\x01\x02"
    recs = [
        Rec(0, head + b'{"t":5}'),
        Rec(1, b'{"t":6}'),
        Rec(2, None),
        Rec(3, head),
        Rec(4, b"\x01" + head[1:] + b"{}"),
    ]
    assert millis(read(recs, IN_VALUE, without=WithoutTime.NULL)) == [5_000, 6_000, None, None, None]


AFTER_OR_BEFORE = FirstOf((InJson("value", parse_path("$.after.at")), InJson("value", parse_path("$.before.at"))))


def test_the_first_of_several_places_that_is_there_counts() -> None:
    recs = [
        Rec(0, b'{"before":null,"after":{"at":1}}'), Rec(1, b'{"before":{"at":2},"after":null}'),
        Rec(2, b'{"before":{"at":9},"after":{"at":3}}'), Rec(3, b'{"before":{"at":4},"after":{"at":null}}'),
        Rec(4, b'{"before":{"at":5}}', headers=[(b"t", b"9")]), Rec(5, None, headers=[(b"t", b"6")]),
    ]  # fmt: skip
    place = FirstOf((*AFTER_OR_BEFORE.places, InHeader("t")))
    assert millis(read(recs, place)) == [1_000, 2_000, 3_000, 4_000, 5_000, 6_000]
    # The second place is searched only where the first one is absent, and the third only after that.
    found = read(recs, AFTER_OR_BEFORE, without=WithoutTime.NULL)
    assert (millis(found), found.undated) == ([1_000, 2_000, 3_000, 4_000, 5_000, None], 1)


def test_a_place_that_is_there_and_has_no_time_is_not_passed_over() -> None:
    recs = [Rec(0, b'{"after":{"at":1}}'), Rec(1, b'{"after":{"at":"soon"},"before":{"at":5}}')]
    with pytest.raises(EventTimeError, match=r"offset 1: no event time at value:\$.after.at or .*; seen 'soon'"):
        read(recs, AFTER_OR_BEFORE)
    with pytest.raises(EventTimeError, match=r"offset 1: .* or value:\$.before.at .*seen 'later'"):
        read([recs[0], Rec(1, b'{"before":{"at":"later"}}')], AFTER_OR_BEFORE)
    with pytest.raises(EventTimeError, match=r"offset 1: .*seen no such member: \$ is an object with no member"):
        read([recs[0], Rec(1, b"{}")], AFTER_OR_BEFORE)


def test_the_records_timestamp_may_be_the_last_of_several_places() -> None:
    place = FirstOf((IN_VALUE, InTimestamp()))
    recs = [Rec(0, b'{"t":1}', millis=7), Rec(1, b"{}", millis=8), Rec(2, None, millis=9)]
    assert millis(read(recs, place)) == [1_000, 8, 9]
    with pytest.raises(EventTimeError, match=r"offset 1: no event time at value:\$.t or timestamp .*; seen 'soon'"):
        read([Rec(0, b'{"t":1}'), Rec(1, b'{"t":"soon"}')], place)


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("$.order.create", r"\$\.order is an object with created, lines"),
        ("$.order.created.at", r"\$\.order\.created is a number"),
        ("$.order.lines[2].at", r"\$\.order\.lines is an array of 2 elements"),
        ("$.order.lines[0].at", r"\$\.order\.lines\[0\] is null"),
        ("$.order", r"\$\.order is an object with created, lines"),
    ],
)
def test_a_path_that_ends_before_its_member_learns_where_it_ends_and_what_is_there(path: str, end: str) -> None:
    """The beginning of a document may end long before that."""
    document = b'{"padding":"%s","order":{"created":1,"lines":[null,"x"]}}' % (b"x" * 100)
    with pytest.raises(EventTimeError, match=f"offset 0: .*: {end}\\. Correct"):
        read([Rec(0, document)], InJson("value", parse_path(path)))


@pytest.mark.parametrize(
    ("values", "written", "is_reported"),
    [
        ([b'{"t":19675}', b'{"t":19676}'], Format.AUTO, True),
        ([b'{"t":19675}', b'{"t":19676}'], Format.DAYS, False),
        # One that is decades away is a row that is.
        ([b'{"t":19675}', b'{"t":1700000000}'], Format.AUTO, False),
        ([b"{}", b"{}"], Format.AUTO, False),
    ],
)
def test_times_that_are_all_decades_from_the_records_are_reported_with_the_formats_there_are(
    values: list[bytes], written: Format, *, is_reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    recs = [Rec(number, value, millis=1_700_000_000_000) for number, value in enumerate(values)]
    read(recs, IN_VALUE, written=written, without=WithoutTime.NULL)
    reported = [each.getMessage() for each in caplog.records]
    assert len(reported) == is_reported
    if is_reported:
        assert "partition 3 offset 0: the event time at value:$.t, read as auto, is 1970-01-01 05:27" in reported[0]
        assert (
            '.option("eventTimeFormat", "days"); for numbers there are seconds, millis, micros, nanos, days'
            in reported[0]
        )


def test_no_format_is_advised_for_what_a_function_answers(module: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    recs = [Rec(number, b"v", millis=1_700_000_000_000) for number in range(2)]
    read(recs, by(module, lambda batch: pa.array([1_000] * batch.num_rows, pa.timestamp("ms", "UTC"))))
    (warning,) = (each.getMessage() for each in caplog.records)
    assert "event_time is 1970-01-01 00:00:01" in warning
    assert warning.endswith("Check what writes them, or name another place with eventTimeColumn")
    with pytest.raises(EventTimeError, match=r"\(eventTimeColumn\); seen .*\. Correct eventTimeColumn; or set"):
        read(recs, by(module, lambda batch: pa.nulls(batch.num_rows, pa.timestamp("ms", "UTC"))))


def test_of_several_headers_of_a_name_the_last_one_counts() -> None:
    headers = [(b"ta", b"7"), (b"t", b"1"), (b"t", b"1700000000"), (b"x", None)]
    assert millis(read([Rec(0, b"v", headers=headers)], InHeader("t"))) == [1_700_000_000_000]


def test_headers_that_do_not_fit_their_record_are_corrupt() -> None:
    raw = bytearray(batch(0, [Rec(0, b"v", headers=[(b"t", b"1")])]))
    raw[-5] = 0x7F
    choice = EventTimeChoice(InHeader("t"))
    decoder = RecordDecoder(
        (), batch_rows=9, batch_bytes=99, decompressed_limit=99, check_crcs=False, event_time=choice
    )
    with pytest.raises(CorruptDataError, match="topic orders partition 3 offset 0: headers"):
        list(decoder.decode(SplitRange(SPLIT, 0, 9), np.frombuffer(raw, np.uint8), 0, 1, None))


@pytest.mark.parametrize(
    "headers",
    [
        varint(-1),
        b"\xff" * 11,
        varint(1) + varint(-1),
        varint(1) + varint(-1) + varint(-1),
        varint(1) + sized(b"t") + varint(99) + b"x",
        varint(1) + sized(b"t") + varint(-2),
        varint(2) + sized(b"t") + sized(None),
        varint(0) + b"x",
    ],
)
def test_headers_of_a_broken_layout_are_corrupt(headers: bytes) -> None:
    refuse_headers(headers)


def test_a_header_that_is_longer_than_its_record_is_corrupt_however_long_it_says_it_is() -> None:
    for size in range(2, 200):
        refuse_headers(varint(1) + sized(b"t") + varint(size) + b"x")
        refuse_headers(varint(1) + varint(size) + b"t")


def refuse_headers(headers: bytes) -> None:
    payload = sized(b"\0\0\0" + sized(None) + sized(None) + headers)
    data = np.frombuffer(bytearray(batch(0, [], payload=payload, count=1)), np.uint8)
    limits: dict[str, Any] = {"batch_rows": 9, "batch_bytes": 99, "decompressed_limit": 99}
    for decoder in (
        RecordDecoder((), **limits, event_time=EventTimeChoice(InHeader("t"))),
        RecordDecoder(("headers",), **limits),
    ):
        with pytest.raises(CorruptDataError, match="topic orders partition 3 offset 0: headers"):
            list(decoder.decode(SplitRange(SPLIT, 0, 9), data, 0, 1, None))


def test_a_header_may_have_no_name() -> None:
    assert millis(read([Rec(0, headers=[(b"", b"5"), (b"t", b"7")])], InHeader(""))) == [5_000]


def test_no_more_than_eighty_bytes_of_what_is_no_moment_are_shown() -> None:
    for size, seen in ((80, "x" * 80 + "'[.] "), (81, "x" * 80 + "'…")):
        with pytest.raises(EventTimeError, match=f"seen '{seen}"):
            read([Rec(0, headers=[(b"t", b"x" * size)])], InHeader("t"))


BROKEN = [
    (b'{"t":"soon"}', "seen 'soon'"),
    (b'{"t":}', "text that is not JSON, '{\"t\":}'"),
    (b'{"T":1,"a":{"t":2}}', "no such member: [$] is an object with T, a"),
    (b'{"t":[1]}', "neither a string nor a number: [$].t is an array of 1 elements"),
    (None, "null in place of a document"),
]


@pytest.mark.parametrize(("value", "seen"), BROKEN)
def test_a_record_without_an_event_time_is_named_with_what_was_seen(value: bytes | None, seen: str) -> None:
    recs = [Rec(0, b'{"t":1}'), Rec(1, value), Rec(2, None)]
    with pytest.raises(
        EventTimeError, match=f"topic orders partition 3 offset 1: no event time at value:[$].t .*{seen}"
    ):
        read(recs, IN_VALUE)


def test_a_record_without_the_header_of_its_event_time_is_named() -> None:
    with pytest.raises(
        EventTimeError, match=r"offset 1: no event time at header:t .*seen no such header: the record has T, a\."
    ):
        read([Rec(0, headers=[(b"t", b"1")]), Rec(1, headers=[(b"T", b"1"), (b"a", None)])], InHeader("t"))
    with pytest.raises(EventTimeError, match=r"no such header: the record has none\."):
        read([Rec(0)], InHeader("t"))
    with pytest.raises(EventTimeError, match=r"no such header: the record has 1 others \(recordsInErrors=true shows"):
        read([Rec(0, headers=[(b"T", b"1")])], InHeader("t"), shows_records=False)


def test_a_record_without_an_event_time_goes_by_its_timestamp_or_has_none() -> None:
    recs = [Rec(0, b'{"t":1}', millis=77), *(Rec(n, v, millis=80 + n) for n, (v, _) in enumerate(BROKEN, 1))]
    by_timestamp = read(recs, IN_VALUE, without=WithoutTime.TIMESTAMP)
    assert millis(by_timestamp) == [1_000, 81, 82, 83, 84, 85]
    without = read(recs, IN_VALUE, without=WithoutTime.NULL)
    assert millis(without) == [1_000, *[None] * 5]
    assert by_timestamp.undated == without.undated == 5
    # What looks at the numbers alone takes none of them for late.
    assert np.frombuffer(without.event_time.buffers()[1], np.int64, 6)[1:].min() == 2**63 - 1


def test_no_byte_of_another_place_is_taken_for_a_time() -> None:
    records = records_bytes([Rec(0, b'{"x":123456789012}')])
    assert records[:1] == b"0"
    compressed = batch(0, [], attributes=1, payload=gzip.compress(records), count=1)
    choice = EventTimeChoice(IN_VALUE, without=WithoutTime.NULL)
    decoder = RecordDecoder((), batch_rows=9, batch_bytes=99, decompressed_limit=99, event_time=choice)
    (found,) = decoder.decode(SplitRange(SPLIT, 0, 9), np.frombuffer(bytearray(compressed), np.uint8), 0, 1, None)
    assert (millis(found), found.undated) == ([None], 1)


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = ModuleType("event_times_of_a_test")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def by(module: ModuleType, function: object) -> ByFunction:
    module.event_time = function  # type: ignore[attr-defined]
    return ByFunction(module.__name__, "event_time")


SECRET = b"4929-1234-5678-9012"
PRIVATE: dict[str, tuple[bytes, Place]] = {
    "no JSON": (b"{" + SECRET, IN_VALUE),
    "no member": (b'{"' + SECRET + b'":1}', IN_VALUE),
    "an object": (b'{"t":{"' + SECRET + b'":1}}', IN_VALUE),
    "no moment": (b'{"t":"' + SECRET + b'"}', IN_VALUE),
    "a header": (SECRET, InHeader("h")),
    "a function": (SECRET, InHeader("replaced")),
}


@pytest.mark.parametrize("case", PRIVATE)
@pytest.mark.parametrize("shows", [True, False])
def test_an_error_shows_what_a_record_holds_only_where_it_may(case: str, *, shows: bool, module: ModuleType) -> None:
    value, place = PRIVATE[case]

    def event_time(records: pa.RecordBatch) -> pa.Array:
        raise ValueError(f"no time in {records['value'].to_pylist()}")

    if case == "a function":
        place = by(module, event_time)
    with pytest.raises(EventTimeError) as raised:
        read([Rec(0, value, headers=[(b"h", value)])], place, shows_records=shows)
    text = "".join(traceback.format_exception(raised.value))
    assert (SECRET.decode() in text) is shows
    assert ("recordsInErrors=true shows" in text) is not shows
    assert "offset 0" in text or "records 0 to 0" in text


@pytest.mark.parametrize("written", ["20240507", '"20240507103015"', "2.0240507E7", "2024050710", r'"2\u0030240507"'])
@pytest.mark.parametrize("shows", [True, False])
def test_a_number_that_may_be_a_date_is_refused_with_the_way_out(written: str, *, shows: bool) -> None:
    record = Rec(0, f'{{"t":{written}}}'.encode())
    line = r'may be a date as well as a number.*write \.option\("eventTimeFormat", "seconds"\), "millis".*ISO 8601'
    with pytest.raises(EventTimeError, match=line):
        read([record], IN_VALUE, shows_records=shows)
    assert millis(read([Rec(0, b'{"t":20240507}')], IN_VALUE, written=Format.SECONDS)) == [20_240_507_000]


FIRST, END = FIRST_MICROS // 1_000, END_MICROS // 1_000
RECS = [Rec(0, b"a", b"k", millis=5), Rec(1, None, headers=[(b"h", b"1")], millis=6)]


def test_a_function_gets_all_there_is_of_the_records_at_once(module: ModuleType) -> None:
    given: list[pa.RecordBatch] = []

    def event_time(records: pa.RecordBatch) -> pa.Array:
        given.append(records)
        return pa.array([1, 2], pa.timestamp("s"))

    assert millis(read(RECS, by(module, event_time))) == [1_000, 2_000]
    (seen,) = given
    seen.validate(full=True)
    assert seen.drop_columns(["timestamp"]).to_pylist() == [
        {"key": b"k", "value": b"a", "headers": None, "offset": 0},
        {"key": None, "value": None, "headers": [{"key": "h", "value": b"1"}], "offset": 1},
    ]
    assert seen["timestamp"].cast(pa.int64()).to_pylist() == [5_000, 6_000]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (pa.array([1_000, 2]), [1_000, 2]),
        (pa.array([1_000, 2], pa.timestamp("s")), [1_000_000, 2_000]),
        (pa.array([1, None]), [1, None]),
        (pa.array([9, 1, 2]).slice(1), [1, 2]),
        (pa.array([None, 1, None]).slice(1), [1, None]),
        (pa.chunked_array([[1], [2]]), [1, 2]),
        (pa.array([1_500_000_000, -1], pa.timestamp("ns")), [1_500, -1]),
        (pa.array([1_000, 2_000], pa.timestamp("us", "Europe/Berlin")), [1, 2]),
        (pa.array([2**62, 1]), [None, 1]),
        # The first and the last millisecond of the years 1 and 9999, and those next to them.
        (pa.array([FIRST, FIRST - 1]), [FIRST, None]),
        (pa.array([END - 1, END]), [END - 1, None]),
        (pa.array([-(2**63), 2**62], pa.timestamp("us")), [None, None]),
    ],
)
def test_a_function_answers_moments_of_any_unit(module: ModuleType, answer: object, expected: list[int | None]) -> None:
    found = read(RECS, by(module, lambda _: answer), without=WithoutTime.NULL)
    assert millis(found) == expected
    assert found.undated == expected.count(None)


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (pa.array([1]), "answered 1 times for the 2 records 0 to 1 of topic orders partition 3"),
        (
            pa.array(["1", "2"]),
            "answered string for records 0 to 1 of topic orders partition 3; it must return an Arrow array",
        ),
        (pa.array([1, 2], pa.int32()), "answered int32"),
        ([1, 2], "answered list"),
        (None, "answered NoneType"),
    ],
)
def test_what_a_function_may_not_answer_is_reported_with_its_name(
    module: ModuleType, answer: object, reported: str
) -> None:
    with pytest.raises(EventTimeError, match=f"function event_times_of_a_test:event_time {reported}"):
        read(RECS, by(module, lambda _: answer), without=WithoutTime.NULL)


def test_a_function_that_fails_is_reported_with_the_records_and_one_that_leaves_times_out_with_the_first(
    module: ModuleType,
) -> None:
    def fails(_: pa.RecordBatch) -> pa.Array:
        raise KeyError("created_at")

    with pytest.raises(
        EventTimeError, match="failed for records 0 to 1 of topic orders partition 3: KeyError: 'created_at'"
    ):
        read(RECS, by(module, fails))
    with pytest.raises(EventTimeError, match=r"partition 3 offset 1: no event time .*null from the function"):
        read(RECS, by(module, lambda _: pa.array([1, None])))


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError("deep")])
def test_a_function_that_exits_is_an_error_and_no_end_of_a_process(module: ModuleType, end: BaseException) -> None:
    def event_time(_: pa.RecordBatch) -> pa.Array:
        raise end

    failed = f"event_time failed for records 0 to 1 of topic orders partition 3: {type(end).__name__}"
    with pytest.raises(EventTimeError, match=f"{failed}.*It must return an Arrow array of timestamps"):
        read(RECS, by(module, event_time))


def test_a_function_that_never_returns_is_an_error(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_times, "LONGEST_S", 0.05)
    before = signal.getsignal(signal.SIGALRM)

    def waits(_: pa.RecordBatch) -> pa.Array:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(99)

    with pytest.raises(EventTimeError, match=r"has not returned for 0.05 seconds for records 0 to 1 of topic orders"):
        read(RECS, by(module, waits))
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_function_cannot_change_the_records_that_are_delivered(module: ModuleType) -> None:
    def event_time(records: pa.RecordBatch) -> pa.Array:
        for column in (*records.columns, records["headers"].values.field("value")):
            for buffer in column.buffers():
                assert buffer is None or not buffer.is_mutable
        np.frombuffer(records["value"].buffers()[2], np.uint8)[:] = 0
        return pa.array([1, 2])

    with pytest.raises(EventTimeError, match=r"failed for records 0 to 1 .*ValueError: assignment destination is read"):
        read(RECS, by(module, event_time))


def test_a_module_that_exits_when_it_is_imported_is_a_wrong_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_program_of_a_test.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(OptionError, match=r"a_program_of_a_test:f.*cannot be imported: SystemExit: 3. The driver"):
        read(RECS, ByFunction("a_program_of_a_test", "f"))


@pytest.mark.parametrize(
    ("place", "reported"),
    [
        (ByFunction("no_such_module_anywhere", "f"), "cannot be imported: ModuleNotFoundError: No module named"),
        (ByFunction("json", "no_such"), "cannot be imported: AttributeError: module 'json' has no attribute"),
        (ByFunction("json", "decoder"), "is a module, and must be a function.*my_package.times:event_time"),
    ],
)
def test_a_function_that_is_not_there_is_a_wrong_option(place: ByFunction, reported: str) -> None:
    with pytest.raises(OptionError, match=f"eventTimeColumn.*{reported}"):
        read(RECS, place)


def test_the_format_that_was_chosen_is_the_one_that_is_read() -> None:
    recs = [Rec(0, b'{"t":1}'), Rec(1, b'{"t":"1970-01-01"}')]
    assert millis(read(recs, IN_VALUE, written=Format.NANOS, without=WithoutTime.NULL)) == [0, None]


# Members of decoded values.


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


FIELDS: dict[str, Any] = {
    "long": "long", "int": "int", "text": "string", "moment": logical("long", "timestamp-millis"),
    "micros": logical("long", "timestamp-micros"), "local": logical("long", "local-timestamp-micros"),
    "day": logical("int", "date"), "wide": logical("bytes", "decimal", precision=38),
    "inner": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "at", "type": ["null", "long"]}]}],
}  # fmt: skip
ORDER = {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()]}
NOTHING: dict[str, Any] = {
    "long": 0, "int": 0, "text": "", "moment": 0, "micros": 0, "local": 0, "day": 0, "wide": b"\0", "inner": None,
}  # fmt: skip
PLAIN = {**ORDER, "fields": [{"name": name, "type": kind if isinstance(kind, str | list) else kind["type"]}
                             for name, kind in FIELDS.items()]}  # fmt: skip
"""By which fastavro takes numbers for moments."""


def member(path: str, values: list[Any], options: dict[str, str], *, observed: bool = False) -> ReadBatch:
    """Read event time of a member, of values that are fields by name, or bytes; ``observed``: read no column."""
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders", "valueFormat": "avro", **options}
    parsed = parse({**given, "valueSchema": json.dumps(ORDER), "eventTimeColumn": f"value:$.{path}"})
    recs = [
        Rec(delta, encoded(PLAIN, {**NOTHING, **value}) if isinstance(value, dict) else value, millis=delta)
        for delta, value in enumerate(values)
    ]
    decoder = RecordDecoder(
        (), batch_rows=100, batch_bytes=1 << 20, decompressed_limit=1 << 20, event_time=parsed.event_time,
        payloads=() if observed else parsed.payloads,
    )  # fmt: skip
    data = np.frombuffer(bytearray(batch(0, recs)), np.uint8)
    (found,) = decoder.decode(SplitRange(SPLIT, 0, 1000), data, 0, 1, None)
    return found


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize(
    ("path", "values", "expected"),
    [
        ("long", [1_700_000_000_123, 20240507, -5], [1_700_000_000_123, None, -5_000]),
        ("int", [1_700_000_000, -1], [1_700_000_000_000, -1_000]),
        ("text", ["2023-11-14T22:13:20Z", "1700000000", "", "x"], [1_700_000_000_000, 1_700_000_000_000, None, None]),
        ("moment", [1_700_000_000_123, 300_000_000_000_000], [1_700_000_000_123, None]),
        ("micros", [1_700_000_000_123_000, -(2**63)], [1_700_000_000_123, None]),
        ("local", [1_700_000_000_123_000], [1_700_000_000_123]),
        ("day", [1, -1, 2**31 - 1, -(2**31), 213_503_982], [86_400_000, -86_400_000, None, None, None]),
        ("wide", [(10**12).to_bytes(9, "big"), b"\x01" + bytes(8), b"\xff"], [10**12, None, -1_000]),
    ],
)
def test_a_member_of_decoded_values_is_event_time_by_its_type(
    observed: bool, path: str, values: list[Any], expected: list[int | None]
) -> None:
    found = member(path, [{path: each} for each in values], {"eventTimeErrors": "null"}, observed=observed)
    assert millis(found) == expected
    assert (found.undated, len(found.columns)) == (expected.count(None), not observed)


def test_a_member_that_is_null_or_in_nothing_is_no_event_time() -> None:
    values = [{"inner": {"at": 5}}, {"inner": {"at": None}}, {"inner": None}, None, b"bad"]
    for observed in (False, True):
        options = {"eventTimeErrors": "timestamp", "eventTimeFormat": "millis"}
        found = member("inner.at", values, options, observed=observed)
        assert millis(found) == [5, 1, 2, 3, 4]
        assert (found.undated, found.malformed) == (4, not observed)


@pytest.mark.parametrize("observed", [False, True])
def test_the_first_member_of_decoded_values_that_is_there_counts(observed: bool) -> None:
    values = [
        {"inner": {"at": 5}, "long": 7}, {"inner": None, "long": 6}, {"inner": {"at": None}, "long": 8}, None, b"bad",
    ]  # fmt: skip
    options = {"eventTimeErrors": "timestamp", "eventTimeFormat": "millis"}
    found = member("inner.at or value:$.long", values, options, observed=observed)
    assert (millis(found), found.undated) == ([5, 6, 8, 3, 4], 2)


def test_alternatives_are_found_in_documents_that_are_decoded_as_well() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders", "valueFormat": "json",
             "valueSchema": "after STRUCT<at: BIGINT>, before STRUCT<at: BIGINT>",
             "eventTimeColumn": str(AFTER_OR_BEFORE)}  # fmt: skip
    parsed = parse(given)
    recs = [
        Rec(0, b'{"before":{"at":9},"after":{"at":1}}'), Rec(1, b'{"before":{"at":2},"after":null}'),
        Rec(2, b'{"after":{"at":3}}'), Rec(3, b'{"before":{"at":4}}'),
    ]  # fmt: skip
    decoder = RecordDecoder(
        (), batch_rows=100, batch_bytes=1 << 20, decompressed_limit=1 << 20, event_time=parsed.event_time,
        payloads=parsed.payloads,
    )  # fmt: skip
    data = np.frombuffer(bytearray(batch(0, recs)), np.uint8)
    (found,) = decoder.decode(SplitRange(SPLIT, 0, 1000), data, 0, 1, None)
    assert millis(found) == [1_000, 2_000, 3_000, 4_000]
    assert [row["after"] for row in found.columns[0].to_pylist()] == [{"at": 1}, None, {"at": 3}, None]


@pytest.mark.parametrize(
    ("path", "value", "options", "seen"),
    [
        ("long", {"long": 20240507}, {}, "20240507 of type int64, digits that may be a date as well as a number"),
        ("long", {"long": 20240507}, {"recordsInErrors": "false"}, r"a value \(recordsInErrors=true .* of type"),
        ("text", {"text": "noon"}, {}, "'noon'"),
        ("inner.at", {"inner": None}, {}, r"null in this member of '.*"),
        ("inner.at", None, {}, "null in place of a value"),
        ("moment", {"moment": 2**53}, {}, "9007199254740992000 of type timestamp"),
    ],
)
def test_a_member_without_an_event_time_is_named(path: str, value: Any, options: dict[str, str], seen: str) -> None:
    message = rf"partition 3 offset 1: no event time at value:\$.{path} \(eventTimeColumn.*; seen {seen}"
    with pytest.raises(EventTimeError, match=message):
        member(path, [{path: 1} if path == "long" else {"text": "2023-11-14", "inner": {"at": 1}}, value], options)


def test_only_the_read_of_rows_ends_with_a_value_that_does_not_fit() -> None:
    options = {"valueMode": "FAILFAST", "eventTimeErrors": "null"}
    with pytest.raises(PayloadError, match="offset 1: the value does not fit valueSchema"):
        member("long", [{"long": 1}, b"bad"], options)
    assert millis(member("long", [{"long": 1}, b"bad"], options, observed=True)) == [1_000, None]


def test_a_document_behind_the_id_of_a_schema_has_its_time_in_it() -> None:
    head = b"\x00\x00\x00\x01\x02"
    recs = [Rec(0, head + b'{"t":5}'), Rec(1, b'{"t":6}'), Rec(2, head), Rec(3, None), Rec(4, head + b"{'t':7}")]
    place = InJson("value", parse_path("$.t"), framed=True)
    assert millis(read(recs, place, without=WithoutTime.NULL)) == [5_000, None, None, None, None]
    with pytest.raises(EventTimeError, match=r"text that is not JSON behind a zero byte and the id of a schema, '\{"):
        read(recs[1:2], place)
