"""Partitions are not quiet because their only broker is away: called as Spark's runner process calls a source."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from services.kafka import kafka_cluster
from services.kafka_local import FAST_START, LocalKafka
from services.kafka_topics import create_topic, wait_for_leaders
from tests.integration.planned_query import START, Query, stopped, write

__all__ = ["stopped"]
pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with kafka_cluster(1, jvm=FAST_START) as made:
        yield made


def test_an_outage_longer_than_the_idle_timeout_makes_no_split_idle(broker: LocalKafka) -> None:
    """Who writes to the topic could not do so either: its partitions were not quiet."""
    create_topic(broker.bootstrap, "all", 2)
    query = Query(broker, "all", idleTimeout="4 seconds", startingOffsets="earliest")
    write(broker, "all", {"0"}, 0)
    write(broker, "all", {"1"}, 3_600)
    query.read({"0", "1"})
    broker.kill(1)
    query.settle(6)
    query.until(lambda: set(query.statuses().values()) == {"u"})
    broker.start(1)
    # How soon it answers is up to the machine: a client that found no one there asks again later and later.
    first: dict[str, str] = {}
    back = time.monotonic()
    while len(first) < 2:
        asked = time.monotonic()
        assert query.plan(within=60) == {}
        first = {**{n: status for n, status in query.statuses().items() if status != "u"}, **first}
        assert asked < back + 150
    assert set(first.values()) == {"a"}
    assert query.offset["wm"] == START - 1
    # Now they are quiet, and both have to be for as long.
    while set(query.statuses().values()) != {"i"}:
        query.plan(within=60)
        assert time.monotonic() < asked + 150
    # Except for the second for which a source may report what it has reported before.
    assert time.monotonic() - asked > 4 - 1


def test_an_outage_within_one_long_batch_is_no_quiet_time_and_a_long_batch_without_one_is(
    broker: LocalKafka,
) -> None:
    """Between two plans no one asks for the sake of the batch: who could not write in between was not quiet."""
    create_topic(broker.bootstrap, "long", 2)
    query = Query(broker, "long", idleTimeout="8 seconds", startingOffsets="earliest")
    write(broker, "long", {"0"}, 0)
    write(broker, "long", {"1"}, 3_600)
    query.read({"0", "1"})
    watermark = START - 1
    for second in range(3_601, 3_606):
        query.until(lambda: query.offset.get("wm") == watermark)  # noqa: B023 - called at once
        begun = time.monotonic()
        broker.kill(1)
        time.sleep(6)
        broker.start(1)
        back = time.monotonic()
        wait_for_leaders(broker.bootstrap, ["long"], 2)
        # Longer than the timeout since the last plan, and shorter since there is a broker again.
        time.sleep(max(0.0, begun + 9 - time.monotonic()))
        assert query.plan(within=60) == {}
        while "u" in query.statuses().values():
            query.plan(within=60)
        if time.monotonic() - back < 6:
            break
        # A machine that took as long as the timeout shows nothing: once more, after rows.
        write(broker, "long", {"0", "1"}, second)
        query.read({"0", "1"})
        watermark = START + second * 1_000 - 1
    assert set(query.statuses().values()) == {"a"}
    assert query.offset["wm"] == watermark
    # Now batches take long, and the broker is there all the time. That the watch's own connection is opened again
    # may take one of them.
    for _ in range(8):
        time.sleep(9)
        query.plan(within=60)
        if set(query.statuses().values()) == {"i"}:
            break
    assert set(query.statuses().values()) == {"i"}
