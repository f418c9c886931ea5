"""What a broker answers wrongly is an error that names the broker, and the end of the connection."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Generator, Iterator

import pytest
from kafka.errors import IncompatibleBrokerVersion

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster.broker_errors import translated
from pyspark_aligned_kafka.cluster.fetch_request import FetchLimits
from pyspark_aligned_kafka.reading.connection import BrokerConnection, ResponseMemory
from pyspark_aligned_kafka.reading.kept_sessions import Session
from pyspark_aligned_kafka.reading.range_progress import Patience, Pending
from pyspark_aligned_kafka.reading.range_reader import RangeRead
from pyspark_aligned_kafka.reading.recovery import Recovery
from pyspark_aligned_kafka.records.decoding import RecordDecoder
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import CorruptDataError, RefusedError, SourceError
from watermark_source.planning.split import Split, SplitRange

SPLIT = Split("t", 0)
SETTINGS = parse_settings({"kafka.bootstrap.servers": "localhost:1"})


class ConnectedSession(Session):
    """A session that knows broker 7 leads the split, and is connected to it."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(SETTINGS)
        self._made = self._connections[7] = BrokerConnection(end, ResponseMemory())

    def node_of(self, split: Split) -> int:
        return 7

    def connection(self, node: int, limit_ms: int) -> BrokerConnection:
        return self._made


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, brokers = socket.socketpair()
    with ours, brokers:
        yield ours, brokers


def read_over(end: socket.socket) -> RangeRead:
    session, patience = ConnectedSession(end), Patience(1_000)
    return RangeRead(
        session, RecordDecoder(("value",), batch_rows=10, batch_bytes=1_000, decompressed_limit=1_000),
        FetchLimits(10, 1, 1_000, read_committed=False), patience, Recovery(session, patience, fail_on_data_loss=True),
        client=SETTINGS, ids={}, epochs={},
    )  # fmt: skip


def test_ranges_of_ten_thousand_partitions_are_put_into_groups_soon(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[list[Pending]] = []

    def drain(_: RangeRead, node: int, group: list[Pending]) -> Generator[ReadBatch, None, list[Pending]]:
        groups.append(group)
        yield from ()
        return []

    monkeypatch.setattr(RangeRead, "_drain", drain)
    wanted = [SplitRange(Split("t", number), 5, 10) for number in range(10_000)]
    began = time.thread_time()
    assert not list(read_over(ends[0]).run(wanted))
    # Each range compared with each took one and a half.
    assert time.thread_time() - began < 0.8
    assert [each.range for group in groups for each in group] == wanted


def partition(number: int, error: int) -> bytes:
    topic = struct.pack(">h", 1) + b"t"
    return struct.pack(">i", 1) + topic + struct.pack(">iihqqqiii", 1, number, error, 0, 0, 0, 0, -1, 0)


@pytest.mark.parametrize(("correlation", "body", "kind", "message"), [
    (9, struct.pack(">i", 0), CorruptDataError, "broker 7: the broker answered request 9, and 1 was sent; if a retry"),
    (1, b"\xff", CorruptDataError, "broker 7: a fetch response of 15 bytes that cannot be read"),
    (1, partition(5, 0), CorruptDataError, "broker 7: the broker sent t-5, which was not requested"),
    (1, partition(0, 29), RefusedError, "broker 7: topic t partition 0 offset 3: the broker refuses"),
    (1, partition(0, 87), SourceError, "broker 7: topic t partition 0 offset 3: .*its log has the reason"),
])  # fmt: skip
def test_an_answer_that_cannot_be_names_the_broker_and_is_the_last_from_there(
    ends: tuple[socket.socket, socket.socket], correlation: int, body: bytes, kind: type[SourceError], message: str
) -> None:
    ours, brokers = ends
    answer = struct.pack(">iihi", correlation, 0, 0, 0) + body
    brokers.sendall(struct.pack(">i", len(answer)) + answer)
    with pytest.raises(kind, match=message) as caught:
        list(read_over(ours).run([SplitRange(SPLIT, 3, 9)]))
    assert type(caught.value) is kind
    assert ours.fileno() == -1


def test_brokers_that_are_too_old_learn_the_version_that_is_needed() -> None:
    error = translated(IncompatibleBrokerVersion("ListOffsets"), SETTINGS)
    assert "localhost:1 are too old: ListOffsets; Kafka 2.3 or later is needed" in str(error)
