"""OffsetForLeaderEpoch (KIP-101, KIP-320): where the records of leaders' epochs end in a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from pyspark_aligned_kafka.cluster.list_offsets import OffsetAndTimestamp, OffsetsResponse
from watermark_source.planning.split import Split

_CONSUMER = -1
_ANY_EPOCH = -1


def epoch_ends_request(wanted: Mapping[Split, int], leaders: Mapping[Split, int | None]) -> OffsetForLeaderEpochRequest:
    """Ask leaders for the highest epoch up to a number, and its end; ``leaders`` are their own epochs."""
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    topics: dict[str, list[Any]] = {}
    for split, epoch in wanted.items():
        leader = leaders.get(split)
        asked = kind.OffsetForLeaderPartition(
            partition=split.number,
            current_leader_epoch=_ANY_EPOCH if leader is None else leader,
            leader_epoch=epoch,
        )
        topics.setdefault(split.log, []).append(asked)
    asked_topics = [kind(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=asked_topics)


def read_epoch_ends(answer: Any) -> OffsetsResponse:
    """Read an ``OffsetForLeaderEpochResponse``: the end of each epoch; ``None`` where the log knows no epochs."""
    offsets: dict[Split, OffsetAndTimestamp] = {}
    errors: dict[Split, int] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            split = Split(topic.topic, each.partition)
            if each.error_code:
                errors[split] = each.error_code
            elif each.leader_epoch < 0 or each.end_offset < 0:
                offsets[split] = OffsetAndTimestamp(None, None)
            else:
                offsets[split] = OffsetAndTimestamp(each.end_offset, None, each.leader_epoch)
    return OffsetsResponse(answer.throttle_time_ms, offsets, errors)
