"""Several sources on the clock in one query: windows close and timers fire with the clock, without any rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.integration.mysql_streams import MySqlStreams
from tests.spark.counting_timer import counted_after
from tests.spark.queries import START, Running
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
    users = follow_watermark(
        mysql_streams.source("users", sourceName="users", useProcessingTimeDuringBinlog=True, **chunks, **ON_CLOCK)
    )
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
    """See that every batch without rows came at least an interval after the last clock its source had told."""
    ticks = 0
    for source in range(sources):
        for before, after in pairwise(streams.offsets(running.table, source=source)):
            if "wm" in before and after["wm"] != before["wm"] and rows_until(after) == rows_until(before):
                assert after["wm"] - before["wm"] > INTERVAL, (before, after)
                ticks += 1
    assert ticks > 0


def rows_until(offset: dict[str, Any]) -> list[Any]:
    return [fields[0] for numbers in offset["splits"].values() for fields in numbers.values()]
