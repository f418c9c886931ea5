"""Batches that were logged and not committed: the same rows, the same markers, nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.spark.queries import Rows, Streams

pytestmark = pytest.mark.spark

SKEWED: Rows = {0: [(100 + n, n) for n in range(12)], 1: [(n, 100 + n) for n in range(9)], 2: []}
LATER: Rows = {0: [(200, 20)], 1: [(30, 120)], 2: [(7, 200)], 3: [(8, 300)]}


class Delivered:
    """What each attempt of each batch held, in order."""

    def __init__(self) -> None:
        self.attempts: dict[int, list[list[tuple[Any, ...]]]] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("split", "value", "event_time", "to_json(marker) AS marker").collect()
        self.attempts.setdefault(number, []).append(sorted((tuple(r) for r in rows), key=str))


def run(streams: Streams, df: DataFrame, delivered: Delivered) -> None:
    writer = df.writeStream.foreachBatch(delivered).option("checkpointLocation", str(streams.checkpoint("c")))
    query = writer.trigger(availableNow=True).start()
    streams.started.append(query)
    query.awaitTermination(240)
    assert query.exception() is None


def test_an_uncommitted_batch_is_the_same_again(streams: Streams) -> None:
    streams.write(SKEWED)
    df = streams.load(
        maxRowsPerTrigger=7, maxFutureSkew="1 minute", idleTimeout="1 ms", alignmentGroup="g",
        alignmentMaxDrift="5 seconds",
    )  # fmt: skip
    delivered = Delivered()
    run(streams, df, delivered)
    again = []
    for more in (LATER, {0: [(300, 21)]}):
        streams.write(more)
        again.append(streams.uncommit("c"))
        run(streams, df, delivered)
    assert [len(delivered.attempts[n]) for n in again] == [2, 2]
    for attempts in delivered.attempts.values():
        assert all(attempt == attempts[0] for attempt in attempts)
    read = sorted(
        value for attempts in delivered.attempts.values() for _, value, _, marker in attempts[0] if not marker
    )
    assert read == sorted(v for rows in (SKEWED, LATER, {0: [(300, 21)]}) for split in rows.values() for _, v in split)


def test_an_uncommitted_batch_0_from_the_end_of_the_log_is_the_same_again(streams: Streams) -> None:
    streams.write({0: [(0, 1)], 1: [(0, 2)]})
    df = streams.load(startingOffsets="latest")
    delivered = Delivered()
    run(streams, df, delivered)
    assert delivered.attempts == {0: [[]]}
    streams.uncommit("c")
    streams.write({0: [(1, 3)], 2: [(1, 4)]})
    run(streams, df, delivered)
    assert delivered.attempts[0] == [[], []]
    read = [value for attempts in delivered.attempts.values() for _, value, _, marker in attempts[-1] if not marker]
    assert sorted(read) == [3, 4]


@pytest.mark.long("test_every_row_comes_out_exactly_once")
def test_a_file_sink_holds_every_row_once_after_replays(streams: Streams) -> None:
    streams.write(SKEWED)
    df = streams.load(maxRowsPerTrigger=10)
    streams.run(df, "sink")
    for second in (300, 400):
        streams.uncommit("sink")
        streams.write({0: [(second, second)]})
        streams.run(df, "sink")
    read = sorted(r.value for r in streams.result("sink").where("marker IS NULL").collect())
    assert read == [*range(12), *range(100, 109), 300, 400]
    watermarks = [o["wm"] for o in streams.offsets("sink") if "wm" in o]
    assert watermarks == sorted(watermarks)
