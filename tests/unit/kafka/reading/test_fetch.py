"""Fetch requests and responses byte by byte."""

from __future__ import annotations

import contextlib
import struct
import time
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from pyspark_aligned_kafka.cluster.fetch_request import FetchLimits, Wanted
from pyspark_aligned_kafka.reading.fetch import decode_response, encode_request
from tests.examples_by_day import at_least
from watermark_source.errors import CorruptDataError
from watermark_source.planning.split import Split

LIMITS = FetchLimits(max_wait_ms=123, min_bytes=4, max_bytes=567, read_committed=True, rack="r1")
WANTED = [
    Wanted(Split("a", 0), 5, 100, 1000),
    Wanted(Split("a", 2), None, 200, 2000),
    Wanted(Split("ü", 1), 7, 300, 3000),
    Wanted(Split("a", 1), 7, 400, 3000),
]


IDS = {"a": UUID(int=7 << 90), "ü": UUID(int=9 << 90)}


def partition(
    number: int,
    *,
    error: int = 0,
    aborted: list[tuple[int, int]] | None = None,
    replica: int = -1,
    records: bytes | None,
) -> bytes:
    listed = struct.pack(">i", -1 if aborted is None else len(aborted))
    listed += b"".join(struct.pack(">qq", *each) for each in aborted or [])
    size = -1 if records is None else len(records)
    return (
        struct.pack(">ihqqq", number, error, 90, 80, 10) + listed + struct.pack(">ii", replica, size) + (records or b"")
    )


def response(*topics: tuple[str, list[bytes]], correlation: int = 9) -> bytes:
    body = struct.pack(">iihii", correlation, 0, 0, 0, len(topics))
    for name, parts in topics:
        data = name.encode()
        body += struct.pack(">h", len(data)) + data + struct.pack(">i", len(parts)) + b"".join(parts)
    return body


def decode(data: bytes, *, read_committed: bool = True) -> object:
    array = np.frombuffer(bytearray(data) or bytearray(1), np.uint8)
    return decode_response(array, len(data), 9, read_committed=read_committed)


def test_a_request_reads_back_as_what_was_asked() -> None:
    read = FetchRequest.decode(encode_request(1, "me", WANTED, LIMITS), version=11, header=True)
    assert (read.header.correlation_id, read.header.client_id) == (1, "me")
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes, read.isolation_level) == (123, 4, 567, 1)
    assert (read.replica_id, read.session_id, read.session_epoch, read.rack_id) == (-1, 0, -1, "r1")
    assert [
        (topic.topic, part.partition, part.current_leader_epoch, part.fetch_offset, part.partition_max_bytes)
        for topic in read.topics
        for part in topic.partitions
    ] == [("a", 0, 5, 100, 1000), ("a", 2, -1, 200, 2000), ("a", 1, 7, 400, 3000), ("ü", 1, 7, 300, 3000)]
    assert [topic.topic for topic in read.topics] == ["a", "ü"]


def test_a_request_with_ids_reads_back_as_what_was_asked() -> None:
    request = encode_request(1, "me", WANTED, LIMITS, {name: id_.bytes for name, id_ in IDS.items()})
    read = FetchRequest.decode(request, version=13, header=True)
    assert (read.header.correlation_id, read.header.client_id) == (1, "me")
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes, read.isolation_level) == (123, 4, 567, 1)
    assert (read.replica_id, read.session_id, read.session_epoch, read.rack_id) == (-1, 0, -1, "r1")
    assert [
        (topic.topic_id, part.partition, part.current_leader_epoch, part.fetch_offset, part.partition_max_bytes)
        for topic in read.topics
        for part in topic.partitions
    ] == [(IDS[each.split.log], each.split.number, -1 if each.leader_epoch is None else each.leader_epoch, each.offset,
           each.max_bytes) for each in sorted(WANTED, key=lambda each: each.split.log)]  # fmt: skip


