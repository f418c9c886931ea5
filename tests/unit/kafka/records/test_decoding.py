"""How much is decoded at once, and how much memory its columns take."""

from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np

from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.payload import PayloadChoice
from pyspark_aligned_kafka.records.payload_schema import parse_schema
from pyspark_aligned_kafka.records.record_batches import survey
from tests.unit.kafka.batches import Rec, batch, records_bytes
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.split import Split, SplitRange

SPLIT = Split("orders", 3)
ALL = SplitRange(SPLIT, 0, 1 << 40)


def decoded(data: bytes, *, batch_rows: int = 100) -> list[ReadBatch]:
    array = np.frombuffer(bytearray(data), np.uint8)
    decoder = RecordDecoder(("offset",), batch_rows=batch_rows, batch_bytes=1 << 30, decompressed_limit=1 << 30)
    return list(decoder.decode(ALL, array, 0, survey(SPLIT, array, 0, array.size).batches, None))


def test_compressed_batches_are_unpacked_until_there_are_four_mebibytes() -> None:
    record = Rec(0, bytes(1_048_575 - len(records_bytes([Rec(0, bytes(1_040_000))])) + 1_040_000))
    assert len(records_bytes([record])) == 1_048_575
    payload = gzip.compress(records_bytes([record]))
    data = b"".join(batch(i, [], payload=payload, count=1, last_delta=0, attributes=1) for i in range(12))
    assert [each.columns[0].to_pylist() for each in decoded(data)] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [10, 11],
    ]


def test_the_last_rows_take_no_more_memory_than_they_need() -> None:
    made = decoded(batch(0, [Rec(i, b"") for i in range(250)]))
    assert [each.columns[0].buffers()[1].size for each in made] == [800, 800, 400]


def test_ids_in_headers_are_those_of_the_field_whose_header_it_is() -> None:
    """The last header of a name counts; keys and values have one each."""
    schema, key = PayloadChoice(parse_schema("i INT"), framed=True), b"__key_schema_id"
    keys = replace(schema, field="key", column="key_payload")
    guid, document = b"\1" + bytes(range(16)), b'{"i":1}'
    framed = b"\0\0\0\0\7" + document
    records = [
        Rec(0, document, framed, headers=[(b"x", None), (b"__value_schema_id", b"?"), (b"__value_schema_id", guid)]),
        Rec(1, framed, document, headers=[(key, guid)]),
        Rec(2, framed, framed),
        Rec(3, document, framed, headers=[(key, None)]),
    ]
    data = np.frombuffer(bytearray(batch(0, records)), np.uint8)
    decoder = RecordDecoder(
        ("offset",), batch_rows=100, batch_bytes=1 << 30, decompressed_limit=1 << 30, payloads=(schema, keys)
    )
    (found,) = decoder.decode(ALL, data, 0, survey(SPLIT, data, 0, data.size).batches, None)
    good, bad = {"i": 1}, {"i": None}
    assert [column.to_pylist() for column in found.columns[1:]] == [[good, good, good, bad], [good] * 4]
    assert found.malformed == 1
