"""Waits of a connection: what has been answered is no error, however late it is looked at."""

from __future__ import annotations

import time

import pytest
from kafka.future import Future

from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.deadline import Deadline


@pytest.mark.parametrize("hops", [0, 1])
def test_an_answer_that_comes_as_the_wait_ends_is_taken(hops: int) -> None:
    """``hops``: turns of the loop from the answer to who waits for it."""
    cluster = Cluster(parse_settings({"kafka.bootstrap.servers": "localhost:1"}))
    gate = Future()
    limits: list[Deadline] = []

    async def broker() -> None:
        # Its turn is the first after the wait has begun. It is parsed, or the process has no core, until that is over.
        time.sleep((limits[0].left_ms + 10) / 1000)
        gate.success(7)

    async def answered(left: int) -> int:
        if not left:
            return await cluster._open().wait_for(gate, 60_000)
        return await cluster._open().call_soon(answered, left - 1)

    async def work(_: Deadline) -> tuple[bool, int]:
        cluster.begin(broker)
        answer = cluster.begin(answered, hops)
        limits.append(Deadline.after(500))
        return await cluster.is_answered(answer, limits[0]), answer.value

    try:
        assert cluster.run(work) == (True, 7)
    finally:
        cluster.close()
