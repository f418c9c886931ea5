"""Committing to a consumer group without joining it, as ``kafka-consumer-groups --reset-offsets`` does."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from kafka.errors import (
    KafkaError,
    NoError,
    RetriableError,
    UnknownBrokerIdError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.consumer.group import DEFAULT_GENERATION_ID, UNKNOWN_MEMBER_ID
from kafka.protocol.metadata import FindCoordinatorRequest

from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.deadline import Deadline
from pyspark_aligned_kafka.cluster.metadata import metadata_request
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

_LONGEST_NOTE: Final = 4_096
"""Bytes; the default of the broker's ``offset.metadata.max.bytes``."""
_REQUEST_BYTES: Final = 500_000
"""A broker writes the offsets of one request as one record batch, which may have 1 MB by default."""
_RECORD_BYTES: Final = 400
"""Of one partition's record, without the group's name and the note: the longest topic name and some fields."""


class ConsumerGroup:
    """The committed offsets of one group. One thread; connects on first use.

    Only a group without members takes commits from outside.
    """

    def __init__(self, settings: ClientSettings, name: str, note: str) -> None:
        """``note`` is kept with each offset as its metadata."""
        self.name = name
        self._note = note.encode()[:_LONGEST_NOTE].decode(errors="ignore")
        self._cluster = Cluster(settings)
        self._coordinator: int | None = None

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._cluster.close()

    def commit(self, positions: Mapping[Split, int], limit_ms: float) -> None:
        """Commit the next offset to read of each split. Those that do not exist any more are left out.

        What another try may cure (the coordinator has moved, or is loading) is tried again until the limit.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError, SourceError: the ``__cause__``, if any, is
                a ``KafkaError``. Some of the positions may have been committed.
        """

        async def work(_: Deadline) -> None:
            deadline = Deadline.after(int(limit_ms))
            for part in self._parts(positions):
                await self._commit(part, deadline)

        if positions:
            self._cluster.run(work)

    def _parts(self, positions: Mapping[Split, int]) -> Iterator[Mapping[Split, int]]:
        size = max(1, _REQUEST_BYTES // (_RECORD_BYTES + len(self.name.encode()) + len(self._note.encode())))
        rest = iter(positions.items())
        while part := dict(islice(rest, size)):
            yield part

    async def _commit(self, positions: Mapping[Split, int], deadline: Deadline) -> None:
        backoff = self._cluster.backoff(deadline)
        while (trouble := await self._tried(positions, deadline)) is not None:
            self._coordinator = None
            if not await backoff.wait():
                raise trouble

    async def _tried(self, positions: Mapping[Split, int], deadline: Deadline) -> KafkaError | None:
        """Try once; return what another try may cure."""
        try:
            if self._coordinator is None:
                self._coordinator = await self._find_coordinator(deadline)
            self._check(await self._cluster.ask(self._coordinator, self._request(positions), deadline))
        except (RetriableError, UnknownBrokerIdError) as error:
            return error
        return None

    async def _find_coordinator(self, deadline: Deadline) -> int:
        # The coordinator is one of the brokers this answer names.
        self._cluster.learn_brokers(await self._cluster.ask_any(lambda: metadata_request(()), deadline))
        answer = await self._cluster.ask_any(lambda: FindCoordinatorRequest(key=self.name, max_version=3), deadline)
        kind = for_code(answer.error_code)
        if kind is not NoError:
            raise kind(self._explained(kind))
        return int(answer.node_id)

    def _request(self, positions: Mapping[Split, int]) -> OffsetCommitRequest:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        by_topic: defaultdict[str, list[Any]] = defaultdict(list)
        for split, position in positions.items():
            by_topic[split.log].append(
                topic.OffsetCommitRequestPartition(
                    partition_index=split.number,
                    committed_offset=position,
                    committed_leader_epoch=-1,
                    committed_metadata=self._note,
                )
            )
        return OffsetCommitRequest(
            group_id=self.name,
            generation_id_or_member_epoch=DEFAULT_GENERATION_ID,
            member_id=UNKNOWN_MEMBER_ID,
            group_instance_id=None,
            retention_time_ms=-1,
            topics=[topic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
            # Version 10 has ids in place of topic names.
            max_version=9,
        )

    def _check(self, answer: Any) -> None:
        for topic in answer.topics:
            for partition in topic.partitions:
                kind = for_code(partition.error_code)
                if kind is UnknownTopicOrPartitionError:
                    _log.debug("%s-%d does not exist (any more): not committed", topic.name, partition.partition_index)
                elif kind is not NoError:
                    raise kind(self._explained(kind))

    def _explained(self, kind: type[KafkaError]) -> str:
        if kind is UnknownMemberIdError:
            return (
                f"consumer group {self.name} has active members, and takes commits from them alone; "
                "let commitGroupId name a group that nobody joins"
            )
        return f"consumer group {self.name}: {kind.__name__.removesuffix('Error')}"