@pytest.mark.parametrize("size", [0, 5, 300])
def test_a_response_with_ids_is_read_as_one_with_names(size: int) -> None:
    topic, records = FetchResponse.FetchableTopicResponse, b"x" * size
    part, aborted = topic.PartitionData, topic.PartitionData.AbortedTransaction
    given = [
        part(
            partition_index=number, error_code=error, high_watermark=90, last_stable_offset=80, log_start_offset=10,
            aborted_transactions=[aborted(producer_id=7, first_offset=50), aborted(producer_id=8, first_offset=40)]
            if number else None,
            preferred_read_replica=3 if number else -1, records=records,
        )
        for number, error in ((0, 0), (1, 6))
    ]  # fmt: skip
    made = FetchResponse(
        throttle_time_ms=4, error_code=0, session_id=0,
        responses=[topic(topic_id=IDS["ü"], partitions=given), topic(topic_id=IDS["a"], partitions=[])],
    )  # fmt: skip
    made.API_VERSION = 13
    made.with_header(9)
    data = made.encode(header=True)
    array = np.frombuffer(bytearray(data), np.uint8)
    ids = {name: id_.bytes for name, id_ in IDS.items()}
    found = decode_response(array, len(data), 9, read_committed=True, ids=ids)
    first, second = found.partitions
    assert (found.throttle_ms, first.split, first.error, first.preferred_replica) == (4, Split("ü", 0), 0, None)
    assert (data[first.start : first.stop], data[second.start : second.stop]) == (records, records)
    assert (second.split, second.error, second.preferred_replica) == (Split("ü", 1), 6, 3)
    assert second.aborted is not None
    assert second.aborted.tolist() == [[8, 7], [40, 50]]
    with pytest.raises(CorruptDataError, match="cannot be read"):
        decode_response(array, len(data), 9, read_committed=True, ids={"ü": ids["ü"]})
    for end in range(len(data) - size):
        with pytest.raises(CorruptDataError):
            decode_response(array, end, 9, read_committed=True, ids=ids)


def test_a_response_is_read_without_copying_records() -> None:
    data = response(
        ("a", [partition(0, records=b"12345"), partition(2, error=6, records=None)]),
        ("ü", [partition(1, aborted=[(7, 50), (8, 40)], replica=3, records=b"")]),
    )
    first, second, third = decode(data).partitions  # type: ignore[attr-defined]
    assert (first.split, first.error, data[first.start : first.stop]) == (Split("a", 0), 0, b"12345")
    assert (second.split, second.error, second.stop - second.start) == (Split("a", 2), 6, 0)
    assert (third.split, third.preferred_replica) == (Split("ü", 1), 3)
    assert third.aborted.tolist() == [[8, 7], [40, 50]], "ordered by first offset"


def test_aborted_transactions_are_for_committed_readers() -> None:
    data = response(("a", [partition(0, aborted=[(7, 50)], records=b"")]))
    assert decode(data, read_committed=False).partitions[0].aborted is None  # type: ignore[attr-defined]


def test_an_answer_to_another_request_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="answered request 8, and 9"):
        decode(response(correlation=8))


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="of which 18 make sense"):
        decode(response() + b"\0")


def test_names_of_less_than_no_bytes_do_not_make_topics_of_nothing() -> None:
    """A response of 26 bytes that claims two thousand million topics, each of them read from the same six bytes."""
    claimed = struct.pack(">iihii", 9, 0, 0, 0, 2**31 - 1)
    began = time.monotonic()
    with pytest.raises(CorruptDataError, match="-6 bytes"):
        decode(claimed + struct.pack(">hih", 0, 0, -6))
    assert time.monotonic() - began < 60


@at_least(100)
@given(st.data())
def test_hostile_responses_raise_declared_errors_only(data: st.DataObject) -> None:
    good = bytearray(
        response(("topic", [partition(0, aborted=[(1, 2)], records=b"12345"), partition(1, records=b"")]), ("b", []))
    )
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at : at + 4] = data.draw(st.binary(min_size=1, max_size=5))
    with contextlib.suppress(CorruptDataError):
        decode(bytes(good[: data.draw(st.integers(0, len(good)))]))
