"""Kill -9 while clicks wait for the snapshot of their users: no click misses its user, none is lost or doubled."""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.clickstream_enrichment import GENDERS, fill_users, produce_clicks
from services.kafka import Kafka
from services.mysql import MySql
from services.mysql_client import run
from services.process import ChildProcess
from tests.integration.killed_join_driver import JOINED, JoinJob
from tests.spark.queries import Streams

pytestmark = [pytest.mark.service, pytest.mark.timeout(7_200)]

_BATCHES = 6
"""Of the snapshot; each is of two chunks."""
_PATIENCE_SECONDS = 240

_log = logging.getLogger(__name__)


def delivered(job: JoinJob, spark: SparkSession) -> int:
    """Return how many rows the file sink holds."""
    log = job.sink(JOINED) / "_spark_metadata"
    if not log.exists() or not any('"add"' in file.read_text() for file in log.glob("[0-9]*")):
        return 0
    return spark.read.parquet(str(job.sink(JOINED))).count()


def batches(job: JoinJob, log: str) -> int:
    folder = job.checkpoint(JOINED) / log
    return sum(file.name.isdigit() for file in folder.iterdir()) if folder.exists() else 0


def wait(condition: Callable[[], object], driver: ChildProcess, what: str) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert driver.exit_code is None, driver.last_lines(60)
        assert time.monotonic() < end, f"{what}: not within {_PATIENCE_SECONDS} s\n{driver.last_lines(60)}"
        time.sleep(0.1)


def test_no_click_misses_its_user_whenever_the_driver_is_killed(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    mysql: MySql,
    new_topic: Callable[..., str],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    kills, users = request.config.getoption("--join-kills"), request.config.getoption("--join-users")
    chance = random.Random(request.config.getoption("--kills-seed"))
    clicks, database, topic = users // 2, "join_kills", new_topic(2)
    fill_users(mysql, users, database)
    produce_clicks(kafka.bootstrap, clicks, users, topic)
    chunk = str(max(1, users // (2 * _BATCHES)))
    job = JoinJob("local[2]", tmp_path, kafka.bootstrap, topic, f"{mysql.host}:{mysql.port}", database, chunk)
    in_snapshot = 0
    try:
        for number in range(kills + 1):
            driver = ChildProcess([sys.executable, job.program, *job.arguments], folder=tmp_path, log=tmp_path / "log")
            try:
                planned, done = batches(job, "offsets"), batches(job, "commits")
                if number == kills:
                    wait(lambda: delivered(job, spark) == clicks, driver, "the last click")
                    continue
                # Half of the kills come right after a batch was planned, the others after one was done.
                if chance.random() < 0.5:
                    wait(lambda planned=planned: batches(job, "offsets") > planned, driver, "a batch")
                    time.sleep(chance.uniform(0, 1))
                else:
                    wait(lambda done=done: batches(job, "commits") > done, driver, "the end of a batch")
                    time.sleep(chance.uniform(0, 0.1))
            finally:
                driver.kill()
            in_snapshot += "snapshot" in Streams(spark, tmp_path).offsets(JOINED, source=1)[-1]
        offsets = list(zip(*(Streams(spark, tmp_path).offsets(JOINED, source=n) for n in range(2)), strict=True))
    finally:
        run(mysql.host, mysql.port, f"DROP DATABASE {database}")
    assert not kills or in_snapshot
    rows = spark.read.parquet(str(job.sink(JOINED))).collect()
    assert sorted(row.item_id for row in rows) == list(range(clicks))
    missed = [row for row in rows if row.gender != GENDERS[row.user_id % 2]]
    _log.info("%d kills, %d in the snapshot, %d clicks, %d missed", kills, in_snapshot, len(rows), len(missed))
    assert missed == []
    # Not only did they wait: they were not even read.
    for clicked, changed in offsets:
        read = sum(numbers[0] for splits in clicked["splits"].values() for numbers in splits.values())
        assert not read or "snapshot" not in changed, json.dumps(clicked)
