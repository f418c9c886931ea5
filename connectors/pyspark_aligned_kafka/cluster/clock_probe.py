"""What time the brokers' clocks show: by records that are written to a topic whose brokers date them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

from kafka import KafkaProducer
from kafka.errors import KafkaError

from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.broker_errors import reason
from watermark_source.errors import SourceError

_SECONDS = 30
_VALUE = b"watermark_source doctor"


class Skew(NamedTuple):
    """How far a broker's clock is ahead of this machine's, in milliseconds; the truth is within the two."""

    least: int
    most: int

    @property
    def magnitude(self) -> int:
        """What clocks differ by for certain."""
        return max(0, self.least, -self.most)


def skew_of(dated: int, before: int, after: int) -> Skew:
    """Return what follows from a moment that a broker's clock showed between two of ours."""
    # It shows whole milliseconds, and so does ours.
    return Skew(dated - after - 1, dated - before + 1)


def probe(client: ClientSettings, topic: str, partitions: Mapping[int, int]) -> Mapping[int, Skew]:
    """Write one record to one partition of each broker, and return how far their clocks are ahead, by broker.

    Args:
        client: how to log in.
        topic: one with ``message.timestamp.type=LogAppendTime``.
        partitions: a partition to write to, by the broker that leads it.

    Raises:
        SourceError: a broker does not take the record, for example for lack of permission.
    """
    known = {k: v for k, v in client.client_configs().items() if k in KafkaProducer.DEFAULT_CONFIG}
    found: dict[int, Skew] = {}
    try:
        with closing(KafkaProducer(**{**known, "acks": 1, "max_block_ms": _SECONDS * 1_000})) as producer:
            for node, partition in partitions.items():
                # The first one connects; what is measured is the second.
                for _ in range(2):
                    before = time.time_ns() // 1_000_000
                    answer = producer.send(topic, _VALUE, partition=partition).get(_SECONDS)
                    found[node] = skew_of(answer.timestamp, before, time.time_ns() // 1_000_000)
    except KafkaError as error:
        raise SourceError(
            f"no record could be written to {topic}: {reason(error)}; the user needs WRITE on it, or name "
            "another topic with probeTopic"
        ) from error
    return found
