"""The header of the record batch at an offset (KIP-98), by a Fetch that asks for as little as a broker sends."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest

from pyspark_aligned_kafka.cluster.fetch_request import FetchLimits, Wanted, fetch_request
from pyspark_aligned_kafka.cluster.metadata import Leader
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

_BATCH_BYTES = 1 << 20
"""A broker sends whole batches only; the default of ``message.max.bytes`` is a little less."""
_ALL_BYTES = 8 << 20

_HEADER = struct.Struct(">qiibIhiqq")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, base and highest timestamp."""
_MAGIC = 2
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class BatchHeader(NamedTuple):
    """The header of a batch, whose checksum has not been verified."""

    first: int
    last: int
    """Its offsets, both inclusive."""
    max_timestamp: Millis
    """The highest of its records; brokers check it when they append."""
    is_transactional: bool
    is_control: bool
    """Whether it is the end of a transaction, and holds no row."""


def headers_request(offsets: Mapping[Split, tuple[int, Leader]], *, read_committed: bool) -> FetchRequest:
    """Ask a leader for the batches that hold one offset each."""
    wanted = (Wanted(split, leader.epoch, offset, _BATCH_BYTES) for split, (offset, leader) in offsets.items())
    return fetch_request(wanted, FetchLimits(0, 0, _ALL_BYTES, read_committed))


def read_headers(answer: Any) -> Mapping[Split, BatchHeader]:
    """Read a ``FetchResponse``: the first batch of each partition that has one, in the format of today."""
    found: dict[Split, BatchHeader] = {}
    for topic in answer.responses:
        for partition in topic.partitions:
            records = partition.records
            if partition.error_code or not records or len(records) < _HEADER.size:
                continue
            first, _, _, magic, _, attributes, delta, _, highest = _HEADER.unpack_from(records)
            if magic == _MAGIC and highest >= 0:
                found[Split(topic.topic, partition.partition_index)] = BatchHeader(
                    first,
                    first + delta,
                    Millis(highest),
                    is_transactional=bool(attributes & _TRANSACTIONAL),
                    is_control=bool(attributes & _CONTROL),
                )
    return found
