"""A query plans on while one of its brokers is frozen or dead: called as Spark's runner process calls it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from pyspark_aligned_kafka.readers import schema_of, stream_reader
from services.broker import FAST_START, LocalKafka
from services.bulk import PartitionRecords, bulk_produce_partitions
from services.kafka import kafka_cluster
from services.topics import create_topic, wait_for_leaders
from services.wire import BrokerConnection
from watermark_source.errors import ResponseTimeoutError

pytestmark = pytest.mark.service
START = 1_700_000_000_000
AWAY = 3
PARTITIONS = 6


@pytest.fixture(scope="module")
def brokers() -> Iterator[LocalKafka]:
    with kafka_cluster(3, jvm=FAST_START) as cluster:
        yield cluster


class Query:
    """A query over one topic; its tasks run here."""

    def __init__(self, cluster: LocalKafka, topic: str, **options: str) -> None:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **options}
        self.reader = stream_reader(given, schema_of(given))
        self.topic = topic
        self.offset: Mapping[str, Any] = self.reader.initialOffset()

    def plan(self, *, within: float) -> dict[str, int]:
        """Plan a batch and run it; return how many rows it reads, by partition."""
        begun = time.monotonic()
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        assert time.monotonic() - begun < within
        rows = {number: fields[1] for number, fields in end["splits"][self.topic].items() if fields[1]}
        if end == self.offset:
            return {}
        for pack in self.reader.partitions(dict(self.offset), dict(end)):
            list(self.reader.read(pack))
        self.offset = end
        return rows

    def settle(self, seconds: float) -> dict[str, int]:
        """Go on for a while; return how many rows were read."""
        read: dict[str, int] = {}
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            read.update(self.plan(within=10))
        return read

    def statuses(self) -> dict[str, str]:
        report = self.reader.reportLatestOffset()
        assert report is not None
        return {number: fields["status"] for number, fields in report["splits"][self.topic].items()}


def write(cluster: LocalKafka, topic: str, numbers: set[str], second: int) -> None:
    records = PartitionRecords(np.array([START + second * 1_000], dtype=np.int64), value_size=8)
    bulk_produce_partitions(cluster.bootstrap, topic, {int(number): records for number in numbers})


def led_by(cluster: LocalKafka, topic: str, node: int) -> set[str]:
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
    with BrokerConnection(host, int(port)) as connection:
        return {str(each.partition) for each in connection.cluster(topic).leaders if each.leader == node}


@pytest.mark.parametrize(
    ("leave", "come_back"),
    [(LocalKafka.pause, LocalKafka.resume), (LocalKafka.kill, LocalKafka.start)],
    ids=["frozen", "killed"],
)
def test_what_a_lost_broker_leads_stays_as_it_is_and_the_rest_is_read_on(
    brokers: LocalKafka,
    leave: Callable[[LocalKafka, int], None],
    come_back: Callable[[LocalKafka, int], None],
) -> None:
    topic = f"away-{leave.__name__}"
    create_topic(brokers.bootstrap, topic, PARTITIONS)
    everything = {str(number) for number in range(PARTITIONS)}
    silent = led_by(brokers, topic, AWAY)
    assert silent
    query = Query(brokers, topic, idleTimeout="1 second", startingOffsets="earliest")
    write(brokers, topic, everything, 0)
    assert query.settle(0.5).keys() == everything
    before = query.offset["splits"][topic]
    leave(brokers, AWAY)
    try:
        time.sleep(1.5)
        write(brokers, topic, everything - silent, 100)
        # The first plan gives the broker three seconds for each of two questions; no later one does.
        assert query.plan(within=20).keys() == everything - silent
        begun = time.monotonic()
        for _ in range(20):
            query.plan(within=20)
        assert time.monotonic() - begun < 20
        assert {n: query.offset["splits"][topic][n][0] for n in silent} == {n: before[n][0] for n in silent}
        assert query.offset["wm"] == START - 1
        assert {n for n, status in query.statuses().items() if status == "u"} == silent
    finally:
        come_back(brokers, AWAY)
    while led_by(brokers, topic, AWAY) != silent:
        time.sleep(0.1)
    wait_for_leaders(brokers.bootstrap, [topic], PARTITIONS)
    write(brokers, topic, silent, 100)
    assert query.settle(8).keys() == silent
    assert query.offset["wm"] == START + 99_999


def test_a_broker_that_stays_away_is_an_error_after_the_limit(brokers: LocalKafka) -> None:
    create_topic(brokers.bootstrap, "gone", PARTITIONS)
    query = Query(brokers, "gone", **{"kafka.default.api.timeout.ms": "6000"})
    query.settle(0.5)
    brokers.pause(AWAY)
    begun = time.monotonic()
    try:
        with pytest.raises(ResponseTimeoutError, match=r"no offset of gone-\d.* within 6 s"):
            query.settle(60)
    finally:
        brokers.resume(AWAY)
    assert 5.9 < time.monotonic() - begun < 20


def test_an_outage_longer_than_the_idle_timeout_makes_nobody_idle() -> None:
    """Who writes to the topic could not do so either: its partitions were not quiet."""
    with kafka_cluster(1, jvm=FAST_START) as broker:
        create_topic(broker.bootstrap, "all", 2)
        query = Query(broker, "all", idleTimeout="4 seconds", startingOffsets="earliest")
        write(broker, "all", {"0"}, 0)
        write(broker, "all", {"1"}, 3_600)
        assert query.settle(0.5).keys() == {"0", "1"}
        broker.kill(1)
        query.settle(6)
        assert set(query.statuses().values()) == {"u"}
        broker.start(1)
        # How soon it answers is up to the machine: a client that found nobody there asks again later and later.
        first: dict[str, str] = {}
        back = time.monotonic()
        while len(first) < 2:
            asked = time.monotonic()
            assert query.plan(within=10) == {}
            first = {**{n: status for n, status in query.statuses().items() if status != "u"}, **first}
            assert asked < back + 60
        assert set(first.values()) == {"a"}
        assert query.offset["wm"] == START - 1
        # Now they are quiet, and both have to be for as long.
        while set(query.statuses().values()) != {"i"}:
            query.plan(within=10)
            assert time.monotonic() < asked + 60
        # But for the second for which a source may report what it has reported before.
        assert time.monotonic() - asked > 4 - 1


def test_an_outage_within_one_long_batch_is_no_quiet_time_and_a_long_batch_without_one_is() -> None:
    """Between two plans nobody asks for the sake of the batch: who could not write in between was not quiet."""
    with kafka_cluster(1, jvm=FAST_START) as broker:
        create_topic(broker.bootstrap, "long", 2)
        query = Query(broker, "long", idleTimeout="8 seconds", startingOffsets="earliest")
        write(broker, "long", {"0"}, 0)
        write(broker, "long", {"1"}, 3_600)
        assert query.settle(0.5).keys() == {"0", "1"}
        begun = time.monotonic()
        broker.kill(1)
        time.sleep(6)
        broker.start(1)
        wait_for_leaders(broker.bootstrap, ["long"], 2)
        # Longer than the timeout since the last plan, and shorter since there is a broker again.
        time.sleep(max(0.0, begun + 9 - time.monotonic()))
        assert query.plan(within=10) == {}
        while "u" in query.statuses().values():
            query.plan(within=10)
        assert set(query.statuses().values()) == {"a"}
        assert query.offset["wm"] == START - 1
        # Now batches take long, and the broker is there all the time. That the watch's own connection is opened again
        # may take one of them.
        for _ in range(4):
            time.sleep(9)
            query.plan(within=10)
            if set(query.statuses().values()) == {"i"}:
                break
        assert set(query.statuses().values()) == {"i"}
        query.reader.stop()
