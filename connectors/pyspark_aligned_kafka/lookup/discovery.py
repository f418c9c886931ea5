"""Which partitions a subscription reads now: found again every few seconds, so that new ones are not missed.

Only the first look is waited for. The later ones go on beside planning, which takes what the last one found.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Set
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from pyspark_aligned_kafka.cluster.metadata import Topic
from pyspark_aligned_kafka.options.subscription import Assign, Subscribe, SubscribePattern, Subscription
from watermark_source.errors import SourceError, UnknownSplitError, listed
from watermark_source.planning.split import Split

_log = logging.getLogger(__name__)

_OLDEST = 20
"""Nobody waits for a look, and it may fail, until the last answer is so many times ``max_age_ms`` old."""


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
    """``SplitDiscovery`` of connector.py.

    ``admin`` makes the first look, in the caller's thread; ``other_admin`` the later ones, in another.
    ``clock`` is monotonic, in seconds.
    """

    def __init__(
        self,
        admin: TopicQueries,
        other_admin: TopicQueries,
        subscription: Subscription,
        *,
        max_age_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._other_admin = other_admin
        self._subscription = subscription
        self._max_age = max_age_ms / 1000
        self._oldest = self._max_age * _OLDEST
        self._clock = clock
        self._last: _Seen | None = None
        self._look: Future[_Seen] | None = None
        self._begun = 0.0

    def discover(self) -> Set[Split]:
        """Return all splits of the subscription as they were seen last.

        Raises:
            UnknownSplitError: the first time, if a subscribed topic or every assigned partition does not exist.
                Later what has gone is left out: whether that is a loss is for the planner to say.
            RefusedError, UnreachableError, ResponseTimeoutError: the first time, or after looking has failed for long.
        """
        now = self._clock()
        if self._last is None:
            self._last, self._begun = self._checked(self._see(self._admin)), now
            return self._last.splits
        if self._look is not None and self._look.done():
            try:
                self._last = self._found()
            except SourceError as error:
                _log.warning("No look for new partitions; those of %.0f s ago are read: %s", now - self._last.at, error)
        too_old = now - self._last.at >= self._oldest
        if self._look is None and (too_old or now - self._begun >= self._max_age):
            self._look, self._begun = _beside(lambda: self._see(self._other_admin)), now
        if too_old:
            self._last = self._found()
        return self._last.splits

    def _found(self) -> _Seen:
        """Return what the look under way finds."""
        assert self._look is not None
        look, self._look = self._look, None
        return self._checked(look.result())

    def _see(self, admin: TopicQueries) -> _Seen:
        at = self._clock()
        splits, missing = select(self._subscription, admin)
        return _Seen(splits, missing, at)

    def _checked(self, seen: _Seen) -> _Seen:
        """Return what was seen, and say what is new about it."""
        last, missing = self._last, seen.missing
        if last is None and isinstance(self._subscription, Subscribe) and missing:
            raise UnknownSplitError(
                f"topic {', '.join(sorted(missing))} does not exist; subscribe must name existing topics, "
                "spelled exactly as in Kafka, that the user may describe"
            )
        if last is None and isinstance(self._subscription, Assign) and not seen.splits:
            raise UnknownSplitError(
                f"partition {', '.join(sorted(missing))} does not exist; assign must name at least one that does"
            )
        if missing - (frozenset() if last is None else last.missing):
            _log.warning("Not there and therefore not read: %s", listed(missing))
        if last is not None and seen.splits - last.splits:
            _log.info("New partitions: %s", listed(seen.splits - last.splits))
        return seen


def _beside(look: Callable[[], _Seen]) -> Future[_Seen]:
    begun: Future[_Seen] = Future()

    def run() -> None:
        try:
            begun.set_result(look())
        except BaseException as error:  # noqa: BLE001 - who asks for the result raises it
            begun.set_exception(error)

    threading.Thread(target=run, name="discovery", daemon=True).start()
    return begun


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
