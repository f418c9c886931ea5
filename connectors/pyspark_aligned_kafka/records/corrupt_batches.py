"""Faults of record batches, and their errors."""

from __future__ import annotations

from enum import IntEnum

from pyspark_aligned_kafka.errors import place
from watermark_source.errors import CorruptDataError, SourceError, UnsupportedFormatError
from watermark_source.planning.split import Split


class Fault(IntEnum):
    """What is wrong with bytes; ``NONE`` if nothing is."""

    NONE = 0
    OLD_MAGIC = 1
    MAGIC = 2
    LENGTH = 3
    ORDER = 4
    CRC = 5
    COUNT = 6
    MARKER = 7
    VARINT = 8
    RECORD_LENGTH = 9
    OFFSET = 10
    FIELD = 11
    TIMESTAMP = 12
    REMAINDER = 13
    HEADERS = 14


_FAULT_TEXT = {
    Fault.MAGIC: "a batch of an unknown format (magic byte)",
    Fault.LENGTH: "an impossible batch length",
    Fault.ORDER: "batches whose offsets do not ascend",
    Fault.CRC: "a checksum (CRC-32C) that does not fit the batch",
    Fault.COUNT: "an impossible record count",
    Fault.MARKER: "a transaction marker that cannot be read",
    Fault.VARINT: "a number that does not end",
    Fault.RECORD_LENGTH: "a record longer than its batch",
    Fault.OFFSET: "record offsets that do not ascend within their batch",
    Fault.FIELD: "a key or value longer than its record",
    Fault.TIMESTAMP: "a timestamp that does not fit 64 bits of microseconds",
    Fault.REMAINDER: "bytes after the last record",
    Fault.HEADERS: "headers that do not fit their record",
}


def fault_error(fault: Fault, split: Split, offset: int) -> SourceError:
    """Return the error for a fault found at (or in the batch beginning at) ``offset``."""
    where = place(split, offset)
    if fault is Fault.OLD_MAGIC:
        return UnsupportedFormatError(
            f"{where}: records in format 0 or 1 (before Kafka 0.11); only format 2 is read. "
            "Copy the topic with a current producer"
        )
    if fault is Fault.TIMESTAMP:
        return UnsupportedFormatError(
            f"{where}: {_FAULT_TEXT[fault]}, as Spark keeps it; was it written in micro- or nanoseconds? "
            "Kafka's timestamps are milliseconds. Where event time is in the payload (eventTimeColumn), leave "
            "timestamp out of the option columns; otherwise begin after it, with startingOffsets and a new checkpoint"
        )
    return CorruptDataError(
        f"{where}: {_FAULT_TEXT[fault]}; the data on the broker or on its way is damaged. "
        "Check the broker's disk and log (kafka-dump-log)"
    )
