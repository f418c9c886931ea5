"""Commits a query's progress to a consumer group, from a thread of its own that never holds the query up."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Final

from kafka.errors import (
    AuthorizationError,
    KafkaError,
    NoError,
    RetriableError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.broker_errors import MissingRightError
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.metadata import includes_read, metadata_request
from pyspark_aligned_kafka.cluster.retry import Deadline
from watermark_source.errors import SourceError
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

# Committing to a consumer group without joining it, as ``kafka-consumer-groups --reset-offsets`` does.


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

        async def work(deadline: Deadline) -> None:
            for part in self._parts(positions):
                await self._ask_coordinator(partial(self._request, part), self._check, deadline)

        if positions:
            self._cluster.run(work, int(limit_ms))

    def check_right(self) -> None:
        """Check that the user may commit, to a group that need not exist yet; tries again as ``commit``.

        Raises:
            RefusedError: it lacks the right. UnreachableError, ResponseTimeoutError, SourceError.
        """

        def check(answer: Any) -> None:
            (found,) = answer.groups
            self._need_no_error(found.error_code)
            if not includes_read(found.authorized_operations):
                raise MissingRightError("Read", "group", [self.name])

        # From version 6 on a group that does not exist yet is an error.
        request = partial(DescribeGroupsRequest, groups=[self.name], include_authorized_operations=True, max_version=5)
        self._cluster.run(partial(self._ask_coordinator, request, check))

    def _parts(self, positions: Mapping[Split, int]) -> Iterator[Mapping[Split, int]]:
        size = max(1, _REQUEST_BYTES // (_RECORD_BYTES + len(self.name.encode()) + len(self._note.encode())))
        rest = iter(positions.items())
        while part := dict(islice(rest, size)):
            yield part

    async def _ask_coordinator(
        self, request: Callable[[], Any], check: Callable[[Any], None], deadline: Deadline
    ) -> None:
        """Ask until ``check`` raises nothing that another try may cure."""
        backoff = self._cluster.backoff(deadline)
        while True:
            try:
                if self._coordinator is None:
                    self._coordinator = await self._find_coordinator(deadline)
                check(await self._cluster.request(self._coordinator, request(), deadline))
            except (RetriableError, UnknownBrokerIdError):
                self._coordinator = None
                if not await backoff.wait():
                    raise
            else:
                return

    async def _find_coordinator(self, deadline: Deadline) -> int:
        # The coordinator is one of the brokers this answer names.
        self._cluster.learn_brokers(await self._cluster.request_any(lambda: metadata_request(()), deadline))
        answer = await self._cluster.request_any(lambda: FindCoordinatorRequest(key=self.name, max_version=3), deadline)
        self._need_no_error(answer.error_code)
        return int(answer.node_id)

    def _need_no_error(self, code: int) -> None:
        kind = for_code(code)
        if kind is not NoError:
            raise self._error(kind)

    def _request(self, positions: Mapping[Split, int]) -> OffsetCommitRequest:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        by_topic: defaultdict[str, list[Any]] = defaultdict(list)
        for split, position in positions.items():
            by_topic[split.log].append(
                topic.OffsetCommitRequestPartition(
                    partition_index=split.number,
                    committed_offset=position,
                    committed_metadata=self._note,
                )
            )
        return OffsetCommitRequest(
            # By the protocol's defaults it is of no member.
            group_id=self.name,
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
                    raise self._error(kind, topic.name)

    def _error(self, kind: type[KafkaError], topic: str | None = None) -> KafkaError:
        if issubclass(kind, AuthorizationError):
            of_topic = topic is not None and kind is TopicAuthorizationFailedError
            return MissingRightError("Read", *(("topic", [topic]) if of_topic else ("group", [self.name])))
        if kind is UnknownMemberIdError:
            return kind(
                f"consumer group {self.name} has active members, and accepts commits from them alone; "
                "set commitGroupId to a group that no consumer joins"
            )
        return kind(f"consumer group {self.name}: {kind.__name__.removesuffix('Error')}")


# When positions are committed: news about once a second, the same again each minute, less often while it fails.


PAUSE_S: Final = 1.0
REPEAT_S: Final = 60.0
"""A broker removes a group without commits (``offsets.retention.minutes``), also when there is nothing to read."""
LONGEST_PAUSE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class CommitPace:
    """When the next try is due, in seconds of the monotonic clock."""

    not_before: float = 0.0
    repeat_at: float = 0.0
    failures: int = 0
    """In a row, the last tries."""

    def wait(self, now: float, *, news: bool) -> float:
        """Return the seconds until the next try; with ``news`` there are positions not committed yet."""
        return max(0.0, (self.not_before if news else self.repeat_at) - now)

    def after_success(self, now: float) -> CommitPace:
        """Return the pace after a try that worked."""
        return CommitPace(not_before=now + PAUSE_S, repeat_at=now + REPEAT_S)

    def after_failure(self, now: float) -> CommitPace:
        """Return the pace after a try that failed: each pause is twice the one before, up to half a minute."""
        due = now + min(LONGEST_PAUSE_S, PAUSE_S * 2.0 ** min(self.failures, 10))
        return CommitPace(not_before=due, repeat_at=due, failures=self.failures + 1)


_LIMIT_MS: Final = 5_000
"""Of one try."""
_END_MS: Final = 2_000
"""Of the last one, when the query stops."""


class GroupCommits:
    """Implements ``ProgressSink``.

    The caller's side takes no lock: a signal's handler may call ``close`` in the middle of ``record``.
    """

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        # A mailbox with one place: a new value replaces one that was not taken yet.
        self._latest: Mapping[Split, int] = {}
        self._news: SimpleQueue[None] = SimpleQueue()
        self._end: Deadline | None = None
        self._thread: threading.Thread | None = None
        self._warned: set[str] = set()

    def record(self, positions: Mapping[Split, int]) -> None:
        """Have these positions committed soon, in place of earlier ones that are still waiting."""
        self._latest = positions
        self._news.put(None)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"commits to {self._group.name}", daemon=True)
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """Wait until what is still waiting has been committed, or failed to be, for two seconds at most."""
        if self._end is None:
            self._end = Deadline.after(_END_MS)
        self._news.put(None)
        if self._thread is not None:
            self._thread.join(self._end.left_ms / 1000)

    def _run(self) -> None:
        committed: Mapping[Split, int] | None = None
        pace = CommitPace()
        while True:
            # In this order: what is read after the end is the last there will be.
            end, latest = self._end, self._latest
            news = latest != committed
            if end is not None and (not news or end.left_ms == 0):
                break
            wait = pace.wait(time.monotonic(), news=news)
            if end is None and wait > 0:
                with contextlib.suppress(Empty):
                    self._news.get(timeout=wait)
            elif self._commit(latest, _LIMIT_MS if end is None else end.left_ms):
                committed, pace = latest, pace.after_success(time.monotonic())
            elif end is None:
                pace = pace.after_failure(time.monotonic())
            else:
                break
        self._group.close()

    def _commit(self, positions: Mapping[Split, int], limit_ms: float) -> bool:
        try:
            self._group.commit(positions, limit_ms)
        except Exception as error:  # noqa: BLE001 - the client library's: the query must not hear of it, nor commits end
            self._warn(error)
            if not isinstance(error, SourceError):
                self._group.close()
            return False
        if self._warned:
            _log.info("Positions are committed to consumer group %s again", self._group.name)
            self._warned.clear()
        return True

    def _warn(self, error: Exception) -> None:
        """Say it once for each kind of trouble, until a commit works."""
        kind = type(error.__cause__ or error).__name__
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning(
                "Positions are not committed to consumer group %s for now, so its lag is not the query's; "
                "the query continues: %s",
                self._group.name,
                error,
                exc_info=None if isinstance(error, SourceError) else error,
            )
