"""What a broker's answer says of batches, of which it may have sent the beginning alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka.record import MemoryRecordsBuilder

from pyspark_aligned_kafka.cluster.record_batch_headers import BatchHeader, read_headers
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis


def batch(first: int, *times: int, magic: int = 2) -> bytes:
    made = MemoryRecordsBuilder(magic, 0, 1 << 20)
    for time in times:
        made.append(timestamp=time, key=None, value=b"v" * 99)
    made.close()
    buffer: bytes = made.buffer()
    return first.to_bytes(8, "big") + buffer[8:]


def answered(records: bytes | None, error: int = 0) -> SimpleNamespace:
    partition = SimpleNamespace(partition_index=3, error_code=error, records=records)
    return SimpleNamespace(responses=[SimpleNamespace(topic="t", partitions=[partition])])


@pytest.mark.parametrize("size", [None, 61])
def test_the_first_batch_is_read_of_which_only_the_header_need_be_there(size: int | None) -> None:
    records = (batch(40, 700, 900, 800) + batch(43, 950))[:size]
    header = BatchHeader(40, 42, Millis(900), is_transactional=False, is_control=False)
    assert read_headers(answered(records)) == {Split("t", 3): header}


@pytest.mark.parametrize("records", [None, b"", batch(40, 700)[:60], batch(0, 700, magic=1)])
def test_what_has_no_header_of_today_says_nothing(records: bytes | None) -> None:
    assert read_headers(answered(records)) == {}
    assert read_headers(answered(batch(40, 700), error=6)) == {}


@pytest.mark.parametrize(("attributes", "transactional", "control"), [(0x10, True, False), (0x30, True, True)])
def test_parts_and_ends_of_transactions_are_known(attributes: int, transactional: bool, control: bool) -> None:
    records = bytearray(batch(40, 700))
    records[22] = attributes
    (header,) = read_headers(answered(bytes(records))).values()
    assert (header.is_transactional, header.is_control) == (transactional, control)
