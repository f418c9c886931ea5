"""A query that is behind the clock for each of the reasons there are: the sentence names the right one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.streaming import StreamingQuery

from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.spark.queries import START, Running, settle
from watermark_source import follow_watermark, status, why
from watermark_source.monitor.followed_queries import QueryStatus
from watermark_source.monitor.listener import StatusListener
from watermark_source.monitor.three_clocks import DelayVerdict
from watermark_source.spark.operator_watermarks import OperatorWatermark
from watermark_source.status_model.source_status import SplitView, TimeInStatus

pytestmark = [pytest.mark.service, pytest.mark.spark]

NewTopic = Callable[..., str]
HOUR = 3_600.0
BLOCKED = 8.0
"""Seconds for which the sink is blocked before the question is put."""
runs = pytest.mark.parametrize("runs", [1, pytest.param(20, marks=pytest.mark.long("the first of them"))])


def now() -> float:
    """Return the present as the topics' writers count it."""
    return time.time() - START / 1_000


def counts(rows: DataFrame) -> DataFrame:
    return rows.groupBy(F.window("event_time", "1 second")).count()


class Fed:
    """A query and its topics: each row that is written is waited for."""

    def __init__(self, streams: KafkaStreams, query: StreamingQuery) -> None:
        self.query = query
        self._streams = streams
        self._written = 0
        # Rows that are written before the first request for the logs' ends would have an unknown arrival.
        wait_for(lambda: status(query).sources, query)

    def write(self, topic: str, times: Mapping[int, Iterable[float]]) -> None:
        rows = {partition: list(of) for partition, of in times.items()}
        self._streams.write(topic, rows)
        self._written += sum(map(len, rows.values()))

    def warm_up(self, topic: str) -> None:
        """Have the first batches, which take longer than any later one, behind it."""
        self.write(topic, {0: [now() - HOUR], 1: [now() - HOUR]})
        self.settle()

    def settle(self) -> None:
        """Wait until all rows are processed, and their watermark applied."""
        settle(self.query)
        wait_for(lambda: sum(source.rows.read for source in status(self.query).sources) >= self._written, self.query)


@runs
def test_rows_of_now_that_are_processed_at_once_are_fresh(
    streams: KafkaStreams, new_topic: NewTopic, runs: int
) -> None:
    topic = new_topic(2)
    fed = Fed(streams, streams.start(counts(follow_watermark(streams.source(subscribe=topic)))).query)
    fed.warm_up(topic)
    for _ in range(runs):
        fed.write(topic, {0: [now()], 1: [now()]})
        fed.settle()
        assert why(fed.query, tolerance="2 minutes").startswith("the data are fresh: rows are processed ")


@runs
@pytest.mark.long("test_rows_of_now_that_are_processed_at_once_are_fresh")
def test_rows_of_an_hour_ago_that_are_processed_at_once_are_old_data(
    streams: KafkaStreams, new_topic: NewTopic, runs: int
) -> None:
    topic = new_topic(2)
    fed = Fed(streams, streams.start(counts(follow_watermark(streams.source(subscribe=topic)))).query)
    fed.warm_up(topic)
    for _ in range(runs):
        fed.write(topic, {0: [now() - HOUR], 1: [now() - HOUR]})
        fed.settle()
        found = status(fed.query)
        assert str(found.why).startswith("the data are old: the newest event time read, "), found
        assert found.clocks.event_time_lag is not None
        assert found.clocks.event_time_lag > 1_000 * (HOUR - 1)
        # Far from an hour: that is what the watermark alone cannot show.
        assert (found.clocks.processing_time_latency or 0) < 60_000


@runs
@pytest.mark.long("test_rows_of_now_behind_a_sink_that_blocks_are_a_slow_batch")
def test_rows_of_now_that_wait_in_a_join_for_the_other_side_wait_for_time(
    streams: KafkaStreams, new_topic: NewTopic, runs: int
) -> None:
    orders, payments = new_topic(1), new_topic(1)

    def side(topic: str, name: str) -> DataFrame:
        rows = follow_watermark(streams.source(subscribe=topic, sourceName=name))
        return rows.select(F.col("offset").alias(f"{name}_key"), F.col("event_time").alias(f"{name}_time"))

    paid = F.expr(
        "orders_key = payments_key AND payments_time BETWEEN orders_time AND orders_time + INTERVAL 10 SECONDS"
    )
    joined = side(orders, "orders").join(side(payments, "payments"), paid, "leftOuter")
    registry = CollectorRegistry()
    listener = StatusListener(registry)
    streams.spark.streams.addListener(listener)
    fed = Fed(streams, streams.start(joined).query)
    fed.write(payments, {0: [now() - HOUR]})
    join: OperatorWatermark
    for _ in range(runs):
        fed.write(orders, {0: [now()]})
        fed.settle()
        found = status(fed.query)
        assert str(found.why).startswith("rows wait for time: operators hold "), found
        assert f"it is held by {payments}-0 of source payments: nothing to read for" in str(found.why)
        (join,) = found.clocks.operators
        assert join.name == "StreamingSymmetricHashJoin"
        # A row of the outer join is older than the watermark by the bound on its time.
        assert join.eviction is not None
        assert join.output is not None
        assert join.eviction - join.output >= 10_000
        assert found.clocks.output_watermark == join.output
    # The listener has asked the operators, too: in the user's program, after a batch.
    labels = {"query": fed.query.name, "operator": "0", "name": join.name}
    name = "watermark_source_operator_output_watermark_timestamp_seconds"
    wait_for(lambda: registry.get_sample_value(name, labels) == (join.output or 0) / 1_000, fed.query)
    streams.spark.streams.removeListener(listener)


