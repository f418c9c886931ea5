"""A producer for millions of records: batches built from arrays, several requests in flight to each leader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from services.errors import ServiceError
from services.kafka_record_batch import Bytes, Millis, encode_batch, numbered_values
from services.kafka_wire import BrokerConnection

DEFAULT_BATCH_RECORDS = 1_000
# With 5, a producer's usual number, the broker waits for us between requests: a third of the speed.
_REQUESTS_IN_FLIGHT = 20


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """The records of one partition, in the order they are written.

    ``timestamps`` are milliseconds since the epoch. ``values`` and ``keys`` are 2-D ``uint8`` arrays with a row a
    record; without ``values`` the records are numbered from 0, ``value_size`` bytes each; without ``keys`` they have
    none.
    """

    timestamps: Millis
    values: Bytes | None = None
    keys: Bytes | None = None
    value_size: int = 100
    header: tuple[str, Bytes] | None = None
    """Name of a header of each record, with a value for each of at most 63 bytes."""

    def __post_init__(self) -> None:
        header = None if self.header is None else self.header[1]
        for name, rows in (("values", self.values), ("keys", self.keys), ("header", header)):
            if rows is not None and (rows.ndim != 2 or rows.dtype != np.uint8 or len(rows) != len(self.timestamps)):
                raise ServiceError(
                    f"{name}: a 2-D uint8 array with {len(self.timestamps)} rows is expected, "
                    f"seen {rows.dtype} of shape {rows.shape}"
                )


def bulk_produce(
    bootstrap: str,
    topic: str,
    partition: int,
    timestamps: Millis,
    *,
    value_size: int = 100,
    codec: str = "none",
    batch_records: int = DEFAULT_BATCH_RECORDS,
) -> None:
    """Write one numbered record for each timestamp; return when the leader has written all of them (acks=1)."""
    records = PartitionRecords(timestamps, value_size=value_size)
    bulk_produce_partitions(bootstrap, topic, {partition: records}, codec=codec, batch_records=batch_records)


def bulk_produce_partitions(
    bootstrap: str,
    topic: str,
    records: Mapping[int, PartitionRecords],
    *,
    codec: str = "none",
    batch_records: int = DEFAULT_BATCH_RECORDS,
) -> None:
    """Write several partitions of a topic side by side: each request carries one batch for every partition.

    Returns when the leaders have written all records (acks=1); the topic must exist.

    Raises:
        ServiceError: no connection, no leader, or a batch was refused.
    """
    with ExitStack() as open_connections:
        connections = {
            node: (open_connections.enter_context(BrokerConnection(host, port)), partitions)
            for node, (host, port, partitions) in _leaders(bootstrap, topic, records).items()
        }
        for connection, partitions in connections.values():
            for batches in _rounds({partition: records[partition] for partition in partitions}, codec, batch_records):
                while connection.in_flight >= _REQUESTS_IN_FLIGHT:
                    connection.receive_produce()
                connection.send_produce(topic, batches)
            while connection.in_flight:
                connection.receive_produce()


def _rounds(records: Mapping[int, PartitionRecords], codec: str, batch_records: int) -> Iterator[dict[int, bytes]]:
    longest = max((len(each.timestamps) for each in records.values()), default=0)
    for first in range(0, longest, batch_records):
        yield {
            partition: _batch(each, first, batch_records, codec)
            for partition, each in records.items()
            if first < len(each.timestamps)
        }


def _batch(records: PartitionRecords, first: int, count: int, codec: str) -> bytes:
    part = slice(first, first + count)
    timestamps = records.timestamps[part]
    if records.values is None:
        values = numbered_values(first, len(timestamps), records.value_size)
    else:
        values = records.values[part]
    keys = None if records.keys is None else records.keys[part]
    header = None if records.header is None else (records.header[0], records.header[1][part])
    return encode_batch(timestamps, values, keys, header=header, codec=codec)


def _leaders(
    bootstrap: str, topic: str, records: Mapping[int, PartitionRecords]
) -> dict[int, tuple[str, int, list[int]]]:
    """Of each node that leads one of the partitions: host, port, and the partitions it leads."""
    host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
    with BrokerConnection(host, int(port)) as connection:
        view = connection.cluster(topic)
    leader_of = {each.partition: each.leader for each in view.leaders}
    missing = sorted(set(records) - leader_of.keys())
    if missing:
        raise ServiceError(f"topic {topic} at {bootstrap} has no leader for partitions {missing}; create it first")
    found: dict[int, tuple[str, int, list[int]]] = {}
    for partition in sorted(records):
        node = leader_of[partition]
        found.setdefault(node, (*view.brokers[node], []))[2].append(partition)
    return found
