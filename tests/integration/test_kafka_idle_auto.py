"""``idleTimeout=auto`` on a real broker: a partition that falls silent is idle by what its own pauses were."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from services.kafka import Kafka
from tests.integration.kafka_streams import KafkaStreams, wait_for
from watermark_source import follow_watermark
from watermark_source.monitor.progress_event import parse_progress
from watermark_source.monitor.status import SourceStatus, Status
from watermark_source.planning.pauses import LONGEST, SHORTEST

pytestmark = [pytest.mark.service, pytest.mark.spark]


def test_a_busy_partition_that_falls_silent_is_not_waited_for_as_long_as_one_that_nobody_knows(
    streams: KafkaStreams, kafka: Kafka, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    rows = follow_watermark(streams.source(subscribe=topic, idleTimeout="auto"))
    query = streams.start_file(rows.select("partition", "offset"), "q", processingTime="300 milliseconds")
    written = 0

    def status() -> SourceStatus | None:
        progress = query.lastProgress
        found = () if progress is None else parse_progress(progress.json)
        return found[0] if found else None

    def planned() -> int:
        offsets = streams.offsets("q")
        return sum(fields[0] for fields in offsets[-1]["splits"][topic].values()) if offsets else 0

    def write(*partitions: int) -> None:
        nonlocal written
        streams.write(topic, {p: [written * 1.0] for p in partitions})
        written += 1

    begun = 0.0
    for _ in range(14):
        begun = time.monotonic()
        write(0, 1)
        wait_for(lambda rows=written * 2: planned() >= rows, query)

    def is_idle() -> bool:
        write(0)
        time.sleep(0.3)
        seen = status()
        return seen is not None and seen.splits[1].status is Status.IDLE

    wait_for(is_idle, query, seconds=120)
    assert time.monotonic() - begun >= SHORTEST / 1_000
    seen = status()
    assert seen is not None
    assert seen.splits[1].idle_after is not None
    assert SHORTEST <= seen.splits[1].idle_after < LONGEST
    # Nobody knows it: it never had a row.
    assert seen.splits[2].idle_after == LONGEST
    assert seen.splits[2].status is Status.ACTIVE
    assert "idleTimeout" in seen.splits[1].why
