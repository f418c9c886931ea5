"""How many copies of partitions there are, and how many of them a broker may be lost without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from watermark_source.planning.split import Split


class Replicas(NamedTuple):
    """Of one partition, as one broker sees it."""

    leader: int | None
    """``None``: nobody can read or write it."""
    all: int
    in_sync: int


def read_replicas(answer: Any) -> Mapping[Split, Replicas]:
    """Read a ``MetadataResponse``; topics that cannot be told are left out."""
    return {
        Split(topic.name, each.partition_index): Replicas(
            None if each.leader_id < 0 else each.leader_id, len(each.replica_nodes), len(each.isr_nodes)
        )
        for topic in answer.topics
        if not topic.error_code
        for each in topic.partitions
    }
