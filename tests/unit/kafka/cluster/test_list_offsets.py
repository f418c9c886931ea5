"""ListOffsets on the wire, with kafka-python's own messages as the other side."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.parser import KafkaProtocol

from pyspark_aligned_kafka.cluster.list_offsets import (
    LATEST,
    NEWEST,
    OffsetAndTimestamp,
    OffsetsAsked,
    OffsetsRequest,
    OffsetsResponse,
)
from pyspark_aligned_kafka.cluster.offset_lookup import Attempt, _read_offsets
from tests.examples_by_day import at_least
from watermark_source.errors import CorruptDataError
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

WANTED = {Split("a", 0): LATEST, Split("ü", 1): 1_700_000_000_000, Split("a", 2): LATEST}
LONG = {Split("t" * 249, number): number for number in range(300)}
"""More topics' bytes and partitions than fit into one byte's length."""

EPOCHS = {Split("ü", 1): 7, Split("a", 2): 0}


def decode_response(data: bytes, *, flexible: bool) -> OffsetsResponse:
    return OffsetsAsked({}, {}, read_committed=False).decode(data, flexible=flexible)


versions = pytest.mark.parametrize("version", [5, 6, 7])


@versions
@pytest.mark.parametrize("wanted", [WANTED, LONG])
def test_a_request_reads_back_as_what_was_asked(version: int, wanted: Mapping[Split, int]) -> None:
    request = OffsetsRequest(OffsetsAsked(wanted, EPOCHS, read_committed=True))
    request.API_VERSION = version
    request.with_header(correlation_id=9, client_id="me")
    data = request.encode(framed=True, header=True)
    assert struct.unpack_from(">i", data) == (len(data) - 4,)
    read = ListOffsetsRequest.decode(data[4:], version=version, header=True)
    assert (read.header.correlation_id, read.header.client_id) == (9, "me")
    assert (read.replica_id, read.isolation_level) == (-1, 1)
    for topic in read.topics:
        for part in topic.partitions:
            assert part.current_leader_epoch == EPOCHS.get(Split(topic.name, part.partition_index), -1)
    asked = {
        Split(topic.name, part.partition_index): part.timestamp for topic in read.topics for part in topic.partitions
    }
    assert asked == wanted


def answer(version: int, entries: Mapping[Split, tuple[int, int, int]], throttle: int = 0) -> bytes:
    """Encode ``error, timestamp, offset`` for each split."""
    topic_type = ListOffsetsResponse.ListOffsetsTopicResponse
    topics = [
        topic_type(
            name=name,
            partitions=[
                topic_type.ListOffsetsPartitionResponse(
                    partition_index=split.number, error_code=e, timestamp=t, offset=o, leader_epoch=3
                )
                for split, (e, t, o) in entries.items()
                if split.log == name
            ],
        )
        for name in dict.fromkeys(split.log for split in entries)
    ]
    response = ListOffsetsResponse(throttle_time_ms=throttle, topics=topics)
    response.API_VERSION = version
    response.with_header(9)
    encoded: bytes = response.encode(header=True)
    return encoded


@versions
def test_a_response_over_kafka_pythons_protocol(version: int) -> None:
    entries = {
        Split("a", 0): (0, -1, 42),
        Split("ü", 1): (0, 1_700_000_000_000, 7),
        Split("a", 2): (6, -1, -1),
        Split("a", 3): (0, -1, -1),
    } | dict.fromkeys(LONG, (0, 1, 2))
    protocol = KafkaProtocol(client_id="me")
    request = OffsetsRequest(OffsetsAsked(WANTED, {}, read_committed=False))
    request.API_VERSION = version
    protocol.send_request(request, correlation_id=9)
    data = answer(version, entries, throttle=11)
    received = protocol.receive_bytes(struct.pack(">i", len(data)) + data)
    found = {
        Split("a", 0): OffsetAndTimestamp(42, None, 3),
        Split("ü", 1): OffsetAndTimestamp(7, Millis(1_700_000_000_000), 3),
        Split("a", 3): OffsetAndTimestamp(None, None, 3),
    } | {split: OffsetAndTimestamp(2, Millis(1), 3) for split in LONG}
    assert received == [(9, OffsetsResponse(11, found, {Split("a", 2): 6}))]


@pytest.mark.parametrize(
    ("broker", "wanted", "version"),
    [((1, 11), LATEST, 7), ((0, 5), LATEST, 5), ((1, 6), 5, 6), ((1, 7), NEWEST, 7)],
)
def test_the_version_is_one_that_the_broker_and_we_speak(broker: tuple[int, int], wanted: int, version: int) -> None:
    speaks = BrokerVersionData((4, 0), {OffsetsRequest.API_KEY: broker})
    asked = OffsetsAsked({Split("a", 0): wanted}, {}, read_committed=False)
    assert speaks.api_version(OffsetsRequest(asked)) == version


def test_fields_that_later_brokers_add_are_skipped() -> None:
    tags = b"\x02\x00\x01x\xff\x01\x83\x01" + b"y" * 131
    partition = struct.pack(">ihqqi", 4, 0, -1, 42, 0) + tags
    data = tags + struct.pack(">i", 0) + b"\x02" + b"\x02a" + b"\x02" + partition + tags + tags
    assert decode_response(data, flexible=True).offsets == {Split("a", 4): OffsetAndTimestamp(42, None, 0)}


@pytest.mark.parametrize("flexible", [False, True])
def test_bytes_left_over_and_bytes_missing_are_refused(*, flexible: bool) -> None:
    data = answer(7 if flexible else 5, {Split("a", 0): (0, 1, 2)})[4:]
    with pytest.raises(ValueError, match="make sense"):
        decode_response(data + b"\0", flexible=flexible)
    for size in range(len(data)):
        with pytest.raises((ValueError, struct.error)):
            decode_response(data[:size], flexible=flexible)


def test_a_number_of_ten_bytes_is_read_and_one_that_goes_on_is_refused() -> None:
    no_tags, no_topics = b"\x80" * 9 + b"\0", b"\x01"
    assert decode_response(no_tags + bytes(4) + no_topics + b"\0", flexible=True).offsets == {}
    for more in (b"\x80\0", b"\xff" * 1_000):
        with pytest.raises(ValueError, match="more than ten bytes"):
            decode_response(b"\x80" * 9 + more + bytes(4) + no_topics + b"\0", flexible=True)


@at_least(100)
@given(st.data())
def test_hostile_responses_raise_what_kafka_python_expects_only(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from([5, 7]))
    good = bytearray(answer(version, {Split("topic", 0): (0, 1, 2), Split("b", 1): (3, -1, -1)})[4:])
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at : at + 4] = data.draw(st.binary(min_size=1, max_size=5))
    with contextlib.suppress(ValueError, struct.error):
        decode_response(bytes(good[: data.draw(st.integers(0, len(good)))]), flexible=version > 5)


@at_least(100)
@given(st.data())
def test_responses_to_one_question_read_as_each_of_them_alone(data: st.DataObject) -> None:
    version, splits = data.draw(st.sampled_from([5, 7])), [Split(log, n) for log in ("a", "ü") for n in range(3)]
    asked, flexible = OffsetsAsked(dict.fromkeys(splits, LATEST), {}, read_committed=False), version > 5
    number = st.integers(-1, 300)
    entries = dict.fromkeys(splits, (0, -1, 7))
    for _ in range(data.draw(st.integers(1, 6))):
        for split in data.draw(st.sets(st.sampled_from(splits), max_size=3)):
            entries[split] = data.draw(st.tuples(st.sampled_from([0, 0, 6]), number, number))
        if data.draw(st.booleans()):
            entries.pop(data.draw(st.sampled_from(splits)), None)
        response = bytearray(answer(version, entries, throttle=data.draw(st.integers(0, 9)))[4:])
        if data.draw(st.booleans()):
            # Damage anywhere, and epochs of other leaders.
            response[data.draw(st.integers(0, len(response) - 1))] = data.draw(st.integers(0, 255))
        try:
            alone = decode_response(bytes(response), flexible=flexible)
        except (ValueError, struct.error):
            with pytest.raises((ValueError, struct.error)):
                asked.decode(bytes(response), flexible=flexible)
            continue
        assert asked.decode(bytes(response), flexible=flexible) == alone


def test_a_response_like_the_last_one_gives_the_same_offsets_and_one_that_differs_its_own() -> None:
    asked = OffsetsAsked(WANTED, EPOCHS, read_committed=False)
    entries = dict.fromkeys(WANTED, (0, -1, 7))
    first = asked.decode(answer(7, entries, throttle=1)[4:], flexible=True)
    again = asked.decode(answer(7, entries, throttle=5)[4:], flexible=True)
    assert again.offsets is first.offsets
    assert again.throttle_time_ms == 5
    moved = asked.decode(answer(7, entries | {Split("a", 2): (0, -1, 8)})[4:], flexible=True)
    assert moved.offsets == {**first.offsets, Split("a", 2): OffsetAndTimestamp(8, None, 3)}
    assert moved.offsets[Split("a", 0)] is first.offsets[Split("a", 0)]


def test_offsets_that_no_one_asked_for_are_refused() -> None:
    other = Split("t\x01", 0)
    with pytest.raises(CorruptDataError, match="which were not requested"):
        _read_offsets(OffsetsResponse(0, {other: OffsetAndTimestamp(7, None)}, {}), {Split("t", 0): LATEST}, Attempt())
