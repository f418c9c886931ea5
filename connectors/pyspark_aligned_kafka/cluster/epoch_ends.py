"""OffsetForLeaderEpoch (KIP-101, KIP-320): where the records of leaders' epochs end in a log."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from pyspark_aligned_kafka.cluster.list_offsets import OffsetAndTimestamp, OffsetsAsked, OffsetsResponse
from watermark_source.planning.split import Split

_CONSUMER = -1


def epoch_ends_request(asked: OffsetsAsked) -> OffsetForLeaderEpochRequest:
    """Ask a leader for the highest epoch up to the number wanted of each split, and its end."""
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    for split, epoch in asked.wanted.items():
        partition = kind.OffsetForLeaderPartition(
            partition=split.number, current_leader_epoch=asked.epochs[split], leader_epoch=epoch
        )
        topics[split.log].append(partition)
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
    return OffsetsResponse(offsets, errors)