def waits_for_the_batch(found: QueryStatus) -> bool:
    """Return whether rows wait for the sink, and longer than they took to arrive: seconds, on a busy machine."""
    running = (found.clocks.batch and found.clocks.batch.running) or 0
    return running > 1_000 * BLOCKED and found.why.verdict is DelayVerdict.BATCH_SLOW


@runs
def test_rows_of_now_behind_a_sink_that_blocks_are_a_slow_batch(
    streams: KafkaStreams, new_topic: NewTopic, runs: int
) -> None:
    topic, may_continue = new_topic(1), threading.Event()
    may_continue.set()

    def sink(rows: DataFrame, _: int) -> None:
        rows.collect()
        assert may_continue.wait(120)

    rows = counts(follow_watermark(streams.source(subscribe=topic)))
    writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(streams.checkpoint("blocked")))
    query = writer.start()
    streams.started.append(query)
    fed = Fed(streams, query)
    # The first write of a process takes seconds, by which its row is older than its arrival.
    fed.write(topic, {0: [now()]})
    fed.settle()
    for _ in range(runs):
        fed.write(topic, {0: [now()]})
        fed.settle()
        may_continue.clear()
        begun = time.monotonic()
        fed.write(topic, {0: [now()]})
        written = time.monotonic()
        wait_for(lambda: waits_for_the_batch(status(query, tolerance="5 seconds")), query)
        waited = 1_000 * (time.monotonic() - written)
        found = status(query, tolerance="5 seconds")
        lasted = 1_000 * (time.monotonic() - begun)
        may_continue.set()
        assert str(found.why).startswith(f"the batch is slow: the oldest row of {topic}-0 that is not "), found
        assert " has been running for " in str(found.why)
        # The row arrived between ``begun`` and ``written``, and counts from the request before that, which may have
        # been half a second earlier, on a busy machine more.
        assert waited - 100 <= (found.clocks.processing_time_latency or 0) <= lasted + 10_000


# How long a split was idle and paused, against what the checkpoint's offsets record.


def planned(streams: KafkaStreams, name: str, split: str) -> list[tuple[str, int, int]]:
    """Return of each batch in the checkpoint a split's status, since when it has had it, and when Spark planned it."""
    topic, _, number = split.rpartition("-")
    found = []
    files = (file for file in (streams.checkpoint(name) / "offsets").iterdir() if file.name.isdigit())
    for file in sorted(files, key=lambda file: int(file.name)):
        metadata, offset = map(json.loads, file.read_text().splitlines()[1:3])
        fields = [*offset["splits"].get(topic, {}).get(number, ()), *[None] * 5]
        kind, since = fields[3], fields[4]
        found.append((kind or "a", offset.get("since", 0) + (since or 0), metadata["batchTimestampMs"]))
    return found


def is_now(streams: KafkaStreams, running: Running, split: str, kind: str) -> bool:
    """Return whether the last batch in the checkpoint has a split in a status."""
    batches = planned(streams, running.table, split)
    return bool(batches) and batches[-1][0] == kind


def view_of(query: StreamingQuery, split: str) -> tuple[SplitView, TimeInStatus, int]:
    """Return a split's row, its times, and when they were reported."""
    (source,) = status(query).sources
    (view,) = (view for view in source.splits if str(view.split) == split)
    assert view.times is not None
    return view, view.times, source.at


def test_the_time_that_a_split_was_idle_is_that_between_its_recorded_changes(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    running = streams.start(follow_watermark(streams.source(subscribe=topic, idleTimeout="1 second")))
    query, split, second = running.query, f"{topic}-1", now()
    fed = Fed(streams, query)
    for turn in (1, 2):
        fed.write(topic, {0: [second + turn], 1: [second + turn]})
        fed.settle()
        wait_for(lambda: is_now(streams, running, split, "i"), query)
    history = planned(streams, running.table, split)
    _, times, reported = view_of(query, split)
    # On a busy machine it may be idle before its first row, too. The last time lasts.
    changed = [
        (kind, since, at) for (before, *_), (kind, since, at) in pairwise([("a", 0, 0), *history]) if kind != before
    ]
    assert [kind for kind, *_ in changed] == ["i", "a"] * (len(changed) // 2) + ["i"]
    begun, ended = [since for kind, since, _ in changed if kind == "i"], [at for kind, _, at in changed if kind == "a"]
    assert len(begun) >= 2
    # The offset records when each time began; Spark notes a batch's time just after the request that ended it.
    exact = sum(until - since for since, until in zip(begun, [*ended, reported], strict=True))
    assert 0 < times.idle <= exact + 50
    assert (times.paused, times.changes) == (0, len(changed))


@pytest.mark.long("test_the_time_that_a_split_was_idle_is_that_between_its_recorded_changes")
def test_the_time_that_a_split_was_paused_begins_with_its_recorded_change(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    source = streams.source(subscribe=topic, alignmentGroup="g", alignmentMaxDrift="10 seconds")
    running = streams.start(follow_watermark(source))
    fed, split = Fed(streams, running.query), f"{topic}-1"
    fed.write(topic, {0: [0], 1: [0, 100, 200]})
    wait_for(lambda: is_now(streams, running, split, "p"), running.query)
    time.sleep(2)
    _, since, _ = planned(streams, running.table, split)[-1]
    view, times, reported = view_of(running.query, split)
    assert abs(times.paused - (reported - since)) <= 50
    assert view.since == since
    group = status(running.query).sources[0].group
    assert group is not None
    assert group.holder == f"{topic}-0"
    assert group.minimum == START - 1
    fed.write(topic, {0: [195]})
    fed.settle()
    _, times, _ = view_of(running.query, split)
    at_end = times.paused
    assert at_end >= 2_000
    time.sleep(1.1)
    assert view_of(running.query, split)[1].paused == at_end
