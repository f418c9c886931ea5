"""Which partitions a subscription reads now: found again every few seconds, so that new ones are not missed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from typing import Protocol

from pyspark_aligned_kafka.json_maps import listed
from pyspark_aligned_kafka.metadata import Topic
from pyspark_aligned_kafka.subscription import Assign, Subscribe, SubscribePattern, Subscription
from watermark_source.errors import UnknownSplitError
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)


class TopicQueries(Protocol):
    """What is needed of ``KafkaAdmin``."""

    def topics(self, names: Collection[str] | None) -> Mapping[str, Topic]:
        """Return the topics that exist, of those named or of all."""
        ...


@dataclass(frozen=True, slots=True)
class _Seen:
    splits: frozenset[Split]
    missing: frozenset[str]
    at: float


class KafkaDiscovery:
    """``SplitDiscovery`` of connector.py. ``clock`` is monotonic, in seconds."""

    def __init__(
        self,
        admin: TopicQueries,
        subscription: Subscription,
        *,
        max_age_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._subscription = subscription
        self._max_age = max_age_ms / 1000
        self._clock = clock
        self._last: _Seen | None = None

    def discover(self) -> Set[Split]:
        """Return all splits of the subscription; asks the brokers when the last answer is ``max_age_ms`` old.

        Raises:
            UnknownSplitError: the first time, if a subscribed topic or every assigned partition does not exist.
                Later what has gone is left out: whether that is a loss is for the planner to say.
        """
        last = self._last
        if last is not None and self._clock() - last.at < self._max_age:
            return last.splits
        splits, missing = select(self._subscription, self._admin)
        if last is None and isinstance(self._subscription, Subscribe) and missing:
            raise UnknownSplitError(
                f"topic {', '.join(sorted(missing))} does not exist; subscribe must name existing topics, "
                "spelled exactly as in Kafka, that the user may describe"
            )
        if last is None and isinstance(self._subscription, Assign) and not splits:
            raise UnknownSplitError(
                f"partition {', '.join(sorted(missing))} does not exist; assign must name at least one that does"
            )
        if missing - (frozenset() if last is None else last.missing):
            _log.warning("Not there and therefore not read: %s", ", ".join(sorted(missing)))
        if last is not None and splits - last.splits:
            _log.info("New partitions: %s", listed(splits - last.splits))
        self._last = _Seen(splits, missing, self._clock())
        return splits


def select(subscription: Subscription, admin: TopicQueries) -> tuple[frozenset[Split], frozenset[str]]:
    """Return the splits that exist, and the names of topics or partitions that were asked for and do not."""
    if isinstance(subscription, SubscribePattern):
        found = admin.topics(None)
        chosen = {name for name, topic in found.items() if not topic.internal and subscription.pattern.search(name)}
        return _splits(found, chosen), frozenset()
    if isinstance(subscription, Subscribe):
        found = admin.topics(subscription.topics)
        return _splits(found, found), subscription.topics - found.keys()
    found = admin.topics({split.log for split in subscription.splits})
    existing = subscription.splits & _splits(found, found)
    return existing, frozenset(str(split) for split in subscription.splits - existing)


def _splits(topics: Mapping[str, Topic], names: Collection[str]) -> frozenset[Split]:
    return frozenset(Split(name, number) for name in names for number in topics[name].leaders)
