"""Rows that a reader gives to a task."""

from __future__ import annotations

import pyarrow as pa

from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.split import Split

A, B = Split("log", 0), Split("log", 1)
MICROS = pa.timestamp("us", tz="UTC")


def batch(split: Split, *micros: int) -> ReadBatch:
    times = pa.array(micros, pa.int64()).view(MICROS)
    return ReadBatch(split, len(micros), (pa.array(range(len(micros)), pa.int64()),), times)
