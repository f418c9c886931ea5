"""Alignment on the broker's time index, judged from the produced times at every batch's ends, not from our reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from kafka import KafkaProducer

from tests.integration.direct_kafka import DirectKafka
from tests.spark.queries import START

pytestmark = pytest.mark.service

NewTopic = Callable[..., str]
Times = Mapping[int, np.ndarray]

DRIFT = 10.0
ALIGNED = {"alignmentGroup": "g", "alignmentMaxDrift": "10 seconds"}


def drifts(direct: DirectKafka, name: str, times: Times) -> list[float]:
    """Return for every batch by how much the furthest split is ahead of the slowest that is not finished, in seconds.

    How far a split is, is the highest produced time before its position.
    """
    position = dict.fromkeys(times, 0)
    found: list[float] = []
    for batch in direct.batches(name):
        for (_, partition), (first, end) in batch.items():
            assert first == position[partition]
            position[partition] = end
        read = {p: times[p][: position[p]].max() for p in times if position[p]}
        unfinished = [read[p] for p in read if position[p] < len(times[p])]
        found.append(max(read.values()) - min(unfinished) if unfinished else 0.0)
    assert position == {p: len(each) for p, each in times.items()}
    return found


SKEWED: Times = {
    0: np.arange(0, 4_000, 0.2),
    1: np.arange(0, 400, 0.02),
    2: np.arange(5, 405, 0.02),
    3: np.arange(0, 0, 1.0),
}
GAPS: Times = {
    0: np.concatenate([np.arange(0, 60, 0.05), np.arange(7_200, 7_260, 0.05)]),
    1: np.arange(0, 300, 0.1),
    2: np.concatenate([np.arange(100, 130, 0.05), np.arange(500_000, 500_030, 0.05), [500_090.0]]),
}
DISORDER: Times = {
    0: np.arange(0, 1_000, 0.2) + np.random.default_rng(1).uniform(-3, 3, 5_000) + 3,
    1: np.arange(0, 100, 0.02) + np.random.default_rng(2).uniform(-3, 3, 5_000) + 3,
}


@pytest.mark.parametrize(
    ("times", "step", "options"),
    [
        pytest.param(SKEWED, 0.2, {}, id="skewed"),
        pytest.param(SKEWED, 0.2, {"maxOffsetsPerTrigger": 6_000}, id="skewed, limited"),
        pytest.param(DISORDER, 0.2, {"maxOffsetsPerTrigger": 1_500, "maxOutOfOrderness": "6 seconds"}, id="disorder"),
    ],
)
def test_no_split_is_further_ahead_than_the_drift_after_any_batch(
    direct: DirectKafka, new_topic: NewTopic, times: Times, step: float, options: Mapping[str, object]
) -> None:
    topic = new_topic(len(times))
    times = {p: np.round(each, 3) for p, each in times.items()}
    direct.write(topic, times)
    direct.run(direct.source(subscribe=topic, **ALIGNED, **options), "aligned")
    assert len(direct.data("aligned")) == sum(map(len, times.values()))
    assert max(drifts(direct, "aligned", times)) <= DRIFT + step


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": 1_000}], ids=["unlimited", "limited"])
def test_a_gap_in_time_is_crossed_by_one_row_and_deadlocks_no_member(
    direct: DirectKafka, new_topic: NewTopic, options: Mapping[str, object]
) -> None:
    topic = new_topic(len(GAPS))
    times = {p: np.round(each, 3) for p, each in GAPS.items()}
    direct.write(topic, times)
    direct.run(direct.source(subscribe=topic, **ALIGNED, **options), "gaps")
    assert len(direct.data("gaps")) == sum(map(len, times.values()))
    # Beyond the drift there is never more than the one row behind a gap.
    positions = dict.fromkeys(times, 0)
    for batch in direct.batches("gaps"):
        positions |= {partition: end for (_, partition), (_, end) in batch.items()}
        slowest = (
            min(times[p][: positions[p]].max() for p in times if 0 < positions[p] < len(times[p]))
            if any(0 < positions[p] < len(times[p]) for p in times)
            else np.inf
        )
        for p, each in times.items():
            assert np.count_nonzero(each[: positions[p]] > slowest + DRIFT) <= 1


def test_a_fast_split_waits_for_a_slow_one_until_that_is_idle(direct: DirectKafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    times = {0: np.arange(0, 1_000, 1.0), 1: np.arange(0, 100, 1.0)}
    direct.write(topic, times)
    query = direct.start(direct.source(subscribe=topic, idleTimeout="2 seconds", **ALIGNED), "q")
    query.run_until(lambda: len(direct.data("q")) >= 1_100)
    query.stop()
    offsets = [{int(n): fields for n, fields in o["splits"][topic].items()} for o in direct.offsets("q")]
    idle = next(number for number, splits in enumerate(offsets) if splits[1][3:4] == ["i"])
    # Up to the row at 109 s, then not one more until the slow one is idle.
    assert {splits[0][0] for splits in offsets[:idle]} == {110}
    assert "p" in {splits[0][3] for splits in offsets[:idle] if len(splits[0]) > 3}
    assert offsets[-1][0][0] == 1_000


def write_transactions(direct: DirectKafka, topic: str, partition: int, *, step: float, count: int) -> None:
    """Write transactions of 25 rows, so many seconds of event time apart."""
    producer = KafkaProducer(bootstrap_servers=direct.bootstrap, transactional_id=f"{topic}-{partition}")
    producer.init_transactions()
    for transaction in range(count):
        producer.begin_transaction()
        for n in range(25):
            stamp = START + round((25 * transaction + n) * step * 1_000)
            producer.send(topic, b"x", partition=partition, timestamp_ms=stamp)
        producer.commit_transaction()
    producer.close()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions_of_past_event_times_neither_stall_a_backlog_nor_cut_it_into_crumbs(
    direct: DirectKafka, new_topic: NewTopic, level: str
) -> None:
    """Control records carry the broker's clock, so the time index finds them before any record of the past.

    They leave alignment nothing to follow: what is held here is speed and completeness, not the drift.
    """
    topic = new_topic(2)
    for partition, step in ((0, 2.0), (1, 0.2)):
        write_transactions(direct, topic, partition, step=step, count=20)
    options = {"maxOffsetsPerTrigger": 200, "kafka.isolation.level": level}
    direct.run(direct.source(subscribe=topic, **ALIGNED, **options), "q")
    assert len(direct.data("q")) == 1_000
    # 1040 offsets, the control records among them.
    assert len([batch for batch in direct.batches("q") if batch]) <= 12


def test_a_backfill_in_transactions_does_not_stop_the_watermark_of_a_limited_backlog(
    direct: DirectKafka, new_topic: NewTopic
) -> None:
    """Without alignment: the control record between its first two transactions is of now."""
    topic = new_topic(2)
    write_transactions(direct, topic, 0, step=10.0, count=4)
    direct.write(topic, {1: np.arange(0, 1_000, 0.5)})
    direct.run(direct.source(subscribe=topic, maxOffsetsPerTrigger=100), "q")
    assert len(direct.data("q")) == 2_100
    ends = [(offset["splits"][topic]["1"][0], offset.get("wm")) for offset in direct.offsets("q")]
    # Where it is when half of the other partition is read; the first transaction ends at 240.
    reached = next(wm for position, wm in ends if position >= 1_000)
    assert reached is not None
    assert (reached - START) / 1_000 > 400
