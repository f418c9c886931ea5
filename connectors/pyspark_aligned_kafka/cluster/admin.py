"""The driver's look-ups in a Kafka cluster: topics, and offsets of many partitions at once."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Set
from typing import Any

from kafka.errors import KafkaError

from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.broker_errors import MissingRightError, translated
from pyspark_aligned_kafka.cluster.connections import Cluster
from pyspark_aligned_kafka.cluster.list_offsets import NEWEST, OffsetAndTimestamp
from pyspark_aligned_kafka.cluster.metadata import (
    Leader,
    Leaders,
    PartitionReplicas,
    Topic,
    TopicLookup,
    metadata_request,
    read_replicas,
    read_topic_settings,
    topic_settings_request,
    unreadable,
)
from pyspark_aligned_kafka.cluster.offset_lookup import EpochEndLookup, OffsetLookupInTime, OffsetsInTime
from pyspark_aligned_kafka.cluster.record_batch_headers import BatchHeader, headers_request, read_headers
from pyspark_aligned_kafka.cluster.retry import Deadline
from watermark_source.errors import SourceError
from watermark_source.planning.split import IndexEntry, Split

_GLANCE_MS = 500
"""Time limit in ms of optional look-ups; the caller continues without their answer."""


class KafkaAdmin:
    """Look-ups with the consumer's isolation level, or that of ``read_committed``.

    One thread; each call ends within ``default.api.timeout.ms``.

    Connects on first use. What another try may cure (a leader has moved, a broker is restarting) is tried again
    until the limit.
    """

    def __init__(
        self,
        settings: ClientSettings,
        cluster: Cluster | None = None,
        leaders: Leaders | None = None,
        *,
        read_committed: bool | None = None,
    ) -> None:
        self._settings = settings
        self._cluster = Cluster(settings) if cluster is None else cluster
        self._read_committed = settings.read_committed if read_committed is None else read_committed
        self._leaders = Leaders() if leaders is None else leaders
        self._topics = TopicLookup(self._cluster, self._leaders)
        known, limit_ms = (self._cluster, self._topics, self._leaders), settings.millis("default.api.timeout.ms")
        self._offsets = OffsetLookupInTime(*known, read_committed=self._read_committed, limit_ms=limit_ms)
        self._epoch_ends = EpochEndLookup(*known, read_committed=self._read_committed)

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._offsets.requests.forget()
        self._cluster.close()

    def note_listed(self, splits: Set[Split]) -> None:
        """Take in which partitions exist: late answers about deleted ones are dropped."""
        self._offsets.requests.note_listed(splits)

    def topics(self, names: Collection[str] | None, expected: Set[Split] = frozenset()) -> Mapping[str, Topic]:
        """Return the topics named, or all for ``None``. One that does not exist is left out, after a second request.

        The ``expected`` partitions existed before, and count as deleted after all brokers lacked them for 5 s.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError: see ``watermark_source.errors``.
        """

        return self._cluster.run(lambda deadline: self._topics.settled(names, expected, deadline, existed=True))

    def topic_by_all_brokers(self, name: str) -> Topic | None:
        """Return a topic with each partition that any broker knows; ``None`` if none knows the topic.

        Raises:
            ResponseTimeoutError: a broker that another one still names gave no answer.
            SourceError: brokers name it by several ids, or see ``topics``.
        """

        return self._cluster.run(lambda deadline: self._topics.by_all_brokers(name, deadline))

    def refusal(self, names: Collection[str]) -> SourceError | None:
        """Return the error for those of some topics that the user may describe and not read; raises as ``topics``."""
        refused = unreadable(self._asked(lambda: metadata_request(names, with_rights=True))) if names else ()
        return translated(MissingRightError("Read", "topic", refused), self._settings) if refused else None

    def list_offsets(self, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
        """Look up one offset for each split: ``EARLIEST``, ``LATEST``, ``NEWEST``, or the first at or after a time.

        One request to each leader. Splits that do not exist (any more) are left out.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError, UnsupportedFormatError
        """

        return self._cluster.run(lambda deadline: self._offsets.look_up(dict(wanted), deadline)) if wanted else {}

    def list_offsets_in_time(self, wanted: Mapping[Split, int]) -> OffsetsInTime:
        """Look up offsets as ``list_offsets`` does, but wait only a few seconds for a slow or dead broker.

        The question to it stays open; later calls do not wait for it, nor ask again before it is answered. The error
        comes when a broker has been silent for ``default.api.timeout.ms``.
        """

        if not wanted:
            return OffsetsInTime({}, {})
        return self._cluster.run(lambda deadline: self._offsets.look_up_in_time(wanted, deadline))

    def epoch_ends(self, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
        """Return for each split the highest epoch up to the one given, and the first offset behind its records.

        Splits that do not exist (any more) are left out; raises as ``list_offsets``.
        """

        return self._cluster.run(lambda deadline: self._epoch_ends.look_up(dict(wanted), deadline)) if wanted else {}

    def list_offsets_at_a_glance(self, wanted: Mapping[Split, int]) -> Mapping[Split, OffsetAndTimestamp]:
        """Look up offsets as ``list_offsets`` does, of brokers that answer within half a second."""

        asked = self._offsets.divided(wanted)
        return self._cluster.run(lambda deadline: self._offsets.try_once(asked, deadline, {}), _GLANCE_MS).offsets

    def newest(self, splits: Set[Split]) -> Mapping[Split, IndexEntry]:
        """Return each split's newest record, or the last in its batch, of brokers that answer soon."""
        found = self.list_offsets_at_a_glance(dict.fromkeys(splits, NEWEST))
        known = ((split, at.offset, at.timestamp) for split, at in found.items())
        return {split: IndexEntry(at, time) for split, at, time in known if at is not None and time}

    def batch_headers(self, offsets: Mapping[Split, int]) -> Mapping[Split, BatchHeader]:
        """Return the header of the batch that holds an offset, of leaders that answer soon."""
        by_node: defaultdict[int, dict[Split, tuple[int, Leader]]] = defaultdict(dict)
        for split, offset in offsets.items():
            if (leader := self._leaders.of(split)) is not None:
                by_node[leader.node][split] = offset, leader

        async def work(deadline: Deadline) -> Mapping[Split, BatchHeader]:
            found: dict[Split, BatchHeader] = {}
            requests = [(n, headers_request(p, read_committed=self._read_committed)) for n, p in by_node.items()]
            ask = self._cluster.request
            for answer in [self._cluster.begin(ask, node, request, deadline) for node, request in requests]:
                with contextlib.suppress(KafkaError):
                    found.update(read_headers(await answer))
            return {split: header for split, header in found.items() if split in offsets}

        return self._cluster.run(work, _GLANCE_MS) if by_node else {}

    def topic_settings(self, topics: Collection[str], names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return settings of topics by their names, of those whose settings may be read.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError: see ``watermark_source.errors``.
        """

        return read_topic_settings(self._asked(lambda: topic_settings_request(topics, names))) if topics else {}

    def replicas(self, topics: Collection[str]) -> Mapping[Split, PartitionReplicas]:
        """Return how many copies there are of topics' partitions; raises as ``topic_settings``."""

        return read_replicas(self._asked(lambda: metadata_request(topics))) if topics else {}

    def _asked(self, request: Callable[[], Any]) -> Any:
        """Return what any broker answers."""
        return self._cluster.run(lambda deadline: self._cluster.request_any(request, deadline))
