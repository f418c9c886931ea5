"""The same topics through Spark's own Kafka source and through this one: the same rows, columns and types."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from kafka import KafkaProducer
from pyspark.sql import Row

from services.kafka import Kafka
from services.kafka_topics import create_topic
from services.kafka_wire import BrokerConnection
from tests.conformance.batch_reads import BUILT_IN, BatchReads
from tests.integration.kafka_streams import KafkaStreams
from tests.unit.kafka.batches import Rec, batch

pytestmark = [pytest.mark.service, pytest.mark.spark]

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
START = 1_700_000_000_000
PLAIN, COMMITTED, ABORTED, OPEN, HEADERS, LARGE = 5 * 40, 3 * 5, 3 * 5, 2, 4, 4
"""Records of each kind in one topic."""


def produce_codecs(bootstrap: str, topic: str) -> None:
    """Null and other keys, values and headers, in batches of every codec."""
    for codec in CODECS:
        producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=50)
        for i in range(40):
            producer.send(
                topic,
                key=None if i % 3 == 0 else b"key %d" % i,
                value=None if i % 3 == 1 else b"value %d " % i * (i % 9),
                headers=[(f"h{n}", b"%d" % n) for n in range(i % 4)] + [("h0", b"")] * (i % 2),
                partition=0,
                timestamp_ms=START + i * 777,
            )
        producer.close()


def produce_transactions(bootstrap: str, topic: str) -> KafkaProducer:
    """Committed and aborted transactions in turn; return the producer of one that stays open."""
    # The broker aborts by itself what is open for longer than this.
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic, transaction_timeout_ms=600_000)
    producer.init_transactions()
    for turn in range(6):
        producer.begin_transaction()
        for i in range(5):
            producer.send(topic, b"%d %d" % (turn, i), partition=1, timestamp_ms=START + turn)
        producer.flush()
        producer.abort_transaction() if turn % 2 else producer.commit_transaction()
    producer.begin_transaction()
    for _ in range(OPEN):
        producer.send(topic, b"open", partition=1).get(30)
    return producer


def produce_large(bootstrap: str, topic: str) -> None:
    """Records of 2 MB, more than a fetch asks for of a partition, beside small ones."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, max_request_size=20_000_000)
    for size in (10, 2_000_000, 10, 2_000_000):
        producer.send(topic, np.random.default_rng(size).bytes(size), partition=2, timestamp_ms=START).get(60)
    producer.close()


def produce_headers(bootstrap: str, topic: str) -> None:
    """Headers no producer's API makes: without a value, the same name twice, and records of nulls only."""
    recs = [
        Rec(0, None, None, START),
        Rec(1, b"", b"", START, [(b"h", None), (b"h", b"")]),
        Rec(2, b"v", None, START, [(b"", b"x")]),
        Rec(3, None, b"k", START, [("é".encode(), "ü".encode())] * 300),
    ]
    host, _, port = bootstrap.partition(":")
    with BrokerConnection(host, int(port)) as wire:
        wire.send_produce(topic, {3: batch(0, recs, base_time=START)})
        wire.receive_produce()


@pytest.fixture(scope="module")
def topics(kafka: Kafka) -> Iterator[tuple[str, str]]:
    """Two topics with records of every kind; the second one with the broker's own timestamps."""
    names = (f"mixed-{uuid.uuid4().hex[:8]}", f"appended-{uuid.uuid4().hex[:8]}")
    still_open = []
    for name, kind in zip(names, ("CreateTime", "LogAppendTime"), strict=True):
        config = {"max.message.bytes": "20000000", "message.timestamp.type": kind}
        create_topic(kafka.bootstrap, name, 4, config=config)
        produce_codecs(kafka.bootstrap, name)
        produce_large(kafka.bootstrap, name)
        produce_headers(kafka.bootstrap, name)
        still_open.append(produce_transactions(kafka.bootstrap, name))
    yield names
    for producer in still_open:
        producer.abort_transaction()
        producer.close()


def differences(ours: Sequence[Row], theirs: Sequence[Row]) -> list[tuple[object, ...]]:
    """Return topic, partition and offset of rows that only one has, or that differ; a record may have 2 MB."""
    one, other = ({(r.topic, r.partition, r.offset): r for r in rows} for rows in (ours, theirs))
    return sorted(at for at in one.keys() | other.keys() if one.get(at) != other.get(at))


@pytest.mark.parametrize(("level", "headers"), [("read_committed", "true"), ("read_uncommitted", "false")])
def test_rows_columns_and_types_are_those_of_the_built_in_source(
    streams: KafkaStreams, reads: BatchReads, topics: tuple[str, str], level: str, headers: str
) -> None:
    options = {"subscribe": ",".join(topics), "kafka.isolation.level": level, "includeHeaders": headers}
    ours, theirs = streams.source(**options), reads.frame(BUILT_IN, **options)
    assert ours.drop("event_time", "marker").schema == theirs.schema
    assert ("headers" in theirs.columns) == (headers == "true")
    streams.run(ours, "ours")

    columns = theirs.columns
    found, expected = streams.data("ours", [*columns, "event_time"]), theirs.collect()
    mine = [Row(**dict(zip(columns, row, strict=False))) for row in found]
    assert differences(mine, expected) == []
    visible = COMMITTED if level == "read_committed" else COMMITTED + ABORTED + OPEN
    assert len(mine) == len(expected) == 2 * (PLAIN + visible + HEADERS + LARGE)
    assert {row.timestampType for row in mine} == {0, 1}
    assert all(row.event_time == row.timestamp for row in found)
