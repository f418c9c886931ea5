"""Records the seeds of ``fetches`` and ``decoder`` from a real broker: ``python -m tests.soak.fuzz.record_seeds``.

One response for each codec, for transactions read by both kinds of reader, for headers and nulls, for a compacted-like
gap, for an offset out of range, and for several partitions at once.
"""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from kafka import KafkaProducer

from pyspark_aligned_kafka.cluster.fetch_request import FetchLimits, Wanted
from pyspark_aligned_kafka.reading.fetch import decode_response, encode_request
from services.kafka import kafka_service
from services.kafka_local import FAST_START
from services.kafka_record_batch import CODECS
from services.kafka_topics import create_topic, delete_records
from tests.soak.fuzz.decoder import HEAD
from tests.soak.fuzz.targets import SEEDS
from watermark_source.planning.split import Split

_CORRELATION = 7
_ALL_COLUMNS = 0xFF


def main() -> None:
    """Write the seeds."""
    with kafka_service(jvm=FAST_START) as broker:
        topic = f"seeds-{uuid.uuid4().hex[:8]}"
        create_topic(broker.bootstrap, topic, len(CODECS) + 2)
        for number, codec in enumerate(CODECS):
            _produce(broker.bootstrap, topic, number, codec)
        transactions, deleted = len(CODECS), len(CODECS) + 1
        still_open = _transact(broker.bootstrap, topic, transactions)
        _produce(broker.bootstrap, topic, deleted, "none")
        delete_records(broker.bootstrap, topic, {deleted: 4})

        for number, codec in enumerate(CODECS):
            _record(broker.bootstrap, f"{codec}", [Wanted(Split(topic, number), None, 0, 1 << 20)])
        for committed in (False, True):
            name = "committed" if committed else "uncommitted"
            _record(broker.bootstrap, name, [Wanted(Split(topic, transactions), None, 0, 1 << 20)], committed=committed)
        _record(broker.bootstrap, "out-of-range", [Wanted(Split(topic, deleted), None, 0, 1 << 20)])
        _record(broker.bootstrap, "unknown", [Wanted(Split("nowhere", 0), None, 0, 1 << 20)])
        _record(broker.bootstrap, "several", [Wanted(Split(topic, n), None, 2, 200) for n in range(len(CODECS))])
        still_open.abort_transaction()
        still_open.close()


def _produce(bootstrap: str, topic: str, partition: int, codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=50
    )
    for n in range(6):
        producer.send(
            topic,
            key=None if n % 3 == 0 else b"key %d" % n,
            value=None if n % 3 == 1 else b"value %d " % n * n,
            headers=[(f"h{m}", b"%d" % m) for m in range(n % 3)],
            partition=partition,
            timestamp_ms=1_700_000_000_000 + n * 777,
        )
    producer.flush()
    producer.send(topic, b"another batch", partition=partition)
    producer.close()


def _transact(bootstrap: str, topic: str, partition: int) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic, transaction_timeout_ms=600_000)
    producer.init_transactions()
    for turn in range(4):
        producer.begin_transaction()
        for n in range(2):
            producer.send(topic, b"%d %d" % (turn, n), partition=partition)
        producer.flush()
        producer.abort_transaction() if turn % 2 else producer.commit_transaction()
    producer.begin_transaction()
    producer.send(topic, b"open", partition=partition).get(30)
    return producer


def _record(bootstrap: str, name: str, wanted: Sequence[Wanted], *, committed: bool = True) -> None:
    """Write the broker's response, and the records in it, as seeds."""
    limits = FetchLimits(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, read_committed=committed)
    host, _, port = bootstrap.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as answer:
        request = encode_request(_CORRELATION, "seeds", wanted, limits)
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", answer.read(4))
        response = answer.read(size)
    _write("fetches", name, bytes([2 | committed]) + response)
    found = decode_response(np.frombuffer(response, np.uint8), size, _CORRELATION, read_committed=committed)
    records = b"".join(response[each.start : each.stop] for each in found.partitions)
    if records:
        _write("decoder", name, HEAD.pack(4 | 8 * committed, 50, 1_000, _ALL_COLUMNS, 0, 100, 2) + records)
        _write("decoder", f"{name}-sealed", HEAD.pack(1 | 2, 3, 30, _ALL_COLUMNS, 1, 5, 0) + records)


def _write(target: str, name: str, data: bytes) -> None:
    folder = Path(SEEDS / target)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
