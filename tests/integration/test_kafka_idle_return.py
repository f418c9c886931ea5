"""``idleReturn`` on a real broker: what the watermark does when a silent partition returns with old rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from tests.integration.direct_kafka import DirectKafka
from tests.integration.kafka_streams import KafkaStreams, wait_for
from tests.spark.queries import START, settle
from watermark_source import follow_watermark
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.split import Split
from watermark_source.planning.state import SourceState, SplitStatus

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]
BUDGET = 20
OPTIONS: dict[str, Any] = {"idleTimeout": "2 seconds", "maxOffsetsPerTrigger": BUDGET}
FIRST, MORE = np.arange(0.0, 101), np.arange(101.0, 201)
"""Of the partition that always has rows, before and after the other one has returned."""
OLD = np.arange(3.0, 33, 0.1)
"""What the other one returns with: 300 rows, all late."""
CAUGHT_UP, LATER = np.arange(300.0, 330), np.arange(340.0, 370, 0.5)
LAST = 400.0


def states(offsets: Sequence[dict[str, Any]]) -> list[SourceState]:
    codec = OffsetCodec(source="aligned-kafka", name="aligned-kafka")
    return [codec.decode(offset) for offset in offsets]


def seconds(state: SourceState) -> float:
    """Return the watermark after the start, without the millisecond that it is behind its row."""
    assert state.watermark is not None
    return (state.watermark + 1 - START) / 1_000


def returning(offsets: Sequence[dict[str, Any]], topic: str) -> list[SourceState]:
    """Return the batches before which rows of the returned partition were read, and after which old ones are left."""
    split, first = Split(topic, 1), 3
    return [
        state
        for state in states(offsets)
        if split in state.splits and first < state.splits[split].observed and state.splits[split].position < 303
    ]


def is_left_behind(offsets: Sequence[dict[str, Any]], topic: str) -> bool:
    """Return whether the one partition is idle, and the watermark is that of the other's last row."""
    (state,) = states(offsets[-1:])
    return state.splits[Split(topic, 1)].status is SplitStatus.IDLE and seconds(state) == FIRST[-1]


@pytest.mark.spark
@pytest.mark.long("test_a_split_comes_back_until_it_has_caught_up")
def test_a_partition_that_returns_far_behind_is_left_out_until_it_has_caught_up(
    streams: KafkaStreams, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    streams.write(topic, {0: FIRST, 1: [0, 1, 2]})
    source = streams.source(subscribe=topic, idleReturn="pass", **OPTIONS)
    counts = follow_watermark(source).groupBy(F.window("event_time", "10 seconds")).count()
    query = streams.start_file(counts.select(F.unix_millis("window.start").alias("start"), "count"), "q")

    def offsets() -> list[dict[str, Any]]:
        return streams.offsets("q")

    wait_for(lambda: (streams.checkpoint("q") / "offsets" / "0").exists() and is_left_behind(offsets(), topic), query)
    # A batch drops rows behind the watermark of the batch before it, not behind its own: old rows in the first batch
    # after the watermark moved are still counted. So that batch is one without rows here.
    wait_for(lambda: list(streams.committed("q").values()).count(99_999) > 1, query, seconds=150)
    streams.write(topic, {0: MORE, 1: OLD})
    wait_for(lambda: seconds(states(offsets()[-1:])[0]) == 200, query, seconds=150)
    behind = returning(offsets(), topic)
    # While it has old rows left, and is not idle, the others lead on: half of each batch is for them, and at least four
    # fifths of that are used, until they have no more.
    assert {state.splits[Split(topic, 1)].status for state in behind} == {SplitStatus.ACTIVE}
    assert max(map(seconds, behind)) == 200
    read = [
        (t.position - t.observed)
        for state in behind
        for s, t in state.splits.items()
        if not s.number and t.position > t.observed
    ]
    assert [rows for rows in read[: len(MORE) // BUDGET] if rows < BUDGET * 2 // 5] == []
    streams.write(topic, {1: CAUGHT_UP})
    wait_for(lambda: seconds(states(offsets()[-1:])[0]) == 329, query, seconds=150)
    # It has caught up, and is waited for again.
    streams.write(topic, {0: [LAST], 1: LATER})
    wait_for(lambda: seconds(states(offsets()[-1:])[0]) == LAST, query, seconds=150)
    reached = [seconds(state) for state in states(offsets()) if state.watermark is not None]
    assert reached == sorted(reached)
    assert any(340 <= at < 370 for at in reached)
    settle(query)
    closed = {row["start"]: row["count"] for row in streams.result("q").collect()}
    assert [closed.get(START + 1_000 * second) for second in (0, 90, 100, 180, 310, 350)] == [13, 10, 10, 10, 10, 20]


def test_by_default_the_watermark_waits_for_a_partition_that_returns(direct: DirectKafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    direct.write(topic, {0: FIRST, 1: [0, 1, 2]})
    query = direct.start(direct.source(subscribe=topic, **OPTIONS), "q")
    query.run_until(lambda: query.kept.offsets and is_left_behind(query.kept.offsets, topic))
    direct.write(topic, {0: MORE, 1: OLD})
    query.run_until(lambda: seconds(states(query.kept.offsets[-1:])[0]) == 200)
    behind = returning(query.kept.offsets, topic)
    assert len(behind) > 10
    assert set(map(seconds, behind)) == {100}
