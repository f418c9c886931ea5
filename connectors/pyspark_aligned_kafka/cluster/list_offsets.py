"""ListOffsets: what a leader is asked about offsets, and what it answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest, OffsetSpec

from watermark_source.planning.split import Split
from watermark_source.planning.watermark import Millis

EARLIEST: Final[int] = OffsetSpec.EARLIEST
LATEST: Final[int] = OffsetSpec.LATEST
NEWEST: Final[int] = OffsetSpec.MAX_TIMESTAMP
"""The record with the highest timestamp (KIP-734); brokers before 3.0 do not know it."""
ANY_EPOCH: Final = -1
_KNOWS_EPOCHS, _KNOWS_NEWEST = 5, 7
"""Versions, of Kafka 2.2 and 3.0. From 10 on a broker is told how long it may look in remote storage."""


class OffsetAndTimestamp(NamedTuple):
    """Result of one look-up; ``None`` where the broker has no answer of that kind."""

    offset: int | None
    timestamp: Millis | None
    epoch: int | None = None
    """With the end of a log that of its leader, otherwise that of the record."""


class OffsetsResponse(NamedTuple):
    """A whole response."""

    offsets: Mapping[Split, OffsetAndTimestamp]
    errors: Mapping[Split, int]
    """Kafka's error codes."""


@dataclass(frozen=True)
class OffsetsAsked:
    """What one leader is asked: for each split a timestamp, or ``EARLIEST``, ``LATEST``, ``NEWEST``."""

    wanted: Mapping[Split, int]
    epochs: Mapping[Split, int]
    """Those of the leaders, or ``ANY_EPOCH``: a broker that has been their leader, and is cut off from who is now, must
    not answer where the log ends (KIP-320)."""

    @cached_property
    def _topics(self) -> list[Any]:
        # A leader is asked the same again and again, and to make these takes longer than to encode them.
        kind = ListOffsetsRequest.ListOffsetsTopic
        topics: defaultdict[str, list[Any]] = defaultdict(list)
        for split, timestamp in self.wanted.items():
            partition = kind.ListOffsetsPartition(
                partition_index=split.number, current_leader_epoch=self.epochs[split], timestamp=timestamp
            )
            topics[split.log].append(partition)
        return [kind(name=name, partitions=partitions) for name, partitions in topics.items()]

    def request(self, *, read_committed: bool) -> ListOffsetsRequest:
        """Return the message."""
        return ListOffsetsRequest(
            min_version=_KNOWS_NEWEST if NEWEST in self.wanted.values() else _KNOWS_EPOCHS,
            max_version=_KNOWS_NEWEST,
            isolation_level=int(read_committed),
            topics=self._topics,
        )


def read_offsets(answer: Any) -> OffsetsResponse:
    """Read a ``ListOffsetsResponse``."""
    offsets: dict[Split, OffsetAndTimestamp] = {}
    errors: dict[Split, int] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            split = Split(topic.name, each.partition_index)
            if each.error_code:
                errors[split] = each.error_code
            else:
                offsets[split] = OffsetAndTimestamp(
                    None if each.offset < 0 else each.offset,
                    None if each.timestamp < 0 else Millis(each.timestamp),
                    None if each.leader_epoch < 0 else each.leader_epoch,
                )
    return OffsetsResponse(offsets, errors)
