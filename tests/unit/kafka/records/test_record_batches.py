"""Record batches: which rows a reader gets, and what it states about bytes that cannot be."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.record_batches import Survey, survey
from tests.examples_by_day import at_least
from tests.unit.kafka.batches import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Rec,
    batch,
    marker,
    record_body,
    sized,
    varint,
)
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import CorruptDataError, SourceError, UnsupportedFormatError
from watermark_source.planning.split import Split, SplitRange

SPLIT = Split("orders", 3)
COLUMNS = ("key", "value", "offset", "timestamp", "headers")
Row = tuple[object, ...]


def decode(
    data: bytes,
    first: int = 0,
    end: int = 1 << 40,
    *,
    aborted: Sequence[tuple[int, int]] | None = None,
    columns: Sequence[str] = COLUMNS,
    batch_rows: int = 10_000,
    batch_bytes: int = 1 << 24,
) -> list[list[Row]]:
    """Decode bytes and return the rows batch by batch."""
    array = np.frombuffer(bytearray(data), np.uint8) if data else np.empty(0, np.uint8)
    found = survey(SPLIT, array, 0, array.size)
    decoder = RecordDecoder(columns, batch_rows=batch_rows, batch_bytes=batch_bytes, decompressed_limit=1 << 20)
    listed = None if aborted is None else np.array(aborted, np.int64).reshape(-1, 2).T.copy()
    out = []
    for made in decoder.decode(SplitRange(SPLIT, first, end), array, 0, found.batches, listed):
        for column in made.columns:
            column.validate(full=True)
            assert len(column) == made.rows
        assert (made.event_time.null_count, made.undated) == (0, 0)
        out.append(list(zip(*(column.to_pylist() for column in made.columns), strict=True)))
    return out


def decoded(data: bytes) -> list[ReadBatch]:
    """One batch's event times, without a column."""
    array = np.frombuffer(bytearray(data), np.uint8)
    decoder = RecordDecoder((), batch_rows=10, batch_bytes=100, decompressed_limit=100)
    return list(decoder.decode(SplitRange(SPLIT, 0, 9), array, 0, 1, None))


def values(data: bytes, first: int = 0, end: int = 1 << 40, **options: object) -> list[object]:
    """The value column of everything decoded."""
    rows = decode(data, first, end, columns=("value",), **options)  # type: ignore[arg-type]
    return [row[0] for rows_of_batch in rows for row in rows_of_batch]


def offsets(data: bytes, first: int = 0, end: int = 1 << 40, **options: object) -> list[object]:
    """The offset column of everything decoded."""
    rows = decode(data, first, end, columns=("offset",), **options)  # type: ignore[arg-type]
    return [row[0] for rows_of_batch in rows for row in rows_of_batch]


def numbered(base: int, count: int, **options: int) -> bytes:
    return batch(base, [Rec(i, b"%d" % (base + i)) for i in range(count)], **options)  # type: ignore[arg-type]


def test_null_and_empty_keys_and_values_are_distinguished() -> None:
    data = batch(5, [Rec(0, None, b"k"), Rec(1, b"", None), Rec(2, b"v", b""), Rec(3, None, None)])
    assert [row[:3] for row in decode(data)[0]] == [(b"k", None, 5), (None, b"", 6), (b"", b"v", 7), (None, None, 8)]


def test_headers_are_null_when_absent_and_keep_order_duplicates_and_nulls() -> None:
    many = [(b"h%d" % i, b"x" * i) for i in range(200)]
    cases: list[list[tuple[bytes, bytes | None]]] = [
        [],
        [(b"a", b"1")],
        [(b"a", None), (b"a", b""), (b"", b"2")],
        [],
        [*many],
        [("ключ".encode(), b"\xff")],
    ]
    data = batch(0, [Rec(i, headers=case) for i, case in enumerate(cases)])
    expected = [[{"key": k.decode(), "value": v} for k, v in case] or None for case in cases]
    assert [row[4] for row in decode(data)[0]] == expected


def test_a_header_key_that_is_not_utf8_gets_replacement_characters() -> None:
    data = batch(0, [Rec(0, headers=[(b"a\xffb", b"1"), (b"c", b"2")])])
    assert decode(data)[0][0][4] == [{"key": "a�b", "value": b"1"}, {"key": "c", "value": b"2"}]


