"""When a topic counts as gone: not by one answer, however long it was waited for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.metadata import MetadataResponse

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster import metadata
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.metadata import Leaders, Topic, TopicLookup
from pyspark_aligned_kafka.cluster.retry import Deadline
from watermark_source.errors import RefusedError, ResponseTimeoutError, SourceError
from watermark_source.planning.split import Split

SPLIT = Split("t", 0)
Of = MetadataResponse.MetadataResponseTopic


Broker = MetadataResponse.MetadataResponseBroker


def reply(
    *topics: str, partitions: int = 1, topic_id: UUID | None = None, brokers: Sequence[int] = (), error: int = 0
) -> MetadataResponse:
    of_topic = [
        Of.MetadataResponsePartition(version=12, error_code=0, partition_index=number, leader_id=1, leader_epoch=3)
        for number in range(partitions)
    ]
    there = [
        Of(version=12, error_code=error, name=name, topic_id=topic_id, is_internal=False, partitions=of_topic)
        for name in topics
    ]
    named = [Broker(version=12, node_id=node, host="h", port=node, rack=None) for node in brokers]
    return MetadataResponse(version=12, brokers=named, topics=there)


class Answering(Cluster):
    """A cluster of which each answer takes some time; the last one is given again and again."""

    def __init__(self, answers: Sequence[MetadataResponse], takes_s: float, limit_ms: int) -> None:
        limit = {"kafka.default.api.timeout.ms": str(limit_ms), "kafka.request.timeout.ms": str(limit_ms)}
        super().__init__(parse_settings({"kafka.bootstrap.servers": "localhost:1", **limit}))
        self._answers = answers
        self._takes_s = takes_s
        self.asked_anyone: list[bool] = []

    async def request_any(
        self, request: Callable[[], Any], deadline: Deadline, *, anyone: bool = False, doubted: int | None = None
    ) -> Any:
        assert self._net is not None
        await self._net.sleep(self._takes_s)
        self.asked_anyone.append(anyone)
        return self._answers[min(len(self.asked_anyone), len(self._answers)) - 1]

    def learn_brokers(self, metadata: Any) -> None: ...


def looked_for(cluster: Cluster) -> Mapping[str, Topic]:
    lookup = TopicLookup(cluster, Leaders())

    async def work(deadline: Deadline) -> Mapping[str, Topic]:
        return await lookup.settled(["t"], {SPLIT}, deadline, existed=True)

    try:
        return cluster.run(work)
    finally:
        cluster.close()


class Brokers(Answering):
    """A cluster of which each broker gives its own answer; those without one are silent. The first is known."""

    def __init__(self, *answers: MetadataResponse) -> None:
        super().__init__(answers, takes_s=0, limit_ms=60_000)
        self.answered_by = 0

    async def request_each(
        self, nodes: Collection[int | str], request: Callable[[], Any], deadline: Deadline
    ) -> dict[int | str, Any]:
        assert self.answered_by not in nodes, "it has answered already"
        if silent := [node for node in nodes if int(node) >= len(self._answers)]:
            raise ResponseTimeoutError(f"not all brokers of the cluster answer: {silent}")
        return {node: self._answers[int(node)] for node in nodes}


def by_all_brokers(*answers: MetadataResponse) -> Topic | None:
    cluster = Brokers(*answers)
    lookup = TopicLookup(cluster, Leaders())

    async def work(deadline: Deadline) -> Topic | None:
        return await lookup.by_all_brokers("t", deadline)

    with closing(cluster):
        return cluster.run(work)


def test_a_partition_that_one_broker_knows_exists() -> None:
    # The last one is named by the second alone, which knows no topic.
    found = by_all_brokers(
        reply("t", brokers=(0, 1)), reply(brokers=(0, 1, 2)), reply("t", partitions=3, brokers=(0, 2))
    )
    assert found is not None
    assert found.leaders.keys() == {0, 1, 2}
    assert by_all_brokers(reply(brokers=(0, 1)), reply(brokers=(0, 1))) is None


def test_without_the_answer_of_a_broker_that_another_one_names_no_partitions_are_known() -> None:
    """It may lead a partition that the others do not know yet, with rows in it."""
    with pytest.raises(ResponseTimeoutError, match=r"not all brokers of the cluster answer: \[2\]"):
        by_all_brokers(reply("t", brokers=(0, 1)), reply("t", brokers=(0, 1, 2)))
    assert by_all_brokers(reply("t", brokers=(0, 1)), reply("t", brokers=(0, 1))) is not None


def test_a_broker_that_does_not_name_the_partitions_for_the_moment_is_asked_again_later() -> None:
    leader_not_available = 5
    with pytest.raises(SourceError, match="a broker does not name the partitions of topic t for the moment"):
        by_all_brokers(reply("t", brokers=(0, 1)), reply("t", brokers=(0, 1), error=leader_not_available))


def test_brokers_that_name_a_topic_by_two_ids_are_asked_again_later() -> None:
    with pytest.raises(SourceError, match="topic t was deleted and created again, and brokers still name it"):
        by_all_brokers(reply("t", topic_id=UUID(int=1), brokers=(0, 1)), reply("t", topic_id=UUID(int=2)))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "GONE_AFTER_S", 0.2)


def test_one_answer_that_came_late_is_not_enough() -> None:
    cluster = Answering([reply(), reply("t")], takes_s=0.3, limit_ms=60_000)
    assert looked_for(cluster).keys() == {"t"}
    assert cluster.asked_anyone == [False, True]


def test_what_no_one_knows_for_long_enough_is_gone() -> None:
    cluster = Answering([reply()], takes_s=0.01, limit_ms=60_000)
    assert looked_for(cluster) == {}
    assert len(cluster.asked_anyone) > 1


def test_without_time_for_a_second_look_nothing_is_gone() -> None:
    cluster = Answering([reply()], takes_s=1.0, limit_ms=1_000)
    with pytest.raises(ResponseTimeoutError, match=r"say that t, t-0 does not exist, which was there before"):
        looked_for(cluster)
    assert cluster.asked_anyone == [False]


def test_a_topic_that_a_list_of_all_lacks_is_refused_by_name_where_it_may_not_be_described_any_more() -> None:
    """A pattern's topic counted as deleted: its records were skipped, or read again when the right was back."""
    refused = Answering([reply(), reply(), reply("t", error=29)], takes_s=0.6, limit_ms=1_000)
    lookup = TopicLookup(refused, Leaders())

    async def work(deadline: Deadline) -> Mapping[str, Topic]:
        return await lookup.settled(None, {SPLIT}, deadline, existed=True)

    with closing(refused), pytest.raises(RefusedError) as reported:
        refused.run(work)
    line = (
        "kafka-acls.sh --bootstrap-server localhost:1 --add --allow-principal User:NAME --operation Describe --topic t"
    )
    assert str(reported.value).endswith(f"the user lacks the right Describe on topic t. On the brokers: {line}")
    assert not lookup.missing
