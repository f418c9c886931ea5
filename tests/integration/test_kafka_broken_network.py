"""A query over a topic behind a network that breaks: every row once, every error declared."""

from __future__ import annotations

import re
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pytest

from pyspark_aligned_kafka import DefaultSource
from pyspark_aligned_kafka.reading import kept_sessions
from services.kafka_local import FAST_START, LocalKafka
from services.kafka_topics import create_topic
from services.local_server import free_ports
from services.tcp_proxy import TcpProxy
from tests.integration.broken_network import Driven, Figures, History, leaves_nothing, run_histories
from tests.integration.kafka_streams import write

pytestmark = pytest.mark.service

_LIMITS = {
    "kafka.default.api.timeout.ms": "1000",
    "kafka.request.timeout.ms": "300",
    "kafka.socket.connection.setup.timeout.ms": "300",
    "kafka.retry.backoff.ms": "20",
    "kafka.retry.backoff.max.ms": "100",
    "kafkaConsumer.pollTimeoutMs": "1000",
}
_PARTITIONS, _ROWS = 3, 400


@dataclass(frozen=True, slots=True)
class _Broker:
    """A broker with two listeners: one for those who write, and one that is reached through the proxy alone."""

    direct: str
    proxy: TcpProxy


@pytest.fixture(scope="module")
def broker() -> Iterator[_Broker]:
    (behind,) = free_ports(1)
    with closing(TcpProxy(("127.0.0.1", behind))) as proxy:
        clients = "PLAINTEXT://127.0.0.1:{port}"
        config = {
            "listeners": f"{clients},BROKEN://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{{controller}}",
            "advertised.listeners": f"{clients},BROKEN://{proxy.address}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,BROKEN:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        with closing(LocalKafka(config=config, jvm=FAST_START)) as kafka:
            kafka.start()
            yield _Broker(kafka.bootstrap, proxy)


def _history(broker: _Broker) -> tuple[History, Callable[[], Figures]]:
    """Return a query over a topic of its own, and what counts its rows."""
    topic, written = f"broken-{uuid.uuid4().hex[:6]}", 0
    create_topic(broker.direct, topic, _PARTITIONS)

    def add() -> None:
        nonlocal written
        times = np.arange(written, written + _ROWS) / 10
        write(broker.direct, topic, {partition: times + partition for partition in range(_PARTITIONS)})
        written += _ROWS

    options = {
        "kafka.bootstrap.servers": broker.proxy.address,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "150",
        "includeLate": "true",
        **_LIMITS,
    }
    place = re.compile(rf"{re.escape(broker.proxy.address)}|{topic}-\d|broker 1")
    query = Driven(lambda: DefaultSource(options), place)

    def figures() -> Figures:
        found = query.rows
        places = Counter(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))
        due = {(partition, offset) for partition in range(_PARTITIONS) for offset in range(written)}
        return Figures(
            1, len(query.errors), len(due - places.keys()), sum(places.values()) - len(places),
            sum(found["late"].to_pylist()), tuple(query.wrong),
        )  # fmt: skip

    add()
    return History(query, add, lambda q: sum(len(b.rows) for b in q.batches) >= _PARTITIONS * written), figures


def _run(broker: _Broker, seed: int, count: int) -> Figures:
    with leaves_nothing(broker.proxy, kept_sessions._kept.clear):
        histories = [_history(broker) for _ in range(count)]
        run_histories([history for history, _ in histories], broker.proxy, seed)
        total = sum((figures() for _, figures in histories), Figures())
        # In the frame that waits, nothing holds a reader any more.
        del histories
    return total


def test_a_broken_network_costs_a_query_over_a_topic_no_row(broker: _Broker) -> None:
    figures = _run(broker, seed=1, count=10)
    figures.check()
    assert figures.errors > 0


@pytest.mark.long("test_a_broken_network_costs_a_query_over_a_topic_no_row")
def test_however_often_the_network_breaks_no_row_of_a_topic_is_lost(
    broker: _Broker, request: pytest.FixtureRequest
) -> None:
    count, first = (request.config.getoption(f"--{name}") for name in ("broken-networks", "networks-seed"))
    total = sum((_run(broker, seed, count=10) for seed in range(first, first + count // 10)), Figures())
    sys.stdout.write(f"{total}\n")
    total.check()
