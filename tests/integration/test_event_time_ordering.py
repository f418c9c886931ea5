"""``order_by_event_time`` above real servers: each row once, those of a key in order, batches repeated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.integration.mysql_streams import MySqlStreams
from tests.spark.left_rows import Left
from tests.spark.queries import START
from watermark_source import follow_watermark, order_by_event_time

pytestmark = [pytest.mark.service, pytest.mark.spark, pytest.mark.usefixtures("rocksdb")]

NewTopic = Callable[..., str]

DISORDER = 30.0
"""Seconds."""
SPAN = 600.0
PARTITIONS = 3
ROWS = 1_000
"""Of each partition, and of a batch."""


def times_of(chance: np.random.Generator, records: int) -> np.ndarray:
    """Return event times of a log that is out of order by less than ``DISORDER``, with many ties."""
    found = np.round(np.sort(chance.uniform(0, SPAN, records)), 1)
    return found[np.argsort(found + chance.uniform(0, DISORDER - 0.1, records), kind="stable")]


def test_rows_of_a_topic_leave_in_order_and_once_though_batches_are_retried(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    chance = np.random.default_rng(1)
    topic = new_topic(PARTITIONS)
    written = {partition: times_of(chance, ROWS) for partition in range(PARTITIONS)}
    streams.write(topic, written)
    source = streams.source(subscribe=topic, maxOutOfOrderness=f"{DISORDER:.0f} seconds", maxOffsetsPerTrigger=ROWS)
    rows = follow_watermark(source).selectExpr("offset % 5 AS key", "event_time", "partition", "offset", "value")
    ordered = order_by_event_time(rows, "key")
    left = Left(["key", "unix_millis(event_time)", "partition", "offset", "late"])
    left.run(streams, ordered, "q")
    # As if the driver had died twice: within the last batch with rows, and after the last commit.
    for again in (streams.last_with_rows("q"), len(streams.offsets("q")) - 1):
        streams.die_in("q", again)
        done = {number: left.by_batch.pop(number) for number in list(left.by_batch) if number >= again}
        left.run(streams, ordered, "q")
        assert left.by_batch[again] == done[again]
    watermark = min(float(times.max()) for times in written.values()) - DISORDER - 0.001
    assert sum(late for *_, late in left.rows) == 0
    check(left.rows, written, before=watermark)

    late = {0: [1.0, 2.0], 2: [3.0]}
    streams.write(topic, {partition: [*late.get(partition, []), SPAN + 100] for partition in range(PARTITIONS)})
    before = len(left.rows)
    left.run(streams, ordered, "q")
    found = sorted(row[2:4] for row in left.rows[before:] if row[4])
    assert found == [(0, ROWS), (0, ROWS + 1), (2, ROWS)]
    check([row for row in left.rows if not row[4]], written, before=SPAN + 1)


def check(rows: list[tuple[Any, ...]], written: dict[int, np.ndarray], *, before: float) -> None:
    """Compare what left with all that was written up to a moment: of each key in order, ties as in their log."""
    expected = sorted(
        (offset % 5, START + round(float(second) * 1_000), partition, offset)
        for partition, times in written.items()
        for offset, second in enumerate(times)
        if second <= before
    )
    assert sorted(row[:4] for row in rows) == expected
    for _, found in groupby(sorted(rows, key=lambda row: row[0]), key=lambda row: row[0]):
        of_key = list(found)
        assert [row[1] for row in of_key] == sorted(row[1] for row in of_key)
    for partition in written:
        log = [(row[0], row[1], row[3]) for row in rows if row[2] == partition]
        assert sorted(log, key=lambda row: row[:2]) == sorted(log)


@pytest.mark.long("test_rows_of_a_topic_leave_in_order_and_once_though_batches_are_retried")
def test_changes_of_a_table_leave_in_the_order_of_the_binlog_behind_the_snapshot(mysql_streams: MySqlStreams) -> None:
    mysql_streams.run_sql(
        "CREATE TABLE t (id INT PRIMARY KEY, owner INT, amount INT)",
        "INSERT INTO t VALUES (1, 1, 0), (2, 2, 0), (3, 1, 0)",
    )
    changes = follow_watermark(mysql_streams.source(), "event_time")
    left = Left(["owner", "_change_type", "amount", "_commit_version", "_change_number", "late"])
    query = (
        order_by_event_time(changes, "owner")
        .writeStream.foreachBatch(left)
        .option("checkpointLocation", str(mysql_streams.checkpoint("q")))
        .start()
    )
    mysql_streams.started.append(query)
    wait_for(lambda: len(left.rows) == 3, query)
    for amount in range(1, 6):
        # One transaction: all of it has one event time.
        mysql_streams.run_sql(f"UPDATE t SET amount = {amount}")
    wait_for(lambda: len(left.rows) == 3 + 5 * 3 * 2, query)
    query.stop()
    assert not any(late for *_, late in left.rows)
    for owner in (1, 2):
        places = [(version, number) for of, _, _, version, number, _ in left.rows if of == owner]
        assert places == sorted(places)
    assert [row[1] for row in left.rows[:3]] == ["insert"] * 3
