"""Two jobs in a row, watermarks announced between them, killed again and again: the last has what a batch query has."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from pyspark_aligned_kafka import WatermarkAnnouncer
from pyspark_aligned_kafka.announcing import audit
from services.kafka import Kafka
from services.kafka_bulk import PartitionRecords, bulk_produce_partitions
from services.kafka_record_batch import Millis
from tests.integration.killed_chain_driver import HOURS, IN_PAYLOAD, MINUTES, WRITERS, ChainJob
from tests.integration.killed_runs import rows_written, run_with_kills
from tests.spark.queries import START

pytestmark = [pytest.mark.service, pytest.mark.timeout(7_200)]

_log = logging.getLogger(__name__)
_HOUR = 3_600_000
_STEPS = 24
"""So often each writer announces."""
_SPAN = 6 * _HOUR
_DISORDER = 120_000
_SILENT = 3
"""The partition without rows."""


def write_clicks(bootstrap: str, topic: str, clicks: int, chance: np.random.Generator) -> Counter[int]:
    """Write a backlog of two writers, one an hour of event time behind, and return the clicks of each hour.

    The fast one writes ten times as many clicks, and in the middle it is idle for a quarter of its steps.
    """
    kafka = {"kafka.bootstrap.servers": bootstrap}
    announcers = {name: WatermarkAnnouncer(topic=topic, kafka=kafka, writer=name) for name in WRITERS}
    hours: Counter[int] = Counter()
    steps_behind = _STEPS * _HOUR // _SPAN
    for step in range(_STEPS + steps_behind):
        for name, behind, share in (("fast", 0, 10), ("slow", steps_behind, 1)):
            own = step - behind
            if not 0 <= own < _STEPS:
                continue
            if name == "fast" and _STEPS // 2 <= own < _STEPS * 3 // 4:
                announcers[name].idle()
                continue
            begin, end = START + own * _SPAN // _STEPS, START + (own + 1) * _SPAN // _STEPS
            records: dict[int, PartitionRecords] = {}
            for partition in range(_SILENT):
                times = np.linspace(begin, end, clicks * share // 11 // _STEPS // _SILENT, endpoint=False)
                shuffled: Millis = (times - chance.integers(0, _DISORDER, len(times))).astype(np.int64)
                hours.update((shuffled // _HOUR * _HOUR).tolist())
                records[partition] = PartitionRecords(shuffled, value_size=20)
            bulk_produce_partitions(bootstrap, topic, records)
            announcers[name].at(end - _DISORDER - 1)
    for announcer in announcers.values():
        announcer.close(end=True)
    return hours


def test_the_last_job_has_what_a_batch_query_has_whenever_the_jobs_are_killed(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    new_topic: Callable[..., str],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    kills, clicks = request.config.getoption("--chain-kills"), request.config.getoption("--chain-clicks")
    seed = request.config.getoption("--kills-seed")
    topic, minutes = new_topic(_SILENT + 1), new_topic(_SILENT + 1)
    hours = write_clicks(kafka.bootstrap, topic, clicks, np.random.default_rng(seed))
    job = ChainJob("local[2]", tmp_path, kafka.bootstrap, topic, minutes, str(clicks // 12))
    run_with_kills(
        job, kills, random.Random(seed), lambda: rows_written(job) >= len(hours), most_batches=3,
        patience=240 + clicks / 10_000,
    )  # fmt: skip
    found = {row.at // _HOUR * _HOUR: row.clicks for row in spark.read.parquet(str(job.sink(HOURS))).collect()}
    _log.info("%d kills, %d clicks, %d hours", kills, hours.total(), len(hours))
    assert found == hours
    audited = audit(minutes, {"kafka.bootstrap.servers": kafka.bootstrap, **IN_PAYLOAD}, IN_PAYLOAD["eventTimeColumn"])
    assert audited, audited.broken
    # Of each batch one, and one by which readers wait for a writer that is new.
    assert 2 < sum(writer.announcements for writer in audited.writers) <= _done(job, MINUTES) + 1


def _done(job: ChainJob, query: str) -> int:
    return sum(file.name.isdigit() for file in (job.checkpoint(query) / "commits").iterdir())


def test_the_demo_loses_no_click_where_a_bound_loses_many(kafka: Kafka) -> None:
    command = [sys.executable, "-m", "examples.job_chain", "--seconds", "15", "--kafka", kafka.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    last = " ".join(done.stdout.split())
    assert last.endswith("with announced watermarks none was."), done.stdout
    assert " 0 of 6000 clicks" not in last
