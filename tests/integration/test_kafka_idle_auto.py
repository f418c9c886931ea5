"""``idleTimeout=auto`` on a real broker: a partition that falls silent is idle by what its own pauses were."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from tests.integration.direct_kafka import DirectKafka
from tests.spark.queries import START
from watermark_source.planning.status_transitions import LONGEST_IDLE_TIMEOUT, SHORTEST_IDLE_TIMEOUT
from watermark_source.status_model.source_status import Status

pytestmark = pytest.mark.service


def test_a_busy_partition_that_falls_silent_is_not_waited_for_as_long_as_one_that_no_one_knows(
    direct: DirectKafka, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    query = direct.start(direct.source(subscribe=topic, idleTimeout="auto"), "q")
    written = 0

    def write(*partitions: int) -> None:
        nonlocal written
        direct.write(topic, {p: [written * 1.0] for p in partitions})
        written += 1

    begun = 0.0
    for turn in range(1, 15):
        begun = time.monotonic()
        write(0, 1)
        query.run_until(lambda rows=turn * 2: len(direct.data("q")) >= rows)  # type: ignore[misc]
        query.run_for(0.3)

    while query.status.splits[1].status is not Status.IDLE:
        assert time.monotonic() - begun < 120
        write(0)
        query.run_for(0.3)
    assert time.monotonic() - begun >= SHORTEST_IDLE_TIMEOUT / 1_000
    seen = query.status
    assert seen.splits[1].idle_after is not None
    assert SHORTEST_IDLE_TIMEOUT <= seen.splits[1].idle_after < LONGEST_IDLE_TIMEOUT
    # No one knows it: it never had a row.
    assert seen.splits[2].idle_after == LONGEST_IDLE_TIMEOUT
    assert seen.splits[2].status is Status.ACTIVE
    assert "idleTimeout" in seen.splits[1].why


def test_a_partition_of_records_without_an_event_time_says_so_and_turns_idle_while_they_come(
    direct: DirectKafka, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    options = {"idleTimeout": "6 seconds", "eventTimeColumn": "value:$.at", "eventTimeErrors": "null"}
    query = direct.start(direct.source(subscribe=topic, **options), "q")
    written = 0

    def write() -> None:
        """Write a record of each kind, so that no batch finds the second partition quiet."""
        nonlocal written
        written += 1
        for partition, text in enumerate((b'{"at":%d}' % (START + written), b'{"on":%d}' % (START + written))):
            values = np.frombuffer(text, np.uint8).reshape(1, -1)
            records = PartitionRecords(np.array([START]), values=values)
            bulk_produce_partitions(direct.bootstrap, topic, {partition: records})
        query.run_until(lambda: len(direct.data("q")) >= 2 * written)

    for _ in range(3):
        write()
    query.run_for(0.3)
    assert query.status.watermark is None
    why = query.status.splits[1].why
    assert why == "3 records, none with an event time; holds the watermark until it is idle (idleTimeout 6 s)"
    begun = time.monotonic()
    while query.status.splits[1].status is not Status.IDLE:
        assert time.monotonic() - begun < 120
        write()
    assert time.monotonic() - begun > 1
    for _ in range(3):
        write()
    assert query.status.splits[1].status is Status.IDLE
    assert "nothing with an event time" in query.status.splits[1].why
    assert query.status.watermark is not None
    assert query.status.watermark >= START + written - 5
