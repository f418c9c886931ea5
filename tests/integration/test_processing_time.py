"""Several sources on the clock in one query: windows close and timers fire with the clock, without any rows."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.integration.killed_driver import HISTORY_WINDOW_MS, OUT_OF_ORDERNESS_MS, WINDOWS, HistoryJob
from tests.integration.killed_runs import files_of, run_with_kills
from tests.integration.mysql_streams import MySqlStreams
from tests.spark.counting_timer import counted_after
from tests.spark.queries import START, Running, Streams
from watermark_source import follow_watermark

pytestmark = [pytest.mark.service, pytest.mark.spark, pytest.mark.usefixtures("rocksdb")]

NewTopic = Callable[..., str]
INTERVAL = 3_000
"""Milliseconds: longer than a batch takes, or ticks would keep to it by themselves."""
PATIENCE = 240
ON_CLOCK: dict[str, Any] = {"watermarkStrategy": "none", "watermarkInterval": f"{INTERVAL} milliseconds"}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as Spark gives a moment in UTC


def test_windows_of_a_topic_and_a_table_wait_for_the_snapshot_and_then_close_with_the_clock(
    streams: KafkaStreams, mysql_streams: MySqlStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    streams.write(topic, {0: range(20)})
    numbers = ", ".join(f"({number})" for number in range(50))
    mysql_streams.run_sql("CREATE TABLE users (id INT PRIMARY KEY)", f"INSERT INTO users VALUES {numbers}")
    clicks = follow_watermark(streams.source(subscribe=topic, sourceName="clicks", **ON_CLOCK))
    chunks = {"snapshotChunkRows": 10, "snapshotParallelism": 1}
    users = follow_watermark(mysql_streams.source("users", sourceName="users", **chunks, **ON_CLOCK))
    rows = clicks.selectExpr("'click' AS kind", "event_time").union(users.selectExpr("'user' AS kind", "event_time"))
    counted = rows.groupBy(F.window("event_time", "1 second"), "kind").count()
    running = streams.start(counted.select("window.start", "kind", "count"))
    # Nothing more is written: it is the clock that closes their windows.
    wait_for(lambda: of(running, "click") == 20, running.query, seconds=PATIENCE)
    assert [row for row in running.rows() if row[1] == "user"] == [(_EPOCH, "user", 50)]
    mysql_streams.run_sql("INSERT INTO users VALUES (50), (51)")
    streams.write(topic, {0: range(5)})
    wait_for(lambda: (of(running, "click"), of(running, "user")) == (25, 52), running.query, seconds=PATIENCE)
    running.query.stop()
    assert running.dropped == 0
    in_snapshot = ["snapshot" in offset for offset in streams.offsets(running.table, source=1)]
    reached = streams.committed(running.table)
    assert in_snapshot.count(True) >= 5
    assert {reached[number] for number, held in enumerate(in_snapshot) if held} == {-START}
    ticks_keep_to_their_interval(streams, running, sources=2)


@pytest.mark.long("test_event_timers_fire_by_the_source_watermark")
def test_timers_on_the_clock_of_two_topics_fire_without_rows(streams: KafkaStreams, new_topic: NewTopic) -> None:
    frames = []
    for kind, count in (("clicks", 20), ("orders", 7)):
        topic = new_topic(1)
        streams.write(topic, {0: range(count)})
        rows = follow_watermark(streams.source(subscribe=topic, sourceName=kind, **ON_CLOCK))
        frames.append(rows.selectExpr(f"'{kind}' AS kind", "event_time"))
    running = streams.start(counted_after(1_000, frames[0].union(frames[1]), "kind"))
    wait_for(lambda: running.rows() == [("clicks", 20), ("orders", 7)], running.query, seconds=PATIENCE)
    running.query.stop()
    assert running.dropped == 0
    ticks_keep_to_their_interval(streams, running, sources=2)


def of(running: Running, kind: str) -> int:
    return sum(count for _, of_kind, count in running.rows() if of_kind == kind)


def ticks_keep_to_their_interval(streams: KafkaStreams, running: Running, *, sources: int) -> None:
    """See that every batch without rows came at least an interval after the last clock its source had reported."""
    ticks = 0
    for source in range(sources):
        for before, after in pairwise(streams.offsets(running.table, source=source)):
            if "wm" in before and after["wm"] != before["wm"] and rows_until(after) == rows_until(before):
                assert after["wm"] - before["wm"] > INTERVAL, (before, after)
                ticks += 1
    assert ticks > 0


def rows_until(offset: dict[str, Any]) -> list[Any]:
    return [fields[0] for numbers in offset["splits"].values() for fields in numbers.values()]


@pytest.mark.timeout(7_200)
@pytest.mark.long("test_windows_of_a_topic_and_a_table_wait_for_the_snapshot_and_then_close_with_the_clock")
def test_windows_of_history_are_those_of_a_batch_and_then_time_is_the_clock_whenever_the_driver_is_killed(
    request: pytest.FixtureRequest, streams: KafkaStreams, new_topic: NewTopic, tmp_path: Path
) -> None:
    kills, rows = request.config.getoption("--join-kills"), 4 * request.config.getoption("--join-users")
    chance = np.random.default_rng(request.config.getoption("--kills-seed"))
    topic = new_topic(2)
    # A row may be up to OUT_OF_ORDERNESS_MS behind; the second partition is an hour behind the first.
    seconds = np.arange(rows // 2) / 20
    times = {p: seconds - 3_600 * p + chance.uniform(0, OUT_OF_ORDERNESS_MS / 1_000 - 1, rows // 2) for p in range(2)}
    streams.write(topic, times)
    job = HistoryJob("local[2]", tmp_path / "job", streams.bootstrap, topic, str(rows // 6))
    job.folder.mkdir()
    late_times = {0: [-7_200.0 + n for n in range(50)]}
    written: list[bool] = []

    def counted() -> int:
        return sum(count for _, count in windows_of(job))

    def is_done() -> bool:
        if not written and counted() == rows:
            # All windows of history are closed. By their event times these rows would be late.
            streams.write(topic, late_times)
            written.append(True)
        return bool(written) and counted() == rows + 50

    on_clock: list[bool] = []
    flipped: set[int] = set()

    def killed() -> None:
        flips = ["pt" in offset for offset in offsets_of(job)]
        on_clock.append(flips[-1])
        flipped.update([flips.index(True)] if any(flips) else [])

    run_with_kills(job, kills, random.Random(int(chance.integers(1 << 30))), is_done, killed=killed)
    offsets = offsets_of(job)
    flips = ["pt" in offset for offset in offsets]
    first = flips.index(True)
    assert flips == sorted(flips)
    assert first >= 6
    assert flipped <= {first}
    assert not kills or not all(on_clock)
    assert offsets[first]["catch_up"] == {"again": True}
    assert sum(json.loads(line).get("late", 0) for line in job.progress_log.read_text().splitlines()) == 0
    history = Counter(
        (START + round(second * 1_000)) // HISTORY_WINDOW_MS for of_split in times.values() for second in of_split
    )
    windows = windows_of(job)
    found = {moment // HISTORY_WINDOW_MS: count for moment, count in windows}
    assert len(found) == len(windows)
    begun = offsets[first - 1]["wm"] // HISTORY_WINDOW_MS
    of_clock = {window: count for window, count in found.items() if window not in history}
    assert {window: count for window, count in found.items() if window in history} == history
    assert sum(of_clock.values()) == 50
    assert min(of_clock) > begun


def windows_of(job: HistoryJob) -> list[tuple[int, int]]:
    """Return the windows that came out: when each begins, in milliseconds since 1970, and its count."""
    log = job.sink(WINDOWS) / "_spark_metadata"
    files = {file for entry in log.glob("[0-9]*") for file in files_of(entry)}
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return [(round(row["start"].replace(tzinfo=UTC).timestamp() * 1_000), row["count"]) for row in rows]


def offsets_of(job: HistoryJob) -> list[dict[str, Any]]:
    return Streams(SparkSession.active(), job.folder).offsets(WINDOWS)
