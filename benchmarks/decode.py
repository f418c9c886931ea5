"""Micro-benchmark of the record decoder: batches of 16 KB with 100-byte values, from memory to Arrow columns."""

from __future__ import annotations

import argparse
import struct
import time

import numpy as np

from pyspark_aligned_kafka.records.decoding import RecordDecoder
from pyspark_aligned_kafka.records.record_batches import survey
from tests.unit.kafka.batches import Rec, batch
from watermark_source.planning.split import Split, SplitRange

ALL_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
FETCH_BYTES = 4 * 1024 * 1024
BASE_MILLIS = 1_700_000_000_000


def fetch_response(value_size: int, attributes: int = 0) -> tuple[np.ndarray, int]:
    """A partition's bytes as a broker sends them, and how many records they hold."""
    per_batch = max(1, 16_384 // (value_size + 10))
    recs = [Rec(i, bytes(i & 0xFF for _ in range(value_size)), None, BASE_MILLIS + i) for i in range(per_batch)]
    one = batch(0, recs, base_time=BASE_MILLIS, attributes=attributes)
    # The base offset is outside the checksum, so one batch can be repeated.
    copies = FETCH_BYTES // len(one)
    data = b"".join(struct.pack(">q", i * per_batch) + one[8:] for i in range(copies))
    return np.frombuffer(bytearray(data), np.uint8), copies * per_batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    split = Split("bench", 0)
    data, count = fetch_response(arguments.value_bytes)
    for columns in (("value", "timestamp"), ALL_COLUMNS):
        decoder = RecordDecoder(columns, batch_rows=10_000, batch_bytes=16 << 20, decompressed_limit=128 << 20)
        best = 0.0
        until = time.perf_counter() + arguments.seconds
        while time.perf_counter() < until:
            begun = time.perf_counter()
            found = survey(split, data, 0, data.size)
            rows = sum(b.rows for b in decoder.decode(SplitRange(split, 0, count), data, 0, found.batches, None))
            best = max(best, rows / (time.perf_counter() - begun))
        assert rows == count
        print(f"{best / 1e6:6.1f} M records/s, {best * data.size / count / 1e9:5.2f} GB/s  {','.join(columns)}")


if __name__ == "__main__":
    main()
