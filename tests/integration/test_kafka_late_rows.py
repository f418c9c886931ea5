"""Late rows on a real broker: one query, windows and their corrections by late rows, and together every row once."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.integration.kafka_streams import KafkaStreams
from tests.spark.processes import runner_processes, worker_processes
from tests.spark.queries import START
from watermark_source import follow_watermark, split_late
from watermark_source.status_model.status_json import parse_progress

pytestmark = [pytest.mark.service, pytest.mark.spark]

PARTITIONS, WAVES, SHARE = 8, 3, 0.015
"""The share of rows that are late in every wave but the first: 1 % of all."""
WAVE, BOUND = 60.0, 5.0
"""Seconds of event time: of a wave, and ``maxOutOfOrderness``."""


def test_windows_and_late_rows_of_one_query_have_every_row_once(
    streams: KafkaStreams, new_topic: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    """However often the source's driver side or a worker is killed on the way."""
    topic = new_topic(PARTITIONS, config={"retention.ms": "-1"})
    count, seed, kills = (request.config.getoption(f"--{n}") for n in ("late-rows", "kills-seed", "late-rows-kills"))
    rng = np.random.default_rng(seed)
    rows = count // (PARTITIONS * WAVES)
    late_rows = round(rows * SHARE)
    source = streams.source(subscribe=topic, includeLate="true", maxOutOfOrderness=f"{BOUND} seconds")
    on_time, late = split_late(follow_watermark(source))
    window = F.window("event_time", "10 seconds").alias("w")
    counts = on_time.groupBy(window).count().withColumn("is_correction", F.lit(False))
    corrections = late.select(window, F.lit(1).cast("long").alias("count"), F.lit(True).alias("is_correction"))
    frame = counts.unionByName(corrections).select("w.start", "count", "is_correction")
    expected: Counter[float] = Counter()
    corrected: Counter[float] = Counter()
    behind: list[float] = []
    reported = longest = dropped = 0
    for wave in range(WAVES):
        begin = wave * WAVE
        watermark = begin - BOUND - 0.001 if wave else None
        times = {}
        for partition in range(PARTITIONS):
            in_order = begin + np.sort(rng.uniform(-BOUND if wave else 0, WAVE, rows))
            # The newest of the wave is the same everywhere: so is the watermark that the next one begins with.
            in_order[-1] = begin + WAVE
            in_order = np.round(in_order, 3)
            if watermark is not None:
                in_order = np.maximum(in_order, round(watermark + 0.001, 3))
                lags = np.round(rng.uniform(0, watermark, late_rows), 3)
                behind += lags.tolist()
                in_order[rng.choice(rows - 1, late_rows, replace=False)] = np.round(watermark - lags, 3)
            on = in_order if watermark is None else in_order[in_order > watermark]
            windows, sizes = np.unique(np.floor(on / 10) * 10, return_counts=True)
            expected.update(dict(zip(windows.tolist(), sizes.tolist(), strict=True)))
            corrected.update((np.floor(in_order / 10) * 10).tolist())
            times[partition] = in_order
        streams.write(topic, times)
        for _ in range(kills // WAVES + (wave < kills % WAVES)):
            kill_within_a_run(streams, frame, rng)
        # Each wave is a run of its own: what a run counts begins again, what is late does not.
        query = streams.run(frame, "q")
        assert query.lastProgress is not None
        (status,) = parse_progress(query.lastProgress.json)
        reported, longest = reported + status.rows.late.rows, max(longest, status.rows.late.longest)
        dropped += sum(o.numRowsDroppedByWatermark for p in query.recentProgress for o in p.stateOperators)
        assert sum(view.late_rows for view in status.splits) == status.rows.late.rows
    result = streams.result("q")
    found = result.selectExpr("unix_millis(start) AS at", "count", "is_correction").collect()
    rows_late = [row for row in found if row.is_correction]
    found_windows = {row.at: row["count"] for row in found if not row.is_correction}
    assert len(rows_late) == len(behind) == (WAVES - 1) * PARTITIONS * late_rows
    # A batch of a run that was killed when it was done is counted in none.
    assert kills or reported == len(behind)
    assert kills or longest == round(max(behind) * 1_000)
    assert dropped == 0
    closed = {start: n for start, n in expected.items() if start + 10 <= WAVES * WAVE - BOUND}
    assert {round((at - START) / 1_000): n for at, n in found_windows.items()} == closed
    # What was sent, and its corrections, together: what a batch query over the topic counts.
    sums = result.groupBy(F.unix_millis("start").alias("at")).agg(F.sum("count").alias("n")).collect()
    together = {round((row.at - START) / 1_000): row.n for row in sums}
    assert {start: n for start, n in together.items() if start in closed} == {
        start: corrected[start] for start in closed
    }
    assert {start: corrected[start] for start in closed} != closed


def kill_within_a_run(streams: KafkaStreams, frame: DataFrame, rng: np.random.Generator) -> None:
    """Begin a run, and kill what drives its source, or a worker that reads, after a random time; it may be over."""
    query = streams.start_file(frame, "q", availableNow=True)
    time.sleep(rng.uniform(0, 4))
    victims = [*runner_processes(streams.spark), *worker_processes(streams.spark)]
    if victims:
        victims[rng.integers(len(victims))].kill()
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination(240)
