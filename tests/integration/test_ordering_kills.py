"""Kill -9 while rows of a topic wait for their turn: each comes out once, in order or reported as late."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from services.kafka import Kafka
from tests.integration.kafka_streams import write
from tests.integration.killed_ordering_driver import DISORDER_SECONDS, KEYS, OrderingJob
from tests.integration.killed_runs import batches, rows_written, run_with_kills, written

pytestmark = [pytest.mark.service, pytest.mark.timeout(7_200)]

PARTITIONS = 3
BATCH_ROWS = 600
SPAN_SECONDS = 3_000.0
LATE_ROWS = 5
"""Of each partition, of its very first second, near its end."""

_log = logging.getLogger(__name__)


def times_of(chance: np.random.Generator, rows: int) -> np.ndarray:
    """Return event times of a log: out of order by less than ``DISORDER_SECONDS``, then rows that are late, and an end.

    The end is of a time that lets all rows before it leave.
    """
    found = np.round(np.sort(chance.uniform(1, SPAN_SECONDS, rows)), 1)
    found = found[np.argsort(found + chance.uniform(0, DISORDER_SECONDS - 0.1, rows), kind="stable")]
    near_the_end = rows * 3 // 4 + np.arange(LATE_ROWS)
    return np.append(np.insert(found, near_the_end, 0.0), SPAN_SECONDS + 1_000)


@pytest.mark.long("test_rows_of_a_topic_leave_in_order_and_once_though_batches_are_retried")
def test_rows_leave_once_and_in_order_whenever_the_driver_is_killed(
    request: pytest.FixtureRequest, kafka: Kafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    kills, seed = request.config.getoption("--ordering-kills"), request.config.getoption("--kills-seed")
    topic = new_topic(PARTITIONS)
    # More batches than kills can interrupt.
    rows = BATCH_ROWS * (6 + 6 * kills) // PARTITIONS
    times = {partition: times_of(np.random.default_rng([seed, partition]), rows) for partition in range(PARTITIONS)}
    write(kafka.bootstrap, topic, times)
    job = OrderingJob("local[2]", tmp_path, kafka.bootstrap, topic, str(BATCH_ROWS))
    # All but the ends, which wait for a watermark that does not come.
    due = {(p, offset) for p, found in times.items() for offset in range(len(found) - 1)}
    left_when_killed = []

    run_with_kills(
        job, kills, random.Random(seed), lambda: rows_written(job) >= len(due),
        killed=lambda: left_when_killed.append(len(due) - rows_written(job)), most_batches=4,
    )  # fmt: skip
    assert all(left_when_killed), f"nothing was left for a kill to lose: {left_when_killed}"
    _log.info("%d rows in %d batches; left at each kill: %s", len(due), batches(job, "commits"), left_when_killed)

    came = [pq.read_table(file) for files in written(job) for file in files]
    assert sorted(place for part in came for place in places(part)) == sorted(due)
    late = {place for part in came for place in places(part.filter(part["late"]))}
    assert late == {(p, offset) for p, offset in due if times[p][offset] == 0}
    last = dict.fromkeys(range(KEYS), 0)
    for part in came:
        in_order = part.filter(pc.invert(part["late"]))
        moments = in_order["event_time"].cast(pa.int64()).to_numpy()
        for key in range(KEYS):
            of_key = moments[in_order["key"].to_numpy() == key]
            assert np.array_equal(of_key, np.sort(of_key))
            assert not len(of_key) or of_key[0] >= last[key]
            last[key] = of_key[-1] if len(of_key) else last[key]


def places(rows: pa.Table) -> list[tuple[int, int]]:
    return list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
