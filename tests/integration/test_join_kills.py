"""Kill -9, or a batch that fails, while clicks wait for the snapshot of their users: none is lost, doubled or early."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from examples.clickstream_enrichment import (
    GENDERS,
    READER,
    click_event,
    enriched,
    fill_users,
    produce_clicks,
    user_info,
)
from examples.servers import MySqlServer
from services.kafka import Kafka
from services.mysql import MySql
from services.mysql_client import run
from services.wait_until import wait_until
from tests.integration.killed_join_driver import JOINED, JoinJob, RateJob, TopicsJob
from tests.integration.killed_runs import PATIENCE_SECONDS, batches, rows_written, run_with_kills, written
from tests.spark.queries import Streams

pytestmark = [pytest.mark.service, pytest.mark.timeout(7_200)]

_BATCHES = 6
"""Of the snapshot; each is of two chunks."""

_log = logging.getLogger(__name__)


@pytest.mark.parametrize("waits", ["wait", "no-wait"])
@pytest.mark.long("test_no_click_misses_its_user_though_a_batch_of_the_snapshot_fails")
def test_clicks_of_any_source_wait_for_the_snapshot_or_are_answered_from_the_first_batch_on(
    request: pytest.FixtureRequest, mysql: MySql, spark: SparkSession, tmp_path: Path, waits: str
) -> None:
    kills, users = request.config.getoption("--join-kills"), request.config.getoption("--join-users")
    chance = random.Random(request.config.getoption("--kills-seed"))
    database = f"rate_{waits.replace('-', '_')}"
    server = filled(mysql, database, users)
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
            job, kills, chance, is_done, patience=PATIENCE_SECONDS + users / 2_000,
            killed=lambda: in_snapshot.append("snapshot" in streams.offsets(JOINED, source=2)[-1]),
        )  # fmt: skip
        users_by_batch = streams.offsets(JOINED, source=2)
    finally:
        run(mysql.host, mysql.port, f"DROP DATABASE {database}")
    assert not kills or any(in_snapshot)
    files_of_batches = [list(map(str, files)) for files in written(job)]
    rows = spark.read.parquet(*(file for files in files_of_batches for file in files)).orderBy("item_id").collect()
    assert [row.item_id for row in rows] == list(range(len(rows)))
    missed = [row for row in rows if row.gender is None]
    _log.info("%d kills, %d in the snapshot, %d clicks, %d missed", kills, sum(in_snapshot), len(rows), len(missed))
    assert [row for row in rows if row.gender not in (None, GENDERS[row.user_id % 2])] == []
    in_batches = [spark.read.parquet(*files).count() if files else 0 for files in files_of_batches]
    before = ["snapshot" in offset for offset in users_by_batch[: len(in_batches)]]
    early = sum(count for count, reading in zip(in_batches, before, strict=True) if reading)
    if waits == "wait":
        assert missed == []
        assert early == 0
    else:
        assert early > 0


@pytest.mark.usefixtures("rocksdb")
def test_no_click_misses_its_user_though_a_batch_of_the_snapshot_fails(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    mysql: MySql,
    new_topic: Callable[..., str],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    users = request.config.getoption("--join-users")
    clicks, database, topic = users // 2, "join_fails", new_topic(2)
    server = filled(mysql, database, users)
    produce_clicks(kafka.bootstrap, clicks, users, topic)
    chunk = max(1, users // (2 * _BATCHES))
    build = user_info(spark, server.address, database, snapshotChunkRows=chunk, snapshotParallelism=2)
    joined = enriched(click_event(spark, kafka.bootstrap, topic), build)
    streams = Streams(spark, tmp_path)
    rows: dict[int, list[Row]] = {}
    failed: list[int] = []

    def keep(batch: DataFrame, number: int) -> None:
        if number == 1 and not failed:
            failed.append(number)
            raise RuntimeError("within a batch of the snapshot")
        rows[number] = batch.collect()

    writer = joined.writeStream.foreachBatch(keep).option("checkpointLocation", str(streams.checkpoint(JOINED)))
    try:
        with pytest.raises(StreamingQueryException, match="within a batch of the snapshot"):
            writer.start().awaitTermination(PATIENCE_SECONDS)
        assert "snapshot" in streams.offsets(JOINED, source=1)[-1]
        query = writer.start()
        wait_until(lambda: sum(map(len, rows.values())) >= clicks or not query.isActive, PATIENCE_SECONDS, "the clicks")
        query.stop()
        assert query.exception() is None
    finally:
        run(mysql.host, mysql.port, f"DROP DATABASE {database}")
    check([row for _, found in sorted(rows.items()) for row in found], clicks, offsets_of_both(streams))


def filled(mysql: MySql, database: str, users: int) -> MySqlServer:
    """Create the table of users, which the example may read."""
    server = MySqlServer(mysql.host, mysql.port)
    server.run(f"CREATE DATABASE {database}")
    server.let_read(READER, database)
    fill_users(server, users, database)
    return server


def offsets_of_both(streams: Streams) -> list[tuple[dict[str, Any], ...]]:
    return list(zip(*(streams.offsets(JOINED, source=n) for n in range(2)), strict=True))


def check(rows: list[Row], clicks: int, offsets: list[tuple[dict[str, Any], ...]]) -> None:
    """Each click came out once, with its user, and none was read before the snapshot was complete."""
    assert sorted(row.item_id for row in rows) == list(range(clicks))
    missed = [row for row in rows if row.gender != GENDERS[row.user_id % 2]]
    _log.info("%d clicks, %d missed", len(rows), len(missed))
    assert missed == []
    # Not only did they wait: they were not even read.
    for clicked, changed in offsets:
        read = sum(numbers[0] for splits in clicked["splits"].values() for numbers in splits.values())
        assert not read or "snapshot" not in changed, json.dumps(clicked)


@pytest.mark.long("test_no_click_misses_its_user_though_a_batch_of_the_snapshot_fails")
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
    server = filled(mysql, database, users)
    produce_clicks(kafka.bootstrap, clicks, users, topic)
    chunk = str(max(1, users // (2 * _BATCHES)))
    job = JoinJob("local[2]", tmp_path, kafka.bootstrap, topic, server.address, database, chunk)
    streams = Streams(spark, tmp_path)
    in_snapshot: list[bool] = []
    try:
        run_with_kills(
            job, kills, chance, lambda: rows_written(job) == clicks,
            patience=PATIENCE_SECONDS + users / 2_000,
            killed=lambda: in_snapshot.append("snapshot" in streams.offsets(JOINED, source=1)[-1]),
        )  # fmt: skip
        offsets = offsets_of_both(streams)
    finally:
        run(mysql.host, mysql.port, f"DROP DATABASE {database}")
    assert not kills or any(in_snapshot)
    _log.info("%d kills, %d in the snapshot", kills, sum(in_snapshot))
    check(spark.read.parquet(str(job.sink(JOINED))).collect(), clicks, offsets)


@pytest.mark.long("test_on_event_time_no_click_is_joined_before_a_topic_is_read_to_its_end_whatever_its_order")
def test_no_click_misses_a_user_whose_key_was_in_the_topic_at_the_start_whenever_the_driver_is_killed(
    request: pytest.FixtureRequest, kafka: Kafka, new_topic: Callable[..., str], spark: SparkSession, tmp_path: Path
) -> None:
    """The topic is compacted, a third of its keys is deleted, and clicks and new versions are written meanwhile."""
    kills, users = request.config.getoption("--join-kills"), 5 * request.config.getoption("--join-users")
    chance = random.Random(request.config.getoption("--kills-seed"))
    compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000", "segment.ms": "1000",
                 "min.cleanable.dirty.ratio": "0.01"}  # fmt: skip
    topic, dimension = new_topic(2), new_topic(3, config=compacted)
    deleted = set(range(0, users, 3))
    long_ago = round(time.time() * 1_000) - 2 * 3_600_000
    with Writer(kafka.bootstrap) as writer:
        writer.write(dimension, ((user, f"1-{user}") for user in range(users)), at=long_ago)
        writer.write(dimension, ((user, f"2-{user}") for user in range(0, users, 2)), at=long_ago - 60_000)
        writer.write(dimension, ((user, None) for user in deleted), at=long_ago)
        writer.click(topic, users, 2_000, chance)
    job = TopicsJob("local[2]", tmp_path, kafka.bootstrap, topic, dimension, str(users // _BATCHES))
    streams = Streams(spark, tmp_path)
    reading: list[bool] = []
    with Traffic(kafka.bootstrap, topic, dimension, users, deleted, chance.random()) as traffic:

        def is_done() -> bool:
            if not rows_written(job):
                return False
            traffic.stop()
            return rows_written(job) == 2_000 + traffic.clicks

        run_with_kills(
            job, kills, chance, is_done, patience=PATIENCE_SECONDS + users / 2_000,
            killed=lambda: reading.append("wm" not in streams.offsets(JOINED, source=1)[-1]),
        )  # fmt: skip
    rows = spark.read.parquet(str(job.sink(JOINED))).collect()
    assert sorted(row.item_id for row in rows) == list(range(2_000 + traffic.clicks))
    missed = [row for row in rows if row.user_id not in deleted and row.gender is None]
    _log.info("%d kills, %d while reading, %d clicks, %d missed", kills, sum(reading), len(rows), len(missed))
    assert missed == []
    assert not kills or any(reading)
    assert [row for row in rows if row.user_id in deleted and row.gender is not None] == []
    answers = [(row.user_id, *map(int, row.gender.split("-"))) for row in rows if row.gender is not None]
    assert [answer for answer in answers if answer[0] != answer[2]] == []
    # The version that was last by offset at the start, or a later one.
    assert [answer for answer in answers if answer[1] < 2 - answer[0] % 2] == []
    assert {answer[1] for answer in answers} > {1, 2}
    for clicked, changed in zip(*(streams.offsets(JOINED, source=n) for n in range(2)), strict=True):
        read = sum(numbers[0] for splits in clicked["splits"].values() for numbers in splits.values())
        assert not read or changed["catch_up"] == {"again": True}, json.dumps(clicked)


class Writer:
    """Writes keyed records, as applications do, to the partitions that Kafka's default partitioner chooses."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, batch_size=1 << 18)
        self._clicks = 0

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def write(self, topic: str, rows: Iterable[tuple[int, str | None]], at: int | None = None) -> None:
        for user, value in rows:
            record = None if value is None else value.encode()
            self._producer.send(topic, key=str(user).encode(), value=record, timestamp_ms=at)
        self._producer.flush()

    def click(self, topic: str, users: int, count: int, chance: random.Random, first: int = 0) -> None:
        self.write(topic, ((n, f"{chance.randrange(users):08d}{first + n:08d}") for n in range(count)))


class Traffic:
    """Clicks, and new versions of users that are not deleted, from a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, dimension: str, users: int, deleted: set[int], seed: float) -> None:
        self.clicks = 0
        self._ends = threading.Event()
        self._what = (bootstrap, topic, dimension, users, deleted, random.Random(seed))
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()

    def _write(self) -> None:
        bootstrap, topic, dimension, users, deleted, chance = self._what
        version = 3
        with Writer(bootstrap) as writer:
            while not self._ends.wait(0.1):
                changed = {chance.randrange(users) for _ in range(20)} - deleted
                writer.write(dimension, ((user, f"{version}-{user}") for user in changed))
                writer.click(topic, users, 20, chance, first=2_000 + self.clicks)
                self.clicks += 20
                version += 1
