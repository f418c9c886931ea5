"""Kill -9 while clicks wait for the snapshot of their users: no click misses its user, none is lost or doubled."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.clickstream_enrichment import GENDERS, READER, fill_users, produce_clicks
from examples.servers import MySqlServer
from services.kafka import Kafka
from services.mysql import MySql
from services.mysql_client import run
from tests.integration.killed_join_driver import JOINED, JoinJob, RateJob
from tests.integration.killed_runs import batches, rows_written, run_with_kills, written
from tests.spark.queries import Streams

pytestmark = [pytest.mark.service, pytest.mark.timeout(7_200)]

_BATCHES = 6
"""Of the snapshot; each is of two chunks."""

_log = logging.getLogger(__name__)


@pytest.mark.parametrize("waits", ["wait", "no-wait"])
def test_clicks_of_any_source_wait_for_the_snapshot_or_are_answered_from_the_first_batch_on(
    request: pytest.FixtureRequest, mysql: MySql, spark: SparkSession, tmp_path: Path, waits: str
) -> None:
    kills, users = request.config.getoption("--join-kills"), request.config.getoption("--join-users")
    chance = random.Random(request.config.getoption("--kills-seed"))
    database = f"rate_{waits.replace('-', '_')}"
    server = MySqlServer(mysql.host, mysql.port)
    server.run(f"CREATE DATABASE {database}")
    server.let_read(READER, database)
    fill_users(server, users, database)
    chunk = str(max(1, users // _BATCHES))
    job = RateJob("local[2]", tmp_path, server.address, database, str(users), chunk, waits)
    streams = Streams(spark, tmp_path)
    # Of three sources: the clicks, the seconds beside them, and the users.
    in_snapshot: list[bool] = []

    def is_done() -> bool:
        complete = [n for n, offset in enumerate(streams.offsets(JOINED, source=2)) if "snapshot" not in offset]
        # Two batches more: those that waited come out with the first watermark.
        return bool(complete) and batches(job, "commits") > complete[0] + 2 and rows_written(job) > 0

    try:
        run_with_kills(
            job, kills, chance, is_done, patience=240 + users / 2_000,
            killed=lambda: in_snapshot.append("snapshot" in streams.offsets(JOINED, source=2)[-1]),
        )  # fmt: skip
        users_by_batch = streams.offsets(JOINED, source=2)
    finally:
        run(mysql.host, mysql.port, f"DROP DATABASE {database}")
    assert not kills or any(in_snapshot)
    rows = spark.read.parquet(str(job.sink(JOINED))).orderBy("item_id").collect()
    assert [row.item_id for row in rows] == list(range(len(rows)))
    missed = [row for row in rows if row.gender is None]
    _log.info("%d kills, %d in the snapshot, %d clicks, %d missed", kills, sum(in_snapshot), len(rows), len(missed))
    assert [row for row in rows if row.gender not in (None, GENDERS[row.user_id % 2])] == []
    in_batches = [spark.read.parquet(*map(str, files)).count() if files else 0 for files in written(job)]
    before = ["snapshot" in offset for offset in users_by_batch[: len(in_batches)]]
    early = sum(count for count, reading in zip(in_batches, before, strict=True) if reading)
    if waits == "wait":
        assert missed == []
        assert early == 0
    else:
        assert early > 0


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
    server = MySqlServer(mysql.host, mysql.port)
    server.run(f"CREATE DATABASE {database}")
    server.let_read(READER, database)
    fill_users(server, users, database)
    produce_clicks(kafka.bootstrap, clicks, users, topic)
    chunk = str(max(1, users // (2 * _BATCHES)))
    job = JoinJob("local[2]", tmp_path, kafka.bootstrap, topic, server.address, database, chunk)
    streams = Streams(spark, tmp_path)
    in_snapshot: list[bool] = []
    try:
        run_with_kills(
            job, kills, chance, lambda: rows_written(job) == clicks,
            patience=240 + users / 2_000,
            killed=lambda: in_snapshot.append("snapshot" in streams.offsets(JOINED, source=1)[-1]),
        )  # fmt: skip
        offsets = list(zip(*(streams.offsets(JOINED, source=n) for n in range(2)), strict=True))
    finally:
        run(mysql.host, mysql.port, f"DROP DATABASE {database}")
    assert not kills or any(in_snapshot)
    rows = spark.read.parquet(str(job.sink(JOINED))).collect()
    assert sorted(row.item_id for row in rows) == list(range(clicks))
    missed = [row for row in rows if row.gender != GENDERS[row.user_id % 2]]
    _log.info("%d kills, %d in the snapshot, %d clicks, %d missed", kills, sum(in_snapshot), len(rows), len(missed))
    assert missed == []
    # Not only did they wait: they were not even read.
    for clicked, changed in offsets:
        read = sum(numbers[0] for splits in clicked["splits"].values() for numbers in splits.values())
        assert not read or "snapshot" not in changed, json.dumps(clicked)
