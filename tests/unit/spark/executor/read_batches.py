"""Rows that a reader gives to a task, and what is reported of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from watermark_source.contract.read_batch import ReadBatch
from watermark_source.planning.range_report import RangeReport
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis
from watermark_source.spark.executor.event_time_observer import EventTimeObserver, Summing
from watermark_source.spark.read_tasks import Beginning, ReadTask

A, B = Split("log", 0), Split("log", 1)
MICROS = pa.timestamp("us", tz="UTC")


def batch(split: Split, *micros: int) -> ReadBatch:
    times = pa.array(micros, pa.int64()).view(MICROS)
    return ReadBatch(split, len(micros), (pa.array(range(len(micros)), pa.int64()),), times)


def observe(
    batches: Iterable[ReadBatch],
    ranges: Sequence[SplitRange],
    future_cap: Millis | None,
    late_at: Millis | None = None,
    beginnings: Mapping[Split, Beginning] | None = None,
    *,
    summing: Summing | None = None,
) -> list[RangeReport]:
    """Return the reports of ranges whose batches are read for these alone."""
    task = ReadTask(tuple(ranges), future_cap=future_cap, late_at=late_at, beginnings=beginnings)
    observer = EventTimeObserver(task, summing)
    for batch in batches:
        observer.observe(batch)
    return list(observer.reports())
