"""Look-ups at several leaders: what one shows is there while another is silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.list_offsets import (
    LATEST,
    OffsetAndTimestamp,
    OffsetsAsked,
    OffsetsRequest,
    OffsetsResponse,
)
from pyspark_aligned_kafka.cluster.metadata import Leader, Leaders, Topic, TopicLookup
from pyspark_aligned_kafka.cluster.offset_lookup import OffsetLookupInTime, OffsetsInTime
from pyspark_aligned_kafka.cluster.retry import Deadline
from watermark_source.planning.split import Split

A, B = Split("t", 0), Split("t", 1)


@pytest.mark.parametrize("silent", [0, 1])
def test_what_one_leader_tells_is_reported_while_another_is_silent(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, leaders = Cluster(parse_settings({"kafka.bootstrap.servers": "localhost:1"})), Leaders()
    leaders.learn({"t": Topic({0: Leader(0, 1), 1: Leader(1, 1)}, internal=False)})
    lookup = OffsetLookupInTime(cluster, TopicLookup(cluster, leaders), leaders, limit_ms=60_000, read_committed=False)

    async def request(node: int, request: OffsetsRequest, deadline: Deadline) -> OffsetsResponse:
        if node == silent:
            assert cluster._net is not None
            await cluster._net.sleep(60)
        return OffsetsResponse(0, {Split("t", node): OffsetAndTimestamp(7, None)}, {})

    monkeypatch.setattr(cluster, "request", request)
    reported: dict[Split, OffsetAndTimestamp] = {}

    async def work(deadline: Deadline) -> Mapping[Any, Any]:
        over = cluster.begin(lookup.look_up, {A: LATEST, B: LATEST}, deadline, reported)
        while not reported:
            assert not await cluster.await_answer(over, Deadline.after(20))
            assert deadline.left_ms
        return dict(reported)

    try:
        assert cluster.run(work).keys() == {Split("t", 1 - silent)}
    finally:
        cluster.close()


def test_a_question_is_encoded_again_only_for_other_leaders_or_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, leaders = Cluster(parse_settings({"kafka.bootstrap.servers": "localhost:1"})), Leaders()
    lookup = OffsetLookupInTime(cluster, TopicLookup(cluster, leaders), leaders, limit_ms=60_000, read_committed=False)
    sent: list[tuple[int, OffsetsAsked]] = []

    async def request(node: int, request: OffsetsRequest, deadline: Deadline) -> OffsetsResponse:
        sent.append((node, request.asked))
        return OffsetsResponse(0, dict.fromkeys(request.asked.wanted, OffsetAndTimestamp(7, None, 1)), {})

    def look_up(*splits: Split) -> list[tuple[int, OffsetsAsked]]:
        sent.clear()

        async def work(deadline: Deadline) -> OffsetsInTime:
            return await lookup.look_up_in_time(dict.fromkeys(splits, LATEST), deadline)

        assert cluster.run(work).offsets.keys() == set(splits)
        return [*sent]

    monkeypatch.setattr(cluster, "request", request)
    try:
        leaders.learn({"t": Topic({0: Leader(0, 1), 1: Leader(0, 1)}, internal=False)})
        ((_, first),) = look_up(A, B)
        look_up(A)
        leaders.learn({"t": Topic({0: Leader(0, 1), 1: Leader(0, 1)}, internal=False)})
        assert look_up(A, B) == [(0, first)]
        leaders.learn({"t": Topic({1: Leader(0, 2)}, internal=False)})
        ((_, elected),) = look_up(A, B)
        assert elected.epochs == {A: 1, B: 2}
        leaders.learn({"t": Topic({1: Leader(1, 3)}, internal=False)})
        assert [(node, asked.wanted.keys()) for node, asked in look_up(A, B)] == [(0, {A}), (1, {B})]
    finally:
        cluster.close()
