"""ListOffsets as kafka-python's messages: what is asked is what arrives, and what is answered is what is read."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.parser import KafkaProtocol

from pyspark_aligned_kafka.cluster.list_offsets import (
    ANY_EPOCH,
    LATEST,
    NEWEST,
    OffsetAndTimestamp,
    OffsetsAsked,
    OffsetsResponse,
    read_offsets,
)
from pyspark_aligned_kafka.cluster.offset_lookup import Attempt, _take
from watermark_source.errors import CorruptDataError
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

WANTED = {Split("a", 0): LATEST, Split("ü", 1): 1_700_000_000_000, Split("a", 2): LATEST}
EPOCHS = {Split("a", 0): ANY_EPOCH, Split("ü", 1): 7, Split("a", 2): 0}

versions = pytest.mark.parametrize("version", [5, 6, 7])


@versions
def test_a_request_reads_back_as_what_was_asked(version: int) -> None:
    request = OffsetsAsked(WANTED, EPOCHS).request(read_committed=True)
    request.API_VERSION = version
    read = ListOffsetsRequest.decode(request.encode(), version=version)
    assert (read.replica_id, read.isolation_level) == (-1, 1)
    asked = {Split(topic.name, part.partition_index): part for topic in read.topics for part in topic.partitions}
    assert {split: part.timestamp for split, part in asked.items()} == WANTED
    assert {split: part.current_leader_epoch for split, part in asked.items()} == EPOCHS


def test_one_question_is_asked_in_two_versions() -> None:
    asked, sent = OffsetsAsked(WANTED, EPOCHS), []
    for version in (5, 7, 5):
        request = asked.request(read_committed=False)
        request.API_VERSION = version
        sent.append(request.encode())
    assert sent[0] == sent[2] != sent[1]


def answer(version: int, entries: Mapping[Split, tuple[int, int, int]]) -> bytes:
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
    response = ListOffsetsResponse(topics=topics)
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
    }
    protocol = KafkaProtocol(client_id="me")
    request = OffsetsAsked(WANTED, EPOCHS).request(read_committed=False)
    request.API_VERSION = version
    protocol.send_request(request, correlation_id=9)
    data = answer(version, entries)
    ((number, received),) = protocol.receive_bytes(struct.pack(">i", len(data)) + data)
    assert number == 9
    found = {
        Split("a", 0): OffsetAndTimestamp(42, None, 3),
        Split("ü", 1): OffsetAndTimestamp(7, Millis(1_700_000_000_000), 3),
        Split("a", 3): OffsetAndTimestamp(None, None, 3),
    }
    assert read_offsets(received) == OffsetsResponse(found, {Split("a", 2): 6})


@pytest.mark.parametrize(
    ("broker", "wanted", "version"),
    [((1, 11), LATEST, 7), ((0, 5), LATEST, 5), ((1, 6), 5, 6), ((1, 7), NEWEST, 7)],
)
def test_the_version_is_one_that_the_broker_and_we_speak(broker: tuple[int, int], wanted: int, version: int) -> None:
    speaks, split = BrokerVersionData((4, 0), {ListOffsetsRequest.API_KEY: broker}), Split("a", 0)
    asked = OffsetsAsked({split: wanted}, {split: ANY_EPOCH})
    assert speaks.api_version(asked.request(read_committed=False)) == version


def test_offsets_that_no_one_asked_for_are_refused() -> None:
    other = Split("t\x01", 0)
    with pytest.raises(CorruptDataError, match="which were not requested"):
        _take(OffsetsResponse({other: OffsetAndTimestamp(7, None)}, {}), {Split("t", 0): LATEST}, Attempt())
