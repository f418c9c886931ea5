"""Fetch requests: which partitions from where, and how much of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kafka.protocol.consumer import FetchRequest

from watermark_source.planning.split import Split

LAST_WITH_NAMES = 12
"""The last version that names topics; later ones have their ids."""
_ANY_EPOCH = -1
TopicIds: TypeAlias = Mapping[str, bytes]
"""By topic."""


class Wanted(NamedTuple):
    """One partition of a request: its first offset, and the approximate number of bytes (at least one whole batch)."""

    split: Split
    leader_epoch: int | None
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits and settings of a whole request."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    rack: str = ""


def fetch_request(wanted: Iterable[Wanted], limits: FetchLimits, ids: TopicIds | None = None) -> FetchRequest:
    """Return the request, with partitions grouped by topic; with ``ids`` these are in place of the topics' names.

    The broker fills partitions in the order of the request until ``max_bytes``. By the protocol's defaults a consumer
    asks, without a session.
    """
    kind = FetchRequest.FetchTopic
    topics: dict[str, list[Any]] = {}
    for each in wanted:
        partition = kind.FetchPartition(
            partition=each.split.number,
            current_leader_epoch=_ANY_EPOCH if each.leader_epoch is None else each.leader_epoch,
            fetch_offset=each.offset,
            partition_max_bytes=each.max_bytes,
        )
        topics.setdefault(each.split.log, []).append(partition)
    named = {name: {"topic": name} if ids is None else {"topic_id": UUID(bytes=ids[name])} for name in topics}
    return FetchRequest(
        max_version=LAST_WITH_NAMES,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=int(limits.read_committed),
        topics=[kind(partitions=partitions, **named[name]) for name, partitions in topics.items()],
        rack_id=limits.rack,
    )