def test_a_character_cut_between_two_header_keys_is_not_utf8() -> None:
    data = batch(0, [Rec(0, headers=[(b"\xc3", None), (b"\xa9", None)])])
    headers: Any = decode(data)[0][0][4]
    assert [header["key"] for header in headers] == ["�", "�"]


def test_timestamps_become_microseconds_and_minus_one_stays_minus_one_millisecond() -> None:
    data = batch(
        0, [Rec(0, millis=1_700_000_000_123), Rec(1, millis=-1), Rec(2, millis=0)], base_time=1_700_000_000_000
    )
    made = decoded(data)
    assert made[0].columns == ()
    assert made[0].event_time.cast("int64").to_pylist() == [1_700_000_000_123_000, -1000, 0]
    assert str(made[0].event_time.type) == "timestamp[us, tz=UTC]"


@pytest.mark.parametrize("sign", [1, -1])
def test_timestamps_reach_to_the_last_millisecond_that_has_microseconds_of_64_bits(sign: int) -> None:
    last = sign * (2**63 // 1_000)
    (made,) = decoded(batch(0, [Rec(0, millis=last)]))
    assert made.event_time.cast("int64").to_pylist() == [last * 1_000]
    with pytest.raises(UnsupportedFormatError, match="timestamp"):
        decoded(batch(0, [Rec(0, millis=last + sign)]))


def test_timestamps_whose_sum_goes_beyond_64_bits_are_refused_though_it_comes_back_into_them() -> None:
    base = 2**63 - 1
    with pytest.raises(UnsupportedFormatError, match="timestamp"):
        decoded(batch(0, [Rec(0, millis=2 * base)], base_time=base, max_time=0))


def test_log_append_time_is_the_batch_maximum_for_every_record() -> None:
    data = batch(0, [Rec(0, millis=7), Rec(1, millis=9)], attributes=LOG_APPEND_TIME, max_time=1_000)
    rows = decode(
        batch(0, [Rec(0, millis=1)]) + data.replace(data[:8], struct.pack(">q", 1), 1),
        columns=("timestampType", "timestamp"),
    )
    flat = [row for rows_of_batch in rows for row in rows_of_batch]
    assert [row[0] for row in flat] == [0, 1, 1]
    assert [row[1].timestamp() for row in flat] == [0.001, 1.0, 1.0]  # type: ignore[attr-defined]


def test_records_outside_the_range_are_left_out() -> None:
    data = numbered(0, 10) + numbered(10, 10) + numbered(20, 10)
    assert offsets(data, 13, 22) == list(range(13, 22))
    assert offsets(data, 30, 40) == []
    assert offsets(data, 0, 1) == [0]


def test_what_is_behind_the_range_is_not_looked_at() -> None:
    data = numbered(0, 3) + corrupted(numbered(3, 3), 65, b"\x77")
    assert offsets(data, 0, 3) == [0, 1, 2]
    with pytest.raises(CorruptDataError, match="a checksum"):
        offsets(data, 0, 4)


def test_gaps_left_by_compaction_are_passed_over() -> None:
    sparse = batch(0, [Rec(2), Rec(7)], last_delta=9)
    emptied = batch(10, [], last_delta=9)
    assert offsets(sparse + emptied + batch(25, [Rec(0)])) == [2, 7, 25]


def test_an_incomplete_last_batch_is_left_for_the_next_fetch() -> None:
    whole, part = numbered(0, 3), numbered(3, 3)
    for size in range(len(part)):
        array = np.frombuffer(bytearray(whole + part[:size]), np.uint8)
        assert survey(SPLIT, array, 0, array.size) == Survey(1, 3)
        assert offsets(whole + part[:size]) == [0, 1, 2]


def test_nothing_at_all_is_no_batch() -> None:
    assert survey(SPLIT, np.empty(0, np.uint8), 0, 0) == Survey(0, None)
    assert decode(b"") == []


def test_batches_are_cut_at_the_row_limit_across_record_batches() -> None:
    data = b"".join(numbered(i * 7, 7) for i in range(10))
    made = decode(data, columns=("offset",), batch_rows=16)
    assert [len(rows) for rows in made] == [16, 16, 16, 16, 6]
    assert [row[0] for rows in made for row in rows] == list(range(70))


def test_batches_are_cut_at_the_byte_limit_and_one_large_record_is_a_batch() -> None:
    sizes = [10, 20, 500, 5, 5, 90, 11]
    data = batch(0, [Rec(i, b"x" * size) for i, size in enumerate(sizes)])
    made = decode(data, columns=("value",), batch_bytes=100)
    assert [[len(row[0]) for row in rows] for rows in made] == [[10, 20], [500], [5, 5, 90], [11]]  # type: ignore[arg-type]


def test_only_wanted_columns_count_for_the_byte_limit() -> None:
    data = batch(0, [Rec(i, b"x" * 500, b"k") for i in range(4)])
    assert [len(rows) for rows in decode(data, columns=("key",), batch_bytes=100)] == [4]


def test_keys_and_headers_count_for_the_byte_limit_as_values_do() -> None:
    keys = batch(0, [Rec(i, b"v" * 90, key) for i, key in enumerate([b"k" * 30, None, b"k" * 30, b"k" * 30, None])])
    assert [len(rows) for rows in decode(keys, columns=("key",), batch_bytes=60)] == [3, 2]
    values = batch(0, [Rec(i, value) for i, value in enumerate([b"v" * 30, None, b"v" * 30])])
    assert [len(rows) for rows in decode(values, columns=("value",), batch_bytes=59)] == [2, 1]
    # Count, key and value with their sizes: 40 bytes.
    headers = batch(0, [Rec(i, headers=[(b"h", b"x" * 36)]) for i in range(5)])
    assert [len(rows) for rows in decode(headers, columns=("headers",), batch_bytes=80)] == [2, 2, 1]
    assert [len(rows) for rows in decode(headers, columns=("headers",), batch_bytes=79)] == [1] * 5


def aborted_log() -> bytes:
    """Producer 7 aborts 0-1 and commits 5-6 in between 8's commit of 2 and abort of 9; 10 is outside transactions."""
    return b"".join(
        [
            numbered(0, 2, attributes=TRANSACTIONAL, producer=7),
            numbered(2, 1, attributes=TRANSACTIONAL, producer=8),
            marker(3, 7, abort=True),
            marker(4, 8, abort=False),
            numbered(5, 2, attributes=TRANSACTIONAL, producer=7),
            marker(7, 7, abort=False),
            numbered(8, 1),
            numbered(9, 1, attributes=TRANSACTIONAL, producer=8),
            numbered(10, 1, producer=8),
            marker(11, 8, abort=True),
            numbered(12, 1, attributes=TRANSACTIONAL, producer=8),
        ]
    )


def test_committed_readers_do_not_see_aborted_rows() -> None:
    assert offsets(aborted_log(), aborted=[(7, 0), (8, 9)]) == [2, 5, 6, 8, 10, 12]


def test_uncommitted_readers_see_aborted_rows_but_no_markers() -> None:
    assert offsets(aborted_log()) == [0, 1, 2, 5, 6, 8, 9, 10, 12]


def test_an_abort_that_began_before_the_range_still_hides_its_rows() -> None:
    assert offsets(aborted_log(), 1, 12, aborted=[(7, 0), (8, 9)]) == [2, 5, 6, 8, 10]


def test_a_marker_of_another_kind_ends_no_transaction() -> None:
    unknown = batch(1, [Rec(0, b"", struct.pack(">hh", 0, 9))], attributes=TRANSACTIONAL | CONTROL, producer=7)
    log = numbered(0, 1, attributes=TRANSACTIONAL, producer=7) + unknown
    log += numbered(2, 1, attributes=TRANSACTIONAL, producer=7)
    assert offsets(log, aborted=[(7, 0)]) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_naming_the_place(magic: int) -> None:
    message = struct.pack(">qiIbb", 41, 14 + 8, 0, magic, 0) + b"\xff" * 8
    with pytest.raises(UnsupportedFormatError, match="topic orders partition 3 offset 41: records in format 0 or 1"):
        decode(numbered(40, 1) + message + b"\0" * 61)
    with pytest.raises(UnsupportedFormatError, match="offset 41"):
        decode(message)


def corrupted(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def raw(payload: bytes, count: int = 1, last_delta: int = 0) -> bytes:
    """A batch with a right checksum around anything."""
    return numbered(0, 3) + batch(3, [], payload=payload, count=count, last_delta=last_delta)


def control(payload: bytes, attributes: int = CONTROL) -> bytes:
    """A control batch with a right checksum around anything."""
    return numbered(0, 3) + batch(3, [], payload=payload, count=1, attributes=attributes, producer=1)


BODY = record_body(Rec(0, b"value", b"key", headers=[(b"h", b"1")]), 0)

BROKEN = {
    "a checksum": corrupted(numbered(0, 3) + numbered(3, 3), len(numbered(0, 3)) + 65, b"\x77"),
    "unknown format": corrupted(numbered(3, 3), 16, b"\x03"),
    "batch length": corrupted(numbered(3, 3), 8, struct.pack(">i", 48)),
    "batch length ": corrupted(numbered(3, 3), 8, struct.pack(">i", -5)),
    "offsets do not ascend": numbered(3, 3) + numbered(3, 3),
    "offsets do not ascend  ": numbered(1, 3) + numbered(3, 3),
    "offsets do not ascend ": batch(3, [], last_delta=-1),
    "record count": raw(b"", count=-1),
    "record count ": raw(sized(BODY), count=2),
    "record count  ": raw(sized(BODY), count=9, last_delta=20),
    "bytes after": raw(sized(BODY) + b"\0"),
    "record longer": raw(varint(len(BODY) + 1) + BODY),
    "record longer ": raw(varint(-4) + BODY),
    "record longer  ": raw(b"\xff" * 30),
    "does not end": raw(varint(7) + b"\0" + b"\xff" * 6),
    "does not end ": raw(sized(b"\0" + b"\x80" * 9 + b"\x02" + BODY[2:])),
    "does not end  ": raw(sized(b"\0\0" + b"\xff" * 12)),
    "key or value longer": raw(sized(b"\0\0\0" + varint(50) + b"\0" * 9)),
    "key or value longer ": raw(sized(b"\0\0\0" + varint(-2) + b"\0" * 9)),
    "key or value longer  ": raw(sized(b"\0\0\0" + varint(-1) + varint(1 << 62) + b"\0" * 9)),
    "key or value longer   ": raw(sized(b"\0\0\0" + sized(b"k") + sized(b"no headers count"))),
    "within their batch": raw(sized(b"\0\0" + varint(1) + BODY[3:])),
    "within their batch ": raw(sized(b"\0\0" + varint(-1) + BODY[3:])),
    "timestamp": raw(sized(b"\0" + varint(1 << 61) + BODY[2:])),
    "timestamp ": raw(sized(b"\0" + varint(1 << 62) + BODY[2:])),
    "headers": raw(sized(b"\0\0\0" + sized(None) + sized(None) + varint(2) + sized(b"k") + sized(None))),
    "headers ": raw(sized(b"\0\0\0" + sized(None) + sized(None) + varint(-1))),
    "headers  ": raw(sized(b"\0\0\0" + sized(None) + sized(None) + varint(1) + varint(-1) + varint(-1))),
    "headers   ": raw(sized(b"\0\0\0" + sized(None) + sized(None) + varint(1) + sized(b"k") + varint(99) + b"x")),
    "headers    ": raw(sized(b"\0\0\0" + sized(None) + sized(None) + varint(0) + b"x")),
    "transaction marker": numbered(0, 3) + batch(3, [Rec(0, b"", b"ab")], attributes=CONTROL, producer=1),
    "transaction marker ": control(b"\xff" * 30),
    "transaction marker  ": control(varint(1)),
    "transaction marker   ": control(varint(9) + b"\0" + b"\xff" * 20),
    "transaction marker    ": control(varint(9) + b"\0\0\0" + b"\xff" * 20),
    "transaction marker     ": control(varint(9) + b"\0\0\0" + varint(4) + b"\0\0\0"),
    "transaction marker      ": control(sized(record_body(Rec(0, b"", b"\0" * 4), 0)), attributes=CONTROL | 1),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_broken_bytes_are_named_with_topic_partition_and_offset(what: str) -> None:
    place = 4 if what == "bytes after" else 3
    # A timestamp no one can keep is the producer's doing; nothing is damaged.
    kind = UnsupportedFormatError if what.strip() == "timestamp" else CorruptDataError
    with pytest.raises(kind, match=rf"topic orders partition 3 offset {place}: .*{what.strip()}"):
        decode(BROKEN[what])


def test_the_offset_after_the_last_one_must_be_a_number_of_64_bits() -> None:
    newest = 2**63 - 2
    assert survey_of(numbered(newest, 1)).next_offset == 2**63 - 1
    with pytest.raises(CorruptDataError, match=f"offset {newest}: .*offsets do not ascend"):
        survey_of(numbered(newest, 2))


def survey_of(data: bytes) -> Survey:
    array = np.frombuffer(bytearray(data), np.uint8)
    return survey(SPLIT, array, 0, array.size)


def test_a_beginning_too_short_to_report_its_format_is_left_for_the_next_fetch() -> None:
    for length in (5, 16):
        assert survey(SPLIT, np.zeros(64, np.uint8), 30, 30 + length) == Survey(0, None)


def test_a_control_batch_may_be_empty_or_have_a_key_alone() -> None:
    key = varint(9) + b"\0\0\0" + sized(b"\0\0\0\0")
    empty = batch(4, [], attributes=TRANSACTIONAL | CONTROL, producer=1)
    assert offsets(control(key) + empty + numbered(5, 1)) == [0, 1, 2, 5]


def test_a_second_record_that_repeats_an_offset_is_not_delivered_twice() -> None:
    with pytest.raises(CorruptDataError, match=r"offset 1: .*within their batch"):
        decode(batch(0, [Rec(0), Rec(0)], last_delta=1))


def test_the_checksum_can_be_left_unchecked() -> None:
    data = corrupted(numbered(0, 3), 17, b"\0\0\0\0")
    array = np.frombuffer(bytearray(data), np.uint8)
    decoder = RecordDecoder((), batch_rows=10, batch_bytes=100, decompressed_limit=100, check_crcs=False)
    assert [made.rows for made in decoder.decode(SplitRange(SPLIT, 0, 9), array, 0, 1, None)] == [3]


HEADER = st.tuples(st.binary(max_size=4), st.none() | st.binary(max_size=5))
RECORD = st.builds(
    Rec,
    delta=st.integers(0, 3),
    value=st.none() | st.binary(max_size=300),
    key=st.none() | st.binary(max_size=5),
    millis=st.integers(-(1 << 40), 1 << 42),
    headers=st.lists(HEADER, max_size=3),
)


@given(st.lists(st.lists(RECORD, max_size=6), max_size=6), st.integers(0, 30), st.integers(0, 60), st.integers(1, 7))
def test_what_was_written_is_what_is_read(written: list[list[Rec]], first: int, size: int, batch_rows: int) -> None:
    data, expected, base = b"", [], 0
    for recs in written:
        placed, delta = [], -1
        for rec in recs:
            delta += 1 + rec.delta
            placed.append(Rec(delta, rec.value, rec.key, rec.millis, rec.headers))
        last = max(delta, 0) + 1
        data += batch(base, placed, last_delta=last, base_time=1_000)
        expected += [(base + rec.delta, rec) for rec in placed if first <= base + rec.delta < first + size]
        base += last + 1
    rows = [row for made in decode(data, first, first + size, batch_rows=batch_rows) for row in made]
    seen = [(row[0], row[1], row[2], row[4]) for row in rows]
    assert seen == [
        (
            rec.key,
            rec.value,
            offset,
            [{"key": k.decode("utf-8", "replace"), "value": v} for k, v in rec.headers] or None,
        )
        for offset, rec in expected
    ]
    assert [round(row[3].timestamp() * 1000) for row in rows] == [rec.millis for _, rec in expected]  # type: ignore[attr-defined]


@at_least(150)
@given(st.data())
def test_hostile_bytes_raise_declared_errors_only(data: st.DataObject) -> None:
    log = bytearray(aborted_log() + batch(13, [Rec(0, headers=[(b"k", b"v")]), Rec(1, b"x" * 200, b"k")]))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(log) - 1))
        log[at : at + 4] = data.draw(st.binary(min_size=1, max_size=6))
    with contextlib.suppress(SourceError):
        decode(bytes(log[: data.draw(st.integers(0, len(log)))]), aborted=[(7, 0), (8, 9)])


@at_least(150)
@given(
    st.binary(max_size=200), st.integers(-1, 40), st.integers(0, 40), st.sampled_from([0, 0, CONTROL, 1, 2, 3, 4, 5])
)
def test_hostile_records_under_a_right_checksum_raise_declared_errors_only(
    payload: bytes, count: int, last_delta: int, attributes: int
) -> None:
    with contextlib.suppress(SourceError):
        decode(batch(0, [], payload=payload, count=count, last_delta=last_delta, attributes=attributes))
