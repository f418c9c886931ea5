"""The header of the record batch at an offset (KIP-98), by a Fetch that asks for as little as a broker sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer import FetchRequest
from kafka.record.default_records import DefaultRecordBatch

from pyspark_aligned_kafka.cluster.fetch_request import FetchLimits, Wanted, fetch_request
from pyspark_aligned_kafka.cluster.metadata import Leader
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

_BATCH_BYTES = 1 << 20
"""A broker sends whole batches only; the default of ``message.max.bytes`` is a little less."""
_ALL_BYTES = 8 << 20

_HEADER_BYTES: Final[int] = DefaultRecordBatch.HEADER_STRUCT.size
_MAGIC = 2


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
            if partition.error_code or not records or len(records) < _HEADER_BYTES:
                continue
            batch = DefaultRecordBatch(records[:_HEADER_BYTES])
            if batch.magic == _MAGIC and batch.max_timestamp >= 0:
                found[Split(topic.topic, partition.partition_index)] = BatchHeader(
                    batch.base_offset,
                    batch.last_offset,
                    Millis(batch.max_timestamp),
                    is_transactional=batch.is_transactional,
                    is_control=batch.is_control_batch,
                )
    return found
