"""A skewed topic in windows: the source's watermark loses nothing where the maximum of a batch loses rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.integration.kafka_streams import KafkaStreams, Seconds, wait_for
from tests.spark.queries import Running, at
from watermark_source import data_rows, follow_watermark

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]

FAST, SLOW, FELL_SILENT, NEVER_SPOKE = range(4)
HOUR = 3_600


def windows(rows: DataFrame) -> DataFrame:
    counted = rows.groupBy(F.window("event_time", "10 seconds").alias("w"), "partition").count()
    return counted.select("w.start", "partition", "count")


def expected(written: Mapping[int, list[float]], *, before: float) -> list[tuple[object, ...]]:
    """Return every whole window before a moment, from what was produced."""
    counts = Counter((second // 10 * 10, partition) for partition, times in written.items() for second in times)
    return sorted(
        (at(float(start)), partition, count) for (start, partition), count in counts.items() if start + 10 <= before
    )


def test_a_fast_a_slow_and_a_silent_partition_lose_nothing_and_plain_spark_loses_rows(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(4)
    # Far longer than a turn takes on a busy machine: the rows of a partition that was idle may be late by right.
    source = streams.source(subscribe=topic, idleTimeout="10 seconds")
    # While they wait they need not ask all the time.
    now_and_then = {"processingTime": "1 second"}
    followed = streams.start(windows(follow_watermark(source)), **now_and_then)
    plain = streams.start(windows(data_rows(source).withWatermark("event_time", "0 seconds")), **now_and_then)
    written: dict[int, list[float]] = {FAST: [], SLOW: [], FELL_SILENT: []}

    def say(times: Mapping[int, Seconds]) -> None:
        for partition, seconds in times.items():
            written[partition] += [round(float(second), 3) for second in seconds]
        streams.write(topic, times)
        for query in (followed, plain):
            # Every row is in a batch of its turn, so that the next turn's rows meet the watermark this one made.
            read = sum(map(len, written.values()))
            wait_for(lambda query=query, read=read: rows_read(query, topic) >= read, query.query)  # type: ignore[misc]

    say({FELL_SILENT: np.arange(0, 5, 0.5)})
    for turn in range(3):
        late = 20 * turn
        say({FAST: np.arange(HOUR + late, HOUR + late + 20, 0.1), SLOW: np.arange(late, late + 20, 0.5)})
    say({FAST: [2 * HOUR], SLOW: [2 * HOUR]})

    plain.query.stop()
    complete = expected(written, before=2 * HOUR)
    wait_for(lambda: followed.dropped or len(followed.rows()) >= len(complete), followed.query)
    assert followed.dropped == 0
    assert followed.rows() == complete
    # The slow partition is an hour behind the watermark from the second turn on.
    assert plain.dropped > 0
    lost = {row[:2] for row in complete if row[1] == SLOW} - {row[:2] for row in plain.rows()}
    assert lost


def rows_read(running: Running, topic: str) -> int:
    """Return how many data rows a query has read, markers left out: the end positions of its last offset."""
    found = 0
    for progress in running.query.recentProgress:
        offset = progress["sources"][0]["endOffset"]
        if offset:
            splits = (json.loads(offset) if isinstance(offset, str) else offset)["splits"]
            found = sum(fields[0] for fields in splits.get(topic, {}).values())
    return found
