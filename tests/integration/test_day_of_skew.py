"""A day of event time in fifty partitions of random skew, silence and return: no row late, every window right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.spark.queries import START, at
from watermark_source import follow_watermark

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]
Times = dict[int, np.ndarray]

PARTITIONS = 50
DAY = 86_400
WINDOW = 600
DISORDER = 30.0
"""Seconds."""


def day_of(chance: np.random.Generator, records: int) -> Times:
    """Return the event times of each partition, in the order of its log.

    Each has a rate of its own, begins and ends somewhere in the day, is silent for hours in between, and is out of
    order by less than ``DISORDER``.
    """
    times: Times = {}
    for partition in range(PARTITIONS):
        share = int(records * 10 ** chance.uniform(-2, 0))
        begins, ends = np.sort(chance.uniform(0, DAY, 2)) if partition % 2 else (0.0, float(DAY))
        found = np.sort(chance.uniform(begins, ends, share))
        silent_from, silent_to = np.sort(chance.uniform(begins, ends, 2))
        found = found[(found < silent_from) | (found > silent_to)]
        # A record is written up to the allowed disorder after its time.
        order = np.argsort(found + chance.uniform(0, DISORDER - 0.001, len(found)))
        times[partition] = np.round(found[order], 3)
    return times


def windows_of(*days: Times) -> list[tuple[object, ...]]:
    """Return what every window must hold."""
    # Spark's windows are whole since the epoch.
    epoch = START / 1_000
    counts = Counter(
        (float((epoch + second) // WINDOW * WINDOW - epoch), partition)
        for day in days
        for partition, times in day.items()
        for second in times
    )
    return sorted((at(start), partition, count) for (start, partition), count in counts.items())


ALIGNED = {"alignmentGroup": "day", "alignmentMaxDrift": "2 hours"}


@pytest.mark.parametrize("options", [{}, ALIGNED], ids=str)
@pytest.mark.long("test_a_fast_a_slow_and_a_silent_partition_lose_nothing_and_plain_spark_loses_rows")
def test_a_day_replayed(
    streams: KafkaStreams, new_topic: NewTopic, pytestconfig: pytest.Config, options: dict[str, str]
) -> None:
    chance = np.random.default_rng(pytestconfig.getoption("--day-seed"))
    records = pytestconfig.getoption("--day-records")
    topic = new_topic(PARTITIONS)
    day = day_of(chance, records)
    streams.write(topic, day)
    total = sum(map(len, day.values()))
    source = streams.source(
        subscribe=topic,
        maxOutOfOrderness=f"{DISORDER:.0f} seconds",
        idleTimeout="3 seconds",
        maxOffsetsPerTrigger=max(1_000, total // 6),
        **options,
    )
    rows = follow_watermark(source)
    counted = rows.groupBy(F.window("event_time", f"{WINDOW} seconds").alias("w"), "partition").count()
    running = streams.start(counted.select("w.start", "partition", "count"))
    # Those that were silent return, on time; then one record so far ahead that every window is complete.
    running.settle()
    back = {p: np.array([DAY + 60.0]) for p in range(0, PARTITIONS, 3)}
    streams.write(topic, back)
    running.settle()
    streams.write(topic, {0: [2 * DAY]})
    expected = windows_of(day, back)
    wait_for(lambda: running.dropped or len(running.rows()) >= len(expected), running.query, seconds=120)
    assert running.dropped == 0
    assert running.rows() == expected
