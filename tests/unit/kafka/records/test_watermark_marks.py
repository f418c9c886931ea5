"""Watermarks that records carry: what is one, what is none, and what is neither."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

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
)
from pyspark_aligned_kafka.records.json_path import parse_path
from tests.unit.kafka.batches import Rec, batch
from watermark_source.errors import EventTimeError
from watermark_source.planning.split import Split, SplitRange

START = 1_767_225_600_123
IN_VALUE, IN_HEADER = InJson("value", parse_path("$.w")), InHeader("w")


def marks(place: Place, *recs: Rec, written: Format = Format.AUTO) -> list[int]:
    data = np.frombuffer(bytearray(batch(0, recs)), np.uint8)
    decoder = RecordDecoder(
        (), batch_rows=100, batch_bytes=1 << 20, decompressed_limit=1 << 20, marks=EventTimeChoice(place, written)
    )
    (found,) = decoder.decode(SplitRange(Split("orders", 3), 0, 1_000), data, 0, 1, None)
    assert found.event_time.cast(pa.int64()).to_pylist() == [1_000 * rec.millis for rec in recs]
    assert found.marks is not None
    assert found.marks.type == pa.int64()
    return [micros // 1_000 for micros in found.marks.to_pylist()]


def test_each_timestamp_may_be_one() -> None:
    assert marks(InTimestamp(), Rec(0, millis=5), Rec(1, millis=7)) == [5, 7]


def test_a_record_that_has_nothing_there_carries_none() -> None:
    values = [b'{"w":5}', b"{}", b'{"w":null}', None, b'{"w":7}']
    assert marks(IN_VALUE, *(Rec(at, value) for at, value in enumerate(values))) == [5_000, 7_000]
    assert marks(IN_VALUE, Rec(0, b'{"w":5}')) == [5_000]
    assert marks(IN_HEADER, Rec(0), Rec(1, headers=[(b"w", b"5")]), Rec(2, headers=[(b"w", None)])) == [5_000]


def test_a_mark_may_be_in_one_of_several_places() -> None:
    place = FirstOf((IN_HEADER, IN_VALUE))
    recs = [Rec(0, b"{}"), Rec(1, b'{"w":5}'), Rec(2, b'{"w":9}', headers=[(b"w", b"7")]), Rec(3, None)]
    assert marks(place, *recs) == [5_000, 7_000]
    with pytest.raises(EventTimeError, match=r"no watermark at header:w or value:\$.w .*seen 'soon'"):
        marks(place, *recs, Rec(4, b'{"w":"soon"}'))


def test_a_timestamp_of_tidbs_oracle_leaves_its_own_millisecond_open() -> None:
    """A later commit of the millisecond has a higher counter, and the same event time."""
    oracle = (START << 18) + 7
    values = [f'{{"w":{oracle}}}'.encode(), f'{{"w":"{oracle}"}}'.encode(), b'{"w":null}']
    assert marks(IN_VALUE, *(Rec(at, value) for at, value in enumerate(values)), written=Format.TSO) == [START - 1] * 2
    with pytest.raises(EventTimeError, match=r"read as tso.*seen '1\.5'"):
        marks(IN_VALUE, Rec(0, b'{"w":"1.5"}'), written=Format.TSO)


def test_a_resolved_timestamp_of_cockroachdb_is_nanoseconds_and_a_counter() -> None:
    resolved = b'{"w":"1577836800123000000.0000000007"}'
    assert marks(IN_VALUE, Rec(0, resolved), written=Format.NANOS) == [1_577_836_800_123]


def test_what_a_function_leaves_null_carries_none(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("watermarks_of_a_test")
    module.watermark = lambda _: pa.array([5, None, 7])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert marks(ByFunction(module.__name__, "watermark"), Rec(0), Rec(1), Rec(2)) == [5, 7]


@pytest.mark.parametrize(
    ("place", "record", "seen"),
    [
        (IN_VALUE, Rec(1, b'{"w":"soon"}'), "value:[$].w .*seen 'soon'"),
        (IN_VALUE, Rec(1, b'{"w":[1]}'), "neither a string nor a number"),
        (IN_VALUE, Rec(1, b'{"w":null,"w":[1]}'), "neither a string nor a number"),
        (IN_VALUE, Rec(1, b'{"w":true}'), "neither a string nor a number"),
        (IN_VALUE, Rec(1, b'{"w":}'), "not JSON"),
        (IN_VALUE, Rec(1, b'{"w":2.0240507E7}'), "may be a date .*eventTimeFormat.*, .seconds.*ISO 8601"),
        (IN_HEADER, Rec(1, headers=[(b"w", b"2024050710")]), "may be a date .*eventTimeFormat.*, .seconds.*ISO 8601"),
        (IN_HEADER, Rec(1, headers=[(b"w", b"")]), "header:w .*seen ''"),
    ],
)
def test_what_is_there_and_is_no_moment_is_named(place: Place, record: Rec, seen: str) -> None:
    with pytest.raises(EventTimeError, match=f"topic orders partition 3 offset 1: no watermark at .*{seen}"):
        marks(place, Rec(0, b"{}"), record)
